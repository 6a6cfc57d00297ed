//! The prompt of a response: its conversation, and what is asked of the answer.

use pipelines::{Chat, Constraint, Thinking};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use utoipa::ToSchema;

use super::input::{self, Messages};
use super::object::{ReasoningConfig, ResponseObject, TextConfig};
use super::store::ResponseStore;
use super::tools::ClientTools;
use crate::api_error::ApiError;
use crate::generation::{OutputFormat, Places, PromptSpec, schema_constraint};

/// The conversation, and what is asked of the answer.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ResponsePromptFields)]
pub(super) struct PromptFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    pub(super) model: Option<String>,
    /// A text of the user, or the items of a conversation.
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    /// Instructions for this response alone.
    instructions: Option<String>,
    /// A stored response, whose conversation goes on.
    previous_response_id: Option<String>,
    /// Functions that the answer may call, and other tools that the client runs. Those of OpenAI's servers have no effect.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// `none`, `auto`, `required`, a tool, or `allowed_tools`. The default is `auto`.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Value>,
    /// Whether an answer may have several calls; true by default.
    parallel_tool_calls: Option<bool>,
    /// How much the model reasons before it answers.
    reasoning: Option<ReasoningField>,
    /// The form of the text.
    text: Option<TextField>,
}

/// How much the model reasons before it answers.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ResponseReasoningField)]
struct ReasoningField {
    /// `none` to `max`.
    effort: Option<String>,
}

/// The form of the text.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ResponseTextField)]
struct TextField {
    /// `text`, `json_object`, or `json_schema` with a `schema`.
    format: Option<FormatField>,
}

/// The form of the text.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[schema(as = ResponseFormatField)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FormatField {
    /// Any text.
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema {
        /// A name for it.
        name: Option<String>,
        /// The schema.
        #[schema(value_type = Object)]
        schema: Value,
        /// Whether the text must fit it, which it does in any case.
        strict: Option<bool>,
    },
}

impl TextField {
    /// The form, if there is one.
    fn output_format(&self) -> Option<OutputFormat> {
        let constraint = match self.format.as_ref()? {
            FormatField::Text => return None,
            FormatField::JsonObject => Constraint::JsonObject,
            FormatField::JsonSchema { schema, .. } => schema_constraint(schema.clone()),
        };
        Some(OutputFormat { field: "text.format", constraint })
    }
}

/// Fields that must have the one value that is supported.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct RefusedFields {
    /// Prompts are never truncated: `auto` has no effect.
    truncation: Option<String>,
    /// Not supported: true is refused.
    background: Option<bool>,
    /// Not supported: use `previous_response_id`.
    #[schema(value_type = Option<Object>)]
    conversation: Option<Value>,
    /// Not supported: stored prompts are refused.
    #[schema(value_type = Option<Object>)]
    prompt: Option<Value>,
}

/// A prompt as the model and the response take it.
pub(super) struct Prompt {
    pub(super) spec: PromptSpec,
    pub(super) tools: ClientTools,
    /// The items that the request gives.
    pub(super) input: Vec<Value>,
    /// The items of the whole conversation.
    pub(super) conversation: Vec<Value>,
}

impl RefusedFields {
    /// Checks them. A field without effect is named in `ignored`.
    ///
    /// # Errors
    /// If one has a value that is not supported.
    pub(super) fn check(&self, ignored: &mut BTreeSet<String>) -> Result<(), ApiError> {
        let is_unknown = |strategy: &str| !["auto", "disabled"].contains(&strategy);
        let refused = [
            ("truncation", self.truncation.as_deref().is_some_and(is_unknown), "give `disabled` or `auto`"),
            ("background", self.background.unwrap_or(false), "responses are not made in the background"),
            ("conversation", self.conversation.is_some(), "use `previous_response_id`"),
            ("prompt", self.prompt.is_some(), "there are no stored prompts: use `instructions` and `input`"),
        ];
        if let Some((field, _, reason)) = refused.iter().find(|(_, is_refused, _)| *is_refused) {
            return Err(ApiError::invalid(*field, format!("{field}: {reason}")));
        }
        ignored.extend((self.truncation.as_deref() == Some("auto")).then(|| "truncation".to_string()));
        Ok(())
    }
}

/// An error with the fields as this API names them.
pub(super) fn own_names(error: ApiError) -> ApiError {
    error.rename("max_tokens", "max_output_tokens").rename("messages", "input")
}

impl PromptFields {
    /// Reads the conversation, with that of the response before it.
    ///
    /// # Errors
    /// If an item or a field has a value that it cannot have, or a stored response is not there.
    pub(super) fn read(&self, store: &ResponseStore) -> Result<Prompt, ApiError> {
        let input = input::items(self.input.clone(), |id| store.item(id))?;
        let mut conversation = match &self.previous_response_id {
            Some(id) => store.get(id, "previous_response_id")?.conversation.clone(),
            None => Vec::new(),
        };
        let stored = conversation.len();
        conversation.extend(input.iter().cloned());
        let mut read = Messages::default();
        self.instructions.iter().for_each(|instructions| read.instruct(instructions));
        read.extend(&conversation, stored)?;
        if read.messages.is_empty() {
            return Err(ApiError::invalid("input", "input is empty: give a string or a list of items"));
        }
        let mut tools = ClientTools::default();
        tools.extend(self.tools.as_deref().unwrap_or_default(), "tools")?;
        for (more, path) in &read.tools {
            tools.extend(more, path)?;
        }
        let spec = self.spec(read, &mut tools)?;
        Ok(Prompt { spec, tools, input, conversation })
    }

    fn spec(&self, read: Messages, tools: &mut ClientTools) -> Result<PromptSpec, ApiError> {
        let Messages { messages, places, mut ignored, .. } = read;
        let mut places = Places { messages: places, ..Places::default() };
        let callable = tools.tool_use(self.tool_choice.as_ref(), self.parallel_tool_calls, &mut places)?;
        ignored.append(&mut tools.ignored);
        let effort = self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref());
        Ok(PromptSpec {
            tools: callable,
            thinking: effort.map(|effort| Thinking::with_effort("reasoning.effort", effort)).transpose()?,
            output_format: self.text.as_ref().and_then(TextField::output_format),
            places,
            ignored,
            ..PromptSpec::from(Chat::new(messages))
        })
    }

    /// What a response repeats of them.
    pub(super) fn to_response(&self) -> ResponseObject {
        let format = self.text.as_ref().and_then(|text| text.format.as_ref());
        ResponseObject {
            instructions: self.instructions.clone(),
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(true),
            previous_response_id: self.previous_response_id.clone(),
            reasoning: ReasoningConfig {
                effort: self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.clone()),
                summary: None,
            },
            text: format.map_or_else(TextConfig::default, |format| TextConfig { format: json!(format) }),
            tool_choice: self.tool_choice.clone().unwrap_or_else(|| json!("auto")),
            tools: self.tools.clone().unwrap_or_default(),
            ..ResponseObject::default()
        }
    }
}
