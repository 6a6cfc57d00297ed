//! The handle through which callers use a model and its thread, and the streams that give them results.

use std::sync::Arc;

use futures_lite::future::block_on;
use futures_lite::{Stream, StreamExt};

use super::worker::{Work, Worker};
use crate::Error;

/// A handle to a model and to the thread that runs it. Clones share both. The thread ends when the last handle and the
/// last stream are dropped; streams may outlive the handles.
pub struct Handle<W: Work> {
    pub(super) context: Arc<W::Context>,
    pub(super) worker: Worker<W>,
}

/// A stream for a thread that may wait: an iterator. Dropping it cancels what was not made yet.
#[derive(Debug)]
pub struct Waiting<S>(pub(super) S);

impl<W: Work> Handle<W> {
    /// Starts a thread that is to queue so many jobs.
    ///
    /// # Errors
    /// If the system refuses one.
    pub(super) fn spawn(work: W, jobs: usize, context: W::Context) -> Result<Handle<W>, Error> {
        Ok(Handle { context: Arc::new(context), worker: Worker::spawn(work, jobs)? })
    }

    /// How much there is to do, and how much was done: as it was between two steps, with the jobs in the queue, each of
    /// which counts once. Never waits for a step.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn status(&self) -> Result<W::Status, Error> {
        let (status, queued) = self.worker.status()?;
        Ok(W::with_queued(status, queued))
    }

    /// Cancels all requests, of all handles, and waits until the thread has ended.
    ///
    /// Dropping the last handle does not wait. A program that profiles its session calls this before it ends: the trace is
    /// written when the last user of the session is gone, and the thread is one.
    pub fn shutdown(self) {
        self.worker.shutdown();
    }
}

impl<W: Work> Clone for Handle<W> {
    fn clone(&self) -> Handle<W> {
        Handle { context: Arc::clone(&self.context), worker: self.worker.clone() }
    }
}

impl<W: Work> std::fmt::Debug for Handle<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.worker.fmt(f)
    }
}

impl<S: Stream + Unpin> Iterator for Waiting<S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        block_on(self.0.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}
