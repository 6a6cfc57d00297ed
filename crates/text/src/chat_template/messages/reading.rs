//! Reads a conversation as clients write it: one shape, whatever the template.

use serde_json::{Map, Value, json};

use super::{results, role};
use crate::Error;

/// A conversation in one shape: contents are texts, parts of text, or null next to calls; calls have ids and functions with
/// arguments; reasoning is a text in `reasoning_content`; fields that are null are not there.
pub(super) struct Conversation {
    pub(super) messages: Vec<Value>,
    /// The places of the messages in the request.
    pub(super) origins: Vec<usize>,
    /// Parts that became a line of text.
    pub(super) ignored: Vec<(usize, String)>,
}

/// A field, and its problem.
type Problem = (String, String);

/// Fields that hold reasoning, in the APIs of several servers.
pub(super) const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// The text that stands for a part that is not text, such as a picture, given the part's type.
pub fn omission(kind: &str) -> String {
    let name = match kind {
        "image_url" | "image" | "input_image" => "image",
        "input_audio" | "audio" | "audio_url" => "audio",
        "input_video" | "video" | "video_url" => "video",
        "input_file" | "file" => "file",
        kind => kind,
    };
    format!("[{name} omitted: this model reads text only]")
}

impl Conversation {
    /// # Errors
    /// [`Error::ChatMessage`] names what is not as it must be.
    pub(super) fn read(messages: &[Value]) -> Result<Conversation, Error> {
        let newest = messages.iter().rposition(|message| role(message) == "user");
        let mut ignored = Vec::new();
        let read = |(index, message): (usize, &Value)| {
            let fail = |(field, problem)| Error::ChatMessage { index, field, problem };
            let Value::Object(fields) = message else {
                return Err(fail((String::new(), "is not an object".to_owned())));
            };
            let mut reader =
                Reader { fields: fields.clone(), is_newest: newest == Some(index), omitted: Vec::new() };
            reader.read().map_err(fail)?;
            ignored.extend(reader.omitted.iter().map(|part| (index, format!(".content[{part}]"))));
            Ok(Value::Object(reader.fields))
        };
        let mut messages = messages.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        results::identify(&mut messages);
        let (origins, messages) = results::ordered(messages).into_iter().unzip();
        Ok(Conversation { messages, origins, ignored })
    }
}

/// Reads a message.
struct Reader {
    fields: Map<String, Value>,
    /// Whether it is the newest message of the user.
    is_newest: bool,
    /// Parts that became a line of text.
    omitted: Vec<usize>,
}

impl Reader {
    fn read(&mut self) -> Result<(), Problem> {
        self.fields.retain(|name, value| name == "content" || !value.is_null());
        if self.role() == "function" {
            self.fields.insert("role".to_owned(), json!("tool"));
        }
        if self.role() == "assistant" {
            self.read_reasoning();
        } else if self.role() == "tool"
            && let Some(name) = self.fields.remove("tool_name")
        {
            self.fields.entry("name").or_insert(name);
        }
        self.read_calls()?;
        self.read_content()
    }

