//! Lines that say how far the change of a model is.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::append;
use crate::sse::{self, Events};

/// How far the change of a model is.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct StatusLine {
    /// The step that is done now; the last is `success`.
    pub(super) status: String,
    /// The content that is fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<String>,
    /// Bytes it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total: Option<u64>,
    /// Bytes of it that are on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completed: Option<u64>,
}

/// How the change of a model is reported.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(super) struct StreamField {
    /// Whether each step is a line of its own; true by default.
    stream: Option<bool>,
}

/// The lines of a change that is done.
struct Lines(Vec<&'static str>);

impl StatusLine {
    /// The line of a step.
    pub(super) fn new(status: impl Into<String>) -> StatusLine {
        StatusLine { status: status.into(), ..StatusLine::default() }
    }

    /// Appends the line.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        append(out, self);
    }
}

impl StreamField {
    pub(super) fn is_on(&self) -> bool {
        self.stream.unwrap_or(true)
    }

    /// The response to a change that is done, by these steps.
    pub(super) fn done(&self, steps: Vec<&'static str>) -> Response {
        if self.is_on() { sse::respond_lines(Lines(steps)) } else { success() }
    }
}

/// The response to a change that is done.
pub(super) fn success() -> Response {
    Json(StatusLine::new("success")).into_response()
}

impl Events for Lines {
    async fn next(&mut self, out: &mut Vec<u8>) -> bool {
        self.0.drain(..).for_each(|status| StatusLine::new(status).write(out));
        false
    }
}
