//! The state that the requests of a connection share with the reader of its bytes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use crate::api_error::ApiError;

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// Requests that were read and are not over.
    open: AtomicUsize,
    /// The task that reads the connection.
    reader: AtomicWaker,
    /// Whether it ends with the response to the request that was read last.
    is_last: AtomicBool,
    /// Why the head that was read last is refused.
    refusal: Mutex<Option<ApiError>>,
}

/// A request of a connection; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<Connection>);

impl Connection {
    /// Takes note of a request whose head was read.
    pub(crate) fn begin(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
    }

    /// The request that was begun last, or one that HTTP/2 begins now.
    pub(crate) fn request(self: &Arc<Connection>, is_http2: bool) -> OpenRequest {
        if is_http2 {
            self.begin();
        }
        OpenRequest(Arc::clone(self))
    }

    /// Whether a request is not over.
    pub(crate) fn is_busy(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// The same, for a task that is woken when all are over.
    pub(crate) fn poll_idle(&self, task: &mut Context<'_>) -> Poll<()> {
        self.reader.register(task.waker());
        if self.is_busy() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Has the connection end with the next response.
    pub(crate) fn end(&self) {
        self.is_last.store(true, Ordering::Release);
    }

    /// Whether the connection ends with the next response.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Acquire)
    }

    /// Has the next request be refused.
    pub(crate) fn refuse(&self, error: ApiError) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.end();
    }

    /// Why the request is refused.
    pub(crate) fn refusal(&self) -> Option<ApiError> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.reader.wake();
        }
    }
}
