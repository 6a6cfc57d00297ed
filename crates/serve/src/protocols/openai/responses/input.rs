//! The input of a response: items become messages of a chat template.

use serde_json::{Value, json};

use super::tools::function_name;
use crate::api_error::ApiError;
use crate::fields::conversation::{kind_of, not_text, role_of};
use crate::fields::opaque_reasoning;
use crate::stamp::unique_id;

/// Types of parts that are text.
const TEXTS: [&str; 6] = ["input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"];
/// Types of parts that no model reads yet.
const NO_TEXTS: [&str; 6] =
    ["input_image", "input_file", "input_audio", "computer_screenshot", "image_url", "encrypted_content"];

/// The items of an input, each with a type and an id. `find` gives the items that references name.
///
/// # Errors
/// If the input is neither a string nor a list of items, or an item is not there.
pub(super) fn items(
    input: Option<Value>,
    find: impl Fn(&str) -> Option<Value>,
) -> Result<Vec<Value>, ApiError> {
    let items = match input {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![json!({
            "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }],
        })],
        Some(Value::Array(items)) => items,
        Some(_) => return Err(ApiError::invalid("input", "input: give a string or a list of items")),
    };
    let items = items.into_iter().enumerate().map(|(index, mut item)| {
        let path = format!("input[{index}]");
        let Some(fields) = item.as_object_mut() else {
            return Err(ApiError::invalid(&path, format!("{path}: an item is an object")));
        };
        let kind = fields.get("type").filter(|kind| !kind.is_null());
        if kind.map_or(!fields.contains_key("role") && fields.contains_key("id"), |kind| {
            kind == "item_reference"
        }) {
            let id = fields.get("id").and_then(Value::as_str).unwrap_or_default();
            let message =
                format!("{path}: there is no item `{id}` in a stored response: give the item itself");
            return find(id).ok_or_else(|| ApiError::invalid(format!("{path}.id"), message));
        }
        if kind.is_none() {
            fields.insert("type".to_string(), "message".into());
        }
        if fields.get("id").is_none_or(Value::is_null) {
            fields.insert("id".to_string(), unique_id("item_").into());
        }
        Ok(item)
    });
    items.collect()
}

/// The messages of items.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) messages: Vec<Value>,
    /// Where the request has each of them.
    pub(super) places: Vec<String>,
    /// Items and parts that have no effect.
    pub(super) ignored: Vec<String>,
    /// Tools that items give, with their places.
    pub(super) tools: Vec<(Vec<Value>, String)>,
    /// Reasoning that belongs to the message or the call that follows, and its place.
    reasoning: Option<(String, String)>,
    /// The ids of items that are calls of a local shell, and of the calls.
    local_shells: Vec<(Value, Value)>,
}

impl Messages {
    /// Adds items. The first `stored` of them are not in the request.
    ///
    /// # Errors
    /// If an item has a type or a content that the models cannot read.
    pub(super) fn extend(&mut self, items: &[Value], stored: usize) -> Result<(), ApiError> {
        let is_of_user = |item: &Value| item["type"] == "message" && item["role"] == "user";
        let newest = items.iter().rposition(is_of_user);
        for (index, item) in items.iter().enumerate() {
            let path = match index.checked_sub(stored) {
                Some(index) => format!("input[{index}]"),
                None => "previous_response_id".to_string(),
            };
            let before = self.messages.len();
            self.add(item, &path, newest == Some(index))?;
            if self.messages.len() > before {
                self.attach_reasoning();
            }
        }
        if let Some((_, path)) = self.reasoning.take() {
            self.ignored.push(format!("{path}.reasoning"));
        }
        Ok(())
    }

    /// Adds instructions at the start.
    pub(super) fn instruct(&mut self, instructions: &str) {
        self.begin(json!({ "role": "system", "content": instructions }), "instructions");
    }

    fn begin(&mut self, message: Value, path: &str) {
        self.messages.push(message);
        self.places.push(path.to_string());
    }

