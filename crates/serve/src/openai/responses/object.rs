//! The objects of responses.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::generation;
use crate::openai::logprobs::TokenEntry;

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
    pub(super) store: bool,
    pub(super) temperature: Option<f32>,
    pub(super) text: TextConfig,
    pub(super) tool_choice: &'static str,
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

/// The form of the text.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(super) struct TextConfig {
    format: TextFormat,
}

/// The form of the text.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct TextFormat {
    r#type: &'static str,
}

impl Default for TextFormat {
    fn default() -> TextFormat {
        TextFormat { r#type: "text" }
    }
}

/// A message of the assistant.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct OutputItem {
    pub(super) id: String,
    pub(super) r#type: &'static str,
    pub(super) status: Status,
    pub(super) role: &'static str,
    pub(super) content: Vec<OutputText>,
}

/// The text of a message.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct OutputText {
    r#type: &'static str,
    #[schema(value_type = Vec<Object>)]
    annotations: Vec<Value>,
    /// Of each token, if `include` asks for them.
    pub(super) logprobs: Vec<TokenEntry>,
    pub(super) text: String,
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

impl OutputText {
    pub(super) fn new(text: String, logprobs: Vec<TokenEntry>) -> OutputText {
        OutputText { r#type: "output_text", annotations: Vec::new(), logprobs, text }
    }
}

impl OutputItem {
    /// A message.
    pub(super) fn message(id: String, status: Status, content: Vec<OutputText>) -> OutputItem {
        OutputItem { id, r#type: "message", status, role: "assistant", content }
    }
}

impl From<generation::Usage> for ResponseUsage {
    fn from(usage: generation::Usage) -> ResponseUsage {
        let generation::Usage { prompt_tokens, cached_tokens, generated_tokens } = usage;
        ResponseUsage {
            input_tokens: prompt_tokens,
            input_tokens_details: InputTokensDetails { cached_tokens },
            output_tokens: generated_tokens,
            output_tokens_details: OutputTokensDetails { reasoning_tokens: 0 },
            total_tokens: prompt_tokens + generated_tokens,
        }
    }
}
