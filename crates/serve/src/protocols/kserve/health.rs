//! `GET /v2/health/live` and `/v2/health/ready`: whether the process lives, and whether it takes requests.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::state::ServerState;

/// Whether the process lives.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Live {
    live: bool,
}

/// Whether the server takes requests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ready {
    ready: bool,
}

/// Says that the process lives.
#[utoipa::path(get, path = "/v2/health/live", tag = "KServe", responses((status = 200, body = Live)))]
pub(crate) async fn live() -> Json<Live> {
    Json(Live { live: true })
}

/// Says whether the server takes requests.
#[utoipa::path(
    get,
    path = "/v2/health/ready",
    tag = "KServe",
    responses((status = 200, body = Ready), (status = 503, body = Ready))
)]
pub(crate) async fn ready(State(server): State<Arc<ServerState>>) -> (StatusCode, Json<Ready>) {
    let status = server.readiness(&server.models.statuses()).status_code();
    (status, Json(Ready { ready: status == StatusCode::OK }))
}
