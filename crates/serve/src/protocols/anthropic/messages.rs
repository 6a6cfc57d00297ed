//! `POST /v1/messages`: the next message of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use pipelines::{AnswerEvent, AnswerPart, Request, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::error_object;
use super::prompt::PromptFields;
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::fields::dry_run::DryRunField;
use crate::fields::opaque_reasoning;
use crate::generation::{self, Delta, Finish, Generation, Writer};
use crate::sampling::Sampling;
use crate::sse;
use crate::stamp::{call_id, unique_id};
use crate::state::Context;
use crate::state::ServerState;

/// A conversation to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MessagesRequest {
    #[serde(flatten)]
    prompt: PromptFields,
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// How far the answer goes, and how it is sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = MessagesAnswerFields)]
struct AnswerFields {
    /// The most tokens of the answer; 0 only reads the prompt.
    max_tokens: usize,
    /// Texts that end the answer and are not part of it.
    #[serde(default)]
    stop_sequences: Option<Vec<String>>,
    /// Whether the answer is sent as events while it is made.
    #[serde(default)]
    stream: Option<bool>,
}

impl RequestBody for MessagesRequest {
    fn read(fields: &mut Fields) -> Result<MessagesRequest, ApiError> {
        Ok(MessagesRequest {
            prompt: fields.take()?,
            answer: fields.take()?,
            sampling: fields.take()?,
            dry_run: fields.take()?,
        })
    }
}

/// The answer to a conversation.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct AssistantMessage {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: String,
    content: Vec<ContentBlock>,
    #[serde(flatten)]
    stop: Stop,
    usage: Usage,
}

/// A part of an answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentBlock {
    Text {
        text: String,
    },
    Thinking {
        /// Empty if the request wants it omitted.
        thinking: String,
        /// Nothing is signed: the word `unsigned`, or omitted reasoning in base64, which the client sends back.
        signature: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
}

/// Why an answer ended; `null` until it has.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Stop {
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    stop_reason: Option<&'static str>,
    /// The stop sequence that the answer came to.
    stop_sequence: Option<String>,
}

/// Counts of tokens. The three counts of input together are the prompt.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
#[schema(as = MessagesUsage)]
pub(crate) struct Usage {
    /// Tokens of the prompt that the model read.
    input_tokens: usize,
    /// Always 0: all prompts are cached, and nothing is charged for it.
    cache_creation_input_tokens: usize,
    /// Tokens of the prompt whose keys and values the cache held.
    cache_read_input_tokens: usize,
    /// Tokens of the answer.
    output_tokens: usize,
}

/// An event of an answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum MessageEvent {
    MessageStart { message: AssistantMessage },
    Ping,
    ContentBlockStart { index: usize, content_block: ContentBlock },
    ContentBlockDelta { index: usize, delta: BlockDelta },
    ContentBlockStop { index: usize },
    MessageDelta { delta: Stop, usage: Usage },
    MessageStop,
}

/// What a content block gains.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type")]
pub(crate) enum BlockDelta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "input_json_delta")]
    Input { partial_json: String },
}

impl Stop {
    fn new(finish: Finish, stops: &[String]) -> Stop {
        match finish {
            Finish::Stop => Stop { stop_reason: Some("end_turn"), stop_sequence: None },
            Finish::ToolCalls => Stop { stop_reason: Some("tool_use"), stop_sequence: None },
            Finish::Length => Stop { stop_reason: Some("max_tokens"), stop_sequence: None },
            Finish::StopString(index) => {
                Stop { stop_reason: Some("stop_sequence"), stop_sequence: stops.get(index).cloned() }
            }
        }
    }
}