    fn role(&self) -> &str {
        self.fields.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    /// Keeps the first field of reasoning that has a text.
    fn read_reasoning(&mut self) {
        let fields = REASONING.iter().chain(&["reasoning_details"]);
        let texts: Vec<String> =
            fields.filter_map(|name| Some(blocks(&self.fields.remove(*name)?))).collect();
        if let Some(text) = texts.into_iter().find(|text| !text.is_empty()) {
            self.fields.insert(REASONING[0].to_owned(), Value::String(text));
        }
    }

    fn read_calls(&mut self) -> Result<(), Problem> {
        let call = self.fields.remove("function_call").filter(Value::is_object);
        let legacy = call.map(|function| json!([{ "type": "function", "function": function }]));
        let given = self.fields.remove("tool_calls").or(legacy);
        let Some(Value::Array(mut calls)) = given else { return Ok(()) };
        for (index, call) in calls.iter_mut().enumerate() {
            let Value::Object(call) = call else {
                return Err((format!(".tool_calls[{index}]"), "is not an object".to_owned()));
            };
            read_call(call);
        }
        if !calls.is_empty() {
            self.fields.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        Ok(())
    }

    fn read_content(&mut self) -> Result<(), Problem> {
        let is_result = self.role() == "tool";
        let is_part = |part: &Value| part.is_string() || part["type"].is_string();
        let content = match self.fields.remove("content") {
            Some(Value::Array(parts)) if !is_result || parts.iter().all(is_part) => {
                self.read_parts(&parts)?
            }
            Some(text @ Value::String(_)) => text,
            None | Some(Value::Null) if self.fields.contains_key("tool_calls") => Value::Null,
            None | Some(Value::Null) => json!(""),
            // The result of a tool may be any JSON.
            Some(other) if is_result => Value::String(other.to_string()),
            Some(_) => {
                return Err((".content".to_owned(), "is neither a text nor a list of parts".to_owned()));
            }
        };
        self.fields.insert("content".to_owned(), content);
        Ok(())
    }

    /// Parts of text.
    fn read_parts(&mut self, parts: &[Value]) -> Result<Value, Problem> {
        let mut texts = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            let kind = part["type"].as_str().unwrap_or(if part.is_string() { "text" } else { "none" });
            match kind {
                "text" | "input_text" | "output_text" | "refusal" => {
                    // A refusal has its text under its own name.
                    let text = part.as_str().or(part["text"].as_str()).or(part[kind].as_str());
                    let text =
                        text.ok_or_else(|| (format!(".content[{index}]"), "has no text".to_owned()))?;
                    texts.push(json!({ "type": "text", "text": text }));
                }
                "thinking" | "reasoning" if self.role() == "assistant" => self.add_reasoning(&blocks(part)),
                "none" => return Err(not_text(index, kind)),
                kind if self.is_newest => return Err(not_text(index, kind)),
                kind => {
                    self.omitted.push(index);
                    let before = if texts.is_empty() { "" } else { "\n" };
                    let after = if index + 1 == parts.len() { "" } else { "\n" };
                    let line = [before, &omission(kind), after].concat();
                    texts.push(json!({ "type": "text", "text": line }));
                }
            }
        }
        Ok(if texts.is_empty() { json!("") } else { Value::Array(texts) })
    }

    fn add_reasoning(&mut self, text: &str) {
        let before = self.fields.get(REASONING[0]).and_then(Value::as_str).unwrap_or_default();
        let text = super::joined(before, text);
        if !text.is_empty() {
            self.fields.insert(REASONING[0].to_owned(), Value::String(text));
        }
    }
}

fn not_text(index: usize, kind: &str) -> Problem {
    (format!(".content[{index}]"), format!("has the type {kind}; only text is supported"))
}

/// The text of reasoning: a text, or blocks of it, one below the other.
fn blocks(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().map(self::blocks).fold(String::new(), |before, text| super::joined(&before, &text))
        }
        Value::Object(block) => {
            let fields = ["thinking", "text", "reasoning", "content", "summary"];
            let texts = fields.iter().filter_map(|name| block.get(*name)).map(self::blocks);
            texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// Brings a call into the shape `{"type": "function", "function": {"name", "arguments"}}`.
fn read_call(call: &mut Map<String, Value>) {
    call.retain(|_, value| !value.is_null());
    if !call.contains_key("function")
        && let Some(name) = call.remove("name")
    {
        let arguments = ["arguments", "input", "parameters"].iter().find_map(|field| call.remove(*field));
        call.insert("function".to_owned(), json!({ "name": name, "arguments": arguments }));
    }
    if let Some(Value::Object(custom)) = call.remove("custom") {
        let arguments = json!({ "input": custom.get("input") });
        call.insert("function".to_owned(), json!({ "name": custom.get("name"), "arguments": arguments }));
    }
    // There are no calls of another type; templates that read it know this one.
    call.insert("type".to_owned(), json!("function"));
    if let Some(Value::Object(function)) = call.get_mut("function") {
        let arguments = function.entry("arguments").or_insert(Value::Null);
        if arguments.is_null() || arguments.as_str().is_some_and(|text| text.trim().is_empty()) {
            *arguments = json!({});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: Value) -> Value {
        let conversation = Conversation::read(&[message]).unwrap();
        conversation.messages.into_iter().next().unwrap()
    }

    #[test]
    fn reasoning_has_one_name() {
        let check = |fields: Value, expected: &str| {
            let mut message = fields;
            message["role"] = json!("assistant");
            let message = read(message);
            assert_eq!(message["reasoning_content"], expected, "{message}");
            assert!(message.get("reasoning").is_none() && message.get("thinking").is_none(), "{message}");
        };
        check(json!({"content": "a", "reasoning": "b"}), "b");
        check(json!({"content": "a", "thinking": "b", "reasoning_content": ""}), "b");
        check(json!({"content": "a", "reasoning_content": null, "reasoning": "b"}), "b");
        let blocks = json!([{"type": "thinking", "thinking": "b"}, {"type": "thinking", "thinking": "c"}]);
        check(json!({"content": "a", "thinking": blocks}), "b\n\nc");
        let details =
            json!([{"type": "reasoning.text", "text": "b"}, {"type": "reasoning.summary", "summary": "c"}]);
        check(json!({"content": "a", "reasoning_details": details}), "b\n\nc");
        let parts = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}, {"type": "text", "text": "a"}]);
        check(json!({"content": parts.clone()}), "b");
        assert_eq!(
            read(json!({"role": "assistant", "content": parts}))["content"],
            json!([{"type": "text", "text": "a"}])
        );
    }

