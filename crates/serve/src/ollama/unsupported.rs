//! Routes that change which models there are: the server's command line does.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::routing::any;

use crate::error::ApiError;
use crate::server::Shared;

const PATHS: [&str; 6] =
    ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/{digest}"];

/// The routes.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    PATHS.iter().fold(Router::new(), |router, path| router.route(path, any(refuse)))
}

// The body is read so that the connection stays open.
async fn refuse(uri: Uri, _body: Bytes) -> ApiError {
    let path = uri.path();
    let message = format!(
        "{path} is not supported: name the models when the server is started, as in `peri serve MODEL`"
    );
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_supported", message)
}
