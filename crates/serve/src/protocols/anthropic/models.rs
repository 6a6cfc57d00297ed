//! `GET /v1/models` in the shape of the Anthropic API, for clients that say that they speak it.

use axum::http::{HeaderMap, HeaderName};
use serde::Serialize;

use crate::stamp::rfc3339_of;

/// The header that clients of this API send with each request.
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The models of the server.
#[derive(Debug, Serialize)]
pub(crate) struct ModelPage {
    data: Vec<ModelInfo>,
    /// Always false: one page lists all models.
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

/// A model.
#[derive(Debug, Serialize)]
pub(crate) struct ModelInfo {
    r#type: &'static str,
    id: String,
    display_name: String,
    created_at: String,
    max_input_tokens: usize,
    max_tokens: usize,
}

/// Whether a request is one of this API.
pub(crate) fn is_spoken(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION)
}

impl ModelInfo {
    /// A model that was made at a time in seconds since 1970, with the most tokens of a prompt and its answer together.
    pub(crate) fn new(id: &str, created: u64, max_length: usize) -> ModelInfo {
        ModelInfo {
            r#type: "model",
            id: id.to_string(),
            display_name: id.to_string(),
            created_at: rfc3339_of(created),
            max_input_tokens: max_length,
            max_tokens: max_length,
        }
    }
}

impl From<Vec<ModelInfo>> for ModelPage {
    fn from(data: Vec<ModelInfo>) -> ModelPage {
        let id = |model: Option<&ModelInfo>| model.map(|model| model.id.clone());
        ModelPage { has_more: false, first_id: id(data.first()), last_id: id(data.last()), data }
    }
}
