//! The messages of a request: content blocks become messages of a chat template.

use serde_json::{Map, Value, json};

use crate::api_error::ApiError;
use crate::fields::conversation::{kind_of, not_text, role_of, text_of};
use crate::fields::opaque_reasoning;

/// Blocks that say nothing to a model of this server. They are named as ignored.
const SKIPPED: [&str; 6] = [
    "redacted_thinking",
    "container_upload",
    "tool_addition",
    "tool_removal",
    "mcp_tool_listing",
    "fallback",
];

/// Messages for a chat template. Blocks of neighbours with one role become one message.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) messages: Vec<Value>,
    /// Where the request has each of them.
    pub(super) places: Vec<String>,
    /// Parts of the request that have no effect.
    pub(super) ignored: Vec<String>,
}

impl Messages {
    /// Adds the messages of a request.
    ///
    /// # Errors
    /// If a message has a role or a content that the models cannot read.
    pub(super) fn extend(&mut self, messages: &[Map<String, Value>]) -> Result<(), ApiError> {
        let newest = messages.iter().rposition(is_of_user);
        for (index, message) in messages.iter().enumerate() {
            self.add(message, &format!("messages[{index}]"), newest == Some(index))?;
        }
        Ok(())
    }

    /// Adds a text.
    pub(super) fn push(&mut self, role: &str, text: &str, path: &str) {
        if let Some(last) = self.messages.last_mut()
            && last["role"] == role
            && let Value::String(before) = &mut last["content"]
        {
            if !before.is_empty() {
                before.push('\n');
            }
            before.push_str(text);
            return;
        }
        self.begin(json!({ "role": role, "content": text }), path);
    }

    /// Whether the last message is the assistant's and can be continued.
    pub(super) fn ends_with_answer(&self) -> bool {
        let can = |last: &Value| last["role"] == "assistant" && last.get("tool_calls").is_none();
        self.messages.last().is_some_and(can)
    }

    fn begin(&mut self, message: Value, path: &str) {
        self.messages.push(message);
        self.places.push(path.to_string());
    }

    /// Adds a message. The newest one of the user must be text, as far as it is the user's own.
    fn add(&mut self, message: &Map<String, Value>, path: &str, is_newest: bool) -> Result<(), ApiError> {
        let role = role_of(message, path, &["user", "assistant", "system"])?;
        let place = format!("{path}.content");
        match message.get("content") {
            Some(Value::Array(blocks)) => {
                let must_be_text = is_newest && !blocks.iter().any(|block| block["type"] == "tool_result");
                for (index, block) in blocks.iter().enumerate() {
                    let place = format!("{place}[{index}]");
                    if must_be_text && block["type"] == "image" {
                        return Err(not_text(&place, "image"));
                    }
                    self.add_block(role, block, &place, path)?;
                }
            }
            None | Some(Value::Null) if role == "system" => {}
            content => {
                let text = text_of(content.unwrap_or(&Value::Null), &place, &[])?;
                self.push(role, &text, path);
            }
        }
        Ok(())
    }

