//! The fields of `/v1/chat/completions`, one by one.

use std::collections::BTreeSet;

use pipelines::config::PipelineConfig;
use serde_json::{Value, json};
use serve::ServerConfig;
use tempfile::TempDir;

use crate::server::{Reply, TestServer, model};

const PATH: &str = "/v1/chat/completions";

/// A template that reads all that requests can say to one.
const TEMPLATE: &str = "{{- bos_token -}}
{%- if tools -%}({{ tools | length }} tools) {% endif -%}
{%- if reasoning_effort is defined -%}({{ reasoning_effort }} effort) {% endif -%}
{%- for message in messages -%}({{ message.role }}) {{ message.content }}. {% endfor -%}
{%- if add_generation_prompt -%}(assistant) {% endif -%}
{{- note -}}";

/// A server of the storyteller with a chat template. Its folder goes with the test.
fn templated() -> Option<(TestServer, TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(testdata::shared("storyteller/hf")?).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    std::fs::write(folder.path().join("chat_template.jinja"), TEMPLATE).unwrap();
    let config = PipelineConfig::new(folder.path().display().to_string());
    Some((TestServer::new(ServerConfig::default(), vec![model("templated", config)]), folder))
}

fn merged(mut body: Value, extra: &Value) -> Value {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn body(extra: &Value) -> Value {
    let text = "There was a fox who lived by the river and told stories to the raven every evening";
    let messages = json!([{"role": "user", "content": text}]);
    merged(json!({"messages": messages, "max_tokens": 20, "seed": 7, "temperature": 0.8}), extra)
}

/// A response without what differs between equal requests.
fn essence(reply: &Reply) -> Value {
    let bare = |text: &str| {
        let mut object: Value = serde_json::from_str(text).unwrap();
        for name in ["id", "created"] {
            object.as_object_mut().unwrap().remove(name);
        }
        object
    };
    if reply.text.starts_with('{') {
        return bare(&reply.text);
    }
    let events = reply.text.lines().filter_map(|line| line.strip_prefix("data: "));
    events.filter(|event| *event != "[DONE]").map(bare).collect()
}

/// The names of the properties of a schema, those of its parts included.
fn properties(document: &Value, schema: &Value, names: &mut BTreeSet<String>) {
    if let Some(path) = schema["$ref"].as_str() {
        properties(document, &document.pointer(path.trim_start_matches('#')).unwrap().clone(), names);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        properties(document, part, names);
    }
    names.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
}

/// A tool without arguments.
fn tools() -> Value {
    json!({"tools": [{"type": "function", "function": {"name": "look"}}]})
}

/// A value for a field, and the other fields that it needs to have an effect.
fn sample(field: &str) -> (Value, Value) {
    let prefill =
        json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Once"}]});
    let ends = json!({"logit_bias": {"1": 100}});
    let alone = |value: Value| (json!({}), value);
    match field {
        "messages" => alone(json!([{"role": "user", "content": "Other words"}])),
        "model" => alone(json!("other")),
        "tools" => alone(tools()["tools"].clone()),
        "tool_choice" => (tools(), json!("required")),
        // Calls go on until the limit, which leaves room for several.
        "parallel_tool_calls" => (
            merged(tools(), &json!({"tool_choice": "required", "ignore_eos": true, "max_tokens": 60})),
            json!(false),
        ),
        "thinking_token_budget" => alone(json!(5)),
        "reasoning_effort" => alone(json!("low")),
        "reasoning" => alone(json!({"effort": "low"})),
        "enable_thinking" => alone(json!(true)),
        "functions" => alone(json!([{"name": "weather"}])),
        "function_call" => (json!({"functions": [{"name": "look"}]}), json!({"name": "look"})),
        "add_generation_prompt" => alone(json!(false)),
        "continue_final_message" | "echo" => (prefill, json!(true)),
        "chat_template_kwargs" => alone(json!({"note": "x"})),
        "max_tokens" => alone(json!(3)),
        "n" => alone(json!(2)),
        "stream" | "logprobs" | "return_token_ids" | "include_metrics" | "dry_run" | "store"
        | "timings_per_token" => alone(json!(true)),
        "return_progress" => (json!({"stream": true}), json!(true)),
        "stream_options" => (json!({"stream": true}), json!({"include_usage": true})),
        "top_logprobs" => (json!({"logprobs": true}), json!(2)),
        "prompt_logprobs" => alone(json!(1)),
        "truncate_prompt_tokens" => alone(json!(5)),
        "temperature" => alone(json!(0)),
        "top_p" => alone(json!(0.05)),
        "top_k" => alone(json!(1)),
        "min_p" => alone(json!(0.9)),
        "presence_penalty" | "frequency_penalty" => alone(json!(2)),
        "repetition_penalty" => alone(json!(3)),
        "seed" => alone(json!(8)),
        "logit_bias" => alone(json!({"400": 100})),
        "stop" => alone(json!([" "])),
        "stop_token_ids" => (json!({"logit_bias": {"400": 100}}), json!([400])),
        "min_tokens" => (ends, json!(5)),
        "ignore_eos" => (ends, json!(true)),
        "cache_salt" => alone(json!("mine")),
        // Its effect is on memory; of the answer, only a wrong value shows that it is read.
        "keep_alive" => alone(json!("soon")),
        "modalities" => alone(json!(["text", "audio"])),
        "response_format" => alone(json!({"type": "json_object"})),
        "structured_outputs" => alone(json!({"choice": ["x"]})),
        "guided_json" => alone(json!({"type": "integer"})),
        "audio" | "prediction" | "web_search_options" => alone(json!({"a": 1})),
        "guided_regex" | "chat_template" => alone(json!("x")),
        "guided_grammar" => alone(json!("start: \"x\"")),
        "guided_choice" => alone(json!(["x"])),
        other => panic!("the test has no value for the field `{other}`"),
    }
}

#[test]
fn every_field_changes_the_answer_or_is_refused_or_named_as_ignored() {
    let Some((server, _folder)) = templated() else { return };
    let document = server.get("/openapi.json").ok();
    let mut fields = BTreeSet::new();
    properties(&document, &json!({"$ref": "#/components/schemas/ChatRequest"}), &mut fields);
    assert!(fields.len() > 40, "{fields:?}");
    let unknown = ["user", "safety_identifier", "metadata", "service_tier", "verbosity", "priority"];
    for field in fields.iter().map(String::as_str).chain(unknown) {
        let (base, value) = if unknown.contains(&field) { (json!({}), json!("x")) } else { sample(field) };
        let without = body(&base);
        // The first one fills the cache.
        server.post(PATH, &without);
        let expected = server.post(PATH, &without);
        let reply = server.post(PATH, &merged(without, &json!({field: value})));
        let is_named =
            reply.header("x-peri-ignored").is_some_and(|names| names.split(", ").any(|name| name == field));
        let is_refused = reply.status == 400 && reply.error().2 == field;
        let differs = essence(&reply) != essence(&expected);
        assert!(expected.status == 200, "{field}: {}", expected.text);
        if reply.status == 200 {
            // The template writes tools, but nothing reads calls.
            assert!(
                differs != is_named || ["functions", "tools"].contains(&field),
                "{field}: differs is {differs}, is named is {is_named}: {}",
                reply.text
            );
        } else {
            assert!(is_refused || field == "model" && reply.status == 404, "{field}: {}", reply.text);
        }
    }
}

#[test]
fn values_that_ask_for_nothing_are_named_as_ignored() {
    let server = TestServer::storyteller();
    let extra = json!({
        "modalities": ["text"], "store": false, "functions": [], "response_format": {"type": "text"}, "tools": [],
        "echo": true, "return_progress": true,
    });
    let reply = server.post(PATH, &body(&extra));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let ignored = reply.header("x-peri-ignored");
    assert_eq!(ignored, Some("echo, functions, modalities, response_format, return_progress, store"));
}

#[test]
fn null_is_a_field_that_is_not_given_beside_its_other_names_too() {
    let server = TestServer::storyteller();
    let document = server.get("/openapi.json").ok();
    let mut fields = BTreeSet::new();
    properties(&document, &json!({"$ref": "#/components/schemas/ChatRequest"}), &mut fields);
    let nulls = fields.iter().filter(|field| !["messages", "max_tokens", "seed"].contains(&&field[..]));
    let all: serde_json::Map<String, Value> = nulls.map(|field| (field.clone(), Value::Null)).collect();
    // The first one fills the cache.
    server.post(PATH, &body(&json!({"temperature": 0})));
    let plain = essence(&server.post(PATH, &body(&json!({"temperature": 0}))));
    let extra = merged(Value::Object(all), &json!({"temperature": 0}));
    let reply = server.post(PATH, &body(&extra));
    assert_eq!((reply.header("x-peri-ignored"), essence(&reply)), (None, plain));
    for extra in [
        json!({"max_tokens": null, "max_completion_tokens": 4}),
        json!({"max_completion_tokens": null, "max_tokens": 4}),
        json!({"n_predict": 4, "max_tokens": null, "max_completion_tokens": null}),
        json!({"repeat_penalty": null, "repetition_penalty": 1.1}),
        json!({"json_schema": null, "guided_json": {"type": "object"}}),
        json!({"stream_options": {"include_usage": null}}),
        json!({"logprobs": false, "top_logprobs": 0}),
        json!({"response_format": {"type": "json_schema", "json_schema": null, "schema": {"type": "object"}}}),
    ] {
        let reply = server.post(PATH, &body(&extra));
        assert_eq!((reply.status, reply.header("x-peri-ignored")), (200, None), "{extra}: {}", reply.text);
    }
    for other in ["max_completion_tokens", "n_predict"] {
        let (status, _, param, message) = server.post(PATH, &body(&json!({other: 4}))).error();
        assert_eq!((status, param), (400, json!("max_tokens")));
        assert_eq!(message, "max_tokens is given under two of its names: give one");
    }
    for field in ["messages", "prompt"] {
        let path = if field == "prompt" { "/v1/completions" } else { PATH };
        let (status, _, param, _) = server.post(path, &json!({field: null})).error();
        assert_eq!((status, param), (400, json!(field)));
    }
}

#[test]
fn fields_of_other_servers_are_named_and_misspelled_ones_refused() {
    let server = TestServer::storyteller();
    let cases = [
        "top_a",
        "chat_template_args",
        "speed",
        "models",
        "mode",
        "provider",
        "transforms",
        "route",
        "plugins",
        "usage",
        "cache_prompt",
        "id_slot",
        "samplers",
        "mirostat",
        "typical_p",
        "prompt_cache_key",
        "best_of",
        "n_probs",
        "n_keep",
        "min_keep",
        "user",
        "prefix",
        "streaming",
        "stop_sequence",
        "rid",
        "task",
        "p",
        "k",
    ];
    for field in cases {
        let extra = json!({field: {"a": 1}});
        let reply = server.post(PATH, &body(&extra));
        assert_eq!((reply.status, reply.header("x-peri-ignored")), (200, Some(field)), "{}", reply.text);
        let text = merged(json!({"prompt": "Once", "max_tokens": 1}), &extra);
        assert_eq!(server.post("/v1/completions", &text).status, 200, "{field}");
        let ollama =
            merged(json!({"prompt": "Once", "stream": false, "options": {"num_predict": 1}}), &extra);
        assert_eq!(server.post("/api/generate", &ollama).status, 200, "{field}");
    }
    for field in ["temprature", "max_token", "message", "seeds", "top_q"] {
        let (status, _, param, message) = server.post(PATH, &body(&json!({field: 1}))).error();
        assert_eq!((status, param), (400, json!(field)), "{message}");
    }
}

#[test]
fn a_prompt_cache_key_shares_prefixes_with_requests_without_one() {
    let server = TestServer::storyteller();
    server.post(PATH, &body(&json!({}))).ok();
    let cached = |extra: &Value| {
        let usage = server.post(PATH, &body(extra)).ok()["usage"].clone();
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let hinted = cached(&json!({"prompt_cache_key": "agent-1"}));
    assert!(hinted > 0 && hinted == cached(&json!({})));
    assert_eq!(cached(&json!({"cache_salt": "agent-1"})), 0);
}

#[test]
fn conversations_have_a_message() {
    let server = TestServer::storyteller();
    for path in [PATH, "/apply-template", "/tokenize"] {
        let (status, _, param, message) = server.post(path, &json!({"messages": []})).error();
        assert_eq!((status, param), (400, json!("messages")), "{path}: {message}");
    }
    for message in [json!(123), json!({}), json!({"role": 123}), json!("string")] {
        assert_eq!(server.post(PATH, &json!({"messages": [message]})).status, 400, "{message}");
    }
}

#[test]
fn routes_answer_without_their_version() {
    let server = TestServer::storyteller();
    for (path, body) in [
        ("/chat/completions", body(&json!({}))),
        ("/completions", json!({"model": "storyteller", "prompt": "Once", "max_tokens": 1, "seed": 1})),
        ("/responses", json!({"input": "Hi", "max_output_tokens": 16, "seed": 1})),
        ("/messages", json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})),
        ("/messages/count_tokens", json!({"messages": [{"role": "user", "content": "Hi"}]})),
    ] {
        let reply = server.post(path, &body).ok();
        let mut expected = server.post(&format!("/v1{path}"), &body).ok();
        let names = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&reply), names(&expected), "{path}");
        assert_eq!(expected["usage"].take()["prompt_tokens"], reply["usage"]["prompt_tokens"], "{path}");
    }
    let stored = server.post("/responses", &json!({"input": "Hi", "max_output_tokens": 16})).ok();
    let id = stored["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/responses/{id}")).ok()["id"], stored["id"]);
    assert_eq!(server.get(&format!("/responses/{id}/input_items")).status, 200);
    assert_eq!(server.get("/models").ok(), server.get("/v1/models").ok());
    assert_eq!(server.get("/models/storyteller").ok()["id"], "storyteller");
    assert_eq!(server.post("/messages", &json!({})).json()["type"], "error");
}

