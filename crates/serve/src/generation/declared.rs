//! Tools of other protocols in the shape of the OpenAI API.

use serde_json::{Value, json};

/// A tool in the shape of the OpenAI API.
pub(crate) fn declared(name: &Value, description: &Value, parameters: &Value, strict: &Value) -> Value {
    let mut function = json!({ "name": name });
    for (key, value) in [("description", description), ("parameters", parameters), ("strict", strict)] {
        if !value.is_null() {
            function[key] = value.clone();
        }
    }
    json!({ "type": "function", "function": function })
}
