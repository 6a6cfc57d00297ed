//! A server for a test, and requests to it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use cpu::Cpu;
use engine::InferenceSession;
use engine::devices::Platform;
use pipelines::config::{KVCacheStrategy, PipelineConfig};
use serde_json::Value;
use serve::{Address, ModelConfig, Server, ServerConfig, ServerHandle, Service};
use tokio::runtime::Handle;

static PLATFORM: Platform = Platform::new(|| Arc::new(Cpu::new(2)));

/// A server that ends with its test.
pub(crate) struct TestServer {
    address: SocketAddr,
    agent: ureq::Agent,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: ureq::http::HeaderMap,
    pub(crate) text: String,
}

/// The built-in model, as the command serves it.
pub(crate) fn storyteller() -> ModelConfig {
    model("storyteller", PipelineConfig::default())
}

/// A model with room for several sequences.
pub(crate) fn model(id: &str, config: PipelineConfig) -> ModelConfig {
    let config = config
        .max_length(256)
        .max_cache_batch_size(64)
        .cache_strategy(KVCacheStrategy::Paged)
        .kv_cache_page_size(16_usize)
        .enable_prefix_caching(true)
        .enable_echo(true);
    let aliases = vec![format!("{id}-alias")];
    ModelConfig { id: id.to_string(), aliases, ..ModelConfig::new(config) }
}

/// A server that does not run yet.
pub(crate) fn start(config: ServerConfig, models: Vec<ModelConfig>) -> Result<Server, serve::Error> {
    Server::start(config, models, session(), &PLATFORM)
}

/// A server that answers requests and has no model in memory.
pub(crate) fn listen(config: ServerConfig, models: Vec<ModelConfig>) -> Result<Server, serve::Error> {
    let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()];
    Server::listen(ServerConfig { addresses, ..config }, models, session(), &PLATFORM)
}

/// A service without sockets, and with no model in memory.
pub(crate) fn service(config: ServerConfig, models: Vec<ModelConfig>, runtime: &Handle) -> Service {
    Service::new(config, models, session(), &PLATFORM, runtime).unwrap()
}

pub(crate) fn session() -> Arc<InferenceSession> {
    Arc::new(InferenceSession::builder().device(Arc::new(Cpu::new(2))).build().unwrap())
}

impl TestServer {
    /// A server of the built-in model.
    pub(crate) fn storyteller() -> TestServer {
        TestServer::new(ServerConfig::default(), vec![storyteller()])
    }

    pub(crate) fn new(config: ServerConfig, models: Vec<ModelConfig>) -> TestServer {
        let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()];
        TestServer::at(ServerConfig { addresses, ..config }, models)
    }

    /// A server that listens where its configuration says.
    pub(crate) fn at(config: ServerConfig, models: Vec<ModelConfig>) -> TestServer {
        let server = Server::start(config, models, session(), &PLATFORM).unwrap();
        let Some(&Address::Tcp(address)) = server.addresses().first() else {
            panic!("{:?}", server.addresses())
        };
        let handle = server.handle();
        let thread = Some(std::thread::spawn(move || server.run()));
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        TestServer { address, agent, handle, thread }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn handle(&self) -> &ServerHandle {
        &self.handle
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        Reply::of(self.agent.get(self.url(path)).call().unwrap())
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        Reply::of(self.agent.delete(self.url(path)).call().unwrap())
    }

    /// `DELETE` with a body.
    pub(crate) fn delete_with(&self, path: &str, body: &Value) -> Reply {
        let request = self.agent.delete(self.url(path)).header("Content-Type", "application/json");
        Reply::of(request.force_send_body().send(body.to_string()).unwrap())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_text(path, "application/json", &body.to_string())
    }

    /// `POST` with headers.
    #[cfg(feature = "otlp")]
    pub(crate) fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
        let request = self.agent.post(self.url(path)).header("Content-Type", "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        Reply::of(request.send(body.to_string()).unwrap())
    }

    pub(crate) fn post_text(&self, path: &str, content_type: &str, body: &str) -> Reply {
        let request = self.agent.post(self.url(path)).header("Content-Type", content_type);
        Reply::of(request.send(body).unwrap())
    }

    /// The events of a stream: the lines of data, without `[DONE]`, which must be the last.
    pub(crate) fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let lines = self.lines(path, body, "text/event-stream; charset=utf-8");
        let mut events: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(events.pop(), Some("[DONE]"));
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }

    /// The events of a stream that names them.
    pub(crate) fn named_events(&self, path: &str, body: &Value) -> Vec<(String, Value)> {
        let lines = self.lines(path, body, "text/event-stream; charset=utf-8");
        let event = |event: &[String]| {
            let [name, data, end] = event else { panic!("{event:?}") };
            assert_eq!(end, "");
            let name = name.strip_prefix("event: ").unwrap().to_string();
            (name, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap())
        };
        lines.chunks(3).map(event).collect()
    }

    /// The lines of a streamed response.
    pub(crate) fn lines(&self, path: &str, body: &Value, content_type: &str) -> Vec<String> {
        let request = self.agent.post(self.url(path)).header("Content-Type", "application/json");
        let response = request.send(body.to_string()).unwrap();
        assert_eq!(response.headers()["content-type"], content_type);
        BufReader::new(response.into_body().into_reader()).lines().map(Result::unwrap).collect()
    }

    /// Has the server end, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.handle.stop();
        self.wait();
    }

    /// Waits until the server has ended.
    pub(crate) fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Reply {
    fn of(mut response: ureq::http::Response<ureq::Body>) -> Reply {
        let text = response.body_mut().read_to_string().unwrap();
        Reply { status: response.status().as_u16(), headers: response.headers().clone(), text }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The object of a request that went well.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// Expects that a request went well which has no answer.
    pub(crate) fn ok_without_body(&self) {
        assert_eq!((self.status, &self.text[..]), (200, ""));
    }

    /// The error of a request that was refused: its status, code, parameter and message.
    pub(crate) fn error(&self) -> (u16, String, Value, String) {
        let error = &self.json()["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_string();
        (self.status, text("code"), error["param"].clone(), text("message"))
    }
}
