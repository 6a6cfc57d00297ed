//! Routes that change which models there are, which the server's command line does, and why they do not.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::routing::any;

use crate::error::ApiError;
use crate::server::Shared;

/// Paths, and what to do instead.
const PATHS: [(&str, &str); 6] = [
    ("/api/pull", FETCH),
    ("/api/push", "models are not uploaded"),
    (
        "/api/create",
        "give a model a template or other settings in a file of settings, `peri serve --config FILE`",
    ),
    ("/api/copy", "give a model aliases in a file of settings, `peri serve --config FILE`"),
    ("/api/delete", "files of models stay until they are deleted in the folder that `peri list` shows"),
    ("/api/blobs/{digest}", "models come from files and hubs"),
];
const FETCH: &str = "clients do not decide what is downloaded: run `peri pull MODEL`, and name the model when the server is \
                     started, as in `peri serve MODEL`, or in the file of settings that SIGHUP reads again";

/// The routes.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    PATHS.into_iter().fold(Router::new(), |router, (path, instead)| {
        // The body is read so that the connection stays open.
        router.route(path, any(async move |uri: Uri, _body: Bytes| refusal(&uri, instead)))
    })
}

fn refusal(uri: &Uri, instead: &str) -> ApiError {
    let message = format!("{} is not supported: {instead}", uri.path());
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_supported", message)
}
