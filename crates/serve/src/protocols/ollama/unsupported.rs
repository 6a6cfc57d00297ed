//! Routes that would upload models, and why they do not.

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::routing::any;

use crate::api_error::ApiError;

/// Paths, and what to do instead.
const PATHS: [(&str, &str); 2] =
    [("/api/push", "models are not uploaded"), ("/api/blobs/{digest}", "models come from files and hubs")];

/// The routes.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    PATHS.into_iter().fold(Router::new(), |router, (path, instead)| {
        // The body is read so that the connection stays open.
        router.route(path, any(async move |uri: Uri, _body: Bytes| refusal(&uri, instead)))
    })
}

fn refusal(uri: &Uri, instead: &str) -> ApiError {
    let message = format!("{} is not supported: {instead}", uri.path());
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_supported", message)
}
