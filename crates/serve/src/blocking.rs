//! Work that blocks, on threads where it holds up no other request.

use pipelines::Error;

use crate::error::ApiError;

/// Does work that may block.
///
/// # Errors
/// If the work fails.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(defect) => Err(Error::Defect(defect.to_string()).into()),
    }
}
