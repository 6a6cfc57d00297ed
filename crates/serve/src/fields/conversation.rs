//! Conversations as protocols give them, in the form that chat templates take.

use pipelines::{Chat, Thinking, ToolUse};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::generation::PromptSpec;

/// Variables of chat templates that requests set by fields of their own, or not at all. So are special tokens, whose names
/// end in `_token`.
const OWN_VARIABLES: [&str; 9] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
    "strftime_now",
    "raise_exception",
];

/// A conversation in the shape of OpenAI, and how it is rendered.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ConversationFields {
    /// The conversation so far, oldest message first.
    #[schema(min_items = 1, value_type = Vec<Object>)]
    messages: Vec<Map<String, Value>>,
    /// Functions that the answer may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// `none`, `auto`, `required`, a function, or `allowed_tools`. The default is `auto`.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Value>,
    /// Whether an answer may have several calls; true by default.
    parallel_tool_calls: Option<bool>,
    /// How much the model reasons before it answers: `none` to `max`.
    reasoning_effort: Option<String>,
    /// The most tokens of the reasoning.
    #[serde(alias = "thinking_budget_tokens")]
    thinking_token_budget: Option<usize>,
    /// Whether and how long the model reasons.
    reasoning: Option<ReasoningField>,
    /// Whether the model reasons.
    enable_thinking: Option<bool>,
    /// Whether the prompt ends where the assistant is to speak.
    add_generation_prompt: Option<bool>,
    /// Whether the last message is to be continued.
    continue_final_message: Option<bool>,
    /// More variables of the chat template, such as `enable_thinking`.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Map<String, Value>>,
}

impl ConversationFields {
    /// The conversation as chat templates take it, and what is asked of the answer.
    ///
    /// # Errors
    /// If a field has a value that it cannot have.
    pub(crate) fn into_prompt_spec(self) -> Result<PromptSpec, ApiError> {
        let thinking = self.thinking()?;
        let extra = self.chat_template_kwargs.unwrap_or_default();
        let is_own = |name: &&String| OWN_VARIABLES.contains(&name.as_str()) || name.ends_with("_token");
        if let Some(name) = extra.keys().find(is_own) {
            let path = format!("chat_template_kwargs.{name}");
            let message = format!("{path}: variables of this name cannot be set");
            return Err(ApiError::invalid(path, message));
        }
        if self.add_generation_prompt == Some(true) && self.continue_final_message == Some(true) {
            let message = "add_generation_prompt opens an answer, continue_final_message goes on with the last one: set one of them";
            return Err(ApiError::invalid("add_generation_prompt", message));
        }
        let tools = ToolUse::new(self.tools, self.tool_choice.as_ref(), self.parallel_tool_calls)?;
        let hides_reasoning = self.reasoning.as_ref().and_then(|own| own.exclude).unwrap_or(false);
        if self.messages.is_empty() {
            return Err(ApiError::invalid("messages", "messages is empty: give at least one message"));
        }
        check_roles(&self.messages)?;
        let chat = Chat {
            add_generation_prompt: self.add_generation_prompt.unwrap_or(true),
            continue_final_message: self.continue_final_message.unwrap_or(false),
            extra,
            ..Chat::new(self.messages.into_iter().map(Value::Object).collect())
        };
        Ok(PromptSpec { tools, thinking, hides_reasoning, ..PromptSpec::from(chat) })
    }
}

/// Reasoning in the shape of OpenRouter.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ReasoningField {
    /// How much the model reasons: `none` to `max`.
    effort: Option<String>,
    /// The most tokens of the reasoning.
    max_tokens: Option<usize>,
    /// Whether the model reasons.
    enabled: Option<bool>,
    /// Whether the answer leaves its reasoning out.
    exclude: Option<bool>,
}

