//! Bodies that are not requests.

use serde_json::json;
use serve::ServerConfig;

use crate::server::{TestServer, storyteller};

const PATH: &str = "/v1/completions";

#[test]
fn a_body_that_is_no_json_object_is_refused_with_its_place() {
    let server = TestServer::storyteller();
    let check = |body: &str, part: &str| {
        let (status, code, _, message) = server.post_text(PATH, "application/json", body).error();
        assert_eq!((status, &code[..]), (400, "invalid_request_error"), "{message}");
        assert!(message.contains(part), "{message}");
    };
    check("{\"prompt\":\n  oops}", "expected value at line 2, column 3");
    check("", "at line 1, column 0");
    check("[1]", "the body is not a JSON object");
    check(&"[".repeat(100), "nested deeper than 64 levels at byte 64");
    check(&format!("{{\"prompt\": \"{}\"", "[".repeat(100)), "at line 1");
    let twice = "the body is ambiguous: the key \"max_tokens\" is given twice at line 1, column 30";
    check("{\"max_tokens\": 1, \"max_tokens\": 2}", twice);
}

#[test]
fn a_body_must_say_that_it_is_json_and_be_small() {
    let config = ServerConfig { max_body_bytes: 4000, ..ServerConfig::default() };
    let server = TestServer::new(config, vec![storyteller()]);
    let body = json!({"prompt": "Once", "max_tokens": 1}).to_string();
    assert_eq!(server.post_text(PATH, "text/plain", &body).status, 415);
    assert_eq!(server.post_text(PATH, "application/json; charset=utf-8", &body).status, 200);
    let large = json!({"prompt": "x".repeat(5000)}).to_string();
    assert_eq!(server.post_text(PATH, "application/json", &large).status, 413);
}

#[test]
fn unknown_routes_and_methods_are_named() {
    let server = TestServer::storyteller();
    let (status, code, _, message) = server.get("/v1/nothing").error();
    assert_eq!((status, &code[..]), (404, "route_not_found"));
    assert!(message.contains("/v1/nothing"), "{message}");
    assert_eq!(server.get("/v1/completions").status, 405);
}

#[test]
fn an_unknown_model_lists_those_there_are() {
    let server = TestServer::storyteller();
    let (status, code, param, message) =
        server.post(PATH, &json!({"model": "gpt-4o", "prompt": "Once"})).error();
    assert_eq!((status, &code[..], param), (404, "model_not_found", json!("model")));
    assert_eq!(message, "there is no model `gpt-4o`; the models are storyteller");
    let request = json!({"model": "storyteller-alias", "prompt": "Once", "max_tokens": 1});
    assert_eq!(server.post(PATH, &request).ok()["model"], "storyteller");
}
