//! `/v1/messages` and `/v1/messages/count_tokens`.

use serde_json::{Value, json};
use serve::ServerConfig;

use crate::raw::{exchange, request, status};
use crate::server::{TestServer, storyteller};

const PATH: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";

fn body(extra: Value) -> Value {
    let mut body = json!({
        "model": "storyteller",
        "max_tokens": 20,
        "messages": [{"role": "user", "content": "Once upon a time"}],
        "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn error(server: &TestServer, path: &str, body: &Value) -> (u16, String, String) {
    let reply = server.post(path, body);
    let object = reply.json();
    assert_eq!(object["type"], "error", "{}", reply.text);
    assert_eq!(object["request_id"], reply.header("x-request-id").unwrap());
    let text = |name: &str| object["error"][name].as_str().unwrap().to_string();
    (reply.status, text("type"), text("message"))
}

#[test]
fn an_answer_has_the_shape_of_the_anthropic_api() {
    let server = TestServer::storyteller();
    let answer = server.post(PATH, &body(json!({}))).ok();
    assert!(answer["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!(answer["type"], "message");
    assert_eq!((&answer["role"], &answer["model"]), (&json!("assistant"), &json!("storyteller")));
    assert_eq!(answer["content"][0]["type"], "text");
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("max_tokens"), &Value::Null));
    assert_eq!(answer["usage"]["output_tokens"], 20);
    let request = json!({"messages": body(json!({}))["messages"], "max_tokens": 20, "temperature": 0});
    let chat = server.post("/v1/chat/completions", &request).ok();
    assert_eq!(answer["content"][0]["text"], chat["choices"][0]["message"]["content"]);
}

#[test]
fn a_stream_has_all_events_in_order_and_the_same_text() {
    let server = TestServer::storyteller();
    let whole = server.post(PATH, &body(json!({}))).ok();
    let events = server.named_events(PATH, &body(json!({"stream": true})));
    let names: Vec<&str> = events.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names[..4], ["message_start", "ping", "content_block_start", "content_block_delta"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert!(names[3..names.len() - 3].iter().all(|name| *name == "content_block_delta"));
    assert!(events.iter().all(|(name, event)| event["type"] == name[..]));
    let start = &events[0].1["message"];
    assert_eq!((&start["stop_reason"], &start["content"]), (&Value::Null, &json!([])));
    let text: String = events.iter().filter_map(|(_, event)| event["delta"]["text"].as_str()).collect();
    assert_eq!(text, whole["content"][0]["text"].as_str().unwrap());
    let (_, end) = &events[events.len() - 2];
    assert_eq!(end["delta"], json!({"stop_reason": "max_tokens", "stop_sequence": null}));
    assert_eq!(end["usage"]["output_tokens"], 20);
    assert_eq!(end["usage"]["input_tokens"], start["usage"]["input_tokens"]);
}

#[test]
fn the_counts_of_input_add_up_when_the_prompt_is_cached() {
    let server = TestServer::storyteller();
    let system = "The fox lives in the old forest by the river and likes to tell stories. ".repeat(3);
    let request = body(json!({"system": [{"type": "text", "text": system}], "max_tokens": 1}));
    let first = server.post(PATH, &request).ok()["usage"].clone();
    let second = server.post(PATH, &request).ok()["usage"].clone();
    assert_eq!(first["cache_read_input_tokens"], 0);
    let count = |usage: &Value, name: &str| usage[name].as_u64().unwrap();
    assert!(count(&second, "cache_read_input_tokens") >= 16, "{second}");
    let sum = count(&second, "cache_read_input_tokens") + count(&second, "input_tokens");
    assert_eq!(sum, count(&first, "input_tokens"));
    assert_eq!(server.post(COUNT, &body(json!({"system": system}))).ok()["input_tokens"], sum);
    let events = server.named_events(PATH, &body(json!({"system": system, "stream": true})));
    assert_eq!(events[0].1["message"]["usage"]["cache_read_input_tokens"], second["cache_read_input_tokens"]);
}

#[test]
fn a_last_message_of_the_assistant_is_continued() {
    let server = TestServer::storyteller();
    let whole = server.post(PATH, &body(json!({"max_tokens": 30}))).ok();
    let text = whole["content"][0]["text"].as_str().unwrap();
    let (first, rest) = text.split_at(text[1..].find(' ').unwrap() + 1);
    let messages = json!([
        {"role": "user", "content": "Once upon a time"},
        {"role": "assistant", "content": [{"type": "text", "text": first}]},
    ]);
    let continued = server.post(PATH, &body(json!({"messages": messages, "max_tokens": 30}))).ok();
    let added = continued["content"][0]["text"].as_str().unwrap();
    let length = added.len().min(rest.len());
    assert!(length > 20 && added[..length] == rest[..length], "{added:?} {rest:?}");
}

#[test]
fn stop_sequences_end_answers_and_are_named() {
    let server = TestServer::storyteller();
    let whole = server.post(PATH, &body(json!({}))).ok()["content"][0]["text"].clone();
    let word = whole.as_str().unwrap().split(' ').nth(3).unwrap();
    let request = json!({"stop_sequences": ["never in there", word]});
    let answer = server.post(PATH, &body(request)).ok();
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("stop_sequence"), &json!(word)));
    assert!(!answer["content"][0]["text"].as_str().unwrap().contains(word));
    let (status, kind, message) = error(&server, PATH, &body(json!({"stop_sequences": [""]})));
    assert_eq!((status, &kind[..]), (400, "invalid_request_error"));
    assert!(message.starts_with("stop_sequences is \"\""), "{message}");
}

#[test]
fn the_line_of_coding_agents_does_not_reach_the_model() {
    let agent = |turn: usize| format!("x-anthropic-billing-header: cc_version=2; cch={turn};\nBe brief.");
    let count = |server: &TestServer, system: String| {
        server.post(COUNT, &body(json!({"system": system}))).ok()["input_tokens"].clone()
    };
    let server = TestServer::storyteller();
    assert_eq!(count(&server, agent(1)), count(&server, "Be brief.".to_string()));
    let config = ServerConfig { keep_attribution_header: true, ..ServerConfig::default() };
    let server = TestServer::new(config, vec![storyteller()]);
    assert_ne!(count(&server, agent(1)), count(&server, "Be brief.".to_string()));
}

#[test]
fn all_errors_have_the_shape_of_the_anthropic_api() {
    let config = ServerConfig { max_body_bytes: 4000, ..ServerConfig::default() };
    let server = TestServer::new(config, vec![storyteller()]);
    let check = |request: Value, status: u16, kind: &str, part: &str| {
        let (given, name, message) = error(&server, PATH, &request);
        assert_eq!((given, &name[..]), (status, kind), "{message}");
        assert!(message.contains(part), "{message}");
    };
    check(json!({"messages": []}), 400, "invalid_request_error", "missing field `max_tokens`");
    check(body(json!({"messages": []})), 400, "invalid_request_error", "give at least one message");
    check(body(json!({"model": "claude"})), 404, "not_found_error", "there is no model `claude`");
    let search = json!({"name": "web_search", "type": "web_search_20250305"});
    let tools = json!({"tools": [search, {"name": "x", "input_schema": 3}]});
    check(body(tools), 400, "invalid_request_error", "tools[1].input_schema: is not an object");
    check(json!({"messages": "x".repeat(5000)}), 413, "request_too_large", "");
    let reply = server.get(PATH);
    assert_eq!((reply.status, &reply.json()["type"]), (405, &json!("error")));
    assert_eq!(server.get("/v1/messages/batches").json()["error"]["type"], "not_found_error");
    assert!(server.get("/v1/messagess").json()["error"]["code"] == "route_not_found");
}

#[test]
fn thinking_is_named_as_ignored() {
    let server = TestServer::storyteller();
    let request = body(json!({"thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {}}));
    assert_eq!(server.post(PATH, &request).header("x-peri-ignored"), Some("metadata, thinking"));
    let request = body(
        json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}}),
    );
    assert_eq!(server.post(PATH, &request).header("x-peri-ignored"), Some("output_config.effort, thinking"));
}

#[test]
fn fields_of_the_api_without_effect_are_named_by_both_routes() {
    let server = TestServer::storyteller();
    let fields = json!({
        "billing_policy": {}, "cache_control": {"type": "ephemeral"}, "compaction": {}, "container": "c",
        "context_management": {"edits": []}, "diagnostics": {}, "fallbacks": [], "inference_geo": "eu",
        "mcp_servers": [], "service_tier": "auto", "betas": ["x"], "user_profile_id": "u", "workspace_id": "w",
        "tools": [{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}],
        "tool_choice": {"type": "tool", "name": "web_search"}, "output_config": {"task_budget": {}},
    });
    for path in [PATH, COUNT] {
        let reply = server.post(path, &body(fields.clone()));
        assert_eq!(reply.status, 200, "{}", reply.text);
        let ignored: Vec<&str> = reply.header("x-peri-ignored").unwrap().split(", ").collect();
        for name in [
            "billing_policy",
            "cache_control",
            "compaction",
            "container",
            "context_management",
            "diagnostics",
            "fallbacks",
            "inference_geo",
            "mcp_servers",
            "service_tier",
            "betas",
            "user_profile_id",
            "workspace_id",
            "tools[0].web_search_20250305",
            "tool_choice",
            "output_config.task_budget",
        ] {
            assert!(ignored.contains(&name), "{name} is not among {ignored:?}");
        }
    }
}

#[test]
fn answers_have_the_form_of_either_field() {
    let server = TestServer::storyteller();
    let schema = json!({
        "type": "object", "required": ["age"], "additionalProperties": false,
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    });
    let format = json!({"type": "json_schema", "schema": schema});
    for form in [json!({"output_config": {"format": format}}), json!({"output_format": format})] {
        let mut request = body(form);
        request["max_tokens"] = json!(100);
        let text = server.post(PATH, &request).ok()["content"][0]["text"].clone();
        let object: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        assert!(object["age"].as_u64().unwrap() < 100, "{object}");
    }
    let wrong = json!({"output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}});
    let (status, _, message) = error(&server, PATH, &body(wrong));
    assert_eq!(status, 400);
    assert!(message.contains("output_config.format"), "{message}");
    let other = json!({"output_format": {"type": "xml"}});
    assert_eq!(error(&server, PATH, &body(other)).0, 400);
}

#[test]
fn messages_of_the_system_reach_the_model_wherever_they_are() {
    let server = TestServer::storyteller();
    let count = |messages: Value| {
        server.post(COUNT, &body(json!({"messages": messages}))).ok()["input_tokens"].as_u64().unwrap()
    };
    let user = json!({"role": "user", "content": "Hi"});
    let system = json!({"role": "system", "content": "Be brief."});
    assert!(count(json!([user, system])) > count(json!([user])));
}

#[test]
fn models_and_errors_have_the_shape_of_the_api_for_its_clients() {
    let server = TestServer::storyteller();
    let ask = |path: &str| {
        let version = [("Host", "localhost"), ("anthropic-version", "2023-06-01"), ("x-request-id", "mine")];
        let reply = exchange(server.address(), &request("GET", path, &version, ""));
        let (head, text) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.to_lowercase().contains("\r\nrequest-id: mine"), "{head}");
        let text = &text[text.find('{').unwrap()..=text.rfind('}').unwrap()];
        (status(&reply), serde_json::from_str::<Value>(text).unwrap())
    };
    let (_, list) = ask("/v1/models");
    let model = &list["data"][0];
    assert_eq!(
        (&model["type"], &model["id"], &model["display_name"]),
        (&json!("model"), &json!("storyteller"), &json!("storyteller"))
    );
    assert!(model["created_at"].as_str().unwrap().ends_with('Z'), "{model}");
    assert_eq!(
        (&list["has_more"], &list["first_id"], &list["last_id"]),
        (&json!(false), &model["id"], &model["id"])
    );
    assert_eq!(ask("/v1/models/storyteller-alias"), (200, model.clone()));
    let (status, missing) = ask("/v1/models/claude");
    assert_eq!(
        (status, &missing["error"]["type"], &missing["request_id"]),
        (404, &json!("not_found_error"), &json!("mine"))
    );
    let reply = server.post(PATH, &body(json!({})));
    assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
    assert_eq!(server.get("/v1/models").ok()["object"], "list");
}
