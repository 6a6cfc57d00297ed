//! `POST /infill`: the text in a gap, as editors ask for it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use pipelines::{InfillFile, InfillTexts};
use serde::Deserialize;
use utoipa::ToSchema;

use super::answer::{AnswerFields, CompletionTask, NativeAnswer, NativeChunk};
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::fields::OutputFormatFields;
use crate::fields::dry_run::DryRunField;
use crate::fields::timings::TelemetryFields;
use crate::generation::infill;
use crate::sampling::Sampling;
use crate::state::Context;
use crate::state::ServerState;

/// A gap to fill.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InfillRequest {
    #[serde(flatten)]
    texts: InfillFields,
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

/// The texts around the gap. Those that the context has no room for are cut where they are far from it, which `truncated`
/// says.
#[derive(Debug, Deserialize, ToSchema)]
struct InfillFields {
    /// The text before the gap.
    input_prefix: String,
    /// The text after the gap.
    input_suffix: String,
    /// The start of the line with the gap, after `input_prefix`.
    prompt: Option<String>,
    /// Texts of other files.
    input_extra: Option<Vec<ExtraText>>,
}

/// The text of another file.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = InfillExtraText)]
struct ExtraText {
    filename: Option<String>,
    text: String,
}

/// The name of a file that has none.
const NO_NAME: &str = "tmp";

impl RequestBody for InfillRequest {
    fn read(fields: &mut Fields) -> Result<InfillRequest, ApiError> {
        Ok(InfillRequest {
            texts: fields.take()?,
            answer: fields.take()?,
            output_format: fields.take()?,
            sampling: fields.take()?,
            telemetry: fields.take()?,
            dry_run: fields.take()?,
        })
    }
}

/// Fills a gap between two texts, by models that were trained to.
#[utoipa::path(
    post,
    path = "/infill",
    tag = "llama.cpp",
    request_body = InfillRequest,
    responses((status = 200, description = "The answer, or with `stream` its events", content(
        (NativeAnswer = "application/json"),
        (NativeChunk = "text/event-stream")
    )))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<InfillRequest>,
) -> Result<Response, ApiError> {
    let InfillRequest { texts, answer, output_format, sampling, telemetry, dry_run } = body;
    let server = &*server;
    let model = &answer.model(server).await?;
    let file = |extra: ExtraText| {
        let name = extra.filename.unwrap_or_else(|| NO_NAME.to_string());
        InfillFile { name, text: extra.text }
    };
    let texts = InfillTexts {
        before: texts.input_prefix + &texts.prompt.unwrap_or_default(),
        after: texts.input_suffix,
        files: texts.input_extra.unwrap_or_default().into_iter().map(file).collect(),
    };
    // An answer of open length gets a quarter of the context.
    let limit = model.max_length();
    let room = limit - answer.limit().unwrap_or(limit / 4).min(limit / 2);
    let prompt = infill::prompt(model, texts, room, "input_prefix").await?;
    let is_cut = prompt.is_cut;
    let task = CompletionTask {
        server,
        model,
        context,
        answer,
        output_format,
        sampling,
        telemetry,
        dry_run,
        is_cut,
    };
    task.answer(vec![prompt.tokens.into()]).await
}
