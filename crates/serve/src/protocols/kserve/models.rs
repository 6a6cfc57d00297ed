//! `GET /v2/models/{model}` and `/v2/models/{model}/ready`: what a model takes, and whether it takes requests.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::{BYTES, INPUT, OUTPUT, TensorMetadata};
use crate::api_error::ApiError;
use crate::state::ServerState;

/// The inputs and outputs of a model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelMetadata {
    name: String,
    platform: &'static str,
    inputs: [TensorMetadata; 1],
    outputs: [TensorMetadata; 1],
}

/// Whether a model takes requests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelReady {
    name: String,
    ready: bool,
}

/// Shows what a model takes.
#[utoipa::path(
    get,
    path = "/v2/models/{model}",
    tag = "KServe",
    params(("model" = String, Path, description = "The id or an alias of a model")),
    responses((status = 200, body = ModelMetadata))
)]
pub(crate) async fn show(
    State(server): State<Arc<ServerState>>,
    Path(model): Path<String>,
) -> Result<Json<ModelMetadata>, ApiError> {
    let model = server.models.find(Some(&model))?;
    let tensor = |name| TensorMetadata { name, datatype: BYTES, shape: [-1] };
    Ok(Json(ModelMetadata {
        name: model.id().to_string(),
        platform: "perihelion",
        inputs: [tensor(INPUT)],
        outputs: [tensor(OUTPUT)],
    }))
}

/// Says whether a model takes requests; one that is not in memory does, and is loaded for the first.
#[utoipa::path(
    get,
    path = "/v2/models/{model}/ready",
    tag = "KServe",
    params(("model" = String, Path, description = "The id or an alias of a model")),
    responses((status = 200, body = ModelReady), (status = 503, body = ModelReady))
)]
pub(crate) async fn ready(
    State(server): State<Arc<ServerState>>,
    Path(model): Path<String>,
) -> Result<(StatusCode, Json<ModelReady>), ApiError> {
    let model = server.models.find(Some(&model))?;
    let ready = ["ready", "absent"].contains(&server.models.status(&model).state) && !server.is_draining();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(ModelReady { name: model.id().to_string(), ready })))
}
