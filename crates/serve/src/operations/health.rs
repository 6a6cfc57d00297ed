//! `GET /live`, `/ready` and `/health`: whether the process lives, and whether it takes requests.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::models::{ModelStatus, Progress};
use crate::state::{Readiness, ServerState};

/// Whether the server takes requests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, `loading` during the start and while no model is in memory and one is being loaded, or `draining`.
    status: &'static str,
    /// The models that are being loaded. Clients without a key do not see them if the server has keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    loading: Vec<LoadingModel>,
}

/// A model that is being loaded.
#[derive(Debug, Serialize, ToSchema)]
struct LoadingModel {
    model: String,
    #[serde(flatten)]
    progress: Progress,
}

/// Says that the process lives.
#[utoipa::path(get, path = "/live", tag = "Operation", responses((status = 200, body = Health)))]
pub(crate) async fn live() -> Json<Health> {
    Json(Health { status: "ok", loading: Vec::new() })
}

/// Says whether the server takes requests.
#[utoipa::path(
    get,
    path = "/ready",
    tag = "Operation",
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
pub(crate) async fn ready(State(server): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    answer(&server, &headers).into_response()
}

/// The same as `/ready`.
#[utoipa::path(
    get,
    path = "/health",
    tag = "Operation",
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
pub(crate) async fn health(State(server): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    answer(&server, &headers).into_response()
}

/// The state of the server, with as many facts as the client may see.
fn answer(server: &ServerState, headers: &HeaderMap) -> (StatusCode, Json<Health>) {
    let statuses = server.models.statuses();
    let readiness = server.readiness(&statuses);
    let status = match readiness {
        Readiness::Ready => "ok",
        Readiness::Loading => "loading",
        Readiness::Draining => "draining",
    };
    let progress = |status: ModelStatus| {
        Some(LoadingModel { model: status.model.id().to_string(), progress: status.progress? })
    };
    let shown = if server.may_see_facts(headers) { statuses } else { Vec::new() };
    (
        readiness.status_code(),
        Json(Health { status, loading: shown.into_iter().filter_map(progress).collect() }),
    )
}
