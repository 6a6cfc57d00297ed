//! Tools without a description or parameters, which the OpenAI API does not ask for and some templates do.

use serde_json::{Value, json};

/// What a template needs of tools.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Needs {
    /// A description and parameters.
    pub(super) all_fields: bool,
    /// Types other than null, which one template takes apart into letters without end.
    pub(super) plain_types: bool,
}

/// Tools without fields that are null, and as a template needs them.
pub(super) fn completed(tools: &[Value], needs: Needs) -> Vec<Value> {
    tools.iter().map(|tool| complete(tool.clone(), needs)).collect()
}

fn complete(mut tool: Value, needs: Needs) -> Value {
    let Some(function) = tool.get_mut("function").and_then(Value::as_object_mut) else { return tool };
    function.retain(|_, value| !value.is_null());
    if needs.all_fields {
        function.entry("description").or_insert_with(|| json!(""));
        let parameters = function.entry("parameters").or_insert_with(|| json!({}));
        if let Value::Object(parameters) = parameters {
            parameters.entry("type").or_insert_with(|| json!("object"));
            parameters.entry("properties").or_insert_with(|| json!({}));
        }
    }
    if needs.plain_types {
        function.get_mut("parameters").into_iter().for_each(drop_null_types);
    }
    tool
}

/// Leaves the type null out, here and in all that a schema holds.
fn drop_null_types(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            match fields.get_mut("type") {
                Some(Value::Array(types)) => {
                    types.retain(|kind| kind != "null");
                    if types.len() == 1 {
                        let only = types.remove(0);
                        fields.insert("type".to_owned(), only);
                    }
                }
                Some(Value::String(kind)) if kind == "null" => drop(fields.remove("type")),
                _ => {}
            }
            fields.values_mut().for_each(drop_null_types);
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(drop_null_types),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(function: Value, needs: Needs, expected: Value) {
        let tool = json!({"type": "function", "function": function});
        assert_eq!(completed(&[tool], needs)[0]["function"], expected);
    }

    #[test]
    fn fields_that_templates_read_are_filled_in() {
        let all = Needs { all_fields: true, ..Needs::default() };
        let empty = json!({"type": "object", "properties": {}});
        let filled = json!({"name": "f", "description": "", "parameters": empty});
        check(json!({"name": "f"}), all, filled.clone());
        check(json!({"name": "f", "description": null, "parameters": {}}), all, filled);
        let bare = json!({"name": "f", "description": null, "parameters": null});
        check(bare, Needs::default(), json!({"name": "f"}));
        let own = json!({"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {}}}});
        check(own.clone(), all, own);
    }

    #[test]
    fn null_is_left_out_of_types() {
        let tool = |a: Value, b: Value, c: Value| json!({"name": "f", "parameters": {"properties": {"a": a, "b": {"anyOf": [b, c]}}}});
        let given = tool(
            json!({"type": ["integer", "null"]}),
            json!({"type": "null"}),
            json!({"type": ["a", "b", "null"]}),
        );
        let plain = tool(json!({"type": "integer"}), json!({}), json!({"type": ["a", "b"]}));
        check(given, Needs { plain_types: true, ..Needs::default() }, plain);
    }
}
