//! The end of the server: what runs is finished or cancelled, and what is new is refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use serve::ServerConfig;

use crate::raw::{ONE_TOKEN, connect, exchange, request, status};
use crate::server::{TestServer, storyteller};

const HEADERS: [(&str, &str); 2] = [("Host", "localhost"), ("Content-Type", "application/json")];

/// A stream of long answers that has begun.
fn long_stream(server: &TestServer) -> TcpStream {
    let body =
        json!({"prompt": "Once", "max_tokens": 240, "ignore_eos": true, "stream": true, "n": 32, "seed": 1});
    let mut stream = connect(server.address());
    stream.write_all(request("POST", "/v1/completions", &HEADERS, &body.to_string()).as_bytes()).unwrap();
    let mut first = [0; 64];
    assert!(stream.read(&mut first).unwrap() > 0);
    stream
}

fn rest(mut stream: TcpStream) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest
}

#[test]
fn a_server_that_is_to_end_finishes_answers_and_refuses_new_ones() {
    let config = ServerConfig { drain_timeout: Duration::from_secs(600), ..ServerConfig::default() };
    let mut server = TestServer::new(config, vec![storyteller()]);
    let stream = long_stream(&server);
    server.handle().stop();
    let ready = exchange(server.address(), &request("GET", "/ready", &HEADERS, ""));
    assert_eq!(status(&ready), 503, "{ready}");
    assert!(ready.ends_with(r#"{"status":"draining"}"#), "{ready}");
    assert_eq!(status(&exchange(server.address(), &request("GET", "/live", &HEADERS, ""))), 200);
    assert_eq!(status(&exchange(server.address(), &request("GET", "/metrics", &HEADERS, ""))), 200);
    for path in ["/v1/completions", "/v1/messages", "/api/chat"] {
        let refused = exchange(server.address(), &request("POST", path, &HEADERS, ONE_TOKEN));
        assert_eq!(status(&refused), 503, "{refused}");
        assert!(refused.contains("retry-after: 600\r\n"), "{refused}");
        assert!(refused.contains("the server is shutting down"), "{refused}");
    }
    let rest = rest(stream);
    assert!(rest.contains("data: [DONE]") && !rest.contains("\"error\""), "{rest}");
    server.stop();
    assert!(TcpStream::connect(server.address()).is_err());
}

#[test]
fn answers_that_take_too_long_end_with_an_error_event() {
    let config = ServerConfig { drain_timeout: Duration::from_millis(50), ..ServerConfig::default() };
    let mut server = TestServer::new(config, vec![storyteller()]);
    let streams: Vec<TcpStream> = (0..4).map(|_| long_stream(&server)).collect();
    server.stop();
    for stream in streams {
        let rest = rest(stream);
        let event = rest.lines().rev().find_map(|line| line.strip_prefix("data: {")).unwrap();
        let event: Value = serde_json::from_str(&format!("{{{event}")).unwrap();
        assert_eq!(event["error"]["code"], "unavailable", "{rest}");
    }
}

#[test]
fn a_server_without_work_ends_at_once() {
    let config = ServerConfig { drain_timeout: Duration::from_secs(600), ..ServerConfig::default() };
    let mut server = TestServer::new(config, vec![storyteller()]);
    let idle = connect(server.address());
    assert_eq!(server.get("/live").status, 200);
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(rest(idle), "");
}

/// The log of a request that is refused names its error, and quotes nothing of it.
#[test]
fn refused_requests_say_why_to_those_who_run_the_server() {
    let server = TestServer::storyteller();
    let body = json!({"prompt": "Once", "max_tokens": "my secret"}).to_string();
    let headers = [HEADERS[0], HEADERS[1], ("x-request-id", "refused")];
    exchange(server.address(), &request("POST", "/v1/completions", &headers, &body));
    let report = server.get("/debug/requests/refused").ok();
    assert_eq!(report["error"], "invalid_request_error", "{report}");
    let message = report["message"].as_str().unwrap();
    assert!(message.starts_with("max_tokens: invalid type") && !message.contains("secret"), "{message}");
}
