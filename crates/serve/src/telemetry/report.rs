//! What the server reports of a request: on admin routes, in its log and in its traces.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::stamp;

/// The facts of a request, as far as they are known.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct RequestReport {
    pub(crate) id: String,
    /// The name of the client's key.
    pub(crate) key: Option<String>,
    pub(crate) method: String,
    pub(crate) route: String,
    /// The id of the model, once it is known.
    pub(crate) model: Option<String>,
    /// The HTTP status, once it is known; 499 if the client left before.
    pub(crate) status: Option<u16>,
    pub(crate) prompt_tokens: usize,
    /// Of these, tokens that the cache held.
    pub(crate) cached_tokens: usize,
    /// Why it held no more tokens of the last prompt: `other_tokens` follow in the cache, or `nothing_cached`; there is
    /// `no_state` after more tokens, of a model that keeps states; the `last_token` always runs; so do all, if
    /// `prompt_logits` are wanted; or prefix caching is `off`.
    pub(crate) prefix_end: Option<&'static str>,
    /// Tokens that the cache holds, of which it has no state after so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) matching_tokens: Option<usize>,
    pub(crate) generated_tokens: usize,
    /// Seconds in the queue.
    pub(crate) queue: Option<f64>,
    /// Seconds until the first token.
    pub(crate) first_token: Option<f64>,
    /// After the first, of all answers together.
    pub(crate) tokens_per_second: Option<f64>,
    /// Why the last of its answers ended.
    pub(crate) finish: Option<&'static str>,
    /// The code of the error that it ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'static str>,
    /// What the error says, without what its client wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Since it came, or until it ended.
    pub(crate) seconds: f64,
    pub(crate) is_running: bool,
}

impl RequestReport {
    /// The fields of its line in the access log.
    pub(crate) fn log_fields(&self) -> Map<String, Value> {
        let mut fields = Map::from_iter([("time".to_string(), stamp::rfc3339().into())]);
        if let Ok(Value::Object(report)) = serde_json::to_value(self) {
            fields.extend(report.into_iter().filter(|(name, _)| name != "is_running"));
        }
        fields
    }

    /// The id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}
