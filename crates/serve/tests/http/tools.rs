//! Tools, reasoning and forms through all protocols: a small model that its template and grammars turn into one that
//! reasons and calls.

use pipelines::ToolFormat;
use pipelines::config::PipelineConfig;
use serde_json::{Value, json};
use serve::ServerConfig;
use tempfile::TempDir;

use crate::server::{TestServer, model};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const OLLAMA: &str = "/api/chat";

/// Writes calls as Qwen 3 does, and reasoning unless that is turned off.
const TEMPLATE: &str = "{{- bos_token -}}
{%- if tools %}Tools: {{ tools | tojson }}\n{% endif -%}
{%- for message in messages -%}
({{ message.role }}) {{ message.content }}
{%- if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>{% endif -%}
{%- for call in message.tool_calls or [] %}
<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}\n</tool_call>
{%- endfor %}\n{% endfor -%}
{%- if add_generation_prompt -%}(assistant) {% if enable_thinking is defined and not enable_thinking -%}
<think>\n\n</think>\n\n{% elif enable_thinking is defined %}<think>\n{% endif %}{% endif -%}";

/// A server of the storyteller with that template. Its folder goes with the test.
fn server() -> Option<(TestServer, TempDir)> {
    served(ServerConfig::default())
}

fn served(config: ServerConfig) -> Option<(TestServer, TempDir)> {
    with_template(TEMPLATE, config)
}

fn with_template(template: &str, config: ServerConfig) -> Option<(TestServer, TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(testdata::shared("storyteller/hf")?).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let mut own = model("caller", PipelineConfig::new(folder.path().display().to_string()));
    own.config = own.config.max_length(512);
    Some((TestServer::new(config, vec![own]), folder))
}

