//! Health, models, the OpenAPI document, request ids, and the end of the server.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use serve::{Address, ServerConfig};

use crate::server::{self, TestServer};

#[test]
fn health_models_and_document_are_there() {
    let server = TestServer::storyteller();
    for path in ["/live", "/ready", "/health"] {
        assert_eq!(server.get(path).ok(), json!({"status": "ok"}));
    }
    let models = server.get("/v1/models").ok();
    assert_eq!(models["data"][0]["id"], "storyteller");
    assert_eq!(models["data"][0]["max_model_len"], 256);
    assert_eq!(server.get("/v1/models/storyteller").ok(), models["data"][0]);
    assert_eq!(server.get("/v1/models/other/one").status, 404);
    let document = server.get("/openapi.json").ok();
    assert!(document["paths"]["/v1/chat/completions"]["post"].is_object());
    assert!(document["paths"]["/v1/models/{id}"]["get"].is_object());
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.keys().all(|path| !path.contains('*')), "{:?}", paths.keys());
}

#[test]
fn the_document_has_errors_dry_runs_and_bounds() {
    let server = TestServer::storyteller();
    let document = server.get("/openapi.json").ok();
    let ok = |path: &str, kind: &str| {
        let content = &document["paths"][path]["post"]["responses"]["200"]["content"];
        content[kind]["schema"]["anyOf"].as_array().map_or(Vec::new(), |schemas| {
            schemas
                .iter()
                .map(|schema| schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap())
                .collect()
        })
    };
    let json = "application/json";
    for (path, answer) in [
        ("/v1/chat/completions", "ChatCompletion"),
        ("/v1/completions", "Completion"),
        ("/v1/responses", "ResponseObject"),
        ("/v1/messages", "AssistantMessage"),
        ("/api/chat", "AnswerLine"),
        ("/api/generate", "AnswerLine"),
    ] {
        assert_eq!(ok(path, json), [answer, "DryRun"], "{path}");
    }
    assert!(ok("/v1/embeddings", json).is_empty());
    assert_eq!(ok("/v1/chat/completions", "text/event-stream"), ["ChatChunk", "Error"]);
    assert_eq!(ok("/v1/messages", "text/event-stream"), ["MessageEvent", "AnthropicError"]);
    assert_eq!(ok("/api/chat", "application/x-ndjson"), ["AnswerLine", "OllamaError"]);
    let schemas = &document["components"]["schemas"];
    for name in ["DryRun", "PromptUsage", "Error", "AnthropicError", "OllamaError"] {
        assert_eq!(schemas[name]["type"], "object", "{name}");
    }
    assert_eq!(schemas["ScoredTexts"]["oneOf"][1]["minItems"], 1);
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let error = &operation["responses"]["default"]["content"][json]["schema"]["$ref"];
            assert!(error.is_string(), "{method} {path}");
        }
    }
}

#[test]
fn a_server_that_starts_says_so() {
    let server = server::listen(ServerConfig::default(), vec![server::storyteller()]).unwrap();
    let Some(&Address::Tcp(address)) = server.addresses().first() else { panic!("one address") };
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let get = |path: &str| {
        let mut reply = agent.get(format!("http://{address}{path}")).call().unwrap();
        let body = reply.body_mut().read_to_string().unwrap();
        (reply.status().as_u16(), serde_json::from_str::<serde_json::Value>(&body).unwrap())
    };
    for path in ["/ready", "/health"] {
        let (status, health) = get(path);
        assert_eq!((status, &health["status"]), (503, &json!("loading")), "{health}");
    }
    assert_eq!(get("/live").0, 200);
    assert_eq!(get("/v2/health/ready").0, 503);
    server.load().unwrap();
    assert_eq!(get("/ready"), (200, json!({"status": "ok"})));
    let handle = server.handle();
    let running = std::thread::spawn(move || server.run());
    handle.stop();
    running.join().unwrap();
}

#[test]
fn request_ids_are_echoed_or_made() {
    let server = TestServer::storyteller();
    assert_eq!(server.get("/live").header("x-request-id").unwrap().len(), 36);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(
        stream,
        "GET /live HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("x-request-id: mine"), "{reply}");
}

#[test]
fn a_server_that_is_stopped_finishes_running_answers() {
    let mut server = TestServer::storyteller();
    let address = server.address();
    let body = json!({"prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true}).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut first = [0; 1024];
    assert!(stream.read(&mut first).unwrap() > 0);
    server.stop();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert!(TcpStream::connect(address).is_err());
}