#[test]
fn tokens_of_prompt_and_answer_are_given_whole_and_in_streams() {
    let server = TestServer::storyteller();
    let whole = server.post(PATH, &body(&json!({"return_token_ids": true}))).ok();
    let (prompt, answer) = (&whole["prompt_token_ids"], &whole["choices"][0]["token_ids"]);
    assert_eq!(prompt.as_array().unwrap().len() as u64, whole["usage"]["prompt_tokens"].as_u64().unwrap());
    assert_eq!(answer.as_array().unwrap().len(), 20);
    let text = server.post("/detokenize", &json!({"tokens": answer})).ok();
    assert_eq!(text["prompt"], whole["choices"][0]["message"]["content"]);
    let events = server.events(PATH, &body(&json!({"return_token_ids": true, "stream": true})));
    assert_eq!(events[0]["prompt_token_ids"], *prompt);
    let streamed: Vec<&Value> = events
        .iter()
        .flat_map(|event| event["choices"][0]["token_ids"].as_array().into_iter().flatten())
        .collect();
    assert_eq!(json!(streamed), *answer);
}

#[test]
fn a_prompt_is_scored_token_by_token() {
    let server = TestServer::storyteller();
    let extra = json!({"prompt_logprobs": 2, "return_token_ids": true});
    let answer = server.post(PATH, &body(&extra)).ok();
    let places = answer["prompt_logprobs"].as_array().unwrap();
    let tokens = answer["prompt_token_ids"].as_array().unwrap();
    assert_eq!((places.len(), &places[0]), (tokens.len(), &Value::Null));
    for (place, token) in places.iter().zip(tokens).skip(1) {
        let chosen = &place[token.to_string()];
        assert!(chosen["logprob"].as_f64().unwrap() <= 0.0 && chosen["decoded_token"].is_string());
        let ranks: BTreeSet<u64> =
            place.as_object().unwrap().values().filter_map(|entry| entry["rank"].as_u64()).collect();
        assert_eq!(ranks, BTreeSet::from([1, 2]));
    }
    let (status, _, param, _) =
        server.post(PATH, &body(&json!({"prompt_logprobs": 1, "stream": true}))).error();
    assert_eq!((status, param), (400, json!("prompt_logprobs")));
}

