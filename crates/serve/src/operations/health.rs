//! `GET /live`, `/ready` and `/health`: whether the process lives, and whether it takes requests.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access;
use crate::models::{ModelStatus, Progress};
use crate::server::Shared;

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
pub(crate) async fn ready(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    answer(&shared, &headers).into_response()
}

/// The same as `/ready`.
#[utoipa::path(
    get,
    path = "/health",
    tag = "Operation",
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
pub(crate) async fn health(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    answer(&shared, &headers).into_response()
}

/// The same, with as many facts as the client may see.
fn answer(shared: &Shared, headers: &HeaderMap) -> (StatusCode, Json<Health>) {
    let (code, Json(health)) = of(shared);
    let loading = if access::may_see_facts(shared, headers) { health.loading } else { Vec::new() };
    (code, Json(Health { loading, ..health }))
}

/// Whether a server takes requests.
pub(crate) fn of(shared: &Shared) -> (StatusCode, Json<Health>) {
    let statuses = shared.models.statuses();
    let in_memory = statuses.iter().any(|status| status.loaded.is_some());
    let progress = |status: ModelStatus| {
        Some(LoadingModel { model: status.model.id().to_string(), progress: status.progress? })
    };
    let loading: Vec<LoadingModel> = statuses.into_iter().filter_map(progress).collect();
    let (code, status) = match () {
        () if shared.is_draining() => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        () if shared.is_starting() || !in_memory && !loading.is_empty() => {
            (StatusCode::SERVICE_UNAVAILABLE, "loading")
        }
        () => (StatusCode::OK, "ok"),
    };
    (code, Json(Health { status, loading }))
}
