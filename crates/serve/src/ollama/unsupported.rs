//! Routes that change which models there are: the server's command line does.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::any;

use crate::error::ApiError;
use crate::server::Shared;

const PATHS: [&str; 6] =
    ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/{digest}"];

/// The routes.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    PATHS.iter().fold(Router::new(), |router, path| router.route(path, any(refuse)))
}

async fn refuse(request: Request) -> ApiError {
    let path = request.uri().path();
    let message = format!(
        "{path} is not supported: name the models when the server is started, as in `peri serve MODEL`"
    );
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_supported", message)
}