impl From<generation::Usage> for Usage {
    fn from(usage: generation::Usage) -> Usage {
        let generation::Usage { prompt_tokens, cached_tokens, generated_tokens, .. } = usage;
        Usage {
            input_tokens: prompt_tokens - cached_tokens,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: cached_tokens,
            output_tokens: generated_tokens,
        }
    }
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/messages",
    tag = "Anthropic",
    request_body = MessagesRequest,
    responses((status = 200, description = "The answer, or with `stream` its events", content(
        (AssistantMessage = "application/json"),
        (MessageEvent = "text/event-stream")
    )))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<MessagesRequest>,
) -> Result<Response, ApiError> {
    let MessagesRequest { prompt, answer, sampling, dry_run } = body;
    let model = &server.models.acquire(prompt.model.as_deref(), None).await?;
    let omits_thinking = prompt.omits_thinking();
    let spec = prompt.into_prompt_spec(server.config.keep_attribution_header)?;
    let prepared = spec.prepare(model, &server.config, &context).await?;
    let mut parameters = Request { max_new_tokens: Some(answer.max_tokens), ..model.request(sampling)? };
    parameters.stop.extend(answer.stop_sequences.into_iter().flatten());
    let stops = parameters.stop.clone();
    let request = prepared.into_request(parameters, model);
    let (request, parser_config) = request.map_err(|error| error.rename("stop", "stop_sequences"))?;
    let requests = vec![request];
    if let Some(counted) = dry_run.answer(model, &requests, &context) {
        return Ok(counted);
    }
    let mut message = AssistantMessage {
        id: unique_id("msg_"),
        r#type: "message",
        role: "assistant",
        model: model.id.clone(),
        content: Vec::new(),
        stop: Stop::default(),
        usage: Usage::default(),
    };
    let request_id = context.id().to_string();
    let mut generation = Generation::start(model, requests, 1, &parser_config, context).await?;
    if answer.stream.unwrap_or(false) {
        return Ok(generation.stream(Events {
            message,
            stops,
            request_id,
            next_index: 0,
            open: None,
            omitted: omits_thinking.then(String::new),
        }));
    }
    for answer in generation.answers().await? {
        message.stop = Stop::new(answer.finish, &stops);
        let parts = answer.content.parts.into_iter();
        message.content.extend(parts.map(|part| ContentBlock::new(part, omits_thinking)));
    }
    message.usage = generation.usage.into();
    Ok(Json(message).into_response())
}

/// The signature of reasoning that the answer shows. Some clients send only blocks back that have one.
const UNSIGNED: &str = "unsigned";

impl ContentBlock {
    fn new(part: AnswerPart, omits_thinking: bool) -> ContentBlock {
        match part {
            AnswerPart::Text(text) => ContentBlock::Text { text },
            AnswerPart::Reasoning(text) if omits_thinking => {
                ContentBlock::Thinking { thinking: String::new(), signature: opaque_reasoning::encode(&text) }
            }
            AnswerPart::Reasoning(thinking) => {
                ContentBlock::Thinking { thinking, signature: UNSIGNED.to_string() }
            }
            AnswerPart::ToolCall(ToolCall { name, arguments, .. }) => {
                // Numbers beyond those of JSON values stay as they were written.
                let input = serde_json::from_str(&arguments).unwrap_or_else(|_| arguments.into());
                ContentBlock::ToolUse { id: call_id("toolu_"), name, input }
            }
        }
    }
}

/// How the events of an answer are written.
struct Events {
    /// As it is before the model starts.
    message: AssistantMessage,
    stops: Vec<String>,
    request_id: String,
    /// The index of the next content block.
    next_index: usize,
    /// The kind of the block that was begun.
    open: Option<BlockKind>,
    /// Reasoning of that block that is not sent as text, if none is.
    omitted: Option<String>,
}

/// The kind of a content block's deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    ToolUse,
}

impl Writer for Events {
    fn wait(&mut self, out: &mut Vec<u8>, _index: usize) {
        send(out, &MessageEvent::Ping);
    }

