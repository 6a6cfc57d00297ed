//! HTTP/2 in frames: clients that reset streams, read nothing, or leave.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use serve::{ModelConfig, ModelSettings, ServerConfig};

use crate::metrics::{assert_idle, sample};
use crate::raw::connect;
use crate::server::{TestServer, storyteller};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACKNOWLEDGED: u8 = 1;
const END_HEADERS: u8 = 4;
/// The error code of a stream that its client does not want any more.
const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// The setting of the bytes that a client takes of each stream.
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];

/// A connection that speaks HTTP/2 from its first byte.
struct Client {
    stream: TcpStream,
    next: u32,
}

/// A frame: its kind, flags, stream and contents.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    contents: Vec<u8>,
}

impl Client {
    /// Connects, and asks for at most `window` bytes of each stream before the client has read them.
    fn new(server: &TestServer, window: u32) -> Client {
        let mut stream = connect(server.address());
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut client = Client { stream, next: 1 };
        client.send(SETTINGS, 0, 0, &[&INITIAL_WINDOW_SIZE[..], &window.to_be_bytes()].concat());
        client
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, contents: &[u8]) {
        let _ = self.stream.write_all(&frame(kind, flags, stream, contents));
    }

    /// Sends a request for text, and gives its stream.
    fn post(&mut self, body: &Value) -> u32 {
        let stream = self.next;
        self.next += 2;
        self.send(HEADERS, END_HEADERS, stream, &head());
        self.send(DATA, END_STREAM, stream, body.to_string().as_bytes());
        stream
    }

    /// The next frame, or `None` once the server has closed the connection. Settings are acknowledged.
    fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let mut contents = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.stream.read_exact(&mut contents).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let frame = Frame { kind: head[3], flags: head[4], stream, contents };
        if frame.kind == SETTINGS && frame.flags & ACKNOWLEDGED == 0 {
            self.send(SETTINGS, ACKNOWLEDGED, 0, &[]);
        }
        Some(frame)
    }

    /// Reads until a stream has a frame of a kind.
    fn wait_for(&mut self, stream: u32, kind: u8) -> Frame {
        loop {
            let frame = self.read().expect("the connection is open");
            if (frame.stream, frame.kind) == (stream, kind) {
                return frame;
            }
        }
    }

    /// Whether a request is answered to its end with status 200.
    fn is_answered(&mut self, body: &Value) -> bool {
        let stream = self.post(body);
        // `:status: 200` is entry 8 of the table that both sides know.
        let is_ok = self.wait_for(stream, HEADERS).contents.contains(&0x88);
        while self.wait_for(stream, DATA).flags & END_STREAM == 0 {}
        is_ok
    }
}

fn frame(kind: u8, flags: u8, stream: u32, contents: &[u8]) -> Vec<u8> {
    let length = &(contents.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes(), contents].concat()
}

/// The head of a request for text: three entries of the table that both sides know, and three with values of their own.
fn head() -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    for (name, value) in [(0x04, "/v1/completions"), (0x01, "localhost")] {
        head.extend([name, value.len() as u8]);
        head.extend(value.as_bytes());
    }
    for text in ["content-type", "application/json"] {
        if text == "content-type" {
            head.push(0);
        }
        head.push(text.len() as u8);
        head.extend(text.as_bytes());
    }
    head
}

fn long(stream: bool) -> Value {
    json!({"prompt": "Once", "max_tokens": 240, "ignore_eos": true, "stream": stream, "logprobs": 5})
}

fn short() -> Value {
    json!({"prompt": "Once", "max_tokens": 1})
}

fn server(read_timeout: Duration) -> TestServer {
    let models = ModelSettings { read_timeout, ..ModelSettings::default() };
    let config = ServerConfig { models, ..ServerConfig::default() };
    let ModelConfig { config: longer, .. } = storyteller();
    TestServer::new(config, vec![ModelConfig { config: longer.max_length(512), ..storyteller() }])
}

fn cancels(server: &TestServer) -> f64 {
    sample(&server.get("/metrics").text, "peri_cancels_total", "").unwrap()
}

/// Fault F19: what HTTP/2 clients leave behind.
#[test]
fn streams_that_are_reset_and_connections_that_end_leave_nothing_behind() {
    let server = server(Duration::from_secs(60));
    let mut client = Client::new(&server, 1 << 20);
    assert!(client.is_answered(&short()));
    for round in 0..50 {
        let stream = client.post(&long(round % 2 == 0));
        if round % 3 == 0 && round % 2 == 0 {
            client.wait_for(stream, DATA);
        }
        client.send(RST_STREAM, 0, stream, &CANCEL);
    }
    assert_idle(&server);
    assert!(client.is_answered(&short()), "the connection is used again");

    for ends in [
        (|client| drop(client)) as fn(Client),
        |client| client.stream.shutdown(Shutdown::Write).unwrap(),
        |mut client| client.send(GOAWAY, 0, 0, &[0; 8]),
        |mut client| client.stream.write_all(&[0xff; 64]).unwrap(),
    ] {
        let before = cancels(&server);
        let mut client = Client::new(&server, 1 << 20);
        let streams: Vec<u32> = (0..20).map(|_| client.post(&long(true))).collect();
        client.wait_for(streams[0], DATA);
        ends(client);
        assert_idle(&server);
        assert!(cancels(&server) > before);
    }
}

/// A flood of streams that are reset at once, with which servers were overloaded in 2023.
#[test]
fn a_flood_of_resets_ends_the_connection_and_no_other() {
    let server = server(Duration::from_secs(60));
    let mut client = Client::new(&server, 1 << 20);
    let mut flood = Vec::new();
    for stream in (1..20_001).step_by(2) {
        flood.extend(frame(HEADERS, END_HEADERS, stream, &head()));
        flood.extend(frame(RST_STREAM, 0, stream, &CANCEL));
    }
    let _ = client.stream.write_all(&flood);
    let mut last = None;
    while let Some(frame) = client.read() {
        last = Some(frame.kind);
    }
    assert_eq!(last, Some(GOAWAY));
    assert_idle(&server);
    assert!(Client::new(&server, 1 << 20).is_answered(&short()));
}

/// Fault F9 in HTTP/2, whose clients say how much they take.
#[test]
fn a_client_that_takes_no_bytes_is_paused_and_its_pages_come_back() {
    let server = server(Duration::from_millis(300));
    let mut client = Client::new(&server, 0);
    // More events than a stream keeps.
    let stream =
        client.post(&json!({"prompt": "Once", "max_tokens": 500, "ignore_eos": true, "stream": true}));
    client.wait_for(stream, HEADERS);
    assert_idle(&server);
    let failed = || sample(&server.get("/metrics").text, "vllm:request_success_total", "error");
    let began = Instant::now();
    while failed() != Some(1.0) {
        assert!(began.elapsed() < Duration::from_secs(60), "it is not given up");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Client::new(&server, 1 << 20).is_answered(&short()));
}
