//! The forms of single messages: contents as texts or parts, arguments as objects or texts, ids, the name of reasoning.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::reading::REASONING;
use super::text_of;

/// The forms that a template takes.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// Of content, by role.
    pub(super) contents: BTreeMap<&'static str, Pair>,
    /// Of the content next to tool calls: a text stands for an empty one, parts for null.
    pub(super) empty: Pair,
    /// Of arguments: a text, and parts for an object.
    pub(super) arguments: Pair,
    /// The field of reasoning.
    pub(super) reasoning: Option<&'static str>,
    pub(super) knows_developer: bool,
    /// Whether ids of calls must have nine letters and digits.
    pub(super) has_short_ids: bool,
}

/// Which of two forms a template writes as it should.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Pair {
    pub(super) text: bool,
    pub(super) parts: bool,
}

/// An id that all templates take.
pub(super) const SHORT_ID: &str = "abcdefghi";

impl Forms {
    /// Brings a message into the forms. `ids` are those of calls so far.
    pub(super) fn bring(&self, message: &mut Value, ids: &mut Vec<Value>) {
        let Some(fields) = message.as_object_mut() else { return };
        if fields.get("role").is_some_and(|role| role == "developer") && !self.knows_developer {
            fields.insert("role".to_owned(), json!("system"));
        }
        if let Some(name) = self.reasoning.filter(|name| *name != REASONING[0])
            && let Some(reasoning) = fields.remove(REASONING[0])
        {
            fields.insert(name.to_owned(), reasoning);
        }
        let role = fields.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(content) = fields.get_mut("content") {
            self.bring_content(content, &role);
        }
        if fields.contains_key("tool_calls") {
            let content = fields.entry("content").or_insert(Value::Null);
            match content {
                Value::Null if self.empty.text && !self.empty.parts => *content = json!(""),
                Value::String(text) if text.is_empty() && self.empty.parts && !self.empty.text => {
                    *content = Value::Null;
                }
                _ => {}
            }
        }
        for call in fields.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            call.pointer_mut("/function/arguments").into_iter().for_each(|own| self.bring_arguments(own));
            call.get_mut("id").into_iter().for_each(|id| self.bring_id(id, ids));
        }
        fields.get_mut("tool_call_id").into_iter().for_each(|id| self.bring_id(id, ids));
    }

    fn bring_content(&self, content: &mut Value, role: &str) {
        let forms = self.contents.get(role).copied().unwrap_or_default();
        match content {
            Value::Array(_) if !forms.parts => *content = Value::String(text_of(content)),
            Value::String(text) if forms.parts && !forms.text => {
                *content = json!([{"type": "text", "text": text}]);
            }
            _ => {}
        }
    }

    fn bring_arguments(&self, arguments: &mut Value) {
        let takes_objects_only = self.arguments.parts && !self.arguments.text;
        let takes_texts_only = self.arguments.text && !self.arguments.parts;
        if takes_objects_only && !arguments.is_object() {
            *arguments = Value::Object(object(arguments));
        } else if takes_texts_only && !arguments.is_string() {
            *arguments = Value::String(arguments.to_string());
        }
    }

    /// Replaces an id by its number.
    fn bring_id(&self, id: &mut Value, ids: &mut Vec<Value>) {
        let fits =
            |id: &str| id.len() == SHORT_ID.len() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !self.has_short_ids || id.as_str().is_none_or(fits) {
            return;
        }
        let number = ids.iter().position(|other| other == id).unwrap_or_else(|| {
            ids.push(id.clone());
            ids.len() - 1
        });
        *id = Value::String(format!("{number:09}"));
    }
}

/// Arguments as an object. Models err: what is not one is shown as it is, under a name that says so.
fn object(arguments: &Value) -> Map<String, Value> {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    match arguments.as_str().and_then(parsed) {
        Some(Value::Object(object)) => return object,
        // Some clients encode them twice.
        Some(Value::String(text)) => {
            if let Some(Value::Object(object)) = parsed(&text) {
                return object;
            }
        }
        _ => {}
    }
    Map::from_iter([("invalid_arguments".to_owned(), arguments.clone())])
}
