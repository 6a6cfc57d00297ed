//! `/v1/responses`.

use serde_json::{Value, json};
use serve::ServerConfig;

use crate::server::{TestServer, storyteller};

const PATH: &str = "/v1/responses";

fn body(extra: Value) -> Value {
    let mut body = json!({
        "model": "storyteller", "input": "Once upon a time", "max_output_tokens": 20, "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn text(response: &Value) -> String {
    response["output"][0]["content"][0]["text"].as_str().unwrap().to_string()
}

#[test]
fn a_response_has_the_shape_of_the_openai_api() {
    let server = TestServer::storyteller();
    let response = server.post(PATH, &body(json!({"metadata": {"a": "b"}}))).ok();
    assert!(response["id"].as_str().unwrap().starts_with("resp_"));
    assert_eq!((&response["object"], &response["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!((&response["error"], &response["metadata"]), (&Value::Null, &json!({"a": "b"})));
    let item = &response["output"][0];
    assert!(item["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!((&item["type"], &item["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(item["content"][0]["type"], "output_text");
    assert_eq!(response["usage"]["output_tokens"], 20);
    let chat = json!({
        "messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 20, "temperature": 0,
    });
    let chat = server.post("/v1/chat/completions", &chat).ok();
    assert_eq!(text(&response), chat["choices"][0]["message"]["content"].as_str().unwrap());
    let ended = server.post(PATH, &body(json!({"max_output_tokens": 200, "stop": [" "]}))).ok();
    assert_eq!((&ended["status"], &ended["incomplete_details"]), (&json!("completed"), &Value::Null));
}

#[test]
fn a_stream_has_all_events_with_the_ids_of_the_end() {
    let server = TestServer::storyteller();
    let extra = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2});
    let whole = server.post(PATH, &body(extra.clone())).ok();
    let mut request = body(extra);
    request["stream"] = json!(true);
    let events = server.named_events(PATH, &request);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.strip_prefix("response.").unwrap()).collect();
    let first = ["created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"];
    assert_eq!(names[..5], first);
    let last = ["output_text.done", "content_part.done", "output_item.done", "incomplete"];
    assert_eq!(names[names.len() - 4..], last);
    assert!(names[4..names.len() - 4].iter().all(|name| *name == "output_text.delta"));
    for (index, (name, event)) in events.iter().enumerate() {
        assert_eq!((&event["type"], &event["sequence_number"]), (&json!(name), &json!(index)));
    }
    let end = &events.last().unwrap().1["response"];
    assert_eq!(events[0].1["response"]["id"], end["id"]);
    assert_eq!(events[0].1["response"]["status"], "in_progress");
    let item = &end["output"][0];
    for (_, event) in &events[2..events.len() - 1] {
        let id = event.get("item_id").unwrap_or_else(|| &event["item"]["id"]);
        assert_eq!((id, &event["output_index"]), (&item["id"], &json!(0)));
    }
    let deltas = || events.iter().map(|(_, event)| event).filter(|event| event["delta"].is_string());
    let streamed: String = deltas().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(streamed, text(&whole));
    assert_eq!(text(end), streamed);
    let logprobs: Vec<&Value> = deltas().flat_map(|event| event["logprobs"].as_array().unwrap()).collect();
    assert_eq!(json!(logprobs), item["content"][0]["logprobs"]);
    assert_eq!(item["content"], whole["output"][0]["content"]);
    assert_eq!(events[events.len() - 2].1["item"], *item);
    assert_eq!(end["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
}

#[test]
fn a_response_goes_on_from_a_stored_one_without_its_instructions() {
    let server = TestServer::storyteller();
    let first = server.post(PATH, &body(json!({"instructions": "Be brief."}))).ok();
    let id = first["id"].as_str().unwrap();
    let next = body(
        json!({"previous_response_id": id, "input": "Go on.", "instructions": "Be kind.", "dry_run": true}),
    );
    let tokens = server.post(PATH, &next).ok()["prompt_token_ids"][0].clone();
    let messages = json!([
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Once upon a time"},
        {"role": "assistant", "content": text(&first)},
        {"role": "user", "content": "Go on."},
    ]);
    assert_eq!(tokens, server.post("/tokenize", &json!({"messages": messages})).ok()["tokens"]);
    let streamed = body(json!({"previous_response_id": id, "input": "Go on.", "stream": true}));
    let (_, end) = server.named_events(PATH, &streamed).pop().unwrap();
    let third = json!({"previous_response_id": end["response"]["id"], "input": [{"role": "user", "content": "And?"}]});
    assert_eq!(server.post(PATH, &body(third)).ok()["previous_response_id"], end["response"]["id"]);
}

#[test]
fn stored_responses_are_shown_listed_and_deleted() {
    let server = TestServer::storyteller();
    let input =
        json!([{"role": "user", "content": "One."}, {"role": "user", "content": "Two.", "id": "mine"}]);
    let response = server.post(PATH, &body(json!({"input": input}))).ok();
    let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
    assert_eq!(server.get(&path).ok(), response);
    let items = server.get(&format!("{path}/input_items?order=asc")).ok();
    assert_eq!(items["data"][0]["content"], "One.");
    assert_eq!((&items["last_id"], &items["has_more"]), (&json!("mine"), &json!(false)));
    let newest = server.get(&format!("{path}/input_items?limit=1")).ok();
    assert_eq!((&newest["first_id"], &newest["has_more"]), (&json!("mine"), &json!(true)));
    let rest = server.get(&format!("{path}/input_items?after=mine")).ok();
    assert_eq!(rest["data"][0]["content"], "One.");
    assert_eq!(server.get(&format!("{path}/input_items?limit=0")).error().2, "limit");
    assert_eq!(server.post(&format!("{path}/cancel"), &json!({})).status, 400);
    assert_eq!(server.delete(&path).ok()["deleted"], true);
    let (status, code, _, _) = server.get(&path).error();
    assert_eq!((status, &code[..]), (404, "response_not_found"));
    assert_eq!(server.delete(&path).status, 404);
}

#[test]
fn responses_are_kept_only_if_request_and_server_want_it() {
    let server = TestServer::storyteller();
    let response = server.post(PATH, &body(json!({"store": false}))).ok();
    assert_eq!(server.get(&format!("{PATH}/{}", response["id"].as_str().unwrap())).status, 404);
    let config = ServerConfig { max_stored_responses: 0, ..ServerConfig::default() };
    let server = TestServer::new(config, vec![storyteller()]);
    let response = server.post(PATH, &body(json!({}))).ok();
    let next = body(json!({"previous_response_id": response["id"]}));
    let (status, code, param, _) = server.post(PATH, &next).error();
    assert_eq!((status, &code[..], param), (404, "response_not_found", json!("previous_response_id")));
}

#[test]
fn fields_that_are_not_supported_are_refused() {
    let server = TestServer::storyteller();
    let check = |extra: Value, param: &str| {
        let (status, _, named, message) = server.post(PATH, &body(extra)).error();
        assert_eq!((status, named), (400, json!(param)), "{message}");
    };
    check(json!({"truncation": "left"}), "truncation");
    check(json!({"background": true}), "background");
    check(json!({"tools": [{"name": "f"}]}), "tools[0].type");
    check(json!({"tools": [{"type": "web_search"}, {"type": "function", "name": "a b"}]}), "tools[1].name");
    let inner = json!([{"type": "function", "name": "f", "parameters": 3}]);
    let namespace = json!({"type": "namespace", "name": "n", "tools": inner});
    check(json!({"tools": [namespace]}), "tools[0].tools[0].parameters");
    check(json!({"text": {"format": {"type": "json_schema", "schema": {"not": {}}}}}), "text.format");
    check(json!({"reasoning": {"effort": "hard"}}), "reasoning.effort");
    check(json!({"conversation": "conv_1"}), "conversation");
    check(json!({"top_logprobs": 2}), "top_logprobs");
    check(json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0].id");
    check(json!({"input": []}), "input");
    check(json!({"input": null}), "input");
    let accepted = json!({
        "truncation": "disabled", "text": {"format": {"type": "text"}}, "tools": [], "background": false,
        "include": ["reasoning.encrypted_content", "web_search_call.results"], "reasoning": {"effort": "low"},
    });
    let reply = server.post(PATH, &body(accepted));
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.header("x-peri-ignored"), Some("include.web_search_call.results, reasoning.effort"));
}

#[test]
fn fields_of_the_api_without_effect_are_named() {
    let server = TestServer::storyteller();
    let fields = json!({
        "client_metadata": {"session_id": "s"}, "context_management": [{"type": "compaction"}], "max_tool_calls": 3,
        "moderation": {}, "prompt_cache_options": {}, "prompt_cache_retention": "24h",
        "safety_identifier": "s", "service_tier": "auto", "stream_options": {"include_obfuscation": false},
        "truncation": "auto", "user": "u", "reasoning": {"summary": "auto"}, "text": {"verbosity": "low"},
        "tools": [{"type": "web_search", "external_web_access": false}], "tool_choice": {"type": "web_search"},
        "parallel_tool_calls": true, "prompt_cache_key": "k", "conversation": null, "prompt": null,
    });
    let reply = server.post(PATH, &body(fields.clone()));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let ignored: Vec<&str> = reply.header("x-peri-ignored").unwrap().split(", ").collect();
    for name in [
        "client_metadata",
        "context_management",
        "max_tool_calls",
        "moderation",
        "parallel_tool_calls",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning.summary",
        "safety_identifier",
        "service_tier",
        "stream_options",
        "text.verbosity",
        "tool_choice",
        "tools[0].web_search",
        "truncation",
        "user",
    ] {
        assert!(ignored.contains(&name), "{name} is not among {ignored:?}");
    }
    let response = reply.json();
    assert_eq!((&response["tools"], &response["tool_choice"]), (&fields["tools"], &fields["tool_choice"]));
}

#[test]
fn tokens_of_an_input_are_counted_as_they_would_be_read() {
    let server = TestServer::storyteller();
    let first = server.post(PATH, &body(json!({}))).ok();
    let input = json!([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    for extra in
        [json!({}), json!({"input": input}), json!({"previous_response_id": first["id"], "input": "Go on."})]
    {
        let request = body(extra);
        let counted = server.post("/v1/responses/input_tokens", &request).ok();
        assert_eq!(counted["object"], "response.input_tokens");
        assert_eq!(counted["input_tokens"], server.post(PATH, &request).ok()["usage"]["input_tokens"]);
    }
    assert_eq!(server.post("/v1/responses/input_tokens", &json!({"input": 3})).error().2, "input");
}

#[test]
fn items_of_stored_responses_are_found_by_their_ids() {
    let server = TestServer::storyteller();
    let first = server.post(PATH, &body(json!({}))).ok();
    let prompt = |input: Value| {
        let request = body(json!({"input": input, "dry_run": true}));
        server.post(PATH, &request).ok()["prompt_token_ids"].clone()
    };
    let user = json!({"role": "user", "content": "Once upon a time"});
    let (more, item) = (json!({"role": "user", "content": "Go on."}), &first["output"][0]);
    let reference = json!({"type": "item_reference", "id": item["id"]});
    assert_eq!(prompt(json!([user, reference, more])), prompt(json!([user, item, more])));
    assert_ne!(prompt(json!([user, reference, more])), prompt(json!([user, more])));
}

#[test]
fn a_stored_response_is_streamed_with_the_events_of_its_items() {
    let server = TestServer::storyteller();
    let response = server.post(PATH, &body(json!({}))).ok();
    let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
    let reply = server.get(&format!("{path}?stream=true&starting_after=3"));
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(reply.header("x-peri-ignored"), Some("starting_after"));
    let events: Vec<Value> = reply
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap().strip_prefix("response.").unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "incomplete"
        ]
    );
    assert!(events.iter().enumerate().all(|(number, event)| event["sequence_number"] == number));
    assert_eq!(
        (&events[0]["response"]["status"], &events[0]["response"]["output"]),
        (&json!("in_progress"), &json!([]))
    );
    assert_eq!(events[2]["item"]["content"], json!([]));
    assert_eq!((&events[4]["delta"], &events[7]["item"]), (&json!(text(&response)), &response["output"][0]));
    assert_eq!(events[8]["response"], response);
    assert_eq!(server.get(&format!("{path}?stream=false")).ok(), response);
    assert_eq!(server.get(&format!("{PATH}/none?stream=true")).status, 404);
}
