//! Who may ask: names of the server, origins of pages, keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use serve::{Keys, ModelConfig, ServerConfig};

use crate::raw::{ONE_TOKEN, exchange, request, status};
use crate::server::{TestServer, start, storyteller};

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
fn a_key_stands_in_for_the_name_and_not_for_the_origin() {
    let config = ServerConfig { keys: Keys::default().with_key("secret"), ..config() };
    let server = TestServer::new(config, vec![storyteller()]);
    for case in CASES {
        check(&server, "secret", case, case.4);
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
    let preflight = |origin: &str| {
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
    // The head of an answer would repeat them.
    let long = preflight(&format!("https://{}.example", "x".repeat(20_000)));
    assert_eq!(status(&long), 431, "{long}");
    let names = "x-name,".repeat(3000);
    let headers = [
        ("Host", "localhost"),
        ("Origin", "https://page.example"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", &names),
    ];
    let long = exchange(server.address(), &request("OPTIONS", "/live", &headers, ""));
    assert!(status(&long) == 431 && long.len() < 8192, "{long}");
    let plain = TestServer::storyteller();
    let headers = [("Host", "localhost"), ("Origin", "http://localhost:3000")];
    let reply = exchange(plain.address(), &request("GET", "/version", &headers, ""));
    assert!(status(&reply) == 403 && !reply.contains("access-control"), "{reply}");
    let local = ServerConfig { cors_origins: vec!["localhost".to_string()], ..ServerConfig::default() };
    let local = TestServer::new(local, vec![storyteller()]);
    let reply = exchange(local.address(), &request("GET", "/version", &headers, ""));
    assert!(status(&reply) == 200 && reply.contains("access-control-allow-origin: http://localhost:3000"));
}

/// What a path answers to requests without a key, and with keys of each scope.
fn expected(path: &str, scope: &str) -> &'static [u16] {
    let admits: &[&str] = match path {
        "/live" | "/" | "/ready" | "/health" | "/ping" => return &[200],
        path if path.starts_with("/v2/health/") => return &[200],
        "/version" | "/openapi.json" => &["infer", "metrics", "admin"],
        "/metrics" => &["metrics"],
        path if path.starts_with("/admin/") || path.starts_with("/debug/") => &["admin"],
        "/api/pull" | "/api/copy" | "/api/create" | "/api/delete" => &["admin"],
        _ => &["infer"],
    };
    match scope {
        "" | "wrong" | "revoked" => &[401],
        scope if admits.contains(&scope) => &[200, 400, 404, 405, 415],
        _ => &[403],
    }
}

#[test]
fn every_route_asks_for_the_key_of_its_scope() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    let line = |name: &str| Keys::line(name, name, &format!("key of {name}"));
    let scopes = ["infer", "metrics", "admin"];
    let lines = scopes.map(line).join("\n");
    std::fs::write(&file, format!("# keys\n{lines}\n{}\n", Keys::line("revoked", "infer", "key of revoked")))
        .unwrap();
    let keys = Keys::default().with_file(&file).unwrap();
    let server = TestServer::new(ServerConfig { keys, ..ServerConfig::default() }, vec![storyteller()]);
    let send = |method: &str, path: &str, header: (&str, &str)| {
        let headers: Vec<_> =
            [("Host", "localhost"), header].into_iter().filter(|(name, _)| !name.is_empty()).collect();
        status(&exchange(server.address(), &request(&method.to_uppercase(), path, &headers, "")))
    };
    assert_eq!(send("get", "/v1/models", ("x-api-key", "key of revoked")), 200);
    std::fs::write(&file, &lines).unwrap();
    server.handle().reload().unwrap();
    let document = exchange(
        server.address(),
        &request("GET", "/openapi.json", &[("Host", "localhost"), ("x-api-key", "key of admin")], ""),
    );
    let document: Value = serde_json::from_str(document.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let paths: BTreeMap<String, BTreeMap<String, Value>> =
        serde_json::from_value(document["paths"].clone()).unwrap();
    let mut routes: Vec<(String, String)> = paths
        .into_iter()
        .flat_map(|(path, methods)| methods.into_keys().map(move |method| (method, path.clone())))
        .collect();
    routes.extend(
        [("get", "/nothing"), ("get", "/admin/nothing"), ("post", "/live/")]
            .map(|(m, p)| (m.into(), p.into())),
    );
    for (method, path) in &routes {
        let path = &path.replace('{', "").replace(['}', '*'], "");
        for scope in ["", "wrong", "revoked", "infer", "metrics", "admin"] {
            let key = format!("key of {scope}");
            let header = if scope.is_empty() { ("", "") } else { ("x-api-key", &key[..]) };
            // It would end the server.
            if path == "/admin/drain" && scope == "admin" {
                continue;
            }
            let (got, expected) = (send(method, path, header), expected(path, scope));
            assert!(expected.contains(&got), "{method} {path} with {scope:?}: {got}, expected {expected:?}");
        }
    }
    assert!(routes.len() > 10, "{routes:?}");
    assert_eq!(send("get", "/v1/models", ("Authorization", "bearer key of infer")), 200);
    assert_eq!(send("get", "/v1/models", ("Authorization", "Basic key of infer")), 401);

    // A file that cannot be read changes nothing.
    std::fs::write(&file, "alice").unwrap();
    let error = server.handle().reload().unwrap_err().to_string();
    assert!(
        error.ends_with("keys: line 1: 1 fields, expected name:scopes:hash or name:scopes:hash:limits"),
        "{error}"
    );
    assert_eq!(send("get", "/v1/models", ("x-api-key", "key of infer")), 200);
}

#[test]
fn requests_beyond_the_limits_of_a_key_are_refused_in_the_shape_of_their_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    let line = |name: &str, limits: &str| Keys::line(name, "infer", name) + limits;
    let lines = [
        line("two", ":requests_per_minute=2"),
        line("few", ":tokens_per_minute=30"),
        line("one", ":concurrent_requests=1"),
        line("free", ""),
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let keys = Keys::default().with_file(&file).unwrap();
    let server = TestServer::new(ServerConfig { keys, ..ServerConfig::default() }, vec![storyteller()]);
    let send = |method: &str, path: &str, key: &str, body: &str| {
        let headers = [("Host", "localhost"), ("Content-Type", JSON), ("x-api-key", key)];
        exchange(server.address(), &request(method, path, &headers, body))
    };
    let post = |key: &str| send("POST", "/v1/completions", key, ONE_TOKEN);
    assert_eq!([post("two"), post("two")].map(|reply| status(&reply)), [200, 200]);
    let refused = post("two");
    assert_eq!(status(&refused), 429, "{refused}");
    let wait = refused.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=30).contains(&wait.parse::<u64>().unwrap()), "{refused}");
    assert!(refused.contains("`two` has a limit of 2 requests per minute"), "{refused}");
    assert!(refused.contains("rate_limit_error") && refused.contains("rate_limit_exceeded"), "{refused}");
    let refused = send("POST", "/v1/messages", "two", "{}");
    assert!(refused.contains("\"type\":\"error\"") && refused.contains("rate_limit_error"), "{refused}");
    assert_eq!(status(&send("GET", "/v1/models", "two", "")), 200, "reading is free");
    assert_eq!(status(&post("free")), 200);

    let long = r#"{"prompt": "Once", "max_tokens": 40, "ignore_eos": true}"#;
    assert_eq!(
        status(&send("POST", "/v1/completions", "few", long)),
        200,
        "a request may use more than is left"
    );
    // The last one counts once its connection knows that its answer was sent.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let refused = loop {
        let reply = send("POST", "/v1/completions", "few", ONE_TOKEN);
        if status(&reply) == 429 || std::time::Instant::now() > deadline {
            break reply;
        }
    };
    assert!(refused.contains("`few` has a limit of 30 tokens per minute"), "{refused}");

    // A limit of one is enough for requests one after the other, and for no two at once.
    let endless = r#"{"prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true, "n": 16}"#;
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let address = server.address();
            let headers = [("Host", "localhost"), ("Content-Type", JSON), ("x-api-key", "one")];
            let text = request("POST", "/v1/completions", &headers, endless);
            std::thread::spawn(move || status(&exchange(address, &text)))
        })
        .collect();
    let mut all: Vec<u16> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    all.sort_unstable();
    assert_eq!((all[0], all[5]), (200, 429), "{all:?}");

    // Clients cannot have two limits under one name.
    std::fs::write(&file, [line("a", ":requests_per_minute=2"), Keys::line("a", "infer", "b")].join("\n"))
        .unwrap();
    let error = server.handle().reload().unwrap_err().to_string();
    assert!(
        error.ends_with("line 2: `a` has the limits \"\", and \"requests_per_minute=2\" above"),
        "{error}"
    );
}