    /// Adds a content block. `place` is its own, `path` that of its message.
    fn add_block(&mut self, role: &str, block: &Value, place: &str, path: &str) -> Result<(), ApiError> {
        match kind_of(block, place)? {
            "text" | "image" | "document" | "search_result" => {
                let text = self.part(block, place)?;
                self.push(role, &text, path);
            }
            "thinking" => self.add_thinking(block, place, path)?,
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                let (id, name) = (text_in(block, "id", place)?, text_in(block, "name", place)?);
                let function = json!({ "name": name, "arguments": block["input"] });
                let call = json!({ "id": id, "type": "function", "function": function });
                match &mut self.assistant(path)["tool_calls"] {
                    Value::Array(calls) => calls.push(call),
                    none => *none = json!([call]),
                }
            }
            kind if kind.ends_with("tool_result") => {
                let id = text_in(block, "tool_use_id", place)?;
                let content = self.result(block, place)?;
                self.begin(json!({ "role": "tool", "tool_call_id": id, "content": content }), path);
            }
            "compaction" if block["content"].is_string() => {
                self.push(role, text_in(block, "content", place)?, path);
            }
            // New kinds come with new servers: those that speak for the assistant stand in no one's way.
            kind if role == "assistant" || kind == "compaction" || SKIPPED.contains(&kind) => {
                self.ignore(place, kind);
            }
            other => return Err(not_text(place, other)),
        }
        Ok(())
    }

    /// Adds reasoning to the assistant's message, after what it has.
    fn add_thinking(&mut self, block: &Value, place: &str, path: &str) -> Result<(), ApiError> {
        let text = text_in(block, "thinking", place)?;
        let hidden =
            block["signature"].as_str().filter(|_| text.is_empty()).and_then(opaque_reasoning::decode);
        let text = hidden.unwrap_or_else(|| text.to_string());
        match &mut self.assistant(path)["reasoning_content"] {
            Value::String(before) => *before = format!("{before}\n{text}"),
            none => *none = text.into(),
        }
        Ok(())
    }

    /// The text of a tool's result.
    fn result(&mut self, block: &Value, place: &str) -> Result<String, ApiError> {
        let place = format!("{place}.content");
        let text = match &block["content"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            Value::Array(parts) => {
                let parts = parts.iter().enumerate();
                let texts = parts.map(|(index, part)| self.part(part, &format!("{place}[{index}]")));
                texts.collect::<Result<Vec<_>, _>>()?.join("\n")
            }
            content => self.part(content, &place)?,
        };
        let is_error = block["is_error"] == true && !text.to_lowercase().contains("error");
        Ok(if is_error { format!("Error: {text}") } else { text })
    }

    /// The text of a part: of a message, or of a result, which may be any JSON.
    fn part(&mut self, part: &Value, place: &str) -> Result<String, ApiError> {
        match kind_of(part, place)? {
            "text" => Ok(text_in(part, "text", place)?.to_string()),
            "image" => Ok(self.left_out(place, "image")),
            "document" => self.document(part, place),
            "search_result" => {
                let texts = self.parts(&part["content"], &format!("{place}.content"))?;
                Ok(lines(&[&part["title"], &part["source"], &json!(texts)]))
            }
            _ => Ok(self.json(part, place)?.to_string()),
        }
    }

    /// The text of a string or of parts.
    fn parts(&mut self, content: &Value, place: &str) -> Result<String, ApiError> {
        self.result(&json!({ "content": content }), place.strip_suffix(".content").unwrap_or(place))
    }

    /// The text of a document: its title, what is said about it, and its own text.
    fn document(&mut self, document: &Value, place: &str) -> Result<String, ApiError> {
        let source = &document["source"];
        let text = match source["type"].as_str() {
            Some("text") => text_in(source, "data", &format!("{place}.source"))?.to_string(),
            Some("content") => self.parts(&source["content"], &format!("{place}.source.content"))?,
            _ => self.left_out(place, "document"),
        };
        Ok(lines(&[&document["title"], &document["context"], &json!(text)]))
    }

    /// JSON without what only the server that made it can read, and with texts in place of blocks.
    fn json(&mut self, value: &Value, place: &str) -> Result<Value, ApiError> {
        Ok(match value {
            Value::Object(fields) => {
                let is_known = |name: &String| !name.starts_with("encrypted_") && name != "cache_control";
                let fields = fields.iter().filter(|(name, _)| is_known(name));
                let fields = fields.map(|(name, field)| {
                    let place = format!("{place}.{name}");
                    let field = match field["type"].as_str() {
                        Some("text" | "image" | "document" | "search_result") => {
                            Value::String(self.part(field, &place)?)
                        }
                        _ => self.json(field, &place)?,
                    };
                    Ok((name.clone(), field))
                });
                Value::Object(fields.collect::<Result<_, ApiError>>()?)
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let items = items.map(|(index, item)| self.json(item, &format!("{place}[{index}]")));
                Value::Array(items.collect::<Result<_, ApiError>>()?)
            }
            other => other.clone(),
        })
    }

    /// The line that stands for a block that is not text.
    fn left_out(&mut self, place: &str, kind: &str) -> String {
        self.ignore(place, kind);
        format!("[{kind} omitted: this model reads text only]")
    }

    fn ignore(&mut self, place: &str, kind: &str) {
        self.ignored.push(format!("{place}.{kind}"));
    }

    /// The assistant's message, which may have been begun.
    fn assistant(&mut self, path: &str) -> &mut Value {
        if self.messages.last().is_none_or(|last| last["role"] != "assistant") {
            self.begin(json!({ "role": "assistant", "content": "" }), path);
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }
}

fn is_of_user(message: &Map<String, Value>) -> bool {
    message.get("role").is_some_and(|role| role == "user")
}

/// A text in a field of a block.
fn text_in<'a>(block: &'a Value, name: &str, place: &str) -> Result<&'a str, ApiError> {
    let missing = || ApiError::invalid(place, format!("{place}: the block has no `{name}`"));
    block[name].as_str().ok_or_else(missing)
}