fn parameters() -> Value {
    json!({
        "type": "object", "required": ["city", "days"], "additionalProperties": false,
        "properties": {"city": {"enum": ["Köln", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    })
}

fn tool(name: &str) -> Value {
    let function =
        json!({"name": name, "description": "The weather.", "parameters": parameters(), "strict": true});
    json!({"type": "function", "function": function})
}

fn merged(mut body: Value, extra: Value) -> Value {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// A request that must call one of two tools, and does not reason.
fn body(extra: Value) -> Value {
    let messages = json!([{"role": "user", "content": "Weather?"}]);
    let body = json!({
        "messages": messages, "max_tokens": 150, "seed": 5, "reasoning_effort": "none",
        "tools": [tool("weather"), tool("forecast")], "tool_choice": "required", "parallel_tool_calls": false,
    });
    merged(body, extra)
}

fn check_arguments(arguments: &Value) {
    let (city, days) = (arguments["city"].as_str().unwrap(), arguments["days"].as_u64().unwrap());
    assert!(["Köln", "Rome"].contains(&city) && (1..10).contains(&days), "{arguments}");
}

fn parsed(arguments: &Value) -> Value {
    let text = arguments.as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

#[test]
fn a_required_call_has_the_shape_of_the_openai_api_whole_and_streamed() {
    let Some((server, _folder)) = server() else { return };
    let whole = server.post(CHAT, &body(json!({}))).ok();
    let choice = &whole["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &Value::Null)
    );
    let [call] = &choice["message"]["tool_calls"].as_array().unwrap()[..] else { panic!("{whole}") };
    let id = call["id"].as_str().unwrap();
    assert!(id.starts_with("call_") && id.len() == 5 + 24, "{id}");
    assert_eq!((&call["type"], call.get("index")), (&json!("function"), None));
    check_arguments(&parsed(&call["function"]["arguments"]));

    let events =
        server.events(CHAT, &body(json!({"stream": true, "logprobs": true, "return_token_ids": true})));
    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
    assert_eq!(*deltas[0], json!({"role": "assistant", "content": ""}));
    let calls: Vec<&Value> =
        deltas.iter().filter_map(|delta| delta.get("tool_calls")).map(|calls| &calls[0]).collect();
    let first = calls[0].as_object().unwrap();
    assert!(first["id"].as_str().unwrap().starts_with("call_") && first["id"].as_str().unwrap().len() == 29);
    assert_eq!((&first["type"], &first["index"]), (&json!("function"), &json!(0)));
    assert_eq!(first["function"], json!({"name": call["function"]["name"], "arguments": ""}));
    for more in &calls[1..] {
        assert_eq!(more.as_object().unwrap().len(), 2, "{more}");
        assert_eq!((&more["index"], more["function"].as_object().unwrap().len()), (&json!(0), 1));
    }
    let arguments: String =
        calls.iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(arguments, call["function"]["arguments"].as_str().unwrap());
    let last = events.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(last["choices"][0]["delta"], json!({}));
    // Tokens that add nothing to the text are sent with their log-probabilities too.
    let with_tokens = server.post(CHAT, &body(json!({"logprobs": true, "return_token_ids": true}))).ok();
    let list = |name: fn(&Value) -> &Value| -> Vec<Value> {
        events
            .iter()
            .flat_map(|event| name(&event["choices"][0]).as_array().cloned().unwrap_or_default())
            .collect()
    };
    let own = &with_tokens["choices"][0];
    assert_eq!(json!(list(|choice| &choice["token_ids"])), own["token_ids"]);
    assert_eq!(json!(list(|choice| &choice["logprobs"]["content"])), own["logprobs"]["content"]);
}

/// The same request with `functions` and `function_call`, the older shape of the API.
fn old_body(extra: Value) -> Value {
    let mut body = body(json!({"functions": [tool("weather")["function"], tool("forecast")["function"]]}));
    for name in ["tools", "tool_choice", "parallel_tool_calls"] {
        body.as_object_mut().unwrap().remove(name);
    }
    merged(body, extra)
}

#[test]
fn functions_are_called_in_their_own_shape_whole_and_streamed() {
    let Some((server, _folder)) = server() else { return };
    let reply = server.post(CHAT, &old_body(json!({"function_call": {"name": "forecast"}})));
    assert_eq!(reply.header("x-peri-ignored"), None);
    let (whole, one) = (reply.ok(), json!({"type": "function", "function": {"name": "forecast"}}));
    let choice = &whole["choices"][0];
    let same = server.post(CHAT, &body(json!({"tool_choice": one}))).ok();
    let call = &choice["message"]["function_call"];
    assert_eq!(*call, same["choices"][0]["message"]["tool_calls"][0]["function"]);
    assert_eq!((&choice["finish_reason"], &call["name"]), (&json!("function_call"), &json!("forecast")));
    assert_eq!((&choice["message"]["content"], choice["message"].get("tool_calls")), (&Value::Null, None));
    check_arguments(&parsed(&call["arguments"]));

    let request = old_body(json!({"function_call": {"name": "forecast"}, "stream": true}));
    let events = server.events(CHAT, &request);
    let calls: Vec<&Value> =
        events.iter().filter_map(|event| event["choices"][0]["delta"].get("function_call")).collect();
    assert_eq!(*calls[0], json!({"name": "forecast", "arguments": ""}));
    let arguments: String = calls.iter().map(|call| call["arguments"].as_str().unwrap()).collect();
    assert_eq!(arguments, call["arguments"].as_str().unwrap());
    assert!(events.iter().all(|event| event["choices"][0]["delta"].get("tool_calls").is_none()));
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "function_call");

    let result = json!({"role": "function", "name": "forecast", "content": "Sunny"});
    let messages = json!([{"role": "user", "content": "Weather?"}, choice["message"], result]);
    let history = old_body(json!({"messages": messages, "function_call": "none", "dry_run": true}));
    let tokens = server.post(CHAT, &history).ok()["prompt_token_ids"][0].clone();
    let prompt = server.post("/detokenize", &json!({"tokens": tokens})).ok()["prompt"].clone();
    let prompt = prompt.as_str().unwrap();
    assert!(
        prompt.contains("<tool_call>\n{\"name\": \"forecast\"") && prompt.contains("(tool) Sunny"),
        "{prompt}"
    );
    assert!(!prompt.contains("Tools:"), "{prompt}");
}

#[test]
fn wrong_functions_are_named_as_the_request_has_them() {
    let Some((server, _folder)) = server() else { return };
    let check = |extra: Value, param: &str| {
        let (status, _, named, message) = server.post(CHAT, &old_body(extra)).error();
        assert_eq!((status, named), (400, json!(param)), "{message}");
        assert!(message.contains(param), "{message}");
    };
    check(json!({"functions": [{"name": "weather"}, {"name": ""}]}), "functions[1].name");
    check(json!({"functions": [{"name": "weather", "parameters": 5}]}), "functions[0].parameters");
    check(json!({"function_call": {"name": "other"}}), "function_call");
    check(json!({"function_call": "sometimes"}), "function_call");
    check(json!({"tools": [tool("weather")]}), "functions");
    let plain =
        server.post(CHAT, &old_body(json!({"functions": [], "function_call": "auto", "max_tokens": 1})));
    assert_eq!(plain.header("x-peri-ignored"), Some("function_call, functions"));
}

#[test]
fn tool_choice_names_allows_and_forbids() {
    let Some((server, _folder)) = server() else { return };
    let called = |choice: Value, seed: u64| {
        let answer = server.post(CHAT, &body(json!({"tool_choice": choice, "seed": seed}))).ok();
        answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"].clone()
    };
    let named = json!({"type": "function", "function": {"name": "forecast"}});
    let one = json!([{"type": "function", "function": {"name": "weather"}}]);
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": one}});
    for seed in 0..3 {
        assert_eq!(
            (called(named.clone(), seed), called(allowed.clone(), seed)),
            (json!("forecast"), json!("weather"))
        );
    }
    let flat = json!({"type": "function", "name": "forecast"});
    assert_eq!(
        (called(flat, 0), called(json!({"type": "tool", "name": "forecast"}), 1)),
        (json!("forecast"), json!("forecast"))
    );
    for any in [json!("any"), json!({"type": "any"}), json!({"type": "required"})] {
        assert_eq!(called(any, 2), called(json!("required"), 2));
    }
    let prompt = |extra: Value| server.post("/apply-template", &body(extra)).ok()["prompt"].clone();
    assert!(!prompt(json!({"tool_choice": {"type": "none"}})).as_str().unwrap().contains("Tools:"));
    assert!(!prompt(json!({"tool_choice": "none"})).as_str().unwrap().contains("Tools:"));
    assert!(prompt(json!({})).as_str().unwrap().contains("\"forecast\""));
    let free = server.post(CHAT, &body(json!({"tool_choice": "none", "max_tokens": 10}))).ok();
    assert_eq!(free["choices"][0]["message"].get("tool_calls"), None);
    let check = |extra: Value, param: &str, part: &str| {
        let (status, _, named, message) = server.post(CHAT, &body(extra)).error();
        assert_eq!((status, named), (400, json!(param)), "{message}");
        assert!(message.contains(part), "{message}");
    };
    check(
        json!({"tool_choice": {"type": "function", "function": {"name": "x"}}}),
        "tool_choice",
        "no tool is named",
    );
    check(json!({"tools": [], "tool_choice": "required"}), "tool_choice", "no tools are given");
    check(json!({"tools": [tool("a"), tool("a")]}), "tools[1].function.name", "is taken");
    let mut strange = tool("a");
    strange["function"]["parameters"]["properties"]["city"] = json!({"type": "boolean", "not": {}});
    check(json!({"tools": [strange]}), "tools[0].function.parameters", "/properties/city");
    strange["function"]["strict"] = json!(false);
    let reply = server.post(CHAT, &body(json!({"tools": [strange]})));
    assert_eq!(reply.header("x-peri-ignored"), Some("tools[0].function.parameters"), "{}", reply.text);
    let arguments = &reply.ok()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
    assert!(parsed(arguments)["days"].is_i64(), "{arguments}");
}

#[test]
fn tools_that_are_not_strict_are_relaxed_where_a_format_cannot_write_their_schema() {
    for format in ["gemma-4", "qwen3-coder"] {
        let config = ServerConfig { tool_format: ToolFormat::named(format), ..ServerConfig::default() };
        let Some((server, _folder)) = served(config) else { return };
        let ask = |schema: &Value, is_strict: bool| {
            let parameters = json!({
                "type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": false,
                "$defs": {"Text": {"type": "string", "minLength": 1}},
            });
            let function = json!({"name": "f", "parameters": parameters, "strict": is_strict});
            let tools = json!([{"type": "function", "function": function}]);
            server.post(CHAT, &body(json!({"tools": tools, "max_tokens": 4})))
        };
        for written in [
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({}),
            json!({"$ref": "#/$defs/Text"}),
            json!({"allOf": [{"$ref": "#/$defs/Text"}], "description": "d"}),
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!({"type": ["string", "null"]}),
            json!({"enum": ["a", 1, null]}),
        ] {
            let reply = ask(&written, true);
            assert_eq!(
                (reply.status, reply.header("x-peri-ignored")),
                (200, None),
                "{format}: {}",
                reply.text
            );
        }
        for relaxed in [
            json!({"type": "string", "pattern": "^a"}),
            json!({"anyOf": [{"type": "string", "pattern": "^a"}, {"type": "integer"}]}),
            json!({"oneOf": [{"type": "string"}, {"const": "a"}]}),
            json!({"$ref": "#/nowhere"}),
        ] {
            let named = Some("tools[0].function.parameters");
            let reply = ask(&relaxed, false);
            assert_eq!(
                (reply.status, reply.header("x-peri-ignored")),
                (200, named),
                "{format}: {}",
                reply.text
            );
            let (status, _, field, message) = ask(&relaxed, true).error();
            let is_named = field.as_str().is_some_and(|field| field.starts_with("tools[0]"));
            assert_eq!((status, is_named), (400, true), "{format}: {message}");
        }
    }
}

#[test]
fn tools_whose_calls_nothing_reads_are_named() {
    let template = TEMPLATE.replace("<tool_call>", "<my_call>").replace("</tool_call>", "</my_call>");
    let Some((server, _folder)) = with_template(&template, ServerConfig::default()) else { return };
    let auto = body(json!({"tool_choice": "auto", "max_tokens": 2}));
    assert_eq!(server.post(CHAT, &auto).header("x-peri-ignored"), Some("tools"));
    // The prompt alone has them.
    let rendered = server.post("/apply-template", &auto);
    assert!(rendered.ok()["prompt"].as_str().unwrap().contains("Tools:"), "{}", rendered.text);
    let ignored = rendered.header("x-peri-ignored").unwrap_or_default();
    assert!(!ignored.split(", ").any(|field| field == "tools"), "{ignored}");
    let required = server.post(CHAT, &body(json!({"max_tokens": 2})));
    assert_eq!((required.status, required.header("x-peri-ignored")), (200, None));
}

#[test]
fn a_limit_within_a_call_gives_its_text_and_no_call() {
    let Some((server, _folder)) = server() else { return };
    let cut = body(json!({"max_tokens": 12}));
    let answer = server.post(CHAT, &cut).ok();
    let (choice, message) = (&answer["choices"][0], &answer["choices"][0]["message"]);
    assert_eq!((&choice["finish_reason"], message.get("tool_calls")), (&json!("length"), None));
    assert!(message["content"].as_str().unwrap().starts_with("<tool_call>"), "{message}");
    let answer = server.post(MESSAGES, &json!({
        "messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 12, "thinking": {"type": "disabled"},
        "tools": [{"name": "weather", "input_schema": parameters()}], "tool_choice": {"type": "any"},
    }));
    assert_eq!(
        (&answer.ok()["stop_reason"], &answer.ok()["content"][0]["type"]),
        (&json!("max_tokens"), &json!("text"))
    );
}

#[test]
fn several_calls_have_indexes_of_their_own() {
    let Some((server, _folder)) = server() else { return };
    // The answer may end after a call, but its end is forbidden.
    let request =
        body(json!({"parallel_tool_calls": true, "ignore_eos": true, "max_tokens": 200, "stream": true}));
    let events = server.events(CHAT, &request);
    let calls =
        events.iter().flat_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array().cloned());
    let started: Vec<Value> = calls.flatten().filter(|call| call.get("id").is_some()).collect();
    let indexes: Vec<u64> = started.iter().map(|call| call["index"].as_u64().unwrap()).collect();
    assert!(indexes.len() > 1, "{events:?}");
    assert_eq!(indexes, (0..indexes.len() as u64).collect::<Vec<_>>());
    let single =
        server.post(CHAT, &merged(request, json!({"parallel_tool_calls": false, "stream": false}))).ok();
    assert_eq!(single["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(single["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn calls_and_their_results_go_back_to_the_model() {
    let Some((server, _folder)) = server() else { return };
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}});
    let messages = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": null, "reasoning": "Look it up.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": {"rain": true}},
    ]);
    let expected =
        server.post("/apply-template", &body(json!({"messages": messages}))).ok()["prompt"].clone();
    let text = expected.as_str().unwrap();
    assert!(text.contains("<think>\nLook it up.\n</think>"), "{text}");
    assert!(text.contains("{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}"), "{text}");
    assert!(text.contains("(tool) {\"rain\":true}"), "{text}");
    let tokens = |path: &str, request: Value| {
        let reply = server.post(path, &merged(request, json!({"dry_run": true})));
        reply.ok()["prompt_token_ids"][0].clone()
    };
    let own = server.post("/tokenize", &body(json!({"messages": messages}))).ok()["tokens"].clone();
    let items = json!([
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Look it up."}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\": \"Rome\"}"},
        {"type": "function_call_output", "call_id": "call_1", "output": {"rain": true}},
    ]);
    let flat = |tool: Value| merged(tool["function"].clone(), json!({"type": "function"}));
    let declared = json!([flat(tool("weather")), flat(tool("forecast"))]);
    let turn = json!({"input": items, "tools": declared, "reasoning": {"effort": "none"}});
    assert_eq!(tokens(RESPONSES, turn).as_array().unwrap().len(), own.as_array().unwrap().len());
}

