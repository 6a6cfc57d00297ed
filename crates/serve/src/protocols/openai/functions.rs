//! `functions` and `function_call`: the names that the OpenAI API had for tools before it had tools.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::Fields;
use crate::generation::Finish;
use crate::state::Context;

/// The fields, and whether the answer is written in their shape.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(crate) struct FunctionFields {
    /// Functions that the answer may call, one at most. The answer then has a `function_call`.
    #[schema(value_type = Option<Vec<Object>>)]
    functions: Option<Vec<Value>>,
    /// `none`, `auto`, or an object with the name of a function.
    #[schema(value_type = Option<Object>)]
    function_call: Option<Value>,
}

impl FunctionFields {
    /// Takes the fields, and sets those of tools that mean the same. Messages of the role `function` and calls in
    /// `function_call` become those of tools, with or without functions to call.
    ///
    /// # Errors
    /// If there are tools too, or a field has a type that it cannot have.
    pub(super) fn read(fields: &mut Fields) -> Result<FunctionFields, ApiError> {
        let own: FunctionFields = fields.take()?;
        if let Some(messages) =
            fields.get("messages").and_then(Value::as_array).and_then(|all| with_tools(all))
        {
            fields.set("messages", Some(messages.into()));
        }
        if !own.are_given() {
            return Ok(own);
        }
        if fields.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty()) {
            return Err(ApiError::invalid(
                "functions",
                "functions: the request has `tools` too: give one of them",
            ));
        }
        let functions = own.functions.iter().flatten();
        let tools = functions.map(|function| json!({"type": "function", "function": function})).collect();
        let choice = own.function_call.as_ref().map(|choice| match choice.get("name") {
            Some(name) => json!({"type": "function", "function": {"name": name}}),
            None => choice.clone(),
        });
        fields.set("tools", Some(Value::Array(tools)));
        if choice.is_some() {
            fields.set("tool_choice", choice);
        }
        fields.set("parallel_tool_calls", Some(json!(false)));
        Ok(own)
    }

    /// Whether there are functions, so that calls are written as `function_call`.
    pub(super) fn are_given(&self) -> bool {
        self.functions.as_ref().is_some_and(|functions| !functions.is_empty())
    }

    /// Notes fields that have no effect, under the names that the request has for them.
    pub(super) fn note(&self, context: &Context) {
        context.note(|facts| {
            if self.are_given() {
                facts.ignored = std::mem::take(&mut facts.ignored).into_iter().map(own_name).collect();
            } else {
                let fields = [
                    ("functions", self.functions.is_some()),
                    ("function_call", self.function_call.is_some()),
                ];
                let given = fields.into_iter().filter(|(_, is_given)| *is_given);
                facts.ignored.extend(given.map(|(name, _)| name.to_string()));
            }
        });
    }

    /// An error about tools with the names that the request has for them.
    pub(super) fn rename(&self, error: ApiError) -> ApiError {
        if !self.are_given() {
            return error;
        }
        let message = own_name(error.message);
        ApiError { message, param: error.param.map(own_name), ..error }
    }
}

/// The name of why an answer to a request with functions ended.
pub(super) fn function_finish(reason: &'static str) -> &'static str {
    if reason == Finish::ToolCalls.name() { "function_call" } else { reason }
}

/// The place of a tool in a request with functions.
fn own_name(place: String) -> String {
    match &place[..] {
        "tools" => "functions".to_string(),
        _ => place
            .replace("tools[", "functions[")
            .replace("].function.", "].")
            .replace("tool_choice", "function_call"),
    }
}

/// Messages in the shape of tools, if some are in that of functions.
fn with_tools(messages: &[Value]) -> Option<Vec<Value>> {
    let is_call = |message: &Value| message.get("function_call").is_some();
    let is_result = |message: &Value| message["role"] == "function";
    if !messages.iter().any(|message| is_call(message) || is_result(message)) {
        return None;
    }
    let mut id = String::new();
    let convert = |(index, message): (usize, &Value)| {
        let Value::Object(mut message) = message.clone() else { return message.clone() };
        match message.remove("function_call") {
            Some(Value::Null) | None => {}
            Some(function) => {
                // Nine letters and digits, as some templates want them.
                id = format!("call{index:05}");
                let call = json!({"id": id, "type": "function", "function": function});
                message.insert("tool_calls".to_string(), json!([call]));
            }
        }
        if message.get("role").is_some_and(|role| role == "function") {
            message.insert("role".to_string(), json!("tool"));
            message.insert("tool_call_id".to_string(), json!(id));
        }
        Value::Object(message)
    };
    Some(messages.iter().enumerate().map(convert).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_functions_become_those_of_tools() {
        let call = json!({"name": "f", "arguments": "{}"});
        let messages = [
            json!({"role": "user", "content": "Hi"}),
            json!({"role": "assistant", "content": null, "function_call": call}),
            json!({"role": "function", "name": "f", "content": "1"}),
            json!({"role": "assistant", "content": "1", "function_call": null}),
        ];
        let tool_calls = json!([{"id": "call00001", "type": "function", "function": call}]);
        let expected = json!([
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null, "tool_calls": tool_calls},
            {"role": "tool", "name": "f", "content": "1", "tool_call_id": "call00001"},
            {"role": "assistant", "content": "1"},
        ]);
        assert_eq!(with_tools(&messages).map(Value::Array), Some(expected));
        assert_eq!(with_tools(&messages[..1]), None);
    }
}