/// Texts, one below the other; those that are missing or empty are left out.
fn lines(texts: &[&Value]) -> String {
    let texts = texts.iter().filter_map(|text| text.as_str()).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of a request, and the parts of it that have no effect.
    fn read(messages: Value) -> Result<(Value, Vec<String>), ApiError> {
        let messages: Vec<Map<String, Value>> = serde_json::from_value(messages).unwrap();
        let mut read = Messages::default();
        read.extend(&messages)?;
        assert_eq!(read.places.len(), read.messages.len());
        Ok((Value::Array(read.messages), read.ignored))
    }

    fn check(messages: Value, expected: Value) {
        assert_eq!(read(messages).unwrap(), (expected, Vec::new()));
    }

    fn call(id: &str, name: &str, arguments: Value) -> Value {
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn blocks_of_tools_become_calls_and_results() {
        check(
            json!([
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Look it up.", "signature": "x"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bonn"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": null},
                    {"type": "tool_result", "tool_use_id": "toolu_3"},
                    {"type": "tool_result", "tool_use_id": "toolu_4", "content": "no city", "is_error": true},
                    {"type": "tool_result", "tool_use_id": "toolu_5", "content": "Error: no city", "is_error": true},
                    {"type": "text", "text": "Well?"},
                ]},
            ]),
            json!([
                {"role": "user", "content": "Weather?"},
                {
                    "role": "assistant", "content": "I look.", "reasoning_content": "Look it up.",
                    "tool_calls": [call("toolu_1", "weather", json!({"city": "Bonn"})), call("toolu_2", "time", json!({}))],
                },
                {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"},
                {"role": "tool", "tool_call_id": "toolu_2", "content": ""},
                {"role": "tool", "tool_call_id": "toolu_3", "content": ""},
                {"role": "tool", "tool_call_id": "toolu_4", "content": "Error: no city"},
                {"role": "tool", "tool_call_id": "toolu_5", "content": "Error: no city"},
                {"role": "user", "content": "Well?"},
            ]),
        );
    }

    #[test]
    fn neighbours_of_one_role_become_one_message() {
        check(
            json!([
                {"role": "user", "content": "One."},
                {"role": "user", "content": [{"type": "text", "text": "Two."}, {"type": "text", "text": "Three."}]},
            ]),
            json!([{"role": "user", "content": "One.\nTwo.\nThree."}]),
        );
    }

    #[test]
    fn messages_of_the_system_stay_in_their_place() {
        check(
            json!([
                {"role": "user", "content": "Hi"},
                {"role": "system", "content": "Be brief."},
                {"role": "system"},
                {"role": "assistant", "content": "Hello"},
                {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
            ]),
            json!([
                {"role": "user", "content": "Hi"},
                {"role": "system", "content": "Be brief."},
                {"role": "assistant", "content": "Hello"},
                {"role": "system", "content": "Be kind."},
            ]),
        );
    }

    #[test]
    fn all_reasoning_of_a_turn_is_kept_also_when_it_was_hidden() {
        check(
            json!([{"role": "assistant", "content": [
                {"type": "thinking", "thinking": "One.", "signature": "unsigned"},
                {"type": "text", "text": "Hm."},
                {"type": "thinking", "thinking": "", "signature": opaque_reasoning::encode("Two.")},
                {"type": "thinking", "thinking": "Three.", "signature": opaque_reasoning::encode("other")},
            ]}]),
            json!([{"role": "assistant", "content": "Hm.", "reasoning_content": "One.\nTwo.\nThree."}]),
        );
    }

    #[test]
    fn every_kind_of_block_is_read_or_named() {
        let source =
            |kind: &str, data: Value| json!({"type": kind, "data": data, "media_type": "text/plain"});
        let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "JVBE"});
        let search =
            json!([{"type": "web_search_result", "title": "A", "url": "http://a", "encrypted_content": "x"}]);
        let fetched = json!({"type": "web_fetch_result", "url": "http://a", "content": {"type": "document", "source": source("text", json!("Page."))}});
        let ran = json!({"type": "code_execution_result", "stdout": "2", "stderr": "", "return_code": 0, "content": []});
        let text = json!([{"type": "text", "text": "T"}]);
        let result =
            |kind: &str, content: Value| json!({"type": kind, "tool_use_id": "t", "content": content});
        // The block, and the text that the model reads of it; none if it is named only.
        let blocks = [
            (json!({"type": "text", "text": "T", "citations": null}), Some("T")),
            (
                json!({"type": "document", "title": "Title", "context": "Context", "source": source("text", json!("Data"))}),
                Some("Title\nContext\nData"),
            ),
            (json!({"type": "document", "source": {"type": "content", "content": text}}), Some("T")),
            (json!({"type": "document", "source": {"type": "content", "content": "C"}}), Some("C")),
            (
                json!({"type": "document", "source": pdf}),
                Some("[document omitted: this model reads text only]"),
            ),
            (
                json!({"type": "document", "source": {"type": "url", "url": "http://a"}}),
                Some("[document omitted: this model reads text only]"),
            ),
            (
                json!({"type": "document", "source": {"type": "file", "file_id": "f"}}),
                Some("[document omitted: this model reads text only]"),
            ),
            (json!({"type": "image", "source": {}}), Some("[image omitted: this model reads text only]")),
            (
                json!({"type": "search_result", "title": "Title", "source": "http://a", "content": text}),
                Some("Title\nhttp://a\nT"),
            ),
            (json!({"type": "redacted_thinking", "data": "x"}), None),
            (json!({"type": "container_upload", "file_id": "f"}), None),
            (json!({"type": "compaction", "content": "Before."}), Some("Before.")),
            (json!({"type": "compaction", "content": null, "encrypted_content": "x"}), None),
            (json!({"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}), None),
            (json!({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}), None),
            (json!({"type": "mcp_tool_listing", "mcp_server_name": "m", "tools": []}), None),
            (json!({"type": "fallback", "from": {}, "to": {}}), None),
            (
                result("tool_result", json!([{"type": "image", "source": {}}])),
                Some("[image omitted: this model reads text only]"),
            ),
            (
                result("tool_result", json!([{"type": "document", "source": source("text", json!("D"))}])),
                Some("D"),
            ),
            (
                result("tool_result", json!([{"type": "tool_reference", "tool_name": "f"}])),
                Some(r#"{"type":"tool_reference","tool_name":"f"}"#),
            ),
            (result("mcp_tool_result", json!("M")), Some("M")),
            (
                result("web_search_tool_result", search),
                Some(r#"{"type":"web_search_result","title":"A","url":"http://a"}"#),
            ),
            (
                result(
                    "web_search_tool_result",
                    json!({"type": "web_search_tool_result_error", "error_code": "unavailable"}),
                ),
                Some(r#"{"type":"web_search_tool_result_error","error_code":"unavailable"}"#),
            ),
            (
                result("web_fetch_tool_result", fetched),
                Some(r#"{"type":"web_fetch_result","url":"http://a","content":"Page."}"#),
            ),
            (
                result("code_execution_tool_result", ran),
                Some(
                    r#"{"type":"code_execution_result","stdout":"2","stderr":"","return_code":0,"content":[]}"#,
                ),
            ),
            (result("bash_code_execution_tool_result", json!(null)), Some("")),
            (result("text_editor_code_execution_tool_result", json!(null)), Some("")),
            (result("tool_search_tool_result", json!(null)), Some("")),
            (
                result("advisor_tool_result", json!({"type": "advisor_result", "text": "A"})),
                Some(r#"{"type":"advisor_result","text":"A"}"#),
            ),
        ];
        for (block, expected) in blocks {
            let given = json!([
                {"role": "user", "content": [block]}, {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
            ]);
            let (messages, ignored) = read(given).unwrap();
            let kind = block["type"].as_str().unwrap();
            let (first, is_named) = (&messages[0]["content"], !ignored.is_empty());
            match expected {
                None => assert_eq!(
                    (first, &ignored[..]),
                    (&json!("Go on."), &[format!("messages[0].content[0].{kind}")][..])
                ),
                Some(text) if kind.ends_with("tool_result") => assert_eq!(first, text, "{block}"),
                Some(text) => assert_eq!(first, &format!("{text}\nGo on."), "{block}"),
            }
            assert_eq!(is_named, expected.is_none_or(|text| text.starts_with('[')), "{block}");
        }
        for kind in ["tool_use", "server_tool_use", "mcp_tool_use"] {
            let block = json!({"type": kind, "id": "t", "name": "f", "input": {"a": 1}, "server_name": "s"});
            check(
                json!([{"role": "assistant", "content": [block]}]),
                json!([{"role": "assistant", "content": "", "tool_calls": [call("t", "f", json!({"a": 1}))]}]),
            );
        }
    }

    #[test]
    fn what_is_not_text_is_refused_with_its_place() {
        let problem = |messages: Value| {
            let error = read(messages).unwrap_err();
            (error.param.unwrap_or_default(), error.message)
        };
        let image = json!([{"type": "text", "text": "Look:"}, {"type": "image", "source": {}}]);
        assert_eq!(
            problem(json!([{"role": "user", "content": image}, {"role": "assistant", "content": "I"}])),
            (
                "messages[0].content[1]".to_string(),
                "messages[0].content[1]: the models read text only, not parts of type `image`".to_string()
            )
        );
        let param = |messages: Value| problem(messages).0;
        assert_eq!(param(json!([{"role": "robot", "content": "Hi"}])), "messages[0].role");
        assert_eq!(param(json!([{"role": "user", "content": null}])), "messages[0].content");
        let block = |block: Value| param(json!([{"role": "user", "content": [block]}]));
        for wrong in [json!(3), json!({}), json!({"type": "video"}), json!({"type": "tool_use", "name": "f"})]
        {
            assert_eq!(block(wrong), "messages[0].content[0]");
        }
        let document = json!({"type": "document", "source": {"type": "text"}});
        assert_eq!(block(document), "messages[0].content[0].source");
    }
}
