//! Tools without a description or parameters, which the OpenAI API does not ask for and some templates do.

use serde_json::{Value, json};

/// Tools whose fields are not null, and with all that templates read if `is_filled`.
pub(super) fn completed(tools: &[Value], is_filled: bool) -> Vec<Value> {
    tools.iter().map(|tool| complete(tool.clone(), is_filled)).collect()
}

fn complete(mut tool: Value, is_filled: bool) -> Value {
    let Some(function) = tool.get_mut("function").and_then(Value::as_object_mut) else { return tool };
    function.retain(|_, value| !value.is_null());
    if !is_filled {
        return tool;
    }
    function.entry("description").or_insert_with(|| json!(""));
    let parameters = function.entry("parameters").or_insert_with(|| json!({}));
    if let Value::Object(parameters) = parameters {
        parameters.entry("type").or_insert_with(|| json!("object"));
        parameters.entry("properties").or_insert_with(|| json!({}));
    }
    tool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_templates_read_are_filled_in() {
        let check = |function: Value, is_filled: bool, expected: Value| {
            let tool = json!({"type": "function", "function": function});
            assert_eq!(completed(&[tool], is_filled)[0]["function"], expected);
        };
        let empty = json!({"type": "object", "properties": {}});
        let filled = json!({"name": "f", "description": "", "parameters": empty});
        check(json!({"name": "f"}), true, filled.clone());
        check(json!({"name": "f", "description": null, "parameters": {}}), true, filled);
        check(json!({"name": "f", "description": null, "parameters": null}), false, json!({"name": "f"}));
        let own = json!({"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {}}}});
        check(own.clone(), true, own);
    }
}