#[test]
fn responses_have_items_for_reasoning_text_and_calls() {
    let Some((server, _folder)) = server() else { return };
    let function = merged(tool("weather")["function"].clone(), json!({"type": "function"}));
    let request = json!({
        "input": "Weather?", "max_output_tokens": 200, "seed": 5, "tools": [function],
        "tool_choice": {"type": "function", "name": "weather"}, "reasoning": {"effort": "none"},
    });
    let whole = server.post(RESPONSES, &request).ok();
    let [item] = &whole["output"].as_array().unwrap()[..] else { panic!("{whole}") };
    assert_eq!(
        (&item["type"], &item["name"], &item["status"]),
        (&json!("function_call"), &json!("weather"), &json!("completed"))
    );
    assert!(
        item["id"].as_str().unwrap().starts_with("fc_")
            && item["call_id"].as_str().unwrap().starts_with("call_")
    );
    check_arguments(&parsed(&item["arguments"]));
    assert_eq!((&whole["status"], &whole["tools"]), (&json!("completed"), &request["tools"]));
    let events = server.named_events(RESPONSES, &merged(request.clone(), json!({"stream": true})));
    let names: Vec<&str> = events.iter().map(|(name, _)| name.strip_prefix("response.").unwrap()).collect();
    assert_eq!(names[..4], ["created", "in_progress", "output_item.added", "function_call_arguments.delta"]);
    let ends = ["function_call_arguments.done", "output_item.done", "completed"];
    assert_eq!(names[names.len() - 3..], ends);
    let end = &events.last().unwrap().1["response"]["output"][0];
    let deltas = events.iter().filter(|(name, _)| name.ends_with("arguments.delta"));
    let arguments: String = deltas.map(|(_, event)| event["delta"].as_str().unwrap()).collect();
    assert_eq!((&json!(arguments), &item["arguments"]), (&end["arguments"], &end["arguments"]));
    assert_eq!(events[events.len() - 2].1["item"], *end);
    assert!(events.iter().all(|(_, event)| event.get("item_id").is_none_or(|id| *id == end["id"])));
    // The conversation goes on with the result.
    let result = json!([{"type": "function_call_output", "call_id": item["call_id"], "output": "rain"}]);
    let next = json!({"previous_response_id": whole["id"], "input": result, "max_output_tokens": 5});
    assert_eq!(server.post(RESPONSES, &next).ok()["status"], "incomplete");
}

