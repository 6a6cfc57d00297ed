//! `POST /api/copy`: another name for a model.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::untagged;
use crate::api_error::ApiError;
use crate::blocking;
use crate::body::{Body, Fields, RequestBody};
use crate::models::PresetSpec;
use crate::state::ServerState;

/// A model to name again.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CopyRequest {
    /// The id or an alias of a model, or the name of a preset.
    source: String,
    /// The other name.
    destination: String,
}

impl RequestBody for CopyRequest {
    fn read(fields: &mut Fields) -> Result<CopyRequest, ApiError> {
        fields.take()
    }
}

/// Gives a model another name, which takes no further memory.
#[utoipa::path(
    post,
    path = "/api/copy",
    tag = "Ollama",
    request_body = CopyRequest,
    responses((status = 200, description = "The model has the name"))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    Body(body): Body<CopyRequest>,
) -> Result<StatusCode, ApiError> {
    let spec = PresetSpec { name: untagged(&body.destination), from: body.source, ..PresetSpec::default() };
    blocking::run(move || server.models.create(spec)).await?;
    Ok(StatusCode::OK)
}
