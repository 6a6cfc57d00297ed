//! `POST /v1/messages`: the next message of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use pipelines::{Request, TextRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error_object;
use super::prompt::PromptFields;
use crate::body::{Body, Fields, RequestBody};
use crate::context::Context;
use crate::dry_run::DryRunField;
use crate::error::ApiError;
use crate::generation::{self, Delta, Finish, Generation, Writer};
use crate::sampling::Sampling;
use crate::server::Shared;
use crate::sse;
use crate::stamp::unique_id;

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
    Text { text: String },
}

/// Why an answer ended; `null` until it has.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Stop {
    /// `end_turn`, `max_tokens` or `stop_sequence`.
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
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum BlockDelta {
    TextDelta { text: String },
}

impl Stop {
    fn new(finish: Finish, stops: &[String]) -> Stop {
        match finish {
            Finish::Stop => Stop { stop_reason: Some("end_turn"), stop_sequence: None },
            Finish::Length => Stop { stop_reason: Some("max_tokens"), stop_sequence: None },
            Finish::StopString(index) => {
                Stop { stop_reason: Some("stop_sequence"), stop_sequence: stops.get(index).cloned() }
            }
        }
    }
}

impl From<generation::Usage> for Usage {
    fn from(usage: generation::Usage) -> Usage {
        let generation::Usage { prompt_tokens, cached_tokens, generated_tokens } = usage;
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
    State(shared): State<Arc<Shared>>,
    context: Context,
    Body(body): Body<MessagesRequest>,
) -> Result<Response, ApiError> {
    let MessagesRequest { prompt, answer, sampling, dry_run } = body;
    let model = &shared.models.acquire(prompt.model.as_deref(), None).await?;
    let chat = prompt.into_chat(shared.config.keep_attribution_header)?;
    let mut parameters =
        Request { max_new_tokens: Some(answer.max_tokens), ..sampling.request(model.loaded.plan())? };
    parameters.stop.extend(answer.stop_sequences.into_iter().flatten());
    let stops = parameters.stop.clone();
    let request = TextRequest { prompt: chat.into(), parameters };
    let request = generation::prepare(model.loaded.generator()?, request)
        .await
        .map_err(|error| error.rename("stop", "stop_sequences"))?;
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
    let mut generation = Generation::start(model, requests, 1, context).await?;
    if answer.stream.unwrap_or(false) {
        return Ok(generation.stream(Events { message, stops, request_id, is_open: false }));
    }
    for answer in generation.answers().await? {
        message.stop = Stop::new(answer.finish, &stops);
        message.content.extend(Some(answer.text).filter(|text| !text.is_empty()).map(ContentBlock::text));
    }
    message.usage = generation.usage.into();
    Ok(Json(message).into_response())
}

impl ContentBlock {
    fn text(text: String) -> ContentBlock {
        ContentBlock::Text { text }
    }
}

/// How the events of an answer are written.
struct Events {
    /// As it is before the model starts.
    message: AssistantMessage,
    stops: Vec<String>,
    request_id: String,
    /// Whether a content block was begun.
    is_open: bool,
}

impl Writer for Events {
    fn write(&mut self, out: &mut Vec<u8>, _index: usize, delta: Delta, usage: generation::Usage) {
        match delta {
            Delta::Started => {
                let message = AssistantMessage { usage: usage.into(), ..self.message.clone() };
                send(out, &MessageEvent::MessageStart { message });
                send(out, &MessageEvent::Ping);
            }
            Delta::Prompt(_) => {}
            Delta::Text { text, .. } => self.text(out, text),
            Delta::Finished { text, finish } => {
                self.text(out, text);
                if self.is_open {
                    send(out, &MessageEvent::ContentBlockStop { index: 0 });
                }
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
    fn text(&mut self, out: &mut Vec<u8>, text: String) {
        if text.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.is_open, true) {
            let content_block = ContentBlock::text(String::new());
            send(out, &MessageEvent::ContentBlockStart { index: 0, content_block });
        }
        let delta = BlockDelta::TextDelta { text };
        send(out, &MessageEvent::ContentBlockDelta { index: 0, delta });
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
