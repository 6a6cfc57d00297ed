//! The prompt of a request: its conversation, and what is asked of the answer.

use pipelines::chat_template::drop_attribution;
use pipelines::{Chat, Thinking};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::blocks::Messages;
use super::tools::{self, ToolChoiceField};
use crate::api_error::ApiError;
use crate::fields::conversation::text_of;
use crate::generation::{OutputFormat, Places, PromptSpec, schema_constraint};

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
    /// Functions that the answer may call, each with an `input_schema`, and tools of the API that the client runs. Others
    /// have no effect.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// Which of them, and whether it must: `auto`, `any`, `tool` or `none`.
    tool_choice: Option<ToolChoiceField>,
    /// Whether the model reasons before it answers, and how long.
    thinking: Option<ThinkingField>,
    /// The form of the answer, and its effort.
    output_config: Option<OutputConfigField>,
    /// The form of the answer, under its older name.
    output_format: Option<OutputFormatField>,
}

/// The form of the answer, and its effort.
#[derive(Debug, Deserialize, ToSchema)]
struct OutputConfigField {
    /// How much the model reasons: `low` to `max`.
    effort: Option<String>,
    /// The form of the text.
    format: Option<OutputFormatField>,
}

/// The form of an answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OutputFormatField {
    /// JSON of a schema.
    JsonSchema {
        /// The schema.
        #[schema(value_type = Object)]
        schema: Value,
    },
}

/// Whether the model reasons before it answers.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ThinkingField {
    /// It reasons.
    Enabled {
        /// The most tokens of its reasoning.
        budget_tokens: Option<usize>,
        /// `omitted` leaves the text of the reasoning out of the answer.
        display: Option<String>,
    },
    /// It reasons as long as it wants to.
    Adaptive {
        /// `omitted` leaves the text of the reasoning out of the answer.
        display: Option<String>,
    },
    /// It reasons as long as it wants to, also between calls.
    BetweenTools,
    /// It does not.
    Disabled,
}

impl ThinkingField {
    fn thinking(&self) -> Thinking {
        match self {
            ThinkingField::Enabled { budget_tokens, .. } => {
                Thinking::new("thinking", true).within(*budget_tokens)
            }
            ThinkingField::Adaptive { .. } | ThinkingField::BetweenTools => Thinking::new("thinking", true),
            ThinkingField::Disabled => Thinking::new("thinking", false),
        }
    }
}

impl PromptFields {
    /// Whether the answer leaves the text of the reasoning out.
    pub(super) fn omits_thinking(&self) -> bool {
        match &self.thinking {
            Some(ThinkingField::Enabled { display, .. } | ThinkingField::Adaptive { display }) => {
                display.as_deref() == Some("omitted")
            }
            _ => false,
        }
    }

    /// The conversation as chat templates take it, and what is asked of the answer. `keep_attribution` leaves the line of
    /// coding agents in.
    ///
    /// # Errors
    /// If a message has a role or a content that the models cannot read, or a field has a value that it cannot have.
    pub(super) fn into_prompt_spec(self, keep_attribution: bool) -> Result<PromptSpec, ApiError> {
        let (thinking, output_format) = (self.thinking()?, self.output_format()?);
        if self.messages.is_empty() {
            return Err(ApiError::invalid("messages", "messages is empty: give at least one message"));
        }
        let mut read = Messages::default();
        if let Some(system) = self.system {
            let mut system = [json!({ "content": system })];
            if !keep_attribution {
                drop_attribution(&mut system);
            }
            read.push("system", &text_of(&system[0]["content"], "system", &["text"])?, "system");
        }
        read.extend(&self.messages)?;
        let continues =
            self.messages.last().and_then(|message| message.get("role")) == Some(&json!("assistant"));
        let continue_final_message = continues && read.ends_with_answer();
        let Messages { messages, places, mut ignored } = read;
        let mut places = Places { messages: places, ..Places::default() };
        let tools = tools::read(self.tools.as_deref(), self.tool_choice.as_ref(), &mut places, &mut ignored)?;
        let chat = Chat { continue_final_message, ..Chat::new(messages) };
        Ok(PromptSpec { tools, thinking, output_format, places, ignored, ..PromptSpec::from(chat) })
    }

    /// The settings of the reasoning. An effort alone turns it on.
    fn thinking(&self) -> Result<Option<Thinking>, ApiError> {
        let effort = self.output_config.as_ref().and_then(|config| config.effort.as_deref());
        let effort =
            effort.map(|effort| Thinking::with_effort("output_config.effort", effort)).transpose()?;
        Ok(match (self.thinking.as_ref().map(ThinkingField::thinking), effort) {
            (Some(thinking), Some(effort)) => Some(thinking.and_effort(effort)),
            (thinking, effort) => thinking.or(effort),
        })
    }

