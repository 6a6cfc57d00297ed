//! `POST /v1/chat/completions`: the next message of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use pipelines::{Chat, Request, TextRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::logprobs::{Logprobs, TokenEntry};
use super::{StreamOptions, Usage, now, unique_id};
use crate::body::{Body, Fields, RequestBody};
use crate::context::Context;
use crate::error::ApiError;
use crate::generation::{self, Delta, Finish, Generation};
use crate::models::Entry;
use crate::sampling::Sampling;
use crate::server::Shared;
use crate::sse::{self, Events};

/// A conversation to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatRequest {
    #[serde(flatten)]
    conversation: Conversation,
    #[serde(flatten)]
    sampling: Sampling,
}

/// The fields of a conversation.
#[derive(Debug, Deserialize, ToSchema)]
struct Conversation {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// The conversation so far, oldest message first.
    #[schema(min_items = 1, value_type = Vec<Object>)]
    messages: Vec<Map<String, Value>>,
    /// The most tokens of the answer; the default is all that the context has room for.
    #[serde(alias = "max_completion_tokens")]
    max_tokens: Option<usize>,
    /// How many answers to make.
    #[schema(minimum = 1, maximum = 128)]
    n: Option<usize>,
    /// Whether the answer is sent as events while it is made.
    #[serde(default)]
    stream: Option<bool>,
    /// What a stream sends in addition.
    stream_options: Option<StreamOptions>,
    /// Whether to give the log-probabilities of the answer's tokens.
    logprobs: Option<bool>,
    /// How many of the likeliest tokens to give at each place.
    #[schema(maximum = 256)]
    top_logprobs: Option<usize>,
    /// Whether the prompt ends where the assistant is to speak.
    add_generation_prompt: Option<bool>,
    /// Whether the last message is to be continued.
    continue_final_message: Option<bool>,
    /// More variables of the chat template.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Map<String, Value>>,
}

impl RequestBody for ChatRequest {
    fn read(fields: &mut Fields) -> Result<ChatRequest, ApiError> {
        Ok(ChatRequest { conversation: fields.take()?, sampling: fields.take()? })
    }
}

/// The answers to a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    #[serde(flatten)]
    head: Head,
    choices: Vec<ChatChoice>,
    usage: Usage,
}

/// What every object of one answer repeats.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Head {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    system_fingerprint: String,
}

/// An answer.
#[derive(Debug, Default, Serialize, ToSchema)]
struct ChatChoice {
    index: usize,
    message: Message,
    logprobs: Option<Logprobs>,
    finish_reason: &'static str,
}

/// What the assistant says.
#[derive(Debug, Serialize, ToSchema)]
struct Message {
    role: &'static str,
    content: String,
    refusal: Option<String>,
}

impl Default for Message {
    fn default() -> Message {
        Message { role: "assistant", content: String::new(), refusal: None }
    }
}

/// A part of an answer as it is made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatChunk {
    #[serde(flatten)]
    head: Head,
    choices: Vec<ChunkChoice>,
    /// `null` in all chunks but the last, and absent unless it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

/// What a choice gains.
#[derive(Debug, Serialize, ToSchema)]
struct ChunkChoice {
    index: usize,
    delta: MessageDelta,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

/// What a message gains.
#[derive(Debug, Default, Serialize, ToSchema)]
struct MessageDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    tag = "OpenAI",
    request_body = ChatRequest,
    responses((status = 200, description = "The answers, or with `stream` their events", content(
        (ChatCompletion = "application/json"),
        (ChatChunk = "text/event-stream")
    )))
)]
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    context: Context,
    Body(body): Body<ChatRequest>,
) -> Result<Response, ApiError> {
    let ChatRequest { conversation, sampling } = body;
    let model = shared.models.find(conversation.model.as_deref())?;
    let request = prepare(model, &conversation, sampling).await?;
    let n = conversation.n.unwrap_or(1);
    let generation = Generation::start(model, vec![request], n, context).await?;
    let head = Head {
        id: unique_id("chatcmpl-"),
        object: "chat.completion",
        created: now(),
        model: model.id.clone(),
        system_fingerprint: shared.fingerprint(model),
    };
    if conversation.stream.unwrap_or(false) {
        let include_usage = conversation.stream_options.is_some_and(|options| options.include_usage);
        let head = Head { object: "chat.completion.chunk", ..head };
        return Ok(sse::respond(Chunks { generation, head, n, began: false, include_usage }));
    }
    Ok(Json(collect(generation, head, n).await?).into_response())
}

