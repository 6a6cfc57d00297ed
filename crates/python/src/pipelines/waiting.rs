//! Waiting without the GIL, until there is a result or a signal.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use pyo3::prelude::*;

use crate::running::{SLICE, detached, guarded, is_interrupted, is_main_thread};

/// Waits for a future and returns its output. If a signal raises an exception meanwhile, the future is dropped.
pub(crate) fn wait<T: Send>(py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let is_main = is_main_thread(py)?;
    let outcome = detached(py, move || {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(value);
            }
            thread::park_timeout(SLICE);
            if is_main && is_interrupted() {
                return None;
            }
        }
    })?;
    Ok(outcome.expect("an interrupted call raises"))
}

/// Waits for `work`, which is long and cannot be cancelled, and returns its result. If a signal raises an exception
/// meanwhile, the work goes on to its end on a thread of its own.
pub(crate) fn wait_for_thread<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if !is_main_thread(py)? {
        return detached(py, work);
    }
    let (sender, receiver) = sync_channel(1);
    let run = move || {
        let _ = sender.send(guarded(work));
    };
    thread::Builder::new().name("perihelion".to_string()).spawn(run).map_err(PyErr::from)?;
    let outcome = detached(py, move || {
        loop {
            match receiver.recv_timeout(SLICE) {
                Ok(value) => return Some(value),
                Err(RecvTimeoutError::Timeout) if !is_interrupted() => (),
                Err(_) => return None,
            }
        }
    })?;
    outcome.expect("an interrupted call raises")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