impl ConversationFields {
    /// Whether and how long the model reasons, if the request says so. Of two fields, the first in the order of
    /// `reasoning_effort`, `reasoning` and `enable_thinking` counts.
    fn thinking(&self) -> Result<Option<Thinking>, ApiError> {
        let effort = |field, effort: &Option<String>| {
            effort.as_deref().map(|effort| Thinking::with_effort(field, effort)).transpose()
        };
        let own = self.reasoning.as_ref();
        let thinking = match effort("reasoning_effort", &self.reasoning_effort)? {
            Some(thinking) => Some(thinking),
            None => own.map(|own| effort("reasoning.effort", &own.effort)).transpose()?.flatten(),
        };
        let is_on = own.and_then(|own| own.enabled.or(own.max_tokens.map(|most| most > 0)));
        let thinking = thinking.filter(|_| is_on != Some(false));
        let thinking = thinking.or(is_on.map(|is_on| Thinking::new("reasoning", is_on)));
        let thinking = thinking.or(self.enable_thinking.map(|is_on| Thinking::new("enable_thinking", is_on)));
        let budget = self.thinking_token_budget.or(own.and_then(|own| own.max_tokens));
        let thinking = thinking.or(budget.map(|_| Thinking::new("thinking_token_budget", true)));
        Ok(thinking.map(|thinking| thinking.within(budget)))
    }
}

/// Checks that messages have roles. Which roles there are is for the chat template to say.
///
/// # Errors
/// If the role of a message is missing or not a string.
pub(crate) fn check_roles(messages: &[Map<String, Value>]) -> Result<(), ApiError> {
    let wrong = |message: &Map<String, Value>| !message.get("role").is_some_and(Value::is_string);
    match messages.iter().position(wrong) {
        Some(index) => {
            let expected = "a string, such as \"user\"";
            Err(wrong_role(&messages[index], &format!("messages[{index}]"), expected))
        }
        None => Ok(()),
    }
}

/// The text of a content: a string, or a list of parts that all are text, one below the other. `path` names the content
/// in errors, `kinds` are the types of parts that are text.
///
/// # Errors
/// If the content is neither, or a part is not text.
pub(crate) fn text_of(content: &Value, path: &str, kinds: &[&str]) -> Result<String, ApiError> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return Err(ApiError::invalid(path, format!("{path}: give a string or a list of parts"))),
    };
    let texts = parts.iter().enumerate().map(|(index, part)| {
        let path = format!("{path}[{index}]");
        let kind = kind_of(part, &path)?;
        if !kinds.contains(&kind) {
            return Err(not_text(&path, kind));
        }
        // A refusal has its text under its own name.
        let text = part.get("text").or_else(|| part.get(kind)).and_then(Value::as_str);
        text.ok_or_else(|| ApiError::invalid(&path, format!("{path}: the part has no `text`")))
    });
    Ok(texts.collect::<Result<Vec<&str>, ApiError>>()?.join("\n"))
}

/// The type of a part of a content.
///
/// # Errors
/// If it has none.
pub(crate) fn kind_of<'a>(part: &'a Value, path: &str) -> Result<&'a str, ApiError> {
    let kind = part.get("type").and_then(Value::as_str);
    kind.ok_or_else(|| ApiError::invalid(path, format!("{path}: the part has no `type`")))
}

/// The refusal of a part that the models cannot read.
pub(crate) fn not_text(path: &str, kind: &str) -> ApiError {
    ApiError::invalid(path, format!("{path}: the models read text only, not parts of type `{kind}`"))
}

/// The role of a message.
///
/// # Errors
/// If it has none, or one that is not in `roles`.
pub(crate) fn role_of<'a>(
    message: &'a Map<String, Value>,
    path: &str,
    roles: &[&str],
) -> Result<&'a str, ApiError> {
    let role = message.get("role").and_then(Value::as_str);
    role.filter(|role| roles.contains(role)).ok_or_else(|| wrong_role(message, path, &roles.join(", ")))
}

fn wrong_role(message: &Map<String, Value>, path: &str, expected: &str) -> ApiError {
    let path = format!("{path}.role");
    let given = message.get("role").map_or_else(|| "missing".to_string(), Value::to_string);
    let message = format!("{path} is {given}: give {expected}");
    ApiError::invalid(path, message)
}
