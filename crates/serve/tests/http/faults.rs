//! Clients that leave, read slowly or send nonsense, by the hundred: all that they held comes back, and others get what
//! they would get alone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use pipelines::config::PipelineConfig;
use serde_json::{Value, json};
use serve::{ModelConfig, ServerConfig};

use crate::metrics::{assert_idle, sample};
use crate::raw::{connect, request};
use crate::server::{TestServer, model, storyteller};

const HEADERS: [(&str, &str); 2] = [("Host", "localhost"), ("Content-Type", "application/json")];

fn send(server: &TestServer, path: &str, body: &Value) -> TcpStream {
    let mut stream = connect(server.address());
    stream.write_all(request("POST", path, &HEADERS, &body.to_string()).as_bytes()).unwrap();
    stream
}

fn rest(mut stream: impl Read) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest
}

/// The texts of the events of a reply.
fn text(reply: &str) -> String {
    assert!(reply.contains("data: [DONE]"), "{reply}");
    let events = reply.lines().filter_map(|line| line.strip_prefix("data: {"));
    let text = |event: &str| {
        let event: Value = serde_json::from_str(&format!("{{{event}")).unwrap();
        event["choices"][0]["text"].as_str().unwrap_or_default().to_string()
    };
    events.map(text).collect()
}

/// Polls the metrics until they are as expected, or for a second.
fn wait_for(server: &TestServer, is_reached: impl Fn(&str) -> bool) {
    let began = Instant::now();
    while !is_reached(&server.get("/metrics").text) && began.elapsed() < Duration::from_secs(1) {}
}

#[test]
fn a_thousand_clients_that_leave_take_nothing_with_them() {
    let server = TestServer::storyteller();
    let long = "Once upon a time there was a little girl. ".repeat(8);
    let body = |prompt: &str, stream: bool| json!({"prompt": prompt, "max_tokens": 100, "ignore_eos": true, "stream": stream});
    for round in 0..25 {
        let mut streams: Vec<TcpStream> = Vec::with_capacity(40);
        for client in 0..40 {
            // Each prompt is new, so that the cache holds none.
            let prompt = format!("{round} {client} {long}");
            let prompt = if client % 2 == 0 { &prompt } else { "Once" };
            streams.push(send(&server, "/v1/completions", &body(prompt, client % 4 < 2)));
        }
        // Clients leave while their requests wait, while their prompts are read, and while they are answered.
        match round % 3 {
            0 => {}
            1 => wait_for(&server, |text| sample(text, "vllm:num_requests_running", "") > Some(0.0)),
            _ => {
                let made = |text: &str| sample(text, "vllm:generation_tokens_total", "").unwrap();
                let before = made(&server.get("/metrics").text);
                wait_for(&server, |text| made(text) > before + 80.0);
            }
        }
        drop(streams);
        assert_idle(&server);
    }
    let text = server.get("/metrics").text;
    let stages =
        ["queue", "prefill", "decode"].map(|stage| sample(&text, "peri_cancels_total", stage).unwrap());
    assert!(stages.iter().sum::<f64>() > 500.0 && stages.iter().all(|count| *count > 0.0), "{stages:?}");
    assert_eq!(server.post("/v1/completions", &body("Once", false)).status, 200);
}

#[test]
fn a_thousand_streams_at_once_are_those_of_each_alone() {
    let config = PipelineConfig::default();
    let ModelConfig { config, .. } = model("storyteller", config);
    let roomy = ModelConfig { config: config.max_cache_batch_size(600), ..storyteller() };
    let server = TestServer::new(ServerConfig::default(), vec![roomy]);
    let body = |nonce: usize| {
        json!({"prompt": format!("Number {nonce} was"), "max_tokens": 6, "ignore_eos": true, "stream": true,
            "echo": true, "temperature": 0})
    };
    let expected: Vec<String> =
        (0..40).map(|nonce| text(&rest(send(&server, "/v1/completions", &body(nonce))))).collect();
    let streams: Vec<TcpStream> =
        (0..1000).map(|nonce| send(&server, "/v1/completions", &body(nonce))).collect();
    for (nonce, stream) in streams.into_iter().enumerate() {
        let mut reply = rest(stream);
        // 512 requests may wait; clients that are refused try again.
        while reply.starts_with("HTTP/1.1 429") {
            reply = rest(send(&server, "/v1/completions", &body(nonce)));
        }
        let text = text(&reply);
        assert!(text.starts_with(&format!("Number {nonce} was")), "{nonce}: {text}");
        if let Some(expected) = expected.get(nonce) {
            assert_eq!(text, *expected);
        }
    }
    assert_idle(&server);
}

