//! `POST /v1/responses`: the next message of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use pipelines::Request;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::events::{Draft, Events, ResponseEvent};
use super::object::ResponseObject;
use super::prompt::{Prompt, PromptFields, RefusedFields, own_names};
use super::store::ResponseStore;
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::fields::dry_run::DryRunField;
use crate::fields::timings::TelemetryFields;
use crate::generation::Generation;
use crate::sampling::Sampling;
use crate::stamp::{now, unique_id};
use crate::state::Context;
use crate::state::ServerState;

/// The value of `include` that asks for log-probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";
/// The value of `include` that asks for reasoning in a form that clients keep and send back.
const REASONING: &str = "reasoning.encrypted_content";

/// A conversation to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ResponseRequest {
    #[serde(flatten)]
    prompt: PromptFields,
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    refused: RefusedFields,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    telemetry: TelemetryFields,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// How far the answer goes, how it is sent, and whether it is kept.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ResponseAnswerFields)]
struct AnswerFields {
    /// Whether the response is kept for later requests; true by default.
    store: Option<bool>,
    /// The most tokens of the answer; the default is all that the context has room for.
    max_output_tokens: Option<usize>,
    /// Whether the answer is sent as events while it is made.
    stream: Option<bool>,
    /// `message.output_text.logprobs` gives the log-probabilities of the answer's tokens; `reasoning.encrypted_content` gives
    /// reasoning in a form to send back.
    include: Option<Vec<String>>,
    /// How many of the likeliest tokens to give at each place.
    #[schema(maximum = 256)]
    top_logprobs: Option<usize>,
    /// Comes back with the response.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

impl RequestBody for ResponseRequest {
    fn read(fields: &mut Fields) -> Result<ResponseRequest, ApiError> {
        Ok(ResponseRequest {
            prompt: fields.take()?,
            answer: fields.take()?,
            refused: fields.take()?,
            sampling: fields.take()?,
            telemetry: fields.take()?,
            dry_run: fields.take()?,
        })
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
    State(server): State<Arc<ServerState>>,
    State(store): State<Arc<ResponseStore>>,
    context: Context,
    Body(body): Body<ResponseRequest>,
) -> Result<Response, ApiError> {
    let ResponseRequest { prompt: fields, answer, refused, sampling, telemetry, dry_run } = body;
    telemetry.note(answer.stream.unwrap_or(false), &context);
    context.note(|facts| refused.check(&mut facts.ignored))?;
    let wants_logprobs = answer.wants_logprobs(&context)?;
    let model = &server.models.acquire(fields.model.as_deref(), None).await?;
    let Prompt { spec, tools, input, conversation } = fields.read(&store)?;
    let parameters = Request {
        max_new_tokens: answer.max_output_tokens.or(model.lengths().answer()).or(Some(usize::MAX)),
        logprobs: wants_logprobs.then_some(answer.top_logprobs.unwrap_or(0)),
        ..model.request(sampling)?
    };
    let prepared = spec.prepare(model, &server.config, &context).await.map_err(own_names)?;
    let (request, parser_config) = prepared.into_request(parameters, model).map_err(own_names)?;
    let response = answer.response(&model.id, &request, fields.to_response());
    let requests = vec![request];
    if let Some(counted) = dry_run.answer(model, &requests, &context) {
        return Ok(counted);
    }
    let generation = Generation::start(model, requests, 1, &parser_config, context).await?;
    let sends_reasoning_back = answer.includes(REASONING);
    let events =
        Events::new(Draft { store, response, tools, sends_reasoning_back, input, conversation, telemetry });
    if answer.stream.unwrap_or(false) {
        return Ok(generation.stream(events));
    }
    Ok(Json(events.collect(generation).await?).into_response())
}

impl AnswerFields {
    /// Whether the request asks for a part of the answer.
    fn includes(&self, part: &str) -> bool {
        self.include.iter().flatten().any(|name| name == part)
    }

    /// Whether log-probabilities are asked for. Parts of which the server has none have no effect.
    fn wants_logprobs(&self, context: &Context) -> Result<bool, ApiError> {
        let others = self.include.iter().flatten().filter(|name| ![LOGPROBS, REASONING].contains(&&name[..]));
        context.note(|facts| facts.ignored.extend(others.map(|name| format!("include.{name}"))));
        let wants_logprobs = self.includes(LOGPROBS);
        if self.top_logprobs.is_some_and(|count| count > 0) && !wants_logprobs {
            let message = format!("top_logprobs needs `include: [\"{LOGPROBS}\"]`");
            return Err(ApiError::invalid("top_logprobs", message));
        }
        Ok(wants_logprobs)
    }

    /// The response before it has begun. `prompt` is what it repeats of its prompt.
    fn response(&self, model: &str, request: &Request, prompt: ResponseObject) -> ResponseObject {
        ResponseObject {
            id: unique_id("resp_"),
            object: "response",
            created_at: now(),
            max_output_tokens: self.max_output_tokens,
            metadata: self.metadata.clone().unwrap_or_default(),
            model: model.to_string(),
            store: self.store.unwrap_or(true),
            temperature: request.sampling.temperature,
            top_logprobs: self.top_logprobs.unwrap_or(0),
            top_p: Some(request.sampling.top_p.unwrap_or(1.0)),
            truncation: "disabled",
            ..prompt
        }
    }
}
