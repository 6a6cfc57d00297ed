//! Routes in the shapes of the OpenAI API.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
mod functions;
pub(crate) mod logprobs;
pub(crate) mod models;
mod prompt_logprobs;
pub(crate) mod responses;
mod unsupported;
mod usage;

pub(crate) use usage::{RequestMetrics, Usage};

use serde::Deserialize;
use utoipa::ToSchema;

/// What a stream sends in addition.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// Whether a last event has the usage of the whole request.
    include_usage: Option<bool>,
}

impl StreamOptions {
    /// Whether a last event has the usage of the whole request.
    pub(crate) fn include_usage(self) -> bool {
        self.include_usage.unwrap_or(false)
    }
}
