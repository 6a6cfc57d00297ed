//! `/v1/chat/completions`.

use serde_json::{Value, json};

use crate::server::TestServer;

const PATH: &str = "/v1/chat/completions";

fn body(extra: Value) -> Value {
    let mut body = json!({
        "model": "storyteller",
        "messages": [{"role": "user", "content": "Once upon a time"}],
        "max_tokens": 20,
        "seed": 7,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[test]
fn an_answer_has_the_shape_of_the_openai_api() {
    let server = TestServer::storyteller();
    let answer = server.post(PATH, &body(json!({}))).ok();
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("storyteller")));
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(!choice["message"]["content"].as_str().unwrap().is_empty());
    assert_eq!((&choice["finish_reason"], &choice["logprobs"]), (&json!("length"), &Value::Null));
    let usage = &answer["usage"];
    assert_eq!(usage["completion_tokens"], 20);
    let sum = usage["prompt_tokens"].as_u64().unwrap() + 20;
    assert_eq!(usage["total_tokens"], sum);
}

#[test]
fn a_stream_gives_the_same_text_and_one_usage() {
    let server = TestServer::storyteller();
    let request = body(json!({"n": 3, "logprobs": true, "top_logprobs": 2, "temperature": 0.8}));
    let whole = server.post(PATH, &request).ok();
    let streamed = body(json!({
        "n": 3, "logprobs": true, "top_logprobs": 2, "temperature": 0.8,
        "stream": true, "stream_options": {"include_usage": true},
    }));
    let events = server.events(PATH, &streamed);
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    assert!(chunks.iter().all(|chunk| chunk["usage"].is_null() && chunk["id"] == last["id"]));
    for index in 0..3 {
        let own =
            || chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|choice| choice["index"] == index);
        assert_eq!(own().next().unwrap()["delta"], json!({"role": "assistant", "content": ""}));
        let text: String = own().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        let expected = &whole["choices"][index];
        assert_eq!(text, expected["message"]["content"].as_str().unwrap());
        let logprobs: Vec<Value> = own()
            .flat_map(|choice| choice["logprobs"]["content"].as_array().cloned().unwrap_or_default())
            .collect();
        assert_eq!(json!(logprobs), expected["logprobs"]["content"]);
        assert_eq!(logprobs.len(), 20);
        let reasons: Vec<&Value> =
            own().map(|choice| &choice["finish_reason"]).filter(|r| !r.is_null()).collect();
        assert_eq!(reasons, ["length"]);
    }
}

#[test]
fn answers_are_the_same_alone_and_among_others() {
    let server = TestServer::storyteller();
    let request = |seed: u64| body(json!({"seed": seed, "temperature": 1.0, "max_tokens": 30}));
    let content = |answer: Value| answer["choices"][0]["message"]["content"].as_str().unwrap().to_string();
    let alone: Vec<String> = (0..8).map(|seed| content(server.post(PATH, &request(seed)).ok())).collect();
    let together: Vec<String> = std::thread::scope(|scope| {
        let ask = |seed| {
            scope.spawn({
                let (server, request) = (&server, &request);
                move || content(server.post(PATH, &request(seed)).ok())
            })
        };
        let threads: Vec<_> = (0..8).map(ask).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
    assert_ne!(alone[0], alone[1]);
}

#[test]
fn unseeded_requests_differ() {
    let server = TestServer::storyteller();
    let request = json!({
        "messages": [{"role": "user", "content": "Once"}], "max_tokens": 30, "temperature": 1.0,
    });
    let first = server.post(PATH, &request).ok();
    let second = server.post(PATH, &request).ok();
    assert_ne!(first["choices"], second["choices"]);
}

#[test]
fn wrong_fields_are_named() {
    let server = TestServer::storyteller();
    let check = |extra: Value, param: &str, part: &str| {
        let (status, code, named, message) = server.post(PATH, &body(extra)).error();
        assert_eq!((status, &code[..]), (400, "invalid_request_error"), "{message}");
        assert_eq!(named, param, "{message}");
        assert!(message.contains(part), "{message}");
    };
    check(json!({"temperature": "hot"}), "temperature", "invalid type: string \"hot\"");
    check(json!({"temperature": -1}), "temperature", "temperature is -1");
    check(json!({"top_p": 0}), "top_p", "give a number above 0 and up to 1");
    check(json!({"n": 1_000_000}), "n", "give 1 to 128");
    check(json!({"min_tokens": 21}), "min_tokens", "give at most max_tokens, which is 20");
    check(json!({"top_logprobs": 2}), "top_logprobs", "needs `logprobs: true`");
    check(json!({"messages": [3]}), "messages[0]", "invalid type");
    check(json!({"tempratur": 1}), "tempratur", "did you mean `temperature`?");
}

#[test]
fn fields_without_effect_are_named_in_a_header() {
    let server = TestServer::storyteller();
    let reply = server.post(PATH, &body(json!({"user": "x", "stream_options": {"frobnicate": 1}})));
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.header("x-peri-ignored"), Some("stream_options.frobnicate, user"));
}

#[test]
fn a_prompt_beyond_the_context_is_refused_with_both_counts() {
    let server = TestServer::storyteller();
    let long = "word ".repeat(5000);
    let (status, code, _, message) =
        server.post(PATH, &json!({"messages": [{"role": "user", "content": long}]})).error();
    assert_eq!((status, &code[..]), (400, "context_length_exceeded"));
    assert!(message.contains("maximum context length is 256 tokens"), "{message}");
}