#[test]
fn readers_that_stall_hold_up_no_others_and_are_dropped() {
    let config = ServerConfig { write_timeout: Duration::from_millis(500), ..ServerConfig::default() };
    let server = TestServer::new(config, vec![storyteller()]);
    let body = json!({"prompt": "Once", "max_tokens": 60, "ignore_eos": true, "stream": true, "seed": 3});
    let alone = text(&rest(send(&server, "/v1/completions", &body)));
    // More bytes than the buffers of the system hold: each token comes with its alternatives.
    let stalled: Vec<TcpStream> = (0..4)
        .map(|_| {
            let large = json!({"prompt": "Once", "max_tokens": 240, "ignore_eos": true, "stream": true, "n": 12,
                "logprobs": 100, "temperature": 2});
            let mut stream = connect(server.address());
            let one = request("POST", "/v1/completions", &HEADERS, &large.to_string()).replace("Connection: close\r\n", "");
            stream.write_all(one.repeat(4).as_bytes()).unwrap();
            stream
        })
        .collect();
    for _ in 0..8 {
        assert_eq!(text(&rest(send(&server, "/v1/completions", &body))), alone);
    }
    let began = Instant::now();
    loop {
        let text = server.get("/metrics").text;
        let value = |name: &str| sample(&text, name, "").unwrap();
        let busy =
            ["peri_num_requests_paused", "vllm:num_requests_running", "vllm:num_requests_waiting"].map(value);
        if value("peri_cancels_total") > 0.0 && busy == [0.0; 3] {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(600), "{busy:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(stalled);
    assert_idle(&server);
}

/// The sizes of the chunks of a body.
fn chunk_sizes(body: &str) -> Vec<usize> {
    let (mut sizes, mut rest) = (Vec::new(), body);
    while let Some((size, chunk)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        sizes.push(size);
        rest = chunk.get(size + 2..).unwrap_or_default();
    }
    sizes
}

/// Fault F9: events that a client does not read wait in a channel of bounded length, and little of them as text.
#[test]
fn a_slow_reader_gets_its_events_in_small_pieces() {
    let server = TestServer::storyteller();
    // More bytes than the buffers of the system hold.
    let body = json!({"prompt": "Once", "max_tokens": 100, "ignore_eos": true, "stream": true, "n": 16, "logprobs": 100});
    let stream = send(&server, "/v1/completions", &body);
    assert_idle(&server);
    let reply = rest(stream);
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    let largest = reply.lines().map(str::len).max().unwrap();
    let pieces = chunk_sizes(body);
    let (count, most) = (pieces.len(), pieces.into_iter().max().unwrap());
    assert!(((16 << 10)..(16 << 10) + 2 * largest).contains(&most), "{most} bytes in one of {count} pieces");
}

/// Attack S2: a file that is overwritten in place, as `cp` does, while its model answers.
#[cfg(unix)]
#[test]
fn a_model_whose_file_is_cut_off_fails_alone_and_is_loaded_again() {
    let Some(file) = testdata::shared("stories260k/gguf/stories260K-F32.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stories.gguf");
    std::fs::copy(&file, &path).unwrap();
    let models = vec![model("stories", PipelineConfig::new(path.display().to_string())), storyteller()];
    let server = TestServer::new(ServerConfig::default(), models);
    let body =
        |model: &str| json!({"model": model, "prompt": "Once", "max_tokens": 20, "seed": 3, "stream": true});
    let answer = |model: &str| text(&rest(send(&server, "/v1/completions", &body(model))));
    let expected = [answer("stories"), answer("storyteller")];

    let long = json!({"model": "stories", "prompt": "Once", "max_tokens": 240, "ignore_eos": true, "n": 32, "stream": true});
    let mut stream = send(&server, "/v1/completions", &long);
    assert!(stream.read(&mut [0; 64]).unwrap() > 0);
    let half = file.metadata().unwrap().len() / 2;
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(half).unwrap();
    let reply = rest(stream);
    let event = reply.lines().rev().find_map(|line| line.strip_prefix("data: {")).unwrap();
    assert!(
        event.contains("\"code\":\"unavailable\"") && event.contains("changed while it was in use"),
        "{event}"
    );

    assert_eq!(answer("storyteller"), expected[1]);
    // Files are checked ten times a second at most.
    let next_check = || std::thread::sleep(Duration::from_millis(150));
    next_check();
    let (status, code, _, message) = server.post("/v1/completions", &body("stories")).error();
    assert_eq!((status, &code[..]), (503, "unavailable"));
    assert!(message.starts_with("cannot load stories: ") && message.contains("stories.gguf"), "{message}");
    std::fs::copy(&file, &path).unwrap();
    assert_eq!(answer("stories"), expected[0]);
    // Written again between requests, it is loaded without an error.
    std::fs::copy(&file, &path).unwrap();
    next_check();
    assert_eq!(answer("stories"), expected[0]);
    assert_idle(&server);
}

/// Sends a body on a connection that stays open, and gives the status, or `None` if the connection ended.
fn post(stream: &mut TcpStream, path: &str, body: &[u8]) -> Option<u16> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).ok()?;
    let mut reply = Vec::new();
    let (mut chunk, mut end) = ([0; 4096], None);
    loop {
        match stream.read(&mut chunk).ok()? {
            0 => return None,
            bytes => reply.extend_from_slice(&chunk[..bytes]),
        }
        if end.is_none()
            && let Some(head) = reply.windows(4).position(|window| window == b"\r\n\r\n")
        {
            let head_text = String::from_utf8_lossy(&reply[..head]).to_lowercase();
            let length =
                head_text.split("content-length: ").nth(1)?.lines().next()?.trim().parse::<usize>().ok()?;
            end = Some(head + 4 + length);
        }
        if end.is_some_and(|end| reply.len() >= end) {
            return std::str::from_utf8(reply.get(9..12)?).ok()?.parse().ok();
        }
    }
}

