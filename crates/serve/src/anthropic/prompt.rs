//! The prompt of a request: content blocks become messages of a chat template.

use pipelines::Chat;
use pipelines::chat_template::drop_attribution;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::conversation::{kind_of, not_text, role_of, text_of};
use crate::error::ApiError;
use crate::generation::{self, Thinking, ToolUse, Turn};

/// The conversation of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = MessagesPromptFields)]
pub(super) struct PromptFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    pub(super) model: Option<String>,
    /// The conversation so far, oldest message first. If the last message is the assistant's, the answer continues it.
    #[schema(min_items = 1, value_type = Vec<Object>)]
    messages: Vec<Map<String, Value>>,
    /// Instructions for the whole conversation: a string, or blocks of text.
    #[schema(value_type = Option<Object>)]
    system: Option<Value>,
    /// Functions that the answer may call, each with an `input_schema`.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// Which of them, and whether it must: `auto`, `any`, `tool` or `none`.
    tool_choice: Option<ToolChoiceField>,
    /// Whether the model reasons before it answers, and how long.
    thinking: Option<ThinkingField>,
}

/// Which tools an answer may or must call.
#[derive(Debug, Deserialize, ToSchema)]
struct ToolChoiceField {
    r#type: ChoiceKind,
    /// The tool, if one must be called.
    name: Option<String>,
    /// Whether an answer ends with its first call.
    disable_parallel_tool_use: Option<bool>,
}

/// Whether an answer must have a call.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ChoiceKind {
    /// It may have one.
    Auto,
    /// Of any tool.
    Any,
    /// Of the tool with the name.
    Tool,
    /// It may not.
    None,
}

/// Whether the model reasons before it answers.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ThinkingField {
    /// It reasons.
    Enabled {
        /// The most tokens of its reasoning.
        budget_tokens: Option<usize>,
    },
    /// It reasons as long as it wants to.
    Adaptive,
    /// It does not.
    Disabled,
}

impl ToolChoiceField {
    /// The choice in the shape of the OpenAI API.
    fn to_openai(&self) -> Value {
        match self.r#type {
            ChoiceKind::Auto => json!("auto"),
            ChoiceKind::Any => json!("required"),
            ChoiceKind::Tool => json!({ "type": "function", "function": { "name": self.name } }),
            ChoiceKind::None => json!("none"),
        }
    }
}

impl From<ThinkingField> for Thinking {
    fn from(field: ThinkingField) -> Thinking {
        match field {
            ThinkingField::Enabled { budget_tokens } => Thinking::new("thinking", true).within(budget_tokens),
            ThinkingField::Adaptive => Thinking::new("thinking", true),
            ThinkingField::Disabled => Thinking::new("thinking", false),
        }
    }
}

impl PromptFields {
    /// The conversation as chat templates take it, and what is asked of the answer. `keep_attribution` leaves the line of
    /// coding agents in.
    ///
    /// # Errors
    /// If a message has a role or a content that the models cannot read, or a tool is not a function.
    pub(super) fn into_turn(mut self, keep_attribution: bool) -> Result<Turn, ApiError> {
        let tools = self.tool_use().map_err(own_names)?;
        let thinking = self.thinking.map(Thinking::from);
        if self.messages.is_empty() {
            return Err(ApiError::invalid("messages", "messages is empty: give at least one message"));
        }
        let mut messages = Messages::default();
        let added = usize::from(self.system.is_some());
        if let Some(system) = self.system {
            let mut system = [json!({ "content": system })];
            if !keep_attribution {
                drop_attribution(&mut system);
            }
            messages.push("system", text_of(&system[0]["content"], "system", &["text"])?);
        }
        for (index, message) in self.messages.iter().enumerate() {
            messages.add(message, &format!("messages[{index}]"))?;
        }
        let continues =
            self.messages.last().and_then(|message| message.get("role")) == Some(&json!("assistant"));
        let continue_final_message = continues && messages.ends_with_text();
        let chat = Chat { continue_final_message, ..Chat::new(messages.0) };
        Ok(Turn { added, tools, thinking, ..Turn::from(chat) })
    }

    fn tool_use(&mut self) -> Result<ToolUse, ApiError> {
        let mut declared = self.tools.take();
        for (index, tool) in declared.iter_mut().flatten().enumerate() {
            if tool.get("type").is_some_and(|kind| kind != "custom") {
                let field = format!("tools[{index}].type");
                let message = format!("{field} is {}: tools of the server are not supported", tool["type"]);
                return Err(ApiError::invalid(field, message));
            }
            *tool = generation::declared(
                &tool["name"],
                &tool["description"],
                &tool["input_schema"],
                &tool["strict"],
            );
        }
        let choice = self.tool_choice.as_ref();
        let is_parallel = choice.and_then(|choice| choice.disable_parallel_tool_use).map(|disable| !disable);
        ToolUse::new(declared, choice.map(ToolChoiceField::to_openai).as_ref(), is_parallel)
    }
}

/// An error with the fields of tools as this API names them.
pub(super) fn own_names(error: ApiError) -> ApiError {
    error.replace(".function.parameters", ".input_schema").replace(".function.", ".")
}

/// Messages for a chat template. Neighbours of one role become one, since many templates want roles in turn.
#[derive(Default)]
struct Messages(Vec<Value>);

impl Messages {
    /// Adds a text.
    fn push(&mut self, role: &str, text: String) {
        if let Some(last) = self.0.last_mut()
            && last["role"] == role
            && let Value::String(before) = &mut last["content"]
        {
            if !before.is_empty() {
                before.push('\n');
            }
            before.push_str(&text);
            return;
        }
        self.0.push(json!({ "role": role, "content": text }));
    }

