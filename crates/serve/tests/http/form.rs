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
        json!({"response_format": {"type": "json_schema", "name": "a", "strict": true, "schema": schema}}),
        json!({"response_format": {"type": "json_object", "schema": schema}}),
        json!({"response_format": {"type": "json", "value": schema}}),
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
    for (field, form) in [
        ("structured_outputs", json!({"regex": "[0-9]{3}-[a-c]"})),
        ("regex", json!("[0-9]{3}-[a-c]")),
        ("response_format", json!({"type": "regex", "pattern": "[0-9]{3}-[a-c]"})),
        ("response_format", json!({"type": "grammar", "grammar": "root ::= [0-9]{3} \"-\" [a-c]"})),
        (
            "response_format",
            json!({"type": "json_object", "schema": {"type": "object", "required": ["a"],
            "properties": {"a": {"const": 1}}, "additionalProperties": false}}),
        ),
    ] {
        let request = json!({"prompt": "Once", "max_tokens": 50, field: form});
        let answer = server.post("/v1/completions", &request).ok();
        let text = answer["choices"][0]["text"].as_str().unwrap();
        let is_object = serde_json::from_str::<Value>(text).is_ok_and(|object| object == json!({"a": 1}));
        assert!(is_object || text.len() == 5 && text.as_bytes()[3] == b'-', "{form}: {text}");
    }
}

#[test]
fn a_form_that_cannot_be_enforced_is_refused_with_its_place() {
    let server = TestServer::storyteller();
    let check = |extra: Value, param: &str, part: &str| {
        let (status, _, named, message) = server.post(PATH, &body(extra)).error();
        assert_eq!((status, named), (400, json!(param)), "{message}");
        assert!(message.contains(part), "{message}");
    };
    let schema = json!({"properties": {"a": {"not": {"format": "date"}}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    check(json!({"response_format": format}), "response_format", "/properties/a");
    check(json!({"guided_regex": "(a"}), "guided_regex", "regex");
    check(json!({"guided_json": {}, "guided_regex": "a"}), "guided_regex", "give one");
    check(json!({"response_format": {"type": "xml"}}), "response_format.type", "xml");
    check(json!({"response_format": {"type": "json_schema", "name": "a"}}), "response_format", "no schema");
    let twice = json!({"type": "json_schema", "schema": {}, "json_schema": {"schema": {}}});
    check(json!({"response_format": twice}), "response_format", "two schemas");
    for schema in [json!(123), json!({"type": 123}), json!({"type": "hiccup"})] {
        let format = json!({"type": "json_object", "schema": schema});
        check(json!({"response_format": format}), "response_format", "");
    }
}

#[test]
fn fields_of_a_form_without_effect_are_named() {
    let server = TestServer::storyteller();
    let ignored = |format: Value| {
        let reply = server.post(PATH, &body(json!({"response_format": format})));
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.header("x-peri-ignored").map(str::to_string)
    };
    let schema = json!({"name": "a", "strict": true, "description": "b", "schema": {"const": 1}});
    assert_eq!(ignored(json!({"type": "json_schema", "json_schema": schema})), None);
    let flat =
        json!({"type": "json_schema", "name": "a", "strict": true, "schema": {"const": 1}, "mode": "x"});
    assert_eq!(ignored(flat).as_deref(), Some("response_format.mode"));
    let object = json!({"type": "json_object", "schema": {"const": 1}, "strict": true, "other": 1});
    assert_eq!(ignored(object).as_deref(), Some("response_format.other"));
}
