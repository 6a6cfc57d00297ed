//! Health, models, the OpenAPI document, request ids, and the end of the server.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use crate::server::TestServer;

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
