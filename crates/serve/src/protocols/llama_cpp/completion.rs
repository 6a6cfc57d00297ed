//! `POST /completion` and `/completions`: texts to continue.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::answer::{AnswerFields, CompletionTask, NativeAnswer, NativeChunk};
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::fields::OutputFormatFields;
use crate::fields::dry_run::DryRunField;
use crate::fields::timings::TelemetryFields;
use crate::protocols::openai::completions::{self, Prompts};
use crate::sampling::Sampling;
use crate::state::Context;
use crate::state::ServerState;

/// Texts to continue, in the shape of llama.cpp.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct NativeCompletionRequest {
    #[serde(flatten)]
    prompt: PromptField,
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    output_format: OutputFormatFields,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    telemetry: TelemetryFields,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// The texts.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NativePromptField)]
struct PromptField {
    /// A text, the tokens of a text with texts between them, or a list of these.
    prompt: Prompts,
}

/// The body of a route that has the shape of OpenAI and that of llama.cpp.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum EitherRequest {
    OpenAi(completions::CompletionRequest),
    Native(NativeCompletionRequest),
}

impl RequestBody for NativeCompletionRequest {
    fn read(fields: &mut Fields) -> Result<NativeCompletionRequest, ApiError> {
        Ok(NativeCompletionRequest {
            prompt: fields.take()?,
            answer: fields.take()?,
            output_format: fields.take()?,
            sampling: fields.take()?,
            telemetry: fields.take()?,
            dry_run: fields.take()?,
        })
    }
}

/// Clients of OpenAI always name a model, those of llama.cpp's route never do.
impl RequestBody for EitherRequest {
    fn read(fields: &mut Fields) -> Result<EitherRequest, ApiError> {
        if fields.has("model") {
            completions::CompletionRequest::read(fields).map(EitherRequest::OpenAi)
        } else {
            NativeCompletionRequest::read(fields).map(EitherRequest::Native)
        }
    }
}

/// Continues texts.
#[utoipa::path(
    post,
    path = "/completion",
    tag = "llama.cpp",
    request_body = NativeCompletionRequest,
    responses((status = 200, description = "The answers, or with `stream` their events", content(
        (NativeAnswer = "application/json"),
        (NativeChunk = "text/event-stream")
    )))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<NativeCompletionRequest>,
) -> Result<Response, ApiError> {
    respond(&server, context, body).await
}

/// Continues texts: in the shape of OpenAI if the request names a model, and else in that of llama.cpp.
pub(crate) async fn create_either(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<EitherRequest>,
) -> Result<Response, ApiError> {
    match body {
        EitherRequest::OpenAi(body) => completions::respond(&server, context, body).await,
        EitherRequest::Native(body) => respond(&server, context, body).await,
    }
}

async fn respond(
    server: &ServerState,
    context: Context,
    body: NativeCompletionRequest,
) -> Result<Response, ApiError> {
    let NativeCompletionRequest { prompt, answer, output_format, sampling, telemetry, dry_run } = body;
    let model = &answer.model(server).await?;
    let mut prompts = Vec::new();
    for prompt in prompt.prompt.into_list()? {
        prompts.push(prompt.into_prompt(model).await?);
    }
    let task = CompletionTask {
        server,
        model,
        context,
        answer,
        output_format,
        sampling,
        telemetry,
        dry_run,
        is_cut: false,
    };
    task.answer(prompts).await
}
