//! HTTP as clients should not speak it: requests that two servers would read in two ways, and clients that are slow.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;
use serve::ServerConfig;

use crate::metrics::{assert_idle, sample};
use crate::raw::{ONE_TOKEN, connect, exchange, request};
use crate::server::{TestServer, storyteller};

/// A request after which the connection closes. It is answered only if the connection is still read as it should be.
const PROBE: &str = "GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// A request that is smuggled in the body of another one.
const SMUGGLED: &str = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LIMIT: Duration = Duration::from_millis(250);

fn server() -> TestServer {
    let config = ServerConfig {
        max_body_bytes: 4000,
        header_timeout: LIMIT,
        body_timeout: LIMIT,
        idle_timeout: LIMIT,
        ..ServerConfig::default()
    };
    TestServer::new(config, vec![storyteller()])
}

/// A request for a token with headers, and a body that may be something else than they say.
fn post(headers: &str, body: &str) -> String {
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    format!("{head}{headers}\r\n{body}")
}

/// A request with a body of the length that it says.
fn whole(body: &str) -> String {
    post(&format!("Content-Length: {}\r\n", body.len()), body)
}

fn get(headers: &str) -> String {
    format!("GET /live HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

/// The statuses of the responses to bytes, in order, until the server closes the connection.
fn statuses(address: SocketAddr, bytes: &str) -> Vec<u16> {
    let reply = exchange(address, bytes);
    reply.split("HTTP/1.").skip(1).map(|reply| reply[2..5].parse().unwrap()).collect()
}

fn check(server: &TestServer, cases: &[(&str, String, &[u16])]) {
    for (name, bytes, expected) in cases {
        assert_eq!(statuses(server.address(), bytes), *expected, "{name}");
    }
}

/// Descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[test]
fn requests_that_are_sound_leave_the_connection_open() {
    let server = server();
    let chunks = format!("{:x};name=value\r\n{ONE_TOKEN}\r\n0\r\nTrailer: x\r\n\r\n", ONE_TOKEN.len());
    check(
        &server,
        &[
            ("one", get("") + PROBE, &[200, 200]),
            ("pipelined", [get(""), whole(ONE_TOKEN), get(""), get("")].concat() + PROBE, &[200; 5]),
            ("empty lines before a request", format!("\r\n\r\n{}{PROBE}", get("")), &[200, 200]),
            ("HTTP/1.0", format!("GET /live HTTP/1.0\r\n\r\n{PROBE}"), &[200]),
            (
                "HTTP/1.0, kept",
                format!("GET /live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n{PROBE}"),
                &[200, 200],
            ),
            (
                "the target is whole",
                format!("GET http://localhost/live HTTP/1.1\r\nHost: localhost\r\n\r\n{PROBE}"),
                &[200, 200],
            ),
            (
                "an upgrade that is not taken",
                get("Connection: upgrade\r\nUpgrade: h2c\r\n") + PROBE,
                &[200, 200],
            ),
            ("unknown method", format!("BREW /live HTTP/1.1\r\nHost: localhost\r\n\r\n{PROBE}"), &[405, 200]),
            (
                "a tunnel",
                format!("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n{PROBE}"),
                &[404, 200],
            ),
            (
                "long path",
                format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n{PROBE}", "a".repeat(20_000)),
                &[404, 200],
            ),
            ("chunks are the last body", post("Transfer-Encoding: chunked\r\n", &chunks) + PROBE, &[200]),
            ("not JSON", whole("{") + PROBE, &[400, 200]),
            (
                "a key twice",
                whole(r#"{"prompt": "Once", "max_tokens": 1, "max_tokens": 2}"#) + PROBE,
                &[400, 200],
            ),
            ("deep JSON", whole(&"[".repeat(1000)) + PROBE, &[400, 200]),
            ("packed", post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "xx") + PROBE, &[415, 200]),
        ],
    );
}

#[test]
fn requests_that_could_be_read_in_two_ways_are_refused_and_never_answered_twice() {
    let (server, base) = (server(), descriptors());
    let smuggle = |headers: &str| post(headers, &format!("0\r\n\r\n{SMUGGLED}"));
    let headers = |headers: &str| get(headers) + PROBE;
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    let swapped = "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n";
    check(
        &server,
        &[
            ("length and chunks", smuggle(both), &[400]),
            ("chunks and length", smuggle(swapped), &[400]),
            ("chunks twice", smuggle("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), &[400]),
            (
                "chunks and identity",
                smuggle("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
                &[400],
            ),
            ("packed chunks", smuggle("Transfer-Encoding: gzip, chunked\r\n"), &[400]),
            ("unknown coding", smuggle("Transfer-Encoding: xchunked\r\n"), &[400]),
            ("a blank before the colon", smuggle("Transfer-Encoding : chunked\r\n"), &[400]),
            ("a control byte before the coding", smuggle("Transfer-Encoding: \u{b}chunked\r\n"), &[400]),
            ("a folded coding", smuggle("Transfer-Encoding:\r\n chunked\r\n"), &[400]),
            ("a length twice", smuggle("Content-Length: 5\r\nContent-Length: 5\r\n"), &[400]),
            ("two lengths", smuggle("Content-Length: 5\r\nContent-Length: 0\r\n"), &[400]),
            ("a list of lengths", smuggle("Content-Length: 5, 5\r\n"), &[400]),
            ("a signed length", smuggle("Content-Length: +5\r\n"), &[400]),
            ("a negative length", smuggle("Content-Length: -5\r\n"), &[400]),
            ("a hexadecimal length", smuggle("Content-Length: 0x5\r\n"), &[400]),
            ("no length", smuggle("Content-Length: \r\n"), &[400]),
            ("a length that no number holds", smuggle("Content-Length: 99999999999999999999\r\n"), &[400]),
            ("a line without a carriage return", headers("X: a\nContent-Length: 50\r\n"), &[400]),
            ("no carriage return at all", "GET /live HTTP/1.1\nHost: localhost\n\n".to_string(), &[400]),
            ("a lone carriage return", headers("X: a\rContent-Length: 50\r\n"), &[400]),
            ("a zero byte", headers("X: a\0b\r\n"), &[400]),
            ("a folded header", headers("X: a\r\n b\r\n"), &[400]),
            ("a line without a colon", headers("X\r\n"), &[400]),
            ("no name", headers(": a\r\n"), &[400]),
            ("a name with a blank", headers("X Y: a\r\n"), &[400]),
            ("a refused request behind another one", get("") + &smuggle(both), &[200, 400]),
            (
                "chunks of HTTP/1.0",
                format!("POST /live HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"),
                &[400],
            ),
            ("no request", format!("hello there\r\n\r\n{SMUGGLED}"), &[400]),
            ("another version", format!("GET /live HTTP/3.0\r\nHost: localhost\r\n\r\n{SMUGGLED}"), &[400]),
        ],
    );
    let began = Instant::now();
    while descriptors() > base {
        assert!(began.elapsed() < Duration::from_secs(60), "{} descriptors, {base} before", descriptors());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn large_heads_and_bodies_are_refused() {
    let server = server();
    let chunk =
        |size: &str| post("Transfer-Encoding: chunked\r\n", &format!("{size}\r\n{ONE_TOKEN}\r\n0\r\n\r\n"));
    let large = json!({"prompt": "x".repeat(5000)}).to_string();
    let large_chunk = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    check(
        &server,
        &[
            ("a long header", get(&format!("X: {}\r\n", "a".repeat(40 << 10))), &[431]),
            ("many headers", get(&"X: y\r\n".repeat(200)), &[431]),
            ("an endless line", "G".repeat(100 << 10), &[431]),
            ("a large body", whole(&large), &[413]),
            ("a body that says it is large", post("Content-Length: 99999999999\r\n", ""), &[413]),
            ("a large body in chunks", post("Transfer-Encoding: chunked\r\n", &large_chunk), &[413]),
            ("a chunk without a size", chunk("zz"), &[400]),
            ("a chunk with a sign", chunk("-5"), &[400]),
            ("a chunk that no number counts", chunk("fffffffffffffffff"), &[400]),
            ("a chunk that is longer than it says", chunk("5"), &[400]),
        ],
    );
    let refused = sample(&server.get("/metrics").text, "peri_rejections_total", "head_too_large");
    assert_eq!(refused, Some(3.0));
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on_or_not() {
    let server = server();
    let ask = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", ONE_TOKEN.len());
    assert_eq!(statuses(server.address(), &(post(&ask, ONE_TOKEN) + PROBE)), [100, 200, 200]);
    let large = "Content-Length: 5000\r\nExpect: 100-continue\r\n";
    assert_eq!(statuses(server.address(), &post(large, "")), [413]);
}

#[test]
fn slow_and_silent_clients_are_dropped() {
    let server = server();
    let timed = |bytes: &str, expected: &[u16]| {
        let began = Instant::now();
        assert_eq!(statuses(server.address(), bytes), expected, "{bytes}");
        let time = began.elapsed();
        assert!((LIMIT..LIMIT * 12).contains(&time), "{bytes}: {time:?}");
    };
    timed("", &[]);
    timed("GET /live HTTP/1.1\r\nHost:", &[408]);
    timed(&get(""), &[200]);
    timed(&format!("{}GET", get("")), &[200, 408]);
    timed(&post("Content-Length: 100\r\n", "{"), &[408]);
    timed(&post("Transfer-Encoding: chunked\r\n", "5\r\n{"), &[408]);

    // A byte now and then does not help.
    let mut stream = connect(server.address());
    let began = Instant::now();
    while began.elapsed() < LIMIT * 12 && stream.write_all(b"G").is_ok() {
        std::thread::sleep(LIMIT / 10);
    }
    assert!(began.elapsed() < LIMIT * 10, "{:?}", began.elapsed());
}

#[test]
fn truncated_bodies_are_no_requests() {
    let server = server();
    for bytes in [post("Content-Length: 100\r\n", "{"), post("Transfer-Encoding: chunked\r\n", "5\r\n{")] {
        let mut stream = connect(server.address());
        stream.write_all(bytes.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 400"), "{reply}");
    }
    assert_idle(&server);
}

#[test]
fn clients_that_leave_are_noticed_behind_bytes_of_a_next_request() {
    let server = server();
    let body = json!({"prompt": "Once", "max_tokens": 200, "ignore_eos": true, "n": 64}).to_string();
    for rest in ["G", PROBE] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all((whole(&body) + rest).as_bytes()).unwrap();
        let text = || server.get("/metrics").text;
        while sample(&text(), "vllm:num_requests_running", "") == Some(0.0) {}
        drop(stream);
        assert_idle(&server);
    }
    let text = server.get("/metrics").text;
    assert!(sample(&text, "vllm:request_success_total", "abort").unwrap() > 0.0, "{text}");
}

#[test]
fn connections_are_bounded_and_later_ones_wait() {
    let config = ServerConfig { max_connections: 2, ..ServerConfig::default() };
    let server = TestServer::new(config, Vec::new());
    let kept: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = connect(server.address());
            stream.write_all(get("").as_bytes()).unwrap();
            assert!(stream.read(&mut [0; 16]).unwrap() > 0);
            stream
        })
        .collect();
    let mut third = connect(server.address());
    third.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    third.write_all(PROBE.as_bytes()).unwrap();
    assert!(third.read(&mut [0; 16]).is_err());
    drop(kept);
    third.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut reply = String::new();
    third.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}

#[test]
fn a_client_that_reads_nothing_is_dropped_with_its_request() {
    let config = ServerConfig { write_timeout: LIMIT, ..ServerConfig::default() };
    let server = TestServer::new(config, vec![storyteller()]);
    let body = json!({"prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true, "n": 16, "logprobs": 100});
    let headers = [("Host", "localhost"), ("Content-Type", "application/json")];
    let mut stream = connect(server.address());
    let mut requests = String::new();
    // As many answers as the buffers of the system cannot hold.
    for _ in 0..4 {
        requests += &request("POST", "/v1/completions", &headers, &body.to_string())
            .replace("Connection: close\r\n", "");
    }
    stream.write_all(requests.as_bytes()).unwrap();
    let began = Instant::now();
    let open = || sample(&server.get("/metrics").text, "peri_cancels_total", "").unwrap();
    while open() == 0.0 {
        assert!(began.elapsed() < Duration::from_secs(600), "its request goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_idle(&server);
}
