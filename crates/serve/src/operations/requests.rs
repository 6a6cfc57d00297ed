//! `GET /admin/requests`, `DELETE /admin/requests/{id}` and `GET /debug/requests/{id}`: who is answered, and with what.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::state::{Context, ServerState};
use crate::telemetry::RequestReport;

/// Requests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RequestList {
    /// The oldest first.
    requests: Vec<RequestReport>,
}

/// Lists the requests that are answered now, except this one.
#[utoipa::path(get, path = "/admin/requests", tag = "Admin", responses((status = 200, body = RequestList)))]
pub(crate) async fn list(State(server): State<Arc<ServerState>>, context: Context) -> Json<RequestList> {
    let running = server.requests.running();
    let others = running.iter().filter(|record| !context.is_of(record));
    Json(RequestList { requests: others.map(|record| record.report()).collect() })
}

/// Cancels a request, which ends with an error of the code `cancelled`.
#[utoipa::path(
    delete,
    path = "/admin/requests/{id}",
    tag = "Admin",
    params(("id" = String, Path, description = "The id of a request, as in its header `x-request-id`")),
    responses((status = 200, body = RequestList))
)]
pub(crate) async fn cancel(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Path(id): Path<String>,
) -> Result<Json<RequestList>, ApiError> {
    // Clients choose ids, so that several requests may have one.
    let mut requests = Vec::new();
    for record in server.requests.running() {
        let report = record.report();
        if report.id() == id && !context.is_of(&record) {
            record.cancel(ApiError::cancelled());
            requests.push(record.report());
        }
    }
    if requests.is_empty() { Err(unknown(&id)) } else { Ok(Json(RequestList { requests })) }
}

/// Shows a request that is answered now, or one of the last that were.
#[utoipa::path(
    get,
    path = "/debug/requests/{id}",
    tag = "Admin",
    params(("id" = String, Path, description = "The id of a request, as in its header `x-request-id`")),
    responses((status = 200, body = RequestReport))
)]
pub(crate) async fn show(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Path(id): Path<String>,
) -> Result<Json<RequestReport>, ApiError> {
    let running = server.requests.running();
    let others = running.iter().filter(|record| !context.is_of(record));
    let found = others.map(|record| record.report()).find(|report| report.id() == id);
    found.or_else(|| server.requests.ended(&id)).map(Json).ok_or_else(|| unknown(&id))
}

fn unknown(id: &str) -> ApiError {
    let message = format!("no request has the id `{id}`: GET /admin/requests lists those that run");
    ApiError::new(StatusCode::NOT_FOUND, "request_not_found", message)
}