    fn add(&mut self, item: &Value, path: &str, is_newest: bool) -> Result<(), ApiError> {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or_default() {
            "message" => self.add_message(item, path, is_newest)?,
            "reasoning" => self.add_reasoning(item, path),
            "function_call" => self.add_call(item, &own_name(item), &parsed(&item["arguments"]), path),
            "custom_tool_call" => {
                self.add_call(item, &own_name(item), &json!({ "input": item["input"] }), path);
            }
            "local_shell_call" => {
                self.local_shells.push((item["id"].clone(), item["call_id"].clone()));
                self.add_call(item, "local_shell", &given(&item["action"], "type"), path);
            }
            "shell_call" => self.add_call(item, "shell", &given(&item["action"], ""), path),
            "apply_patch_call" => self.add_call(item, "apply_patch", &given(&item["operation"], ""), path),
            "tool_search_call" => self.add_call(item, "tool_search", &parsed(&item["arguments"]), path),
            "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
                let output = self.output(&item["output"], &format!("{path}.output"))?;
                self.add_output(item, &output, path);
            }
            "shell_call_output" => {
                let outputs = item["output"].as_array().into_iter().flatten().map(shell_output);
                self.add_output(item, &outputs.collect::<Vec<_>>().join("\n"), path);
            }
            "apply_patch_call_output" => {
                let texts = [text("status"), text("output")].into_iter().filter(|text| !text.is_empty());
                self.add_output(item, &texts.collect::<Vec<_>>().join(": "), path);
            }
            "tool_search_output" => {
                let tools = item["tools"].as_array().cloned().unwrap_or_default();
                let names = tools.iter().filter_map(|tool| tool["name"].as_str()).collect::<Vec<_>>();
                self.add_output(item, &format!("Tools: {}", names.join(", ")), path);
                self.tools.push((tools, format!("{path}.tools")));
            }
            "additional_tools" => {
                let tools = item["tools"].as_array().cloned().unwrap_or_default();
                self.tools.push((tools, format!("{path}.tools")));
            }
            "mcp_call" => {
                self.add_call(item, text("name"), &parsed(&item["arguments"]), path);
                let output = item["output"].as_str().or(item["error"].as_str()).unwrap_or_default();
                self.add_output(item, output, path);
            }
            "file_search_call" => {
                self.add_call(item, "file_search", &json!({ "queries": item["queries"] }), path);
                let results = item["results"].as_array().into_iter().flatten();
                let texts = results.flat_map(|result| [result["filename"].as_str(), result["text"].as_str()]);
                self.add_output(item, &texts.flatten().collect::<Vec<_>>().join("\n"), path);
            }
            "code_interpreter_call" => {
                self.add_call(item, "code_interpreter", &json!({ "code": item["code"] }), path);
                let outputs = item["outputs"].as_array().into_iter().flatten();
                let logs = outputs.filter_map(|output| output["logs"].as_str());
                self.add_output(item, &logs.collect::<Vec<_>>().join("\n"), path);
            }
            "agent_message" => {
                let content = self.output(&item["content"], &format!("{path}.content"))?;
                let content = format!("{} to {}: {content}", text("author"), text("recipient"));
                self.begin(json!({ "role": "user", "content": content }), path);
            }
            // Searches, approvals, compactions: what they are for happens on other servers.
            kind if item.get("role").is_none() && !kind.is_empty() => {
                self.ignored.push(format!("{path}.{kind}"));
            }
            _ => {
                let message = format!("{path}.type is {}: give \"message\"", item["type"]);
                return Err(ApiError::invalid(format!("{path}.type"), message));
            }
        }
        Ok(())
    }

    fn add_message(&mut self, item: &Value, path: &str, is_newest: bool) -> Result<(), ApiError> {
        let fields = item.as_object().cloned().unwrap_or_default();
        let role = role_of(&fields, path, &["user", "assistant", "system", "developer"])?;
        let place = format!("{path}.content");
        if is_newest {
            let parts = item["content"].as_array().into_iter().flatten().enumerate();
            let mut kinds = parts.map(|(index, part)| (index, part["type"].as_str().unwrap_or_default()));
            if let Some((index, kind)) = kinds.find(|(_, kind)| NO_TEXTS.contains(kind)) {
                return Err(not_text(&format!("{place}[{index}]"), kind));
            }
        }
        let content = match &item["content"] {
            Value::Null if role == "assistant" => String::new(),
            content => self.text(content, &place)?,
        };
        self.begin(json!({ "role": role, "content": content }), path);
        Ok(())
    }

    /// The text of a content: a string, or parts, one below the other. A line stands for a part that is not text.
    fn text(&mut self, content: &Value, place: &str) -> Result<String, ApiError> {
        let parts = match content {
            Value::String(text) => return Ok(text.clone()),
            Value::Array(parts) => parts,
            _ => return Err(ApiError::invalid(place, format!("{place}: give a string or a list of parts"))),
        };
        let texts = parts.iter().enumerate().map(|(index, part)| {
            let place = format!("{place}[{index}]");
            let kind = kind_of(part, &place)?;
            if NO_TEXTS.contains(&kind) {
                self.ignored.push(format!("{place}.{kind}"));
                let kind = kind.trim_start_matches("input_").trim_end_matches("_url");
                return Ok(format!("[{kind} omitted: this model reads text only]"));
            }
            if !TEXTS.contains(&kind) {
                return Err(not_text(&place, kind));
            }
            // A refusal has its text under its own name.
            let text = part.get("text").or_else(|| part.get(kind)).and_then(Value::as_str);
            let text =
                text.ok_or_else(|| ApiError::invalid(&place, format!("{place}: the part has no `text`")));
            Ok(text?.to_string())
        });
        Ok(texts.collect::<Result<Vec<String>, ApiError>>()?.join("\n"))
    }

    /// The text of an output, which may be any JSON.
    fn output(&mut self, output: &Value, place: &str) -> Result<String, ApiError> {
        match output {
            Value::Null => Ok(String::new()),
            Value::String(_) | Value::Array(_) => self.text(output, place),
            other => Ok(other.to_string()),
        }
    }

    /// Keeps the text of a reasoning item for the next message: its content, else what `encrypted_content` of this server
    /// holds, else its summary.
    fn add_reasoning(&mut self, item: &Value, path: &str) {
        let texts = |name: &str| {
            let parts = item[name].as_array().into_iter().flatten();
            let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
            Some(texts.join("\n")).filter(|text| !text.is_empty())
        };
        let own = item["encrypted_content"].as_str().and_then(opaque_reasoning::decode);
        match texts("content").or(own).or_else(|| texts("summary")) {
            Some(text) => match &mut self.reasoning {
                Some((before, _)) => *before = format!("{before}\n{text}"),
                none => *none = Some((text, path.to_string())),
            },
            None if item["encrypted_content"].is_string() => {
                self.ignored.push(format!("{path}.encrypted_content"));
            }
            None => {}
        }
    }

    /// Gives reasoning to the assistant's message that was begun after it.
    fn attach_reasoning(&mut self) {
        let Some((text, path)) = self.reasoning.take() else { return };
        match self.messages.last_mut().filter(|last| last["role"] == "assistant") {
            Some(last) => match &mut last["reasoning_content"] {
                Value::String(before) => *before = format!("{before}\n{text}"),
                none => *none = text.into(),
            },
            None => self.ignored.push(format!("{path}.reasoning")),
        }
    }

    /// Adds a call to the assistant's message, which may have been begun.
    fn add_call(&mut self, item: &Value, name: &str, arguments: &Value, path: &str) {
        let call = json!({
            "id": id_of(item), "type": "function", "function": { "name": name, "arguments": arguments },
        });
        if self.messages.last().is_none_or(|last| last["role"] != "assistant") {
            self.begin(json!({ "role": "assistant", "content": "" }), path);
        }
        // Reasoning belongs to the call, also if a result follows in the same item.
        self.attach_reasoning();
        let last = self.messages.len() - 1;
        match &mut self.messages[last]["tool_calls"] {
            Value::Array(calls) => calls.push(call),
            none => *none = json!([call]),
        }
    }

    fn add_output(&mut self, item: &Value, output: &str, path: &str) {
        let id = id_of(item);
        // The output of a local shell may name the item of its call.
        let call = self.local_shells.iter().find(|(item, _)| item == id).map(|(_, call)| call);
        let id = call.unwrap_or(id).clone();
        self.begin(json!({ "role": "tool", "tool_call_id": id, "content": output }), path);
    }
}