/// The call of a tool, whole and as events. Free text is as long as the model likes, so that not every seed has an end.
fn called(server: &TestServer, tool: &Value) -> (Value, Vec<(String, Value)>) {
    let request = |seed: u64| {
        json!({
            "input": "Weather?", "max_output_tokens": 200, "seed": seed, "tools": [tool], "tool_choice": "required",
            "parallel_tool_calls": false, "reasoning": {"effort": "none"},
        })
    };
    let ended = |seed: &u64| server.post(RESPONSES, &request(*seed)).ok()["status"] == "completed";
    let seed = (0..100).find(ended).expect("one of many calls has an end");
    let (request, whole) = (request(seed), server.post(RESPONSES, &request(seed)).ok());
    let [item] = &whole["output"].as_array().unwrap()[..] else { panic!("{whole}") };
    let events = server.named_events(RESPONSES, &merged(request, json!({"stream": true})));
    let (_, end) = events.last().unwrap();
    let without_ids = |item: &Value| merged(item.clone(), json!({"id": "", "call_id": ""}));
    assert_eq!(without_ids(&end["response"]["output"][0]), without_ids(item));
    assert_eq!(events[events.len() - 2].1["item"], end["response"]["output"][0]);
    assert!(item["call_id"].as_str().unwrap().starts_with("call_"), "{item}");
    // The item goes back as it came, and is a call of the same function for the model.
    let kind = item["type"].as_str().unwrap();
    let output = json!({"type": format!("{kind}_output"), "call_id": item["call_id"], "output": "done"});
    let back = json!({
        "input": [{"role": "user", "content": "Weather?"}, item, output], "tools": [tool], "max_output_tokens": 1,
    });
    let back = server.post(RESPONSES, &back);
    assert_eq!(back.status, 200, "{}", back.text);
    let replay = server.get(&format!("{RESPONSES}/{}?stream=true", whole["id"].as_str().unwrap()));
    let replayed = replay.text.lines().filter_map(|line| line.strip_prefix("data: "));
    let replayed: Vec<Value> = replayed.map(|event| serde_json::from_str(event).unwrap()).collect();
    let done = replayed.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    assert_eq!((&done["item"], &replayed.last().unwrap()["response"]), (item, &whole));
    (item.clone(), events)
}