/// The request for the library.
async fn prepare(
    model: &Entry,
    conversation: &Conversation,
    sampling: Sampling,
) -> Result<Request, ApiError> {
    let generator = model.loaded.generator()?;
    let wants_logprobs = conversation.logprobs.unwrap_or(false);
    if conversation.top_logprobs.is_some() && !wants_logprobs {
        return Err(ApiError::invalid("top_logprobs", "top_logprobs needs `logprobs: true`"));
    }
    let messages: Vec<Value> = conversation.messages.iter().cloned().map(Value::Object).collect();
    let bytes = messages.iter().map(|message| message.to_string().len()).sum();
    let prompt = Chat {
        add_generation_prompt: conversation.add_generation_prompt.unwrap_or(true),
        continue_final_message: conversation.continue_final_message.unwrap_or(false),
        extra: conversation.chat_template_kwargs.clone().unwrap_or_default(),
        ..Chat::new(messages)
    };
    let parameters = Request {
        max_new_tokens: Some(conversation.max_tokens.unwrap_or(usize::MAX)),
        logprobs: wants_logprobs.then_some(conversation.top_logprobs.unwrap_or(0)),
        ..sampling.request(model.loaded.plan())?
    };
    generation::prepare(generator, TextRequest { prompt: prompt.into(), parameters }, bytes).await
}

/// Waits for all answers.
async fn collect(mut generation: Generation, head: Head, n: usize) -> Result<ChatCompletion, ApiError> {
    let mut choices: Vec<ChatChoice> =
        (0..n).map(|index| ChatChoice { index, ..ChatChoice::default() }).collect();
    while let Some((index, delta)) = generation.next().await {
        let choice = &mut choices[index];
        match delta {
            Delta::Text { text, logprobs } => {
                choice.message.content.push_str(&text);
                if let Some(logprobs) = &logprobs {
                    choice.logprobs.get_or_insert_default().content.push(TokenEntry::from(logprobs));
                }
            }
            Delta::Finished { text, finish } => {
                choice.message.content.push_str(&text);
                choice.finish_reason = finish.name();
            }
            Delta::Prompt(_) => {}
            Delta::Failed(error) => return Err(error),
        }
    }
    Ok(ChatCompletion { head, choices, usage: generation.usage.into() })
}

/// The events of an answer.
struct Chunks {
    generation: Generation,
    head: Head,
    n: usize,
    /// Whether the roles were sent.
    began: bool,
    include_usage: bool,
}

impl Events for Chunks {
    async fn next(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.began {
            self.began = true;
            for index in 0..self.n {
                let delta = MessageDelta { role: Some("assistant"), content: Some(String::new()) };
                self.send(out, index, delta, None, None);
            }
            return true;
        }
        let mut next = self.generation.next().await;
        while let Some((index, delta)) = next {
            if !self.push(out, index, delta) {
                return false;
            }
            next = self.generation.next_ready();
            if next.is_none() && !self.generation.is_over() {
                return true;
            }
        }
        if self.include_usage {
            let usage = Some(Some(self.generation.usage.into()));
            sse::data(out, &ChatChunk { head: self.head.clone(), choices: Vec::new(), usage });
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
        false
    }
}

impl Chunks {
    /// Appends the event of a delta. Returns whether the answers go on.
    fn push(&mut self, out: &mut Vec<u8>, index: usize, delta: Delta) -> bool {
        match delta {
            Delta::Text { text, logprobs } => {
                if text.is_empty() && logprobs.is_none() {
                    return true;
                }
                let logprobs = logprobs.map(|token| Logprobs { content: vec![TokenEntry::from(&token)] });
                self.send(out, index, MessageDelta { content: Some(text), role: None }, logprobs, None);
            }
            Delta::Finished { text, finish } => self.finish(out, index, text, finish),
            Delta::Prompt(_) => {}
            Delta::Failed(error) => {
                sse::data(out, &error.to_openai());
                out.extend_from_slice(b"data: [DONE]\n\n");
                return false;
            }
        }
        true
    }

    fn finish(&self, out: &mut Vec<u8>, index: usize, text: String, finish: Finish) {
        if !text.is_empty() {
            self.send(out, index, MessageDelta { content: Some(text), role: None }, None, None);
        }
        self.send(out, index, MessageDelta::default(), None, Some(finish.name()));
    }

    fn send(
        &self,
        out: &mut Vec<u8>,
        index: usize,
        delta: MessageDelta,
        logprobs: Option<Logprobs>,
        finish_reason: Option<&'static str>,
    ) {
        let choices = vec![ChunkChoice { index, delta, logprobs, finish_reason }];
        let usage = self.include_usage.then_some(None);
        sse::data(out, &ChatChunk { head: self.head.clone(), choices, usage });
    }
}