/// The keys `a` and `b`, which a file in this folder names.
fn keys_of_a_and_b(folder: &Path) -> Keys {
    let file = folder.join("keys");
    let lines = [Keys::line("a", "infer", "key of a"), Keys::line("b", "infer", "key of b")];
    std::fs::write(&file, lines.join("\n")).unwrap();
    Keys::default().with_file(&file).unwrap()
}

/// How many tokens of a prompt the cache holds, as a request with the key of `name` is told.
fn cached_tokens(server: &TestServer, name: &str, prompt: &str) -> u64 {
    let body = json!({"prompt": prompt, "max_tokens": 1}).to_string();
    let key = format!("key of {name}");
    let headers = [("Host", "localhost"), ("Content-Type", "application/json"), ("x-api-key", &key)];
    let reply = exchange(server.address(), &request("POST", "/v1/completions", &headers, &body));
    let body: Value = serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    body["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

#[test]
fn cached_prefixes_are_shared_by_requests_of_one_key_only() {
    let cached = |shared_cache: bool| {
        let folder = tempfile::tempdir().unwrap();
        let keys = keys_of_a_and_b(folder.path());
        let config = ServerConfig { keys, shared_cache, ..ServerConfig::default() };
        let server = TestServer::new(config, vec![storyteller()]);
        let prompt =
            "Once upon a time there was a little girl who lived in a house at the edge of a dark wood";
        ["a", "a", "b"].map(|name| cached_tokens(&server, name, prompt))
    };
    let [first, again, other] = cached(false);
    assert!((first, other) == (0, 0) && again > 0, "{first} {again} {other}");
    let [_, again, other] = cached(true);
    assert_eq!(again, other);
}

#[test]
fn a_key_that_floods_the_cache_leaves_other_keys_an_equal_share() {
    let folder = tempfile::tempdir().unwrap();
    let config = ServerConfig { keys: keys_of_a_and_b(folder.path()), ..ServerConfig::default() };
    // 32 pages of 16 tokens.
    let ModelConfig { config: model, .. } = storyteller();
    let model = ModelConfig { config: model.max_cache_batch_size(2), ..storyteller() };
    let server = TestServer::new(config, vec![model]);
    let prompt =
        |number: usize| format!("{number} {}", "Once upon a time there was a little girl. ".repeat(8));
    cached_tokens(&server, "b", &prompt(0));
    let before = cached_tokens(&server, "b", &prompt(0));
    assert!(before > 64, "{before}");
    for number in 1..40 {
        cached_tokens(&server, "a", &prompt(number));
    }
    assert!(cached_tokens(&server, "a", &prompt(1)) < 16, "the flood is larger than the cache");
    assert_eq!(cached_tokens(&server, "b", &prompt(0)), before);
}

#[test]
fn a_server_that_others_reach_needs_keys() {
    let config = |insecure, keys| ServerConfig {
        addresses: vec![SocketAddr::from(([0, 0, 0, 0], 0)).into()],
        insecure,
        keys,
        ..ServerConfig::default()
    };
    let error = start(config(false, Keys::default()), Vec::new()).err().unwrap();
    assert!(
        error.to_string().contains("give them with --key-file, or allow everyone with --insecure"),
        "{error}"
    );
    for config in [config(true, Keys::default()), config(false, Keys::default().with_key("secret"))] {
        assert!(start(config, Vec::new()).is_ok());
    }
}

#[test]
fn refusals_have_the_shape_of_their_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, Keys::line("metrics", "metrics", "key of metrics")).unwrap();
    let keys = Keys::default().with_file(&file).unwrap();
    let server = TestServer::new(ServerConfig { keys, ..ServerConfig::default() }, vec![storyteller()]);
    let refusal = |path: &str, key: &str| -> Value {
        let headers = [("Host", "localhost"), ("x-api-key", key), ("Content-Type", "application/json")];
        let reply = exchange(server.address(), &request("POST", path, &headers, "{}"));
        serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    let unknown = "the API key is not known to this server";
    let lacks = "the API key `metrics` lacks the scope `infer`";
    for (key, kind, of_openai, message) in [
        ("wrong", "authentication_error", "invalid_api_key", unknown),
        ("key of metrics", "permission_error", "permission_denied", lacks),
    ] {
        let anthropic = refusal("/v1/messages", key);
        assert_eq!((&anthropic["type"], &anthropic["error"]["type"]), (&"error".into(), &kind.into()));
        assert_eq!(anthropic["error"]["message"], message);
        assert_eq!(anthropic["request_id"].as_str().map(str::len), Some(36));
        assert_eq!(refusal("/api/chat", key), serde_json::json!({"error": message}));
        let openai = refusal("/v1/chat/completions", key);
        assert_eq!((&openai["error"]["code"], &openai["error"]["type"]), (&of_openai.into(), &kind.into()));
    }
}

/// Probes have no key, and learn nothing else than whether the server takes requests.
#[test]
fn health_without_a_key_has_no_facts() {
    let config = ServerConfig { keys: Keys::default().with_key("secret"), ..ServerConfig::default() };
    let lazy = serve::ModelSettings { lazy: true, ..serve::ModelSettings::default() };
    let server = TestServer::new(ServerConfig { models: lazy, ..config }, vec![storyteller()]);
    let get = |path: &str, headers: &[(&str, &str)]| {
        let reply = exchange(server.address(), &request("GET", path, headers, ""));
        (status(&reply), reply.split("\r\n\r\n").nth(1).unwrap_or_default().to_string())
    };
    for path in ["/ready", "/health"] {
        for headers in [&[("Host", "pod-7")][..], &[("Host", "pod-7"), ("x-api-key", "wrong")]] {
            assert_eq!(get(path, headers), (200, r#"{"status":"ok"}"#.to_string()), "{path}");
        }
        assert_eq!(get(path, &[("Host", "localhost"), ("x-api-key", "secret")]).0, 200, "{path}");
    }
}
