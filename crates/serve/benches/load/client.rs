//! A client that does as little as it can, so that the server's time is measured.

use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::Error;
use super::trace::Trace;

/// A server that speaks OpenAI's protocol.
#[derive(Clone)]
pub(crate) struct Client {
    /// Its name or address, and its port.
    pub(crate) host: String,
    /// The model that it is asked for.
    pub(crate) model: String,
}

impl Client {
    /// Streams a completion. Its time begins once the connection is open.
    pub(crate) async fn stream(&self, prompt: &[u32], tokens: usize) -> Result<Trace, Error> {
        let stream = TcpStream::connect(&self.host).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let body = json!({
            "model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
            "stream": true, "stream_options": { "include_usage": true },
        });
        let request = Request::post("/v1/completions").header(HOST, &self.host);
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_string())?;
        let mut trace = Trace::begin();
        let mut response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            let body = response.into_body().collect().await?.to_bytes();
            return Err(format!("{}: {}", self.host, String::from_utf8_lossy(&body)).into());
        }
        let mut events = Events::default();
        while let Some(frame) = response.body_mut().frame().await {
            if let Some(data) = frame?.data_ref() {
                trace.note(events.take(data));
            }
        }
        trace.tokens = events.tokens()?;
        drop(sender);
        connection.await??;
        Ok(trace)
    }
}

/// The events of a stream.
#[derive(Default)]
struct Events {
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
    /// The last event with counts of tokens.
    usage: Vec<u8>,
}

impl Events {
    /// Takes what came. Returns how many events have choices: a token each.
    fn take(&mut self, data: &[u8]) -> usize {
        self.rest.extend_from_slice(data);
        let mut pieces = 0;
        while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if contains(&line, b"completion_tokens") {
                self.usage.clone_from(&line);
            }
            pieces += usize::from(contains(&line, b"\"text\":"));
        }
        pieces
    }

    /// How many tokens the server says that it made.
    fn tokens(&self) -> Result<usize, Error> {
        let data = self.usage.strip_prefix(b"data: ").ok_or("the stream ended without usage")?;
        let event: Value = serde_json::from_slice(data)?;
        let tokens = event["usage"]["completion_tokens"].as_u64().ok_or("usage has no completion_tokens")?;
        Ok(usize::try_from(tokens)?)
    }
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}