#[test]
fn a_prompt_is_cut_from_the_front_only_if_asked() {
    let server = TestServer::storyteller();
    let ids = |extra: Value| {
        let extra = merged(json!({"dry_run": true}), &extra);
        let answer = server.post(PATH, &body(&extra)).ok();
        serde_json::from_value::<Vec<u32>>(answer["prompt_token_ids"][0].clone()).unwrap()
    };
    let whole = ids(json!({}));
    assert_eq!(ids(json!({"truncate_prompt_tokens": 5})), whole[whole.len() - 5..]);
    assert_eq!(ids(json!({"truncate_prompt_tokens": 5000})), whole);
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(2000)}], "truncate_prompt_tokens": -1});
    assert_eq!(ids(long).len(), 256 - 20);
    let (status, _, param, _) = server.post(PATH, &body(&json!({"truncate_prompt_tokens": 0}))).error();
    assert_eq!((status, param), (400, json!("truncate_prompt_tokens")));
}

#[test]
fn a_continued_message_comes_back_whole_with_echo() {
    let server = TestServer::storyteller();
    let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Once upon"}]);
    let prefill = json!({"messages": messages, "continue_final_message": true});
    let content = |extra: &Value| {
        let answer = server.post(PATH, &body(&merged(prefill.clone(), extra))).ok();
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_string()
    };
    let echoed = content(&json!({"echo": true}));
    assert_eq!(echoed, format!("Once upon{}", content(&json!({}))));
    let events = server.events(PATH, &body(&merged(prefill.clone(), &json!({"echo": true, "stream": true}))));
    let streamed: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(streamed, echoed);
}

#[test]
fn metrics_are_given_whole_and_in_streams() {
    let server = TestServer::storyteller();
    let whole = server.post(PATH, &body(&json!({"include_metrics": true}))).ok();
    let events = server.events(PATH, &body(&json!({"include_metrics": true, "stream": true})));
    for metrics in [&whole["metrics"], &events.last().unwrap()["metrics"]] {
        let number = |name: &str| metrics[name].as_f64().unwrap();
        assert!(number("tokens_per_second") > 0.0 && number("answer_ms") > 0.0, "{metrics}");
        let first = number("queue_ms") + number("prompt_ms");
        assert!((number("time_to_first_token_ms") - first).abs() < 1e-6);
    }
}
