//! `DELETE /api/delete`: takes back what other routes added.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::blocking;
use crate::body::{Body, Fields, RequestBody};
use crate::state::ServerState;

/// A model to delete.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DeleteRequest {
    /// The name of a preset, a copy, or a model that `/api/pull` fetched.
    #[serde(alias = "name")]
    model: String,
}

impl RequestBody for DeleteRequest {
    fn read(fields: &mut Fields) -> Result<DeleteRequest, ApiError> {
        fields.take()
    }
}

/// Deletes a preset, a copy, or a pulled model with its files.
#[utoipa::path(
    delete,
    path = "/api/delete",
    tag = "Ollama",
    request_body = DeleteRequest,
    responses((status = 200, description = "It is deleted"))
)]
pub(crate) async fn delete(
    State(server): State<Arc<ServerState>>,
    Body(body): Body<DeleteRequest>,
) -> Result<StatusCode, ApiError> {
    blocking::run(move || server.models.delete(&body.model)).await?;
    Ok(StatusCode::OK)
}
