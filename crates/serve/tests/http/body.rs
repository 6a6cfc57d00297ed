//! Bodies that are not requests.

use serde_json::{Value, json};
use serve::ServerConfig;

use crate::raw::{exchange, request};
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

/// The bytes of the head of an answer to a body, and the answer.
fn head_and_reply(server: &TestServer, path: &str, body: &str) -> (String, String) {
    let headers = [("Host", "localhost"), ("Content-Type", "application/json")];
    let reply = exchange(server.address(), &request("POST", path, &headers, body));
    let (head, reply) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_string(), reply.to_string())
}

#[test]
fn names_and_values_of_a_megabyte_make_no_large_answers() {
    let server = TestServer::storyteller();
    let long = "x".repeat(1 << 20);
    let dots = "a.".repeat(1 << 19);
    let check = |path: &str, body: &Value, expected: &[&str]| {
        let (head, reply) = head_and_reply(&server, path, &body.to_string());
        assert!(expected.contains(&&head[9..12]), "{head}: {reply:.300}");
        assert!(head.len() <= 8 << 10, "{} bytes of head", head.len());
        assert!(reply.len() <= 16 << 10, "{} bytes of {reply:.300}", reply.len());
        head
    };
    let prompt = json!({"prompt": "Once", "max_tokens": 1});
    let with = |name: &str, value: Value| {
        let mut body = prompt.clone();
        body[name] = value;
        body
    };
    for name in [&long, &dots, &"ü".repeat(1 << 19)] {
        let head = check(PATH, &with(name, json!(1)), &["200"]);
        let ignored = head.lines().find(|line| line.starts_with("x-peri-ignored: ")).unwrap();
        assert!(ignored.len() < 2048 && ignored.contains("..."), "{ignored}");
    }
    let many: serde_json::Map<String, Value> =
        (0..1000).map(|index| (format!("unheard_of_{index:04}"), json!(1))).collect();
    let mut body = prompt.clone();
    body.as_object_mut().unwrap().extend(many);
    let head = check(PATH, &body, &["200"]);
    assert!(head.contains("unheard_of_0000, ") && head.contains(" more\r\n"), "{head}");
    for (name, value) in [
        ("model", json!(long)),
        ("max_tokens", json!(long)),
        ("logit_bias", json!({&long: 1})),
        ("guided_regex", json!(format!("({long}"))),
        ("stop", json!([&long, 1])),
    ] {
        check(PATH, &with(name, value), &["400", "404"]);
    }
    let chat = "/v1/chat/completions";
    let either = &["200", "400"][..];
    check(chat, &json!({"messages": [{"role": long, "content": "Hi"}], "max_tokens": 1}), either);
    check(
        chat,
        &json!({"messages": [{"role": "user", "content": [{"type": long}]}], "max_tokens": 1}),
        either,
    );
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let choice = json!({"type": "function", "function": {"name": long}});
    check(chat, &json!({"messages": messages, "tools": [], "tool_choice": choice, "max_tokens": 1}), either);
    check("/api/generate", &json!({"model": long, "prompt": "Hi"}), &["404"]);
    check("/v1/messages", &json!({"model": long, "max_tokens": 1, "messages": messages}), &["404"]);
}

#[test]
fn ignored_fields_of_inner_objects_are_counted_beyond_a_bound() {
    let server = TestServer::storyteller();
    let input =
        json!({"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["a"], "unheard_of": 1});
    let body = json!({"inputs": vec![input; 5000]}).to_string();
    let (head, _) = head_and_reply(&server, "/v2/models/storyteller/infer", &body);
    assert!(head.len() <= 8 << 10 && head.contains("inputs.0.unheard_of, "), "{head}");
    let more =
        head.lines().find_map(|line| line.strip_suffix(" more")?.rsplit(' ').next()?.parse::<usize>().ok());
    assert!(more.is_some_and(|more| (4000..5000).contains(&more)), "{head}");
}

#[test]
fn body_with_too_many_fields_is_refused_with_both_counts() {
    let server = TestServer::storyteller();
    let fields: serde_json::Map<String, Value> =
        (0..2000).map(|index| (index.to_string(), json!(1))).collect();
    let (status, _, _, message) = server.post(PATH, &Value::Object(fields)).error();
    assert_eq!((status, &message[..]), (400, "the body has 2000 fields, at most 1024 are read"));
}

#[test]
fn prompt_with_more_bytes_than_its_tokens_can_have_is_refused_before_it_is_tokenized() {
    let server = TestServer::storyteller();
    let text = "Once upon a time ".repeat(60_000);
    for (path, body) in [
        (PATH, json!({"prompt": text})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": text}]})),
    ] {
        let (status, code, _, message) = server.post(path, &body).error();
        assert_eq!((status, &code[..]), (400, "context_length_exceeded"), "{message}");
        assert!(
            message.contains(" bytes, but this model's maximum context length is 256 tokens"),
            "{message}"
        );
    }
    // Less than that is counted in tokens.
    let (_, code, _, message) =
        server.post(PATH, &json!({"prompt": "Once upon a time ".repeat(100)})).error();
    assert!(code == "context_length_exceeded" && message.contains(" tokens, but this model's"), "{message}");
    // What is cut is read to the end.
    let cut = json!({"model": "storyteller", "prompt": text, "truncate": true, "stream": false,
        "options": {"num_predict": 1}});
    assert_eq!(server.post("/api/generate", &cut).status, 200);
}