#[test]
fn free_text_comes_back_as_input_and_in_pieces_of_its_own() {
    let Some((server, _folder)) = server() else { return };
    let format = json!({"type": "grammar", "syntax": "lark", "definition": "start: \"x\""});
    let tool = json!({"type": "custom", "name": "note", "description": "Takes a note.", "format": format});
    let (item, events) = called(&server, &tool);
    assert_eq!((&item["type"], &item["name"]), (&json!("custom_tool_call"), &json!("note")));
    let input = item["input"].as_str().unwrap();
    let pieces = events.iter().filter(|(name, _)| name == "response.custom_tool_call_input.delta");
    let pieces: Vec<&str> = pieces.map(|(_, event)| event["delta"].as_str().unwrap()).collect();
    assert_eq!(pieces.concat(), input);
    let done = events.iter().find(|(name, _)| name == "response.custom_tool_call_input.done").unwrap();
    assert_eq!(
        (&done.1["input"], &done.1["item_id"]),
        (&item["input"], &events[events.len() - 2].1["item"]["id"])
    );
    assert!(!events.iter().any(|(name, _)| name.contains("function_call")));
}

#[test]
fn tools_of_the_client_come_back_as_items_of_their_own_types() {
    let Some((server, _folder)) = server() else { return };
    let search = json!({"type": "tool_search", "execution": "client", "parameters": parameters()});
    let (item, _) = called(&server, &search);
    assert_eq!((&item["type"], &item["execution"]), (&json!("tool_search_call"), &json!("client")));
    check_arguments(&item["arguments"]);
    let function = merged(tool("weather")["function"].clone(), json!({"type": "function"}));
    let namespace = json!({"type": "namespace", "name": "mcp", "description": "d", "tools": [function]});
    let (item, events) = called(&server, &namespace);
    assert_eq!((&item["namespace"], &item["name"]), (&json!("mcp"), &json!("weather")));
    check_arguments(&parsed(&item["arguments"]));
    assert!(events.iter().any(|(name, _)| name == "response.function_call_arguments.done"));
}

