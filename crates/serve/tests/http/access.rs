//! Who may ask: names of the server, origins of pages.

use serve::ServerConfig;

use crate::raw::{ONE_TOKEN, exchange, request, status};
use crate::server::{TestServer, storyteller};

/// `Host`, `Origin`, `Content-Type`, and the status without and with a key; `PORT` stands for the server's.
type Case = (&'static str, &'static str, &'static str, u16, u16);

const JSON: &str = "application/json";
/// The types that browsers send to any site without asking it first.
const FORM: &str = "application/x-www-form-urlencoded";
const TEXT: &str = "text/plain";

const CASES: &[Case] = &[
    ("localhost:PORT", "", JSON, 200, 200),
    ("127.0.0.1:PORT", "", JSON, 200, 200),
    ("127.8.8.8:PORT", "", JSON, 200, 200),
    ("[::1]:PORT", "", JSON, 200, 200),
    ("localhost", "", JSON, 200, 200),
    ("LOCALHOST:PORT", "", JSON, 200, 200),
    ("localhost.:PORT", "", JSON, 200, 200),
    ("page.localhost:PORT", "", JSON, 200, 200),
    ("Box.Example.:PORT", "", JSON, 200, 200),
    ("evil.example:PORT", "", JSON, 403, 200),
    ("localhost.evil.example", "", JSON, 403, 200),
    ("notlocalhost:PORT", "", JSON, 403, 200),
    ("192.168.0.9:PORT", "", JSON, 403, 200),
    ("[::2]:PORT", "", JSON, 403, 200),
    ("localhost@evil.example", "", JSON, 400, 400),
    ("localhost:PORT", "http://localhost:PORT", JSON, 200, 200),
    ("localhost:PORT", "HTTP://LOCALHOST.:PORT", JSON, 200, 200),
    ("localhost:PORT", "http://localhost:1", JSON, 403, 403),
    ("localhost:PORT", "https://page.example", JSON, 200, 200),
    ("localhost:PORT", "https://evil.example", JSON, 403, 403),
    ("localhost:PORT", "null", JSON, 403, 403),
    ("evil.example:PORT", "http://evil.example:PORT", JSON, 403, 200),
    ("localhost:PORT", "https://evil.example", TEXT, 403, 403),
    ("localhost:PORT", "", TEXT, 415, 415),
    ("localhost:PORT", "http://localhost:PORT", FORM, 415, 415),
    ("localhost:PORT", "", "", 415, 415),
];

fn config() -> ServerConfig {
    ServerConfig {
        allowed_hosts: vec!["box.example".to_string()],
        cors_origins: vec!["https://page.example".to_string()],
        ..ServerConfig::default()
    }
}

fn check(server: &TestServer, key: &str, case: &Case, expected: u16) {
    let port = server.address().port().to_string();
    let (host, origin, kind) = (case.0.replace("PORT", &port), case.1.replace("PORT", &port), case.2);
    let authorization = format!("Bearer {key}");
    let all =
        [("Host", &host[..]), ("Origin", &origin), ("Content-Type", kind), ("Authorization", &authorization)];
    let headers: Vec<(&str, &str)> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let reply = exchange(server.address(), &request("POST", "/v1/completions", &headers, ONE_TOKEN));
    assert_eq!(status(&reply), expected, "{case:?}: {reply}");
}

#[test]
fn hosts_origins_and_types_that_a_foreign_page_would_send_are_refused() {
    let server = TestServer::new(config(), vec![storyteller()]);
    for case in CASES {
        check(&server, "none", case, case.3);
    }
}

#[test]
fn hosts_are_one_and_the_targets() {
    let server = TestServer::storyteller();
    let get = |head: &str| status(&exchange(server.address(), &format!("{head}\r\n\r\n")));
    assert_eq!(get("GET /version HTTP/1.1\r\nConnection: close"), 400);
    assert_eq!(get("GET /version HTTP/1.0"), 200);
    let twice = "GET /version HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nHost: localhost";
    assert_eq!(get(twice), 400);
    let other = "GET http://evil.example/version HTTP/1.1\r\nConnection: close\r\nHost: localhost";
    assert_eq!(get(other), 400);
    // Probes that name the server in some other way still learn that it lives.
    assert_eq!(get("GET /live HTTP/1.1\r\nConnection: close\r\nHost: pod-7"), 200);
}

#[test]
fn cors_answers_configured_origins_only() {
    let server = TestServer::new(config(), vec![storyteller()]);
    let preflight = |origin| {
        let headers = [
            ("Host", "localhost"),
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization,content-type"),
        ];
        exchange(server.address(), &request("OPTIONS", "/v1/chat/completions", &headers, ""))
    };
    let allowed = preflight("https://page.example");
    assert_eq!(status(&allowed), 200);
    assert!(allowed.contains("access-control-allow-origin: https://page.example"), "{allowed}");
    assert!(allowed.contains("access-control-allow-headers: authorization,content-type"), "{allowed}");
    assert_eq!(status(&preflight("https://evil.example")), 403);
    let plain = TestServer::storyteller();
    let headers = [("Host", "localhost"), ("Origin", "http://localhost:3000")];
    let reply = exchange(plain.address(), &request("GET", "/version", &headers, ""));
    assert!(status(&reply) == 403 && !reply.contains("access-control"), "{reply}");
    let local = ServerConfig { cors_origins: vec!["localhost".to_string()], ..ServerConfig::default() };
    let local = TestServer::new(local, vec![storyteller()]);
    let reply = exchange(local.address(), &request("GET", "/version", &headers, ""));
    assert!(status(&reply) == 200 && reply.contains("access-control-allow-origin: http://localhost:3000"));
}