    /// Whether the last message can be continued.
    fn ends_with_text(&self) -> bool {
        self.0.last().is_some_and(|last| last["content"].is_string() && last.get("tool_calls").is_none())
    }

    /// Adds a message.
    fn add(&mut self, message: &Map<String, Value>, path: &str) -> Result<(), ApiError> {
        let role = role_of(message, path, &["user", "assistant", "system"])?;
        let path = format!("{path}.content");
        match message.get("content") {
            Some(Value::Array(blocks)) => {
                for (index, block) in blocks.iter().enumerate() {
                    self.add_block(role, block, &format!("{path}[{index}]"))?;
                }
                Ok(())
            }
            content => {
                let text = text_of(content.unwrap_or(&Value::Null), &path, &[])?;
                self.push(role, text);
                Ok(())
            }
        }
    }

    /// Adds a content block.
    fn add_block(&mut self, role: &str, block: &Value, path: &str) -> Result<(), ApiError> {
        let text = |name: &str| {
            let text = block[name].as_str().map(str::to_string);
            text.ok_or_else(|| ApiError::invalid(path, format!("{path}: the block has no `{name}`")))
        };
        match kind_of(block, path)? {
            "text" => self.push(role, text("text")?),
            "thinking" => self.assistant()["reasoning_content"] = text("thinking")?.into(),
            // It is encrypted: only who wrote it can read it.
            "redacted_thinking" => {}
            "tool_use" => {
                let function = json!({ "name": text("name")?, "arguments": block["input"] });
                let call = json!({ "id": text("id")?, "type": "function", "function": function });
                match &mut self.assistant()["tool_calls"] {
                    Value::Array(calls) => calls.push(call),
                    none => *none = json!([call]),
                }
            }
            "tool_result" => {
                let content = block.get("content").map_or(Ok(String::new()), |content| {
                    text_of(content, &format!("{path}.content"), &["text"])
                })?;
                let id = text("tool_use_id")?;
                self.0.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
            }
            other => return Err(not_text(path, other)),
        }
        Ok(())
    }

    /// The assistant's message, which may have been begun.
    fn assistant(&mut self) -> &mut Value {
        if self.0.last().is_none_or(|last| last["role"] != "assistant") {
            self.0.push(json!({ "role": "assistant", "content": "" }));
        }
        let last = self.0.len() - 1;
        &mut self.0[last]
    }
}

#[cfg(test)]
mod tests {
    use pipelines::Prompt;

    use super::*;

    fn messages(fields: Value) -> Result<Value, ApiError> {
        let turn = serde_json::from_value::<PromptFields>(fields).unwrap().into_turn(false)?;
        let Prompt::Chat(chat) = turn.prompt else { panic!("the prompt is a conversation") };
        Ok(Value::Array(chat.messages))
    }

    #[test]
    fn blocks_of_tools_become_calls_and_results() {
        let given = json!({"messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Look it up.", "signature": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bonn"}},
                {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]},
                {"type": "tool_result", "tool_use_id": "toolu_2"},
                {"type": "text", "text": "Well?"},
            ]},
        ]});
        let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        assert_eq!(
            messages(given).unwrap(),
            json!([
                {"role": "user", "content": "Weather?"},
                {
                    "role": "assistant", "content": "I look.", "reasoning_content": "Look it up.",
                    "tool_calls": [call("toolu_1", "weather", json!({"city": "Bonn"})), call("toolu_2", "time", json!({}))],
                },
                {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"},
                {"role": "tool", "tool_call_id": "toolu_2", "content": ""},
                {"role": "user", "content": "Well?"},
            ])
        );
    }

    #[test]
    fn neighbours_of_one_role_become_one_message() {
        let given = json!({"messages": [
            {"role": "user", "content": "One."},
            {"role": "user", "content": [{"type": "text", "text": "Two."}, {"type": "text", "text": "Three."}]},
        ]});
        assert_eq!(messages(given).unwrap(), json!([{"role": "user", "content": "One.\nTwo.\nThree."}]));
    }

    #[test]
    fn the_line_of_coding_agents_is_dropped_from_the_top_of_system_prompts() {
        let line = "x-anthropic-billing-header: cc_version=2.1; cch=eb6c6;";
        let system = |system: Value| {
            let given = json!({"system": system, "messages": [{"role": "user", "content": "Hi"}]});
            messages(given).unwrap()[0]["content"].clone()
        };
        assert_eq!(system(json!(format!("{line}\nBe brief.\n"))), "Be brief.\n");
        assert_eq!(
            system(json!([{"type": "text", "text": line}, {"type": "text", "text": "Be brief."}])),
            "Be brief."
        );
        let inside = format!("Explain this line:\n{line}");
        assert_eq!(system(json!(inside.clone())), inside);
    }

    #[test]
    fn what_is_not_text_is_refused_with_its_place() {
        let problem = |fields: Value| {
            let error = messages(fields).unwrap_err();
            (error.param.unwrap_or_default(), error.message)
        };
        let image = json!([{"type": "text", "text": "Look:"}, {"type": "image", "source": {}}]);
        assert_eq!(
            problem(json!({"messages": [{"role": "user", "content": image}]})),
            (
                "messages[0].content[1]".to_string(),
                "messages[0].content[1]: the models read text only, not parts of type `image`".to_string()
            )
        );
        let (param, _) = problem(json!({"messages": [{"role": "robot", "content": "Hi"}]}));
        assert_eq!(param, "messages[0].role");
        let (param, message) = problem(
            json!({"messages": [{"role": "user", "content": "Hi"}], "system": [{"type": "text", "text": "a"}, 3]}),
        );
        assert_eq!(param, "system[1]", "{message}");
        assert_eq!(problem(json!({"messages": []})).0, "messages");
    }
}