#[test]
fn tools_that_items_bring_may_be_called() {
    let Some((server, _folder)) = server() else { return };
    let function = merged(tool("weather")["function"].clone(), json!({"type": "function"}));
    let input = json!([
        {"type": "additional_tools", "role": "developer", "tools": [function]}, {"role": "user", "content": "Weather?"},
    ]);
    let request = json!({
        "input": input, "max_output_tokens": 200, "seed": 5, "tool_choice": "required", "parallel_tool_calls": false,
        "reasoning": {"effort": "none"},
    });
    check_arguments(&parsed(&server.post(RESPONSES, &request).ok()["output"][0]["arguments"]));
}

#[test]
fn reasoning_goes_back_in_the_forms_that_clients_send() {
    let Some((server, _folder)) = server() else { return };
    let request = json!({
        "input": "Weather?", "max_output_tokens": 30, "seed": 5, "reasoning": {"effort": "high"},
        "include": ["reasoning.encrypted_content"],
    });
    let item = server.post(RESPONSES, &request).ok()["output"][0].clone();
    let hidden = json!({"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]});
    let tokens = |path: &str, request: Value| server.post(path, &request).ok()["input_tokens"].clone();
    let input = |item: &Value| {
        let answer = json!({"role": "assistant", "content": "Rain."});
        let input = json!([{"role": "user", "content": "Weather?"}, item, answer, {"role": "user", "content": "Sure?"}]);
        tokens("/v1/responses/input_tokens", json!({"input": input}))
    };
    assert_eq!(input(&hidden), input(&item));
    assert_ne!(input(&json!({"type": "reasoning", "summary": []})), input(&item));
    // The same for blocks of thinking.
    let messages = json!([{"role": "user", "content": "Weather?"}]);
    let request = json!({
        "messages": messages, "max_tokens": 60, "seed": 5,
        "thinking": {"type": "enabled", "budget_tokens": 20, "display": "omitted"},
    });
    let whole = server.post(MESSAGES, &request).ok();
    let hidden = whole["content"][0].clone();
    assert_eq!(hidden["thinking"], "");
    let events = server.named_events(MESSAGES, &merged(request.clone(), json!({"stream": true})));
    let delta =
        |kind: &str| events.iter().map(|(_, event)| &event["delta"]).find(|delta| delta["type"] == kind);
    assert_eq!(delta("thinking_delta"), None);
    assert_eq!(delta("signature_delta").unwrap()["signature"], hidden["signature"]);
    let shown = merged(request, json!({"thinking": {"type": "enabled", "budget_tokens": 20}}));
    let shown = server.post(MESSAGES, &shown).ok()["content"][0].clone();
    let count = |block: &Value| {
        let turns = json!([{"role": "assistant", "content": [block, {"type": "text", "text": "Rain."}]}, {"role": "user", "content": "Sure?"}]);
        tokens("/v1/messages/count_tokens", json!({"messages": turns}))
    };
    assert_eq!(count(&hidden), count(&shown));
    assert_ne!(count(&json!({"type": "thinking", "thinking": "", "signature": "other"})), count(&shown));
}

#[test]
fn anthropic_calls_are_blocks_both_ways() {
    let Some((server, _folder)) = server() else { return };
    let tools = json!([{"name": "weather", "description": "The weather.", "input_schema": parameters()}]);
    let request = json!({
        "messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 200, "seed": 5, "tools": tools,
        "tool_choice": {"type": "tool", "name": "weather"}, "thinking": {"type": "disabled"},
    });
    let whole = server.post(MESSAGES, &request).ok();
    let [block] = &whole["content"].as_array().unwrap()[..] else { panic!("{whole}") };
    assert_eq!(
        (&whole["stop_reason"], &block["type"], &block["name"]),
        (&json!("tool_use"), &json!("tool_use"), &json!("weather"))
    );
    check_arguments(&block["input"]);
    assert!(block["id"].as_str().unwrap().starts_with("toolu_"));
    let events = server.named_events(MESSAGES, &merged(request.clone(), json!({"stream": true})));
    let start = &events.iter().find(|(name, _)| name == "content_block_start").unwrap().1;
    assert_eq!((&start["index"], &start["content_block"]["input"]), (&json!(0), &json!({})));
    let parts = events.iter().filter(|(_, event)| event["delta"]["type"] == "input_json_delta");
    let input: String = parts.map(|(_, event)| event["delta"]["partial_json"].as_str().unwrap()).collect();
    assert_eq!(serde_json::from_str::<Value>(&input).unwrap(), block["input"]);
    assert_eq!(events[events.len() - 2].1["delta"]["stop_reason"], "tool_use");
    assert_eq!(events[events.len() - 3].0, "content_block_stop");
    let messages = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block["id"], "content": "rain"}]},
    ]);
    let next =
        merged(request, json!({"messages": messages, "tool_choice": {"type": "auto"}, "max_tokens": 4}));
    assert_eq!(server.post(MESSAGES, &next).status, 200);
    let wrong =
        json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "tools": [{"name": "a b"}]});
    let message = server.post(MESSAGES, &wrong).json()["error"]["message"].clone();
    assert!(message.as_str().unwrap().starts_with("tools[0].name"), "{message}");
}

