//! Routes for those who run the server: its requests and its caches.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use serve::ServerConfig;

use crate::raw::{connect, exchange, request, status};
use crate::server::{TestServer, storyteller};

const PATH: &str = "/v1/completions";

/// Starts a long stream with an id, and reads its first event. The rest comes from the reader.
fn stream(server: &TestServer, id: &str) -> impl BufRead + use<> {
    let body = json!({"prompt": "Once", "max_tokens": 240, "ignore_eos": true, "stream": true}).to_string();
    let headers = [("Host", "localhost"), ("Content-Type", "application/json"), ("X-Request-Id", id)];
    let mut stream = connect(server.address());
    stream.write_all(request("POST", PATH, &headers, &body).as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ends early");
    }
    reader
}

fn requests(server: &TestServer) -> Vec<Value> {
    server.get("/admin/requests").ok()["requests"].as_array().unwrap().clone()
}

#[test]
fn requests_are_listed_cancelled_and_remembered() {
    let server = TestServer::storyteller();
    assert_eq!(requests(&server), Vec::<Value>::new(), "the one that lists is left out");
    let mut reader = stream(&server, "mine");
    let running = requests(&server);
    assert_eq!(running.len(), 1, "{running:?}");
    assert_eq!((&running[0]["id"], &running[0]["route"]), (&json!("mine"), &json!(PATH)));
    assert_eq!((&running[0]["model"], &running[0]["is_running"]), (&json!("storyteller"), &json!(true)));
    let cancelled = server.delete("/admin/requests/mine").ok();
    assert_eq!(cancelled["requests"][0]["finish"], "cancelled");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut reader, &mut rest).unwrap();
    assert!(rest.contains("\"code\":\"cancelled\""), "{rest}");
    assert!(!rest.contains("finish_reason\":\"length"), "{rest}");
    let ended = loop {
        let report = server.get("/debug/requests/mine").ok();
        if report["is_running"] == false {
            break report;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!((&ended["finish"], &ended["status"]), (&json!("cancelled"), &json!(200)));
    let generated = ended["generated_tokens"].as_u64().unwrap();
    assert!((1..240).contains(&generated), "{ended}");
    assert_eq!(requests(&server), Vec::<Value>::new());
    assert_eq!(server.delete("/admin/requests/mine").status, 404);
    assert_eq!(server.get("/debug/requests/other").error().1, "request_not_found");
}

#[test]
fn forgotten_prefixes_are_computed_again() {
    let server = TestServer::storyteller();
    let body = json!({"prompt": "Once upon a time there was a fox who lived by the river ".repeat(2), "max_tokens": 1});
    let cached = || {
        let answer = server.post(PATH, &body).ok();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached(), 0);
    assert!(cached() > 0);
    let kept = || server.get("/debug/memory").ok()["models"][0].clone();
    assert!(
        kept()["kv_cached"].as_u64().unwrap() > 0 && kept()["scratch"].as_u64().unwrap() > 0,
        "{}",
        kept()
    );
    assert_eq!(server.post("/admin/reset-prefix-cache", &json!({})).ok(), json!({"status": "reset"}));
    assert_eq!(cached(), 0);
}

#[test]
fn a_request_shows_why_the_cache_held_no_more_of_its_prompt() {
    let server = TestServer::storyteller();
    let end = |id: &str, prompt: &str, extra: Value| {
        let mut body = json!({"prompt": prompt, "max_tokens": 1});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let headers = [("Host", "localhost"), ("Content-Type", "application/json"), ("x-request-id", id)];
        let reply = exchange(server.address(), &request("POST", PATH, &headers, &body.to_string()));
        assert_eq!(status(&reply), 200, "{reply}");
        let shown = server.get(&format!("/debug/requests/{id}")).ok();
        (shown["cached_tokens"].as_u64().unwrap(), shown["prefix_end"].as_str().unwrap().to_string())
    };
    let story = "Once upon a time there was a fox who lived by the river and a raven who lived in a tree. ";
    assert_eq!(end("first", story, json!({})), (0, "nothing_cached".to_string()));
    let (cached, reason) = end("same", story, json!({}));
    assert_eq!((cached > 0, &reason[..]), (true, "last_token"));
    let (shorter, reason) = end("other", &story.replace("raven", "mouse"), json!({}));
    assert_eq!((shorter < cached, &reason[..]), (true, "other_tokens"));
    assert_eq!(end("salted", story, json!({"cache_salt": "a"})), (0, "nothing_cached".to_string()));
    let scored = json!({"echo": true, "logprobs": 1});
    assert_eq!(end("scored", story, scored), (0, "prompt_logits".to_string()));
}

#[test]
fn a_drained_server_ends() {
    let mut server = TestServer::storyteller();
    assert_eq!(server.post("/admin/drain", &json!({})).ok(), json!({"status": "draining"}));
    server.wait();
}

#[test]
fn admin_routes_need_keys_where_other_machines_reach_the_server() {
    let addresses = vec![SocketAddr::from(([0, 0, 0, 0], 0)).into()];
    let server = TestServer::at(
        ServerConfig { insecure: true, addresses, ..ServerConfig::default() },
        vec![storyteller()],
    );
    for path in ["/admin/requests", "/debug/memory"] {
        let reply = exchange(server.address(), &request("GET", path, &[("Host", "localhost")], ""));
        assert_eq!(status(&reply), 403, "{reply}");
    }
    let reply = exchange(server.address(), &request("GET", "/v1/models", &[("Host", "localhost")], ""));
    assert_eq!(status(&reply), 200, "{reply}");
}
