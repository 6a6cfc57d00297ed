//! `GET /version`: which build runs.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// A build.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Version {
    version: &'static str,
}

/// Says which build runs.
#[utoipa::path(get, path = "/version", tag = "Operation", responses((status = 200, body = Version)))]
pub(crate) async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION") })
}