/// Changes some bytes of a body.
fn mutate(random: &mut fastrand::Rng, body: &str) -> Vec<u8> {
    let mut bytes = body.as_bytes().to_vec();
    for _ in 0..random.usize(1..4) {
        let (at, other) = (random.usize(..bytes.len()), random.usize(..bytes.len()));
        match random.u8(..6) {
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] ^= 1 << random.u8(..8),
            2 => drop(bytes.drain(at.min(other)..at.max(other).min(at.min(other) + 8))),
            3 => bytes.insert(at, b"{}[]\",:-e09\\"[random.usize(..12)]),
            4 => bytes.truncate(at.max(1)),
            _ => {
                let piece = bytes[at.min(other)..at.max(other)].to_vec();
                bytes.splice(at..at, piece);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[test]
fn ten_thousand_mutations_of_bodies_are_refused_or_answered() {
    let server = TestServer::storyteller();
    let bodies = [
        (
            "/v1/completions",
            r#"{"prompt": ["Once", [1, 2]], "max_tokens": 1, "logit_bias": {"5": -1.5}, "n": 2, "stop": ["a"]}"#,
        ),
        (
            "/v1/chat/completions",
            r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_tokens": 1, "response_format": {"type": "text"}}"#,
        ),
        (
            "/v1/messages",
            r#"{"model": "storyteller", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], "system": "S"}"#,
        ),
        (
            "/v1/responses",
            r#"{"input": [{"role": "user", "content": "Hi"}], "max_output_tokens": 1, "store": false}"#,
        ),
        (
            "/api/generate",
            r#"{"model": "storyteller", "prompt": "Hi", "stream": false, "options": {"num_predict": 1, "seed": 3}}"#,
        ),
        ("/v1/embeddings", r#"{"input": ["Hi", "there"], "encoding_format": "base64"}"#),
        ("/tokenize", r#"{"prompt": "Once upon \u00e9\ud83d\ude00", "add_special_tokens": true}"#),
    ];
    let mut random = fastrand::Rng::with_seed(20);
    let mut stream = connect(server.address());
    let mut refused = 0;
    for round in 0..10_000 {
        let (path, body) = bodies[round % bodies.len()];
        let body = mutate(&mut random, body);
        match post(&mut stream, path, &body) {
            Some(status) => {
                let is_sound = status == 200 || (400..500).contains(&status);
                assert!(is_sound, "{path}: {status}: {}", String::from_utf8_lossy(&body));
                refused += usize::from(status != 200);
            }
            None => stream = connect(server.address()),
        }
    }
    assert!(refused > 5_000, "{refused}");
    drop(stream);
    assert_idle(&server);
    let text = server.get("/metrics").text;
    assert_eq!(sample(&text, "peri_http_requests_total", "status=\"500\""), None, "{text}");
}
