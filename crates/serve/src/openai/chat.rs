//! `POST /v1/chat/completions`: the next message of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use pipelines::{Chat, Request, TextRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::logprobs::{Logprobs, TokenEntry};
use super::{StreamOptions, Usage};
use crate::body::{Body, Fields, RequestBody};
use crate::context::Context;
use crate::conversation::ConversationFields;
use crate::dry_run::DryRunField;
use crate::error::ApiError;
use crate::generation::{self, Answer, Delta, Finish, Generation, Writer};
use crate::models::Entry;
use crate::sampling::Sampling;
use crate::server::Shared;
use crate::sse;
use crate::stamp::{now, unique_id};

/// A conversation to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatRequest {
    #[serde(flatten)]
    conversation: ConversationFields,
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// How far answers go, and how they are sent.
#[derive(Debug, Deserialize, ToSchema)]
struct AnswerFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
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
}

impl RequestBody for ChatRequest {
    fn read(fields: &mut Fields) -> Result<ChatRequest, ApiError> {
        Ok(ChatRequest {
            conversation: fields.take()?,
            answer: fields.take()?,
            sampling: fields.take()?,
            dry_run: fields.take()?,
        })
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
#[derive(Debug, Serialize, ToSchema)]
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
    let ChatRequest { conversation, answer, sampling, dry_run } = body;
    let model = shared.models.find(answer.model.as_deref())?;
    let requests = vec![prepare(model, conversation.into_chat()?, &answer, sampling).await?];
    if let Some(counted) = dry_run.answer(model, &requests, &context) {
        return Ok(counted);
    }
    let n = answer.n.unwrap_or(1);
    let mut generation = Generation::start(model, requests, n, context).await?;
    let head = Head {
        id: unique_id("chatcmpl-"),
        object: "chat.completion",
        created: now(),
        model: model.id.clone(),
        system_fingerprint: shared.fingerprint(model),
    };
    if answer.stream.unwrap_or(false) {
        let include_usage = answer.stream_options.is_some_and(|options| options.include_usage);
        let head = Head { object: "chat.completion.chunk", ..head };
        return Ok(generation.stream(Chunks { head, n, include_usage }));
    }
    let answers = generation.answers().await?;
    let choices = answers.into_iter().enumerate().map(|(index, answer)| ChatChoice::new(index, answer));
    let usage = generation.usage.into();
    Ok(Json(ChatCompletion { head, choices: choices.collect(), usage }).into_response())
}

/// The request for the library.
async fn prepare(
    model: &Entry,
    chat: Chat,
    answer: &AnswerFields,
    sampling: Sampling,
) -> Result<Request, ApiError> {
    let wants_logprobs = answer.logprobs.unwrap_or(false);
    if answer.top_logprobs.is_some() && !wants_logprobs {
        return Err(ApiError::invalid("top_logprobs", "top_logprobs needs `logprobs: true`"));
    }
    let parameters = Request {
        max_new_tokens: Some(answer.max_tokens.unwrap_or(usize::MAX)),
        logprobs: wants_logprobs.then_some(answer.top_logprobs.unwrap_or(0)),
        ..sampling.request(model.loaded.plan())?
    };
    let request = TextRequest { prompt: chat.into(), parameters };
    generation::prepare(model.loaded.generator()?, request).await
}

impl ChatChoice {
    fn new(index: usize, answer: Answer) -> ChatChoice {
        let content: Vec<TokenEntry> = answer.logprobs.iter().map(TokenEntry::from).collect();
        ChatChoice {
            index,
            message: Message { role: "assistant", content: answer.text, refusal: None },
            logprobs: (!content.is_empty()).then_some(Logprobs { content }),
            finish_reason: answer.finish.name(),
        }
    }
}

/// How the events of answers are written.
struct Chunks {
    head: Head,
    n: usize,
    include_usage: bool,
}

impl Writer for Chunks {
    fn begin(&mut self, out: &mut Vec<u8>) {
        for index in 0..self.n {
            let delta = MessageDelta { role: Some("assistant"), content: Some(String::new()) };
            self.send(out, index, delta, None, None);
        }
    }

    fn write(&mut self, out: &mut Vec<u8>, index: usize, delta: Delta, _usage: generation::Usage) {
        match delta {
            Delta::Text { text, logprobs, .. } if !text.is_empty() || logprobs.is_some() => {
                let logprobs = logprobs.map(|token| Logprobs { content: vec![TokenEntry::from(&token)] });
                self.send(out, index, MessageDelta { content: Some(text), role: None }, logprobs, None);
            }
            Delta::Finished { text, finish } => self.finish(out, index, text, finish),
            Delta::Started | Delta::Prompt(_) | Delta::Text { .. } => {}
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        sse::data(out, &error.to_openai());
        sse::done(out);
    }

    fn end(&mut self, out: &mut Vec<u8>, generation: &Generation) {
        if self.include_usage {
            let usage = Some(Some(generation.usage.into()));
            sse::data(out, &ChatChunk { head: self.head.clone(), choices: Vec::new(), usage });
        }
        sse::done(out);
    }
}

impl Chunks {
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