    fn write(&mut self, out: &mut Vec<u8>, _index: usize, delta: Delta, generation: &Generation) {
        let usage = generation.usage;
        match delta {
            Delta::Started => {
                let message = AssistantMessage { usage: usage.into(), ..self.message.clone() };
                send(out, &MessageEvent::MessageStart { message });
                send(out, &MessageEvent::Ping);
            }
            Delta::Prompt(_) => {}
            Delta::Token { events, .. } => events.into_iter().for_each(|event| self.add(out, event)),
            Delta::Finished { events, finish } => {
                events.into_iter().for_each(|event| self.add(out, event));
                self.close(out);
                let delta = Stop::new(finish, &self.stops);
                send(out, &MessageEvent::MessageDelta { delta, usage: usage.into() });
            }
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        sse::event(out, "error", &error_object(error, &self.request_id));
    }

    fn end(&mut self, out: &mut Vec<u8>, _generation: &Generation) {
        send(out, &MessageEvent::MessageStop);
    }
}

impl Events {
    /// Writes what an event adds.
    fn add(&mut self, out: &mut Vec<u8>, event: AnswerEvent) {
        match event {
            AnswerEvent::Text(text) => self.text(out, text),
            AnswerEvent::Reasoning(thinking) => {
                let block = ContentBlock::Thinking { thinking: String::new(), signature: String::new() };
                self.open(out, BlockKind::Thinking, block);
                match &mut self.omitted {
                    Some(omitted) => omitted.push_str(&thinking),
                    None => self.delta(out, BlockDelta::Thinking { thinking }),
                }
            }
            AnswerEvent::ToolCallStarted { name, .. } => {
                self.close(out);
                let block = ContentBlock::ToolUse { id: call_id("toolu_"), name, input: json!({}) };
                self.open(out, BlockKind::ToolUse, block);
            }
            AnswerEvent::ToolCallArguments { delta, .. } => {
                self.delta(out, BlockDelta::Input { partial_json: delta });
            }
            AnswerEvent::ToolCallFinished { .. } => self.close(out),
            AnswerEvent::ToolCallFailed { text, .. } => {
                self.close(out);
                self.text(out, text);
            }
        }
    }

    fn text(&mut self, out: &mut Vec<u8>, text: String) {
        self.open(out, BlockKind::Text, ContentBlock::Text { text: String::new() });
        self.delta(out, BlockDelta::Text { text });
    }

    /// Begins a block, unless one of its kind is open.
    fn open(&mut self, out: &mut Vec<u8>, kind: BlockKind, content_block: ContentBlock) {
        if self.open == Some(kind) {
            return;
        }
        self.close(out);
        self.open = Some(kind);
        send(out, &MessageEvent::ContentBlockStart { index: self.next_index, content_block });
    }

    fn delta(&self, out: &mut Vec<u8>, delta: BlockDelta) {
        send(out, &MessageEvent::ContentBlockDelta { index: self.next_index, delta });
    }

    /// Ends the block that is open, if one is.
    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(kind) = self.open else { return };
        if kind == BlockKind::Thinking {
            let omitted = self.omitted.as_mut().map(std::mem::take);
            let signature =
                omitted.map_or_else(|| UNSIGNED.to_string(), |text| opaque_reasoning::encode(&text));
            self.delta(out, BlockDelta::Signature { signature });
        }
        self.open = None;
        send(out, &MessageEvent::ContentBlockStop { index: self.next_index });
        self.next_index += 1;
    }
}

/// Appends an event, which is named as its type.
fn send(out: &mut Vec<u8>, event: &MessageEvent) {
    let name = match event {
        MessageEvent::MessageStart { .. } => "message_start",
        MessageEvent::Ping => "ping",
        MessageEvent::ContentBlockStart { .. } => "content_block_start",
        MessageEvent::ContentBlockDelta { .. } => "content_block_delta",
        MessageEvent::ContentBlockStop { .. } => "content_block_stop",
        MessageEvent::MessageDelta { .. } => "message_delta",
        MessageEvent::MessageStop => "message_stop",
    };
    sse::event(out, name, event);
}
