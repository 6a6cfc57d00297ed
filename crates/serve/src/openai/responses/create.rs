//! `POST /v1/responses`: the next message of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use pipelines::{Chat, Request, TextRequest};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::events::{Draft, Events, ResponseEvent};
use super::input;
use super::object::{OutputText, ResponseObject};
use crate::body::{Body, Fields, RequestBody};
use crate::context::Context;
use crate::dry_run::DryRunField;
use crate::error::ApiError;
use crate::generation::{self, Generation};
use crate::openai::logprobs::TokenEntry;
use crate::sampling::Sampling;
use crate::server::Shared;
use crate::stamp::{now, unique_id};

/// The value of `include` that asks for log-probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";

/// A conversation to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ResponseRequest {
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    refused: RefusedFields,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// The conversation, and how it is answered.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ResponseAnswerFields)]
struct AnswerFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// A text of the user, or the items of a conversation.
    #[schema(value_type = Object)]
    input: Value,
    /// Instructions for this response alone.
    instructions: Option<String>,
    /// A stored response, whose conversation goes on.
    previous_response_id: Option<String>,
    /// Whether the response is kept for later requests; true by default.
    store: Option<bool>,
    /// The most tokens of the answer; the default is all that the context has room for.
    max_output_tokens: Option<usize>,
    /// Whether the answer is sent as events while it is made.
    stream: Option<bool>,
    /// `message.output_text.logprobs` gives the log-probabilities of the answer's tokens.
    include: Option<Vec<String>>,
    /// How many of the likeliest tokens to give at each place.
    #[schema(maximum = 256)]
    top_logprobs: Option<usize>,
    /// Comes back with the response.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// Fields that must have the one value that is supported.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
struct RefusedFields {
    /// Prompts are never truncated: `disabled`.
    truncation: Option<String>,
    /// The form of the text: `{"format": {"type": "text"}}`.
    #[schema(value_type = Option<Object>)]
    text: Option<Value>,
    /// Not supported yet: a list with tools is refused.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// Not supported: true is refused.
    background: Option<bool>,
    /// Not supported: use `previous_response_id`.
    #[schema(value_type = Option<Object>)]
    conversation: Option<Value>,
    /// Not supported: stored prompts are refused.
    #[schema(value_type = Option<Object>)]
    prompt: Option<Value>,
}

impl RequestBody for ResponseRequest {
    fn read(fields: &mut Fields) -> Result<ResponseRequest, ApiError> {
        Ok(ResponseRequest {
            answer: fields.take()?,
            refused: fields.take()?,
            sampling: fields.take()?,
            dry_run: fields.take()?,
        })
    }
}

impl RefusedFields {
    fn check(&self) -> Result<(), ApiError> {
        let truncation = self.truncation.as_deref().is_some_and(|strategy| strategy != "disabled");
        let format = self.text.as_ref().map(|text| &text["format"]["type"]);
        let is_formatted = format.is_some_and(|kind| !kind.is_null() && kind != "text");
        let refused = [
            ("truncation", truncation, "prompts are not truncated: give `disabled`"),
            ("text.format", is_formatted, "formats other than text are not supported"),
            ("tools", self.tools.as_ref().is_some_and(|tools| !tools.is_empty()), "tools are not supported"),
            ("background", self.background.unwrap_or(false), "responses are not made in the background"),
            ("conversation", self.conversation.is_some(), "use `previous_response_id`"),
            ("prompt", self.prompt.is_some(), "there are no stored prompts: use `instructions` and `input`"),
        ];
        match refused.iter().find(|(_, is_refused, _)| *is_refused) {
            Some((field, _, reason)) => Err(ApiError::invalid(*field, format!("{field}: {reason}"))),
            None => Ok(()),
        }
    }
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/responses",
    tag = "OpenAI",
    request_body = ResponseRequest,
    responses((status = 200, description = "The response, or with `stream` its events", content(
        (ResponseObject = "application/json"),
        (ResponseEvent = "text/event-stream")
    )))
)]
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    context: Context,
    Body(body): Body<ResponseRequest>,
) -> Result<Response, ApiError> {
    let ResponseRequest { answer, refused, sampling, dry_run } = body;
    refused.check()?;
    let wants_logprobs = answer.wants_logprobs(&context)?;
    let model = &shared.models.acquire(answer.model.as_deref(), None).await?;
    let input = input::items(answer.input.clone())?;
    let mut conversation = match &answer.previous_response_id {
        Some(id) => shared.responses.get(id, "previous_response_id")?.conversation.clone(),
        None => Vec::new(),
    };
    conversation.extend(input.iter().cloned());
    let mut messages = input::messages(&conversation)?;
    if let Some(instructions) = &answer.instructions {
        input::instruct(&mut messages, instructions);
    }
    let parameters = Request {
        max_new_tokens: Some(answer.max_output_tokens.unwrap_or(usize::MAX)),
        logprobs: wants_logprobs.then_some(answer.top_logprobs.unwrap_or(0)),
        ..sampling.request(model.loaded.plan())?
    };
    let request = TextRequest { prompt: Chat::new(messages).into(), parameters };
    let request = generation::prepare(model.loaded.generator()?, request)
        .await
        .map_err(|error| error.rename("max_tokens", "max_output_tokens").rename("messages", "input"))?;
    let response = answer.response(&model.id, &request);
    let requests = vec![request];
    if let Some(counted) = dry_run.answer(model, &requests, &context) {
        return Ok(counted);
    }
    let mut generation = Generation::start(model, requests, 1, context).await?;
    let mut draft =
        Draft { shared: Arc::clone(&shared), response, item_id: unique_id("msg_"), input, conversation };
    if answer.stream.unwrap_or(false) {
        return Ok(generation.stream(Events::new(draft)));
    }
    let answer = generation.answers().await?.pop().unwrap_or_default();
    let logprobs = answer.logprobs.iter().map(TokenEntry::from).collect();
    draft.finish(OutputText::new(answer.text, logprobs), answer.finish, generation.usage);
    Ok(Json(draft.response).into_response())
}

impl AnswerFields {
    /// Whether log-probabilities are asked for. What else `include` asks for has no effect.
    fn wants_logprobs(&self, context: &Context) -> Result<bool, ApiError> {
        let include = self.include.as_deref().unwrap_or_default();
        let others = include.iter().filter(|name| *name != LOGPROBS).map(|name| format!("include.{name}"));
        context.note(|facts| facts.ignored.extend(others));
        let wants_logprobs = include.iter().any(|name| name == LOGPROBS);
        if self.top_logprobs.is_some_and(|count| count > 0) && !wants_logprobs {
            let message = format!("top_logprobs needs `include: [\"{LOGPROBS}\"]`");
            return Err(ApiError::invalid("top_logprobs", message));
        }
        Ok(wants_logprobs)
    }

    /// The response before it has begun.
    fn response(&self, model: &str, request: &Request) -> ResponseObject {
        ResponseObject {
            id: unique_id("resp_"),
            object: "response",
            created_at: now(),
            instructions: self.instructions.clone(),
            max_output_tokens: self.max_output_tokens,
            metadata: self.metadata.clone().unwrap_or_default(),
            model: model.to_string(),
            parallel_tool_calls: true,
            previous_response_id: self.previous_response_id.clone(),
            store: self.store.unwrap_or(true),
            temperature: request.sampling.temperature,
            tool_choice: "auto",
            top_logprobs: self.top_logprobs.unwrap_or(0),
            top_p: Some(request.sampling.top_p.unwrap_or(1.0)),
            truncation: "disabled",
            ..ResponseObject::default()
        }
    }
}
