//! Routes in the shapes of Ollama.

mod answer;
pub(crate) mod chat;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod models;
mod options;
pub(crate) mod pull;
mod status;
pub(crate) mod unsupported;

use serde::Serialize;
use serde_json::{Value, json};

use crate::api_error::ApiError;

/// An error as an object, for responses and for lines of a stream.
pub(crate) fn error_object(error: &ApiError, _request_id: &str) -> Value {
    json!({ "error": error.message })
}

/// The name of a model without the tag that clients add to names without one.
fn untagged(name: &str) -> String {
    name.strip_suffix(":latest").unwrap_or(name).to_string()
}

/// Appends a line.
fn append(out: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *out, line).expect("the objects have text keys");
    out.push(b'\n');
}
