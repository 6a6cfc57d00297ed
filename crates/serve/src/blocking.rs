//! Work that blocks or takes long, on threads where it holds up no other request.

use std::any::Any;

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use pipelines::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::api_error::ApiError;

/// The most bytes that threads of the runtime work on at once.
pub(crate) const INLINE_BYTES: usize = 4096;
/// The largest body of a request that threads of the runtime answer.
const LARGE_BODY: u64 = 64 << 10;

/// Does work that may block.
///
/// # Errors
/// If the work fails.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let result = run_boxed(Box::new(move || -> Box<dyn Any + Send> { Box::new(work()) })).await?;
    *result.downcast().expect("the work returns a result of this type")
}

/// Does work of any type. Tokio's task is compiled for this type only, since it is much code.
async fn run_boxed(
    work: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>,
) -> Result<Box<dyn Any + Send>, ApiError> {
    let result = tokio::task::spawn_blocking(work).await;
    result.map_err(|defect| Error::Defect(defect.to_string()).into())
}

/// Does work on so many bytes: at once if they are few.
///
/// # Errors
/// If the work fails.
pub(crate) async fn run_on<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if bytes <= INLINE_BYTES { work() } else { run(work).await }
}

/// Answers requests with large bodies on threads of their own, up to the head of the answer: each step of reading,
/// checking, converting and tokenizing such a body takes long.
pub(crate) async fn answer_large(request: Request, next: Next) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if request.body().is_end_stream() || length.is_some_and(|bytes| bytes <= LARGE_BODY) {
        return next.run(request).await;
    }
    // The sender is dropped when nobody waits for the answer any more.
    let (waiting, gone) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let steps = async move {
        tokio::select! {
            biased;
            _ = gone => None,
            response = next.run(request) => Some(response),
        }
    };
    let answered = tokio::task::spawn_blocking(move || runtime.block_on(steps)).await;
    drop(waiting);
    match answered {
        Ok(Some(response)) => response,
        Ok(None) => ApiError::cancelled().into_response(),
        Err(defect) => ApiError::from(Error::Defect(defect.to_string())).into_response(),
    }
}