    #[test]
    fn calls_have_one_shape() {
        let check = |fields: Value, expected: Value| {
            let mut message = fields;
            message["role"] = json!("assistant");
            let message = read(message);
            let mut calls = super::super::calls(&message).to_vec();
            calls.iter_mut().for_each(|call| drop(call.as_object_mut().unwrap().remove("id")));
            assert_eq!(Value::Array(calls), expected);
        };
        let call = |arguments: Value| json!([{"type": "function", "function": {"name": "f", "arguments": arguments}}]);
        for empty in [json!(null), json!(""), json!(" "), json!({})] {
            check(
                json!({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": empty}}]}),
                call(json!({})),
            );
        }
        check(json!({"tool_calls": [{"function": {"name": "f"}}]}), call(json!({})));
        check(json!({"tool_calls": [{"name": "f", "arguments": {"a": 1}}]}), call(json!({"a": 1})));
        check(json!({"function_call": {"name": "f", "arguments": "{}"}}), call(json!("{}")));
        check(
            json!({"tool_calls": [{"type": "custom", "custom": {"name": "f", "input": "ls"}}]}),
            call(json!({"input": "ls"})),
        );
        for none in [json!(null), json!([]), json!(1)] {
            let message =
                read(json!({"role": "assistant", "content": null, "tool_calls": none, "refusal": null}));
            assert_eq!(message, json!({"role": "assistant", "content": ""}));
        }
    }

    #[test]
    fn pictures_become_a_line_except_in_the_newest_message_of_the_user() {
        let image = json!({"type": "image_url", "image_url": {"url": "x"}});
        let text = |text: &str| json!({"type": "text", "text": text});
        let messages = [
            json!({"role": "user", "content": [text("Look:"), image]}),
            json!({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}),
            json!({"role": "tool", "tool_call_id": "a", "content": [{"type": "input_audio"}, text("Well?")]}),
            json!({"role": "user", "content": "Hi"}),
        ];
        let conversation = Conversation::read(&messages).unwrap();
        let contents: Vec<String> =
            conversation.messages.iter().map(|message| super::super::text_of(&message["content"])).collect();
        assert_eq!(contents[0], "Look:\n[image omitted: this model reads text only]");
        assert_eq!(contents[2], "[audio omitted: this model reads text only]\nWell?");
        assert_eq!(conversation.ignored, [(0, ".content[1]".to_owned()), (2, ".content[0]".to_owned())]);
        let error = Conversation::read(&messages[..3]).err().unwrap().to_string();
        assert_eq!(error, "messages[0].content[1]: has the type image_url; only text is supported");
    }
}
