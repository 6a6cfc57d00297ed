//! The input of a response: items become messages of a chat template.

use serde_json::{Value, json};

use crate::conversation::{role_of, text_of};
use crate::error::ApiError;
use crate::stamp::unique_id;

/// Types of parts that are text.
const TEXTS: [&str; 4] = ["input_text", "output_text", "text", "refusal"];

/// The items of an input, each with a type and an id.
///
/// # Errors
/// If the input is neither a string nor a list of items.
pub(super) fn items(input: Value) -> Result<Vec<Value>, ApiError> {
    let items = match input {
        Value::String(text) => vec![json!({
            "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }],
        })],
        Value::Array(items) => items,
        _ => return Err(ApiError::invalid("input", "input: give a string or a list of items")),
    };
    let items = items.into_iter().enumerate().map(|(index, mut item)| {
        let path = format!("input[{index}]");
        let Some(fields) = item.as_object_mut() else {
            return Err(ApiError::invalid(&path, format!("{path}: an item is an object")));
        };
        fields.entry("type").or_insert_with(|| "message".into());
        fields.entry("id").or_insert_with(|| unique_id("item_").into());
        Ok(item)
    });
    items.collect()
}

/// The messages of items.
///
/// # Errors
/// If an item has a type or a content that the models cannot read.
pub(super) fn messages(items: &[Value]) -> Result<Vec<Value>, ApiError> {
    let mut messages: Vec<Value> = Vec::with_capacity(items.len());
    let mut reasoning = None;
    for (index, item) in items.iter().enumerate() {
        let path = format!("input[{index}]");
        match item["type"].as_str() {
            Some("message") => messages.push(message(item, &path)?),
            Some("function_call") => add_call(&mut messages, item),
            Some("function_call_output") => {
                let output = &item["output"];
                let content = match output {
                    Value::String(_) | Value::Array(_) => text_of(output, &format!("{path}.output"), &TEXTS)?,
                    other => other.to_string(),
                };
                messages.push(json!({ "role": "tool", "tool_call_id": item["call_id"], "content": content }));
            }
            Some("reasoning") => reasoning = Some(reasoning_of(item)),
            _ => {
                let kind = &item["type"];
                let message =
                    format!("{path}.type is {kind}: give message, function_call or function_call_output");
                return Err(ApiError::invalid(format!("{path}.type"), message));
            }
        }
        // It belongs to the message or the call that follows; templates drop that of earlier turns.
        if item["type"] != "reasoning"
            && let Some(reasoning) = reasoning.take().filter(|text: &String| !text.is_empty())
            && let Some(last) = messages.last_mut().filter(|last| last["role"] == "assistant")
        {
            last["reasoning_content"] = reasoning.into();
        }
    }
    Ok(messages)
}

/// The text of reasoning.
fn reasoning_of(item: &Value) -> String {
    let parts = item["content"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Puts instructions before messages; gives how many messages that adds. Templates want one message of the system.
pub(super) fn instruct(messages: &mut Vec<Value>, instructions: &str) -> usize {
    match messages.first_mut() {
        Some(first) if first["role"] == "system" => {
            let after = first["content"].as_str().unwrap_or_default();
            first["content"] = format!("{instructions}\n{after}").into();
            0
        }
        _ => {
            messages.insert(0, json!({ "role": "system", "content": instructions }));
            1
        }
    }
}

fn message(item: &Value, path: &str) -> Result<Value, ApiError> {
    let fields = item.as_object().cloned().unwrap_or_default();
    let role = match role_of(&fields, path, &["user", "assistant", "system", "developer"])? {
        "developer" => "system",
        role => role,
    };
    let content = text_of(&item["content"], &format!("{path}.content"), &TEXTS)?;
    Ok(json!({ "role": role, "content": content }))
}

/// Adds a call to the assistant's message, which may have been begun.
fn add_call(messages: &mut Vec<Value>, item: &Value) {
    let arguments = item["arguments"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let function =
        json!({ "name": item["name"], "arguments": arguments.unwrap_or_else(|| item["arguments"].clone()) });
    let call = json!({ "id": item["call_id"], "type": "function", "function": function });
    if messages.last().is_none_or(|last| last["role"] != "assistant") {
        messages.push(json!({ "role": "assistant", "content": "" }));
    }
    let last = messages.len() - 1;
    match &mut messages[last]["tool_calls"] {
        Value::Array(calls) => calls.push(call),
        none => *none = json!([call]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages() {
        let input = json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Rain?"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\": \"Bonn\"}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        ]);
        let call = json!({
            "id": "call_1", "type": "function",
            "function": {"name": "weather", "arguments": {"city": "Bonn"}},
        });
        assert_eq!(
            Value::Array(messages(&items(input).unwrap()).unwrap()),
            json!([
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Weather?"},
                {
                    "role": "assistant", "content": "I look.", "reasoning_content": "Rain?",
                    "tool_calls": [call],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            ])
        );
    }

    #[test]
    fn items_that_are_not_text_are_refused_with_their_place() {
        let problem = |input: Value| {
            let error = items(input).and_then(|items| messages(&items)).unwrap_err();
            error.param.unwrap_or_default()
        };
        let image = json!([{"type": "input_image", "image_url": "data:"}]);
        assert_eq!(problem(json!([{"role": "user", "content": image}])), "input[0].content[0]");
        assert_eq!(
            problem(json!([{"role": "user", "content": "Hi"}, {"type": "item_reference"}])),
            "input[1].type"
        );
        assert_eq!(problem(json!([3])), "input[0]");
        assert_eq!(problem(json!(3)), "input");
    }
}
