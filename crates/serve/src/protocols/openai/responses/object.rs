//! The objects of responses.

use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::fields::opaque_reasoning;
use crate::fields::timings::Timings;
use crate::generation;
use crate::protocols::openai::logprobs::TokenEntry;
use crate::stamp::unique_id;

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
    /// Set if the request has `timings_per_token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timings: Option<Timings>,
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
        /// The reasoning in base64, if `include` asks for it: for clients that send no other form back.
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<String>,
    },
    /// A call of a function.
    FunctionCall {
        #[serde(flatten)]
        head: CallHead,
        name: String,
        /// That of the request which has the function.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// JSON.
        arguments: String,
    },
    /// A call of a tool that takes free text.
    CustomToolCall {
        #[serde(flatten)]
        head: CallHead,
        name: String,
        /// That of the request which has the tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        input: String,
    },
    /// A command for the client's machine.
    LocalShellCall {
        #[serde(flatten)]
        head: CallHead,
        #[schema(value_type = Object)]
        action: Value,
    },
    /// Commands for the client's shell.
    ShellCall {
        #[serde(flatten)]
        head: CallHead,
        #[schema(value_type = Object)]
        action: Value,
        /// Always `null`: the client chooses it.
        environment: Option<String>,
    },
    /// A change of a file of the client's.
    ApplyPatchCall {
        #[serde(flatten)]
        head: CallHead,
        #[schema(value_type = Object)]
        operation: Value,
    },
    /// A search among tools that the client has.
    ToolSearchCall {
        #[serde(flatten)]
        head: CallHead,
        execution: &'static str,
        #[schema(value_type = Object)]
        arguments: Value,
    },
}

/// What all calls have.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ResponseCallHead)]
pub(super) struct CallHead {
    id: String,
    status: Status,
    /// Names the call in its result.
    call_id: String,
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

impl CallHead {
    /// A call that begins.
    pub(super) fn new(id: String, call_id: String) -> CallHead {
        CallHead { id, status: Status::InProgress, call_id }
    }
}

impl OutputItem {
    /// A message that begins.
    pub(super) fn message() -> OutputItem {
        let (id, content) = (unique_id("msg_"), Vec::new());
        OutputItem::Message { id, status: Status::InProgress, role: "assistant", content }
    }

    /// Reasoning that begins. `is_sent_back` is whether it has the form that clients send back.
    pub(super) fn reasoning(is_sent_back: bool) -> OutputItem {
        OutputItem::Reasoning {
            id: unique_id("rs_"),
            status: Status::InProgress,
            summary: Vec::new(),
            content: Vec::new(),
            encrypted_content: is_sent_back.then(String::new),
        }
    }

    pub(super) fn id(&self) -> &str {
        match self {
            OutputItem::Message { id, .. } | OutputItem::Reasoning { id, .. } => id,
            OutputItem::FunctionCall { head, .. }
            | OutputItem::CustomToolCall { head, .. }
            | OutputItem::LocalShellCall { head, .. }
            | OutputItem::ShellCall { head, .. }
            | OutputItem::ApplyPatchCall { head, .. }
            | OutputItem::ToolSearchCall { head, .. } => &head.id,
        }
    }

    fn status_mut(&mut self) -> &mut Status {
        match self {
            OutputItem::Message { status, .. } | OutputItem::Reasoning { status, .. } => status,
            OutputItem::FunctionCall { head, .. }
            | OutputItem::CustomToolCall { head, .. }
            | OutputItem::LocalShellCall { head, .. }
            | OutputItem::ShellCall { head, .. }
            | OutputItem::ApplyPatchCall { head, .. }
            | OutputItem::ToolSearchCall { head, .. } => &mut head.status,
        }
    }

    fn is_call(&self) -> bool {
        !matches!(self, OutputItem::Message { .. } | OutputItem::Reasoning { .. })
    }

    /// Its part with this text; calls have none.
    pub(super) fn part(&self, text: String, logprobs: Vec<TokenEntry>) -> Option<OutputPart> {
        match self {
            OutputItem::Message { .. } => Some(OutputPart::output_text(text, logprobs)),
            OutputItem::Reasoning { .. } => Some(OutputPart::ReasoningText { text }),
            _ => None,
        }
    }

    /// Ends it with its text, or its arguments.
    pub(super) fn end(&mut self, new: Status, text: String, logprobs: Vec<TokenEntry>) {
        *self.status_mut() = new;
        let part = self.part(text.clone(), logprobs);
        let object = || serde_json::from_str::<Value>(&text).ok().filter(Value::is_object);
        match self {
            OutputItem::Message { content, .. } => *content = part.into_iter().collect(),
            OutputItem::Reasoning { content, encrypted_content, .. } => {
                *content = part.into_iter().collect();
                encrypted_content.iter_mut().for_each(|form| *form = opaque_reasoning::encode(&text));
            }
            OutputItem::FunctionCall { arguments, .. } => *arguments = text,
            OutputItem::CustomToolCall { input, .. } => {
                let own = object().and_then(|arguments| arguments["input"].as_str().map(str::to_string));
                *input = own.unwrap_or(text);
            }
            OutputItem::LocalShellCall { action: fields, .. }
            | OutputItem::ShellCall { action: fields, .. }
            | OutputItem::ApplyPatchCall { operation: fields, .. }
            | OutputItem::ToolSearchCall { arguments: fields, .. } => add_fields(fields, object()),
        }
    }

    /// Its text or its arguments, as [`OutputItem::end`] takes them, and the item as it began.
    pub(super) fn restart(&self) -> (OutputItem, String, Vec<TokenEntry>) {
        let mut begun = self.clone();
        *begun.status_mut() = Status::InProgress;
        let (mut text, mut logprobs) = (String::new(), Vec::new());
        match &mut begun {
            OutputItem::Message { content, .. } | OutputItem::Reasoning { content, .. } => {
                match content.pop() {
                    Some(OutputPart::OutputText { text: own, logprobs: tokens, .. }) => {
                        (text, logprobs) = (own, tokens);
                    }
                    Some(OutputPart::ReasoningText { text: own }) => text = own,
                    None => {}
                }
            }
            OutputItem::FunctionCall { arguments, .. } => text = std::mem::take(arguments),
            OutputItem::CustomToolCall { input, .. } => {
                text = json!({ "input": std::mem::take(input) }).to_string();
            }
            OutputItem::LocalShellCall { action, .. } => {
                text = std::mem::replace(action, local_shell_action()).to_string();
            }
            OutputItem::ShellCall { action, .. } => {
                text = std::mem::replace(action, shell_action()).to_string();
            }
            OutputItem::ApplyPatchCall { operation: object, .. }
            | OutputItem::ToolSearchCall { arguments: object, .. } => {
                text = std::mem::replace(object, json!({})).to_string();
            }
        }
        (begun, text, logprobs)
    }

    pub(super) fn status(&self) -> Status {
        *self.clone().status_mut()
    }

    /// Whether it is a call that does not end.
    pub(super) fn is_half_a_call(&self) -> bool {
        self.is_call() && self.status() == Status::Incomplete
    }
}

/// The action of a local shell before its arguments are there.
pub(super) fn local_shell_action() -> Value {
    json!({ "type": "exec", "command": [], "env": {} })
}

/// The action of a shell before its arguments are there.
pub(super) fn shell_action() -> Value {
    json!({ "commands": [], "timeout_ms": null, "max_output_length": null })
}

/// Adds the fields of an object, in place of those of their names.
fn add_fields(object: &mut Value, more: Option<Value>) {
    if let (Value::Object(object), Some(Value::Object(more))) = (object, more) {
        object.extend(more);
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
