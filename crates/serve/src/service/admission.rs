//! Requests that are refused before a route reads them: while the server drains, and those whose bodies are too large
//! or come too slowly.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use crate::access;
use crate::api_error::ApiError;
use crate::state::ServerState;

/// Lets requests pass that the server can take now.
pub(super) async fn check(State(server): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    if server.is_draining() && access::is_work(request.uri().path()) {
        return ApiError::draining(server.config.drain_timeout).into_response();
    }
    if let Some(error) = too_large(&request, server.config.max_body_bytes) {
        return error.into_response();
    }
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (time, is_late) = (server.config.body_timeout, Arc::new(AtomicBool::new(false)));
    let response = next.run(request.map(|body| timed(body, time, Arc::clone(&is_late)))).await;
    if is_late.load(Ordering::Relaxed) { ApiError::too_slow("body", time).into_response() } else { response }
}

/// The error of a body whose head says that it is too large: nothing of it is read.
fn too_large(request: &Request, limit: usize) -> Option<ApiError> {
    let bytes: u64 = request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()?;
    (bytes > limit as u64).then(|| {
        let message = format!("the body has {bytes} bytes, at most {limit} are read: send less at once");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    })
}

/// A body that fails, and says so, if it has not come within a time.
fn timed(body: Body, time: Duration, is_late: Arc<AtomicBool>) -> Body {
    let deadline = Instant::now() + time;
    let pieces = stream::unfold(Some(body.into_data_stream()), move |pieces| {
        let is_late = Arc::clone(&is_late);
        async move {
            let mut pieces = pieces?;
            match timeout_at(deadline, pieces.next()).await {
                Ok(piece) => Some((piece?.map_err(io::Error::other), Some(pieces))),
                Err(_) => {
                    is_late.store(true, Ordering::Relaxed);
                    Some((Err(io::ErrorKind::TimedOut.into()), None))
                }
            }
        }
    });
    Body::from_stream(pieces)
}
