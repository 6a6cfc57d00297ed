//! `POST /api/pull`: fetches a model from a hub, and serves it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use pipelines::Error;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::ToSchema;

use super::status::{self, StatusLine, StreamField};
use super::{append, error_object};
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::models::{Models, PullState, PulledFile};
use crate::sse::{self, Events};
use crate::state::ServerState;

/// How often lines tell what arrived.
const INTERVAL: Duration = Duration::from_millis(100);
/// Digits of a digest in the name of a step.
const SHORT_DIGEST: usize = 12;
/// The steps after the downloads, which have checked the digests.
const LAST_STEPS: [&str; 3] = ["verifying sha256 digest", "writing manifest", "success"];

/// A model to fetch.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct PullRequest {
    #[serde(flatten)]
    model: ModelField,
    #[serde(flatten)]
    stream: StreamField,
}

/// The model.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = PullModelField)]
struct ModelField {
    /// A repository of the hub, `owner/name`, with `:LABEL` for one of its encodings and `@REVISION` for a revision.
    #[serde(alias = "name")]
    model: String,
}

impl RequestBody for PullRequest {
    fn read(fields: &mut Fields) -> Result<PullRequest, ApiError> {
        Ok(PullRequest { model: fields.take()?, stream: fields.take()? })
    }
}

/// Fetches a model, and serves it. The download goes on if the client leaves, and other clients may follow it.
#[utoipa::path(
    post,
    path = "/api/pull",
    tag = "Ollama",
    request_body = PullRequest,
    responses((status = 200, description = "The end, or unless `stream` is false the steps", content(
        (StatusLine = "application/json"),
        (StatusLine = "application/x-ndjson")
    )))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    Body(body): Body<PullRequest>,
) -> Result<Response, ApiError> {
    let mut pull = server.models.pull(Models::repo(&body.model.model)?);
    if body.stream.is_on() {
        return Ok(sse::respond_lines(Steps { pull, sent: None }));
    }
    end_of(&mut pull).await?;
    Ok(status::success())
}

/// Waits until a pull has ended.
async fn end_of(pull: &mut watch::Receiver<PullState>) -> Result<(), ApiError> {
    let state = pull.wait_for(|state| state.end.is_some()).await.map_err(|_| ended())?;
    state.end.clone().unwrap_or(Ok(()))
}

/// The error of a pull whose thread has panicked.
fn ended() -> ApiError {
    ApiError::from(Error::Defect("the thread of the download has ended".to_string()))
}

/// The steps of a pull as lines.
struct Steps {
    pull: watch::Receiver<PullState>,
    /// Bytes of each file that lines gave; `None` before the first line.
    sent: Option<Vec<u64>>,
}

impl Events for Steps {
    async fn next(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(sent) = &mut self.sent else {
            StatusLine::new("pulling manifest").write(out);
            self.sent = Some(Vec::new());
            return true;
        };
        tokio::time::sleep(INTERVAL).await;
        let is_news = |state: &PullState| {
            state.end.is_some() || !state.files.iter().map(|file| file.done).eq(sent.iter().copied())
        };
        let Ok(state) = self.pull.wait_for(is_news).await else {
            append(out, &error_object(&ended(), ""));
            return false;
        };
        let before = std::mem::replace(sent, state.files.iter().map(|file| file.done).collect());
        let news =
            state.files.iter().enumerate().filter(|(index, file)| before.get(*index) != Some(&file.done));
        news.for_each(|(_, file)| StatusLine::for_file(file).write(out));
        match &state.end {
            None => return true,
            Some(Ok(())) => LAST_STEPS.iter().for_each(|step| StatusLine::new(*step).write(out)),
            Some(Err(error)) => append(out, &error_object(error, "")),
        }
        false
    }
}

impl StatusLine {
    fn for_file(file: &PulledFile) -> StatusLine {
        let digits = file.digest.split_once(':').map_or("", |(_, digits)| digits);
        StatusLine {
            digest: Some(file.digest.clone()),
            total: Some(file.total),
            completed: Some(file.done),
            ..StatusLine::new(format!("pulling {}", &digits[..digits.len().min(SHORT_DIGEST)]))
        }
    }
}