/// The id of an item's call: its own if the server made both.
fn id_of(item: &Value) -> &Value {
    item.get("call_id").filter(|id| !id.is_null()).unwrap_or(&item["id"])
}

/// The name of the function of a call.
fn own_name(item: &Value) -> String {
    function_name(item["namespace"].as_str(), item["name"].as_str().unwrap_or_default())
}

/// Arguments as JSON, unless they are broken.
fn parsed(arguments: &Value) -> Value {
    let parsed = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
    parsed.unwrap_or_else(|| arguments.clone())
}

/// The fields of an object that have a value, without one of them.
fn given(object: &Value, without: &str) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let is_given = |(name, value): &(&String, &Value)| {
        *name != without && !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty())
    };
    Value::Object(fields.filter(is_given).map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The text of the output of one command of a shell.
fn shell_output(output: &Value) -> String {
    let outcome = match (output["outcome"]["type"].as_str(), &output["outcome"]["exit_code"]) {
        (Some("timeout"), _) => "The command took too long.".to_string(),
        (_, Value::Number(code)) => format!("Exit code: {code}"),
        _ => String::new(),
    };
    let texts = [output["stdout"].as_str(), output["stderr"].as_str(), Some(&outcome[..])];
    let texts = texts.into_iter().flatten().filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of items, and what has no effect.
    fn read(input: Value) -> Result<(Value, Vec<String>), ApiError> {
        let found = json!({"type": "message", "role": "user", "content": "Found."});
        let items = items(Some(input), |id| (id == "known").then(|| found.clone()))?;
        let mut read = Messages::default();
        read.extend(&items, 0)?;
        assert_eq!(read.places.len(), read.messages.len());
        Ok((Value::Array(read.messages), read.ignored))
    }

    fn check(input: Value, expected: Value) {
        assert_eq!(read(input).unwrap(), (expected, Vec::new()));
    }

    fn call(id: &str, name: &str, arguments: Value) -> Value {
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    fn caller(call: Value) -> Value {
        json!({"role": "assistant", "content": "", "tool_calls": [call]})
    }

    fn result(id: &str, content: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": content})
    }

    #[test]
    fn items_become_messages() {
        check(
            json!([
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Rain?"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\": \"Bonn\"}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
            ]),
            json!([
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Weather?"},
                {
                    "role": "assistant", "content": "I look.", "reasoning_content": "Rain?",
                    "tool_calls": [call("call_1", "weather", json!({"city": "Bonn"}))],
                },
                result("call_1", "rain"),
            ]),
        );
    }

    #[test]
    fn all_reasoning_of_a_turn_is_kept_however_it_comes() {
        let hidden = opaque_reasoning::encode("Two.");
        check(
            json!([
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "One."}]},
                {"type": "reasoning", "summary": [], "encrypted_content": hidden},
                {"type": "additional_tools", "role": "developer", "tools": []},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Three."}], "encrypted_content": "other"},
                {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{broken"},
            ]),
            json!([{
                "role": "assistant", "content": "", "reasoning_content": "One.\nTwo.\nThree.",
                "tool_calls": [call("c", "f", json!({})), call("d", "f", json!("{broken"))],
            }]),
        );
        let lost = json!([
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}, {"role": "user", "content": "Hi"},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Cut."}]},
        ]);
        let (_, ignored) = read(lost).unwrap();
        assert_eq!(ignored, ["input[0].encrypted_content", "input[2].reasoning"]);
    }

    #[test]
    fn every_kind_of_item_is_read_or_named() {
        let image =
            json!([{"type": "input_text", "text": "See:"}, {"type": "input_image", "image_url": "data:"}]);
        let action = json!({"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": null});
        let outputs = json!([
            {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            {"stdout": "", "stderr": "b", "outcome": {"type": "timeout"}},
        ]);
        let tool = json!({"type": "function", "name": "f"});
        // The item, and its messages.
        let items = [
            (json!({"role": "user", "content": "Hi"}), json!([{"role": "user", "content": "Hi"}])),
            (
                json!({"type": "message", "role": "assistant", "status": "completed", "phase": null, "content": [{"type": "refusal", "refusal": "No."}]}),
                json!([{"role": "assistant", "content": "No."}]),
            ),
            (
                json!({"type": "message", "role": "system", "content": []}),
                json!([{"role": "system", "content": ""}]),
            ),
            (
                json!({"type": "item_reference", "id": "known"}),
                json!([{"role": "user", "content": "Found."}]),
            ),
            (json!({"id": "known"}), json!([{"role": "user", "content": "Found."}])),
            (json!({"id": "known", "type": null}), json!([{"role": "user", "content": "Found."}])),
            (json!({"type": "reasoning", "summary": []}), json!([])),
            (
                json!({"type": "function_call", "call_id": "c", "name": "f", "namespace": "n", "arguments": "{}"}),
                json!([caller(call("c", "n__f", json!({})))]),
            ),
            (
                json!({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}),
                json!([result("c", "a\nb")]),
            ),
            (
                json!({"type": "function_call_output", "call_id": "c", "output": null}),
                json!([result("c", "")]),
            ),
            (
                json!({"type": "function_call_output", "call_id": "c", "output": {"a": 1}}),
                json!([result("c", r#"{"a":1}"#)]),
            ),
            (
                json!({"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "x"}),
                json!([caller(call("c", "patch", json!({"input": "x"})))]),
            ),
            (
                json!({"type": "custom_tool_call_output", "call_id": "c", "output": "done"}),
                json!([result("c", "done")]),
            ),
            (
                json!({"type": "local_shell_call", "id": "l", "call_id": "c", "action": action}),
                json!([caller(call("c", "local_shell", json!({"command": ["ls"]})))]),
            ),
            (json!({"type": "local_shell_call_output", "id": "c", "output": "a"}), json!([result("c", "a")])),
            (
                json!({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"], "max_output_length": 9}}),
                json!([caller(call("c", "shell", json!({"commands": ["ls"], "max_output_length": 9})))]),
            ),
            (
                json!({"type": "shell_call_output", "call_id": "c", "output": outputs}),
                json!([result("c", "a\nExit code: 0\nb\nThe command took too long.")]),
            ),
            (
                json!({"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}}),
                json!([caller(call("c", "apply_patch", json!({"type": "delete_file", "path": "a"})))]),
            ),
            (
                json!({"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no file"}),
                json!([result("c", "failed: no file")]),
            ),
            (
                json!({"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "q"}}),
                json!([caller(call("c", "tool_search", json!({"query": "q"})))]),
            ),
            (
                json!({"type": "tool_search_output", "call_id": "c", "tools": [tool]}),
                json!([result("c", "Tools: f")]),
            ),
            (json!({"type": "additional_tools", "role": "developer", "tools": [tool]}), json!([])),
            (
                json!({"type": "mcp_call", "id": "m", "name": "f", "server_label": "s", "arguments": "{}", "output": "o"}),
                json!([caller(call("m", "f", json!({}))), result("m", "o")]),
            ),
            (
                json!({"type": "file_search_call", "id": "m", "queries": ["q"], "results": [{"filename": "a", "text": "b"}]}),
                json!([caller(call("m", "file_search", json!({"queries": ["q"]}))), result("m", "a\nb")]),
            ),
            (
                json!({"type": "code_interpreter_call", "id": "m", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]}),
                json!([caller(call("m", "code_interpreter", json!({"code": "1"}))), result("m", "1")]),
            ),
            (
                json!({"type": "agent_message", "author": "a", "recipient": "b", "content": [{"type": "input_text", "text": "Hi"}]}),
                json!([{"role": "user", "content": "a to b: Hi"}]),
            ),
        ];
        for (item, expected) in items {
            check(json!([item]), expected);
        }
        for kind in [
            "web_search_call",
            "image_generation_call",
            "computer_call",
            "computer_call_output",
            "mcp_list_tools",
            "mcp_approval_request",
            "mcp_approval_response",
            "compaction",
            "compaction_trigger",
            "context_compaction",
            "program",
            "program_output",
            "ghost_snapshot",
            "configuration_update",
        ] {
            let given = json!([{"type": kind, "id": "x"}, {"role": "user", "content": "Hi"}]);
            let expected = (json!([{"role": "user", "content": "Hi"}]), vec![format!("input[0].{kind}")]);
            assert_eq!(read(given).unwrap(), expected);
        }
        for kind in ["function_call_output", "custom_tool_call_output"] {
            let (messages, ignored) = read(json!([{"type": kind, "call_id": "c", "output": image}])).unwrap();
            let text = "See:\n[image omitted: this model reads text only]";
            assert_eq!(
                (messages, &ignored[..]),
                (json!([result("c", text)]), &["input[0].output[1].input_image".to_string()][..])
            );
        }
    }

    #[test]
    fn an_output_of_a_local_shell_finds_its_call_by_either_id() {
        for id in ["item", "call"] {
            check(
                json!([
                    {"type": "local_shell_call", "id": "item", "call_id": "call", "action": {"type": "exec", "command": []}},
                    {"type": "local_shell_call_output", "id": id, "output": "a"},
                ]),
                json!([caller(call("call", "local_shell", json!({"command": []}))), result("call", "a")]),
            );
        }
    }

    #[test]
    fn pictures_are_refused_in_the_newest_message_of_the_user_only() {
        let look = json!({"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]});
        assert_eq!(read(json!([look])).unwrap_err().param.unwrap(), "input[0].content[0]");
        let (messages, ignored) = read(json!([look, {"role": "user", "content": "Well?"}])).unwrap();
        assert_eq!(messages[0]["content"], "[image omitted: this model reads text only]");
        assert_eq!(ignored, ["input[0].content[0].input_image"]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_place() {
        let problem = |input: Value| read(input).unwrap_err().param.unwrap_or_default();
        assert_eq!(
            problem(json!([{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": "x"}])),
            "input[1].id"
        );
        assert_eq!(problem(json!([{"type": "mesage", "role": "user", "content": "Hi"}])), "input[0].type");
        assert_eq!(problem(json!([{"role": "robot", "content": "Hi"}])), "input[0].role");
        assert_eq!(problem(json!([{"role": "user", "content": [{"type": "video"}]}])), "input[0].content[0]");
        assert_eq!(problem(json!([{"role": "user", "content": 3}])), "input[0].content");
        assert_eq!(problem(json!([3])), "input[0]");
        assert_eq!(problem(json!(3)), "input");
    }
}
