//! Answers of a given form.

use serde_json::{Value, json};

use crate::server::TestServer;

const PATH: &str = "/v1/chat/completions";

fn body(extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 100, "seed": 3,
        "temperature": 2,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn answers_have_the_form_that_each_field_gives() {
    let server = TestServer::storyteller();
    let schema = json!({
        "type": "object", "required": ["age", "good"], "additionalProperties": false,
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}, "good": {"type": "boolean"}},
    });
    for field in [
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": true, "schema": schema}}}),
        json!({"guided_json": schema}),
        json!({"json_schema": schema}),
        json!({"structured_outputs": {"json": schema.to_string()}}),
    ] {
        let answer = server.post(PATH, &body(field)).ok();
        let object: Value = serde_json::from_str(content(&answer)).unwrap();
        assert!(object["age"].as_u64().unwrap() < 100 && object["good"].is_boolean(), "{object}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
    let answer = server.post(PATH, &body(json!({"guided_choice": ["a fox", "a raven"]}))).ok();
    assert!(["a fox", "a raven"].contains(&content(&answer)), "{answer}");
    let request =
        json!({"prompt": "Once", "max_tokens": 50, "structured_outputs": {"regex": "[0-9]{3}-[a-c]"}});
    let answer = server.post("/v1/completions", &request).ok();
    let text = answer["choices"][0]["text"].as_str().unwrap();
    assert!(text.len() == 5 && text.as_bytes()[3] == b'-', "{text}");
}

#[test]
fn a_form_that_cannot_be_enforced_is_refused_with_its_place() {
    let server = TestServer::storyteller();
    let check = |extra: Value, param: &str, part: &str| {
        let (status, _, named, message) = server.post(PATH, &body(extra)).error();
        assert_eq!((status, named), (400, json!(param)), "{message}");
        assert!(message.contains(part), "{message}");
    };
    let schema = json!({"properties": {"a": {"not": {"type": "string"}}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    check(json!({"response_format": format}), "response_format", "/properties/a");
    check(json!({"guided_regex": "(a"}), "guided_regex", "regex");
    check(json!({"guided_json": {}, "guided_regex": "a"}), "guided_regex", "give one");
    check(json!({"response_format": {"type": "xml"}}), "response_format.type", "xml");
}