#[test]
fn ollama_calls_come_whole() {
    let Some((server, _folder)) = served(ServerConfig {
        // A bare object, after which the answer must end.
        tool_format: ToolFormat::named("json"),
        ..ServerConfig::default()
    }) else {
        return;
    };
    let format = json!({
        "type": "object", "required": ["rain"], "additionalProperties": false,
        "properties": {"rain": {"type": "boolean"}},
    });
    let request = json!({
        "messages": [{"role": "user", "content": "Weather?"}], "tools": [tool("weather")], "think": false,
        "format": format, "options": {"num_predict": 200, "seed": 5, "temperature": 1.5}, "stream": false,
    });
    let mut calls = 0;
    for seed in 0..8 {
        let mut request = request.clone();
        request["options"]["seed"] = json!(seed);
        let whole = server.post(OLLAMA, &request).ok();
        let message = &whole["message"];
        let lines = server.lines(OLLAMA, &merged(request, json!({"stream": true})), "application/x-ndjson");
        let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let streamed: Vec<Value> = lines
            .iter()
            .flat_map(|line| line["message"]["tool_calls"].as_array().cloned().unwrap_or_default())
            .collect();
        let text: String = lines.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
        assert_eq!(text, message["content"].as_str().unwrap());
        assert_eq!(whole["done_reason"], "stop");
        match message.get("tool_calls") {
            Some(own) => {
                assert_eq!(json!(streamed), *own);
                assert_eq!(own[0]["function"]["name"], "weather");
                check_arguments(&own[0]["function"]["arguments"]);
                calls += 1;
            }
            None => assert!(serde_json::from_str::<Value>(&text).unwrap()["rain"].is_boolean(), "{text}"),
        }
    }
    assert!(calls > 0, "no seed made a call");
}

#[test]
fn reasoning_is_given_apart_and_within_its_budget() {
    let Some((server, _folder)) = server() else { return };
    let messages = json!([{"role": "user", "content": "Weather?"}]);
    let request = json!({
        "messages": messages, "max_tokens": 60, "seed": 5, "thinking": {"type": "enabled", "budget_tokens": 20},
    });
    let whole = server.post(MESSAGES, &request).ok();
    let blocks = whole["content"].as_array().unwrap();
    assert_eq!((&blocks[0]["type"], &blocks[1]["type"]), (&json!("thinking"), &json!("text")), "{whole}");
    let (thinking, text) = (blocks[0]["thinking"].as_str().unwrap(), blocks[1]["text"].as_str().unwrap());
    assert!(!thinking.is_empty() && !text.contains("think>"), "{whole}");
    let count = |text: &str| {
        let body = json!({"content": text});
        server.post("/tokenize", &body).ok()["count"].as_u64().unwrap()
    };
    assert!(count(thinking) <= 20 && count(thinking) >= 15, "{thinking}");
    let events = server.named_events(MESSAGES, &merged(request.clone(), json!({"stream": true})));
    let part = |kind: &str, name: &str| -> String {
        let own = events.iter().filter(|(_, event)| event["delta"]["type"] == kind);
        own.map(|(_, event)| event["delta"][name].as_str().unwrap()).collect()
    };
    assert_eq!((&part("thinking_delta", "thinking")[..], &part("text_delta", "text")[..]), (thinking, text));
    assert_eq!(json!(part("signature_delta", "signature")), blocks[0]["signature"]);
    assert!(!part("signature_delta", "signature").is_empty());
    // Other protocols give the same under their own names.
    let thought = |body: Value| {
        server.post(CHAT, &merged(body, json!({"messages": messages, "max_tokens": 30, "seed": 5}))).ok()
    };
    let chat = thought(json!({"chat_template_kwargs": {"enable_thinking": true}}));
    let message = &chat["choices"][0]["message"];
    assert_eq!((&message["content"], &message["reasoning"]), (&json!(""), &message["reasoning_content"]));
    let reasoning = message["reasoning"].as_str().unwrap();
    assert!(!reasoning.is_empty());
    assert_eq!(chat["usage"]["completion_tokens_details"]["reasoning_tokens"], 30);
    for on in [
        json!({"enable_thinking": true}),
        json!({"reasoning": {"enabled": true}}),
        json!({"reasoning": {"effort": "high"}}),
    ] {
        assert_eq!(thought(on)["choices"][0]["message"], *message);
    }
    for off in [
        json!({"enable_thinking": false}),
        json!({"reasoning": {"enabled": false, "effort": "high"}}),
        json!({"reasoning": {"effort": "none"}}),
        json!({"enable_thinking": true, "reasoning": {"exclude": true}}),
    ] {
        let message = thought(off.clone())["choices"][0]["message"].clone();
        assert!(
            message.get("reasoning").is_none() && message.get("reasoning_content").is_none(),
            "{off}: {message}"
        );
    }
    // The mark that ends the reasoning has several tokens of this vocabulary.
    let bounded = thought(json!({"reasoning": {"max_tokens": 5}}));
    assert!(
        bounded["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap() <= 15,
        "{bounded}"
    );
    let responses = server.post(RESPONSES, &json!({"input": "Weather?", "max_output_tokens": 30, "seed": 5, "reasoning": {"effort": "high"}})).ok();
    assert_eq!(responses["output"][0]["content"][0], json!({"type": "reasoning_text", "text": reasoning}));
    let ollama = json!({"messages": messages, "think": true, "stream": false, "options": {"num_predict": 30, "seed": 5}});
    assert_eq!(server.post(OLLAMA, &ollama).ok()["message"]["thinking"], reasoning);
    let shown = server.post("/api/show", &json!({"model": "caller"})).ok();
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "thinking"]));
}

