//! Routes in the shapes of Ollama.

mod answer;
pub(crate) mod chat;
pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod models;
mod options;
pub(crate) mod unsupported;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::models::{ActiveModel, KeepAlive, Models, ServedModel};

/// An error as an object, for responses and for lines of a stream.
pub(crate) fn error_object(error: &ApiError, _request_id: &str) -> Value {
    json!({ "error": error.message })
}

/// The model with a name, to which clients may have added the tag `latest`.
///
/// # Errors
/// If there is none, or several fit.
fn find(models: &Models, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
    let untagged = name.and_then(|name| name.strip_suffix(":latest"));
    models.find(name).or_else(|error| untagged.map_or(Err(error), |name| models.find(Some(name))))
}

/// As [`find`], for a request that uses the model.
///
/// # Errors
/// As [`find`], and if the model cannot be loaded.
async fn acquire(
    models: &Arc<Models>,
    name: Option<&str>,
    keep_alive: Option<KeepAlive>,
) -> Result<Arc<ActiveModel>, ApiError> {
    let model = find(models, name)?;
    models.acquire(Some(model.id()), keep_alive).await
}
