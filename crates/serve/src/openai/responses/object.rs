//! The objects of responses.

use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::generation;
use crate::openai::logprobs::TokenEntry;
use crate::stamp::{call_id, unique_id};

/// A response: what was asked for, and what became of it.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct ResponseObject {
    pub(super) id: String,
    pub(super) object: &'static str,
    /// Seconds since 1970.
    pub(super) created_at: u64,
    pub(super) status: Status,
    pub(super) background: bool,
    pub(super) error: Option<ResponseError>,
    pub(super) incomplete_details: Option<IncompleteDetails>,
    pub(super) instructions: Option<String>,
    pub(super) max_output_tokens: Option<usize>,
    #[schema(value_type = Object)]
    pub(super) metadata: Map<String, Value>,
    pub(super) model: String,
    pub(super) output: Vec<OutputItem>,
    pub(super) parallel_tool_calls: bool,
    pub(super) previous_response_id: Option<String>,
    pub(super) reasoning: ReasoningConfig,
    pub(super) store: bool,
    pub(super) temperature: Option<f32>,
    pub(super) text: TextConfig,
    /// As the request has it: a word, or an object that names a tool.
    pub(super) tool_choice: Value,
    #[schema(value_type = Vec<Object>)]
    pub(super) tools: Vec<Value>,
    pub(super) top_logprobs: usize,
    pub(super) top_p: Option<f32>,
    pub(super) truncation: &'static str,
    /// `null` until the end.
    pub(super) usage: Option<ResponseUsage>,
}

/// How far a response or an item is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    #[default]
    InProgress,
    Completed,
    /// The limit of tokens ended it.
    Incomplete,
    Failed,
}

/// Why a response failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ResponseError {
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// Why a response is incomplete.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct IncompleteDetails {
    pub(super) reason: &'static str,
}

/// How much the model reasons.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(super) struct ReasoningConfig {
    pub(super) effort: Option<String>,
    /// Always `null`: reasoning is given whole.
    pub(super) summary: Option<String>,
}

/// The form of the text.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct TextConfig {
    #[schema(value_type = Object)]
    pub(super) format: Value,
}

impl Default for TextConfig {
    fn default() -> TextConfig {
        TextConfig { format: json!({ "type": "text" }) }
    }
}

/// A part of a response.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OutputItem {
    /// The assistant's text.
    Message { id: String, status: Status, role: &'static str, content: Vec<OutputPart> },
    /// The model's reasoning.
    Reasoning {
        id: String,
        status: Status,
        /// Always empty: reasoning is given whole.
        summary: Vec<OutputPart>,
        content: Vec<OutputPart>,
    },
    /// A call of a tool.
    FunctionCall {
        id: String,
        status: Status,
        /// Names the call in its result.
        call_id: String,
        name: String,
        /// JSON.
        arguments: String,
    },
}

/// A text in an item.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OutputPart {
    /// Of a message.
    OutputText {
        #[schema(value_type = Vec<Object>)]
        annotations: Vec<Value>,
        /// Of each token, if `include` asks for them.
        logprobs: Vec<TokenEntry>,
        text: String,
    },
    /// Of reasoning.
    ReasoningText { text: String },
}

/// Counts of tokens.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(super) struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: InputTokensDetails,
    output_tokens: usize,
    output_tokens_details: OutputTokensDetails,
    total_tokens: usize,
}

/// More about the tokens of the prompt.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
struct InputTokensDetails {
    /// Those whose keys and values the cache held.
    cached_tokens: usize,
}

/// More about the tokens of the answer.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
struct OutputTokensDetails {
    reasoning_tokens: usize,
}

impl OutputPart {
    /// The text of a message.
    pub(super) fn output_text(text: String, logprobs: Vec<TokenEntry>) -> OutputPart {
        OutputPart::OutputText { annotations: Vec::new(), logprobs, text }
    }
}

impl OutputItem {
    /// A message that begins.
    pub(super) fn message() -> OutputItem {
        let (id, content) = (unique_id("msg_"), Vec::new());
        OutputItem::Message { id, status: Status::InProgress, role: "assistant", content }
    }

    /// Reasoning that begins.
    pub(super) fn reasoning() -> OutputItem {
        let (id, content) = (unique_id("rs_"), Vec::new());
        OutputItem::Reasoning { id, status: Status::InProgress, summary: Vec::new(), content }
    }

    /// A call that begins.
    pub(super) fn call(name: String) -> OutputItem {
        let (id, call_id, arguments) = (unique_id("fc_"), call_id("call_"), String::new());
        OutputItem::FunctionCall { id, status: Status::InProgress, call_id, name, arguments }
    }

    pub(super) fn id(&self) -> &str {
        match self {
            OutputItem::Message { id, .. }
            | OutputItem::Reasoning { id, .. }
            | OutputItem::FunctionCall { id, .. } => id,
        }
    }

    /// Its part with this text; calls have none.
    pub(super) fn part(&self, text: String, logprobs: Vec<TokenEntry>) -> Option<OutputPart> {
        match self {
            OutputItem::Message { .. } => Some(OutputPart::output_text(text, logprobs)),
            OutputItem::Reasoning { .. } => Some(OutputPart::ReasoningText { text }),
            OutputItem::FunctionCall { .. } => None,
        }
    }

    /// Ends it with its text, or its arguments.
    pub(super) fn end(&mut self, new: Status, text: String, logprobs: Vec<TokenEntry>) {
        let part = self.part(text.clone(), logprobs);
        match self {
            OutputItem::Message { status, content, .. } | OutputItem::Reasoning { status, content, .. } => {
                (*status, *content) = (new, part.into_iter().collect());
            }
            OutputItem::FunctionCall { status, arguments, .. } => (*status, *arguments) = (new, text),
        }
    }

    /// Whether it is a call that does not end.
    pub(super) fn is_half_a_call(&self) -> bool {
        matches!(self, OutputItem::FunctionCall { status: Status::Incomplete, .. })
    }
}

impl From<generation::Usage> for ResponseUsage {
    fn from(usage: generation::Usage) -> ResponseUsage {
        let generation::Usage { prompt_tokens, cached_tokens, generated_tokens, reasoning_tokens } = usage;
        ResponseUsage {
            input_tokens: prompt_tokens,
            input_tokens_details: InputTokensDetails { cached_tokens },
            output_tokens: generated_tokens,
            output_tokens_details: OutputTokensDetails { reasoning_tokens },
            total_tokens: prompt_tokens + generated_tokens,
        }
    }
}