#[test]
fn forms_begin_after_the_reasoning() {
    let Some((server, _folder)) = server() else { return };
    let schema = json!({
        "type": "object", "required": ["age"], "additionalProperties": false,
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    });
    let form = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    let messages = json!([{"role": "user", "content": "Age?"}]);
    let request = json!({"messages": messages, "max_tokens": 200, "seed": 5, "response_format": form});
    let message = |extra: Value| {
        server.post(CHAT, &merged(request.clone(), extra)).ok()["choices"][0]["message"].clone()
    };
    let plain = message(json!({"reasoning_effort": "none"}));
    assert!(parsed(&plain["content"])["age"].is_u64() && plain.get("reasoning").is_none(), "{plain}");
    // The budget ends the reasoning, and only what follows has the form; with tools, it is that or a call.
    for tools in [json!([]), json!([tool("weather")])] {
        let budget = json!({"reasoning_effort": "low", "thinking_token_budget": 15, "tools": tools});
        let thoughtful = message(budget);
        assert!(!thoughtful["reasoning"].as_str().unwrap().is_empty(), "{thoughtful}");
        match thoughtful.get("tool_calls") {
            Some(calls) => check_arguments(&parsed(&calls[0]["function"]["arguments"])),
            None => assert!(parsed(&thoughtful["content"])["age"].is_u64(), "{thoughtful}"),
        }
    }
    let endless = message(json!({"reasoning_effort": "low"}));
    assert_eq!((&endless["content"], endless["reasoning"].is_string()), (&json!(""), true));
    let format = json!({"format": {"type": "json_schema", "name": "a", "schema": schema}});
    let response = server
        .post(RESPONSES, &json!({"input": "Age?", "text": format, "reasoning": {"effort": "none"}}))
        .ok();
    assert!(parsed(&response["output"][0]["content"][0]["text"])["age"].is_u64(), "{response}");
    assert_eq!(response["text"]["format"]["schema"], schema);
    let generate = json!({"prompt": "Age?", "format": schema, "think": false, "stream": false});
    assert!(parsed(&server.post("/api/generate", &generate).ok()["response"])["age"].is_u64());
}

#[test]
fn a_server_may_turn_reasoning_off() {
    let Some((server, _folder)) = served(ServerConfig { reasoning: false, ..ServerConfig::default() }) else {
        return;
    };
    let prompt = |extra: Value| {
        let body = merged(json!({"messages": [{"role": "user", "content": "Hi"}]}), extra);
        server.post("/apply-template", &body).ok()["prompt"].as_str().unwrap().to_string()
    };
    assert!(prompt(json!({})).ends_with("<think>\n\n</think>\n\n"));
    assert!(prompt(json!({"reasoning_effort": "low"})).ends_with("<think>\n"));
}

#[test]
fn a_model_that_knows_no_tools_ignores_them_unless_it_must_call() {
    let server = TestServer::storyteller();
    let request = json!({"messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 100, "tools": [tool("weather")]});
    let reply = server.post(CHAT, &request);
    assert_eq!((reply.status, reply.header("x-peri-ignored")), (200, Some("tools")));
    let answer = server.post(CHAT, &merged(request, json!({"tool_choice": "required"}))).ok();
    check_arguments(&parsed(&answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]));
}