    /// The form of the text.
    fn output_format(&self) -> Result<Option<OutputFormat>, ApiError> {
        let format = self.output_config.as_ref().and_then(|config| config.format.as_ref());
        let (field, OutputFormatField::JsonSchema { schema }) = match (format, &self.output_format) {
            (None, None) => return Ok(None),
            (Some(format), None) => ("output_config.format", format),
            (None, Some(format)) => ("output_format", format),
            (Some(_), Some(_)) => {
                let message = "the answer has two forms, of output_config.format and output_format: give one";
                return Err(ApiError::invalid("output_format", message));
            }
        };
        Ok(Some(OutputFormat { field, constraint: schema_constraint(schema.clone()) }))
    }
}

#[cfg(test)]
mod tests {
    use pipelines::Prompt;

    use super::*;

    fn spec(fields: Value) -> Result<PromptSpec, ApiError> {
        serde_json::from_value::<PromptFields>(fields).unwrap().into_prompt_spec(false)
    }

    fn messages(fields: Value) -> Value {
        let Prompt::Chat(chat) = spec(fields).unwrap().prompt else { panic!("the prompt is a conversation") };
        Value::Array(chat.messages)
    }

    #[test]
    fn the_line_of_coding_agents_is_dropped_from_the_top_of_system_prompts() {
        let line = "x-anthropic-billing-header: cc_version=2.1; cch=eb6c6;";
        let system = |system: Value| {
            let given = json!({"system": system, "messages": [{"role": "user", "content": "Hi"}]});
            messages(given)[0]["content"].clone()
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
    fn a_turn_of_the_assistant_without_text_is_not_continued() {
        let continues = |content: Value| {
            let given = json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]});
            let Prompt::Chat(chat) = spec(given).unwrap().prompt else {
                panic!("the prompt is a conversation")
            };
            chat.continue_final_message
        };
        assert!(continues(json!("Once")));
        assert!(!continues(json!([])));
        assert!(!continues(json!([{"type": "tool_use", "id": "t", "name": "f", "input": {}}])));
    }

    #[test]
    fn left_out_tools_are_named_with_a_choice_that_needs_them() {
        let check = |tools: Value, choice: Value, expected: &[&str]| {
            let given = json!({"messages": [{"role": "user", "content": "Hi"}], "tools": tools, "tool_choice": choice});
            assert_eq!(spec(given).unwrap().ignored, expected);
        };
        let (search, function) =
            (json!({"type": "web_search_20250305", "name": "web_search"}), json!({"name": "f"}));
        let named = json!({"type": "tool", "name": "web_search"});
        check(json!([search]), named.clone(), &["tools[0].web_search_20250305", "tool_choice"]);
        check(json!([function, search]), named, &["tools[1].web_search_20250305", "tool_choice"]);
        check(json!([search]), json!({"type": "any"}), &["tools[0].web_search_20250305", "tool_choice"]);
        check(json!([search, function]), json!({"type": "any"}), &["tools[0].web_search_20250305"]);
        check(json!([function]), json!({"type": "auto", "disable_parallel_tool_use": true}), &[]);
    }

    #[test]
    fn wrong_fields_are_named_as_the_request_has_them() {
        let param = |fields: Value| {
            let hi = json!({"messages": [{"role": "user", "content": "Hi"}]});
            let mut given = hi.as_object().unwrap().clone();
            given.extend(fields.as_object().unwrap().clone());
            spec(Value::Object(given)).map(|_| ()).unwrap_err().param.unwrap_or_default()
        };
        assert_eq!(param(json!({"system": [{"type": "text", "text": "a"}, 3]})), "system[1]");
        assert_eq!(param(json!({"messages": []})), "messages");
        let tools =
            json!([{"type": "web_search_20250305", "name": "web_search"}, {"name": "x", "input_schema": 3}]);
        assert_eq!(param(json!({"tools": tools})), "tools[1].input_schema");
        assert_eq!(
            param(json!({"tools": [{"name": "f"}], "tool_choice": {"type": "tool", "name": "g"}})),
            "tool_choice"
        );
        assert_eq!(param(json!({"output_config": {"effort": "hard"}})), "output_config.effort");
        let format = json!({"type": "json_schema", "schema": {}});
        assert_eq!(
            param(json!({"output_config": {"format": format}, "output_format": format})),
            "output_format"
        );
    }
}
