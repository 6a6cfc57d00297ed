//! Routes in the shapes of the OpenAI API.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod logprobs;
pub(crate) mod models;
mod usage;

pub(crate) use usage::Usage;

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use utoipa::ToSchema;

/// What a stream sends in addition.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// Whether a last event has the usage of the whole request.
    #[serde(default)]
    pub(crate) include_usage: bool,
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An id that no other object has.
pub(crate) fn unique_id(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::now_v7().simple())
}
