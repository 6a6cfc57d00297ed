//! `GET /live`, `/ready` and `/health`: whether the process lives, and whether it takes requests.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::server::Shared;

/// Whether the server takes requests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, or `draining`.
    status: &'static str,
}

/// Says that the process lives.
#[utoipa::path(get, path = "/live", tag = "Operation", responses((status = 200, body = Health)))]
pub(crate) async fn live() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Says whether the server takes requests.
#[utoipa::path(
    get,
    path = "/ready",
    tag = "Operation",
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    health_of(&shared)
}

/// The same as `/ready`.
#[utoipa::path(
    get,
    path = "/health",
    tag = "Operation",
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
pub(crate) async fn health(State(shared): State<Arc<Shared>>) -> Response {
    health_of(&shared)
}

fn health_of(shared: &Shared) -> Response {
    if shared.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: "draining" })).into_response();
    }
    Json(Health { status: "ok" }).into_response()
}
