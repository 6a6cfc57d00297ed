//! How far the loading of a model is, told to a callable of Python.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use perihelion::engine::Progress as LoadProgress;
use perihelion::pipelines::FetchProgress;
use pyo3::prelude::*;

use super::wakeups::attached;

/// A callable is called at most this often, and at the end of each phase.
const INTERVAL: Duration = Duration::from_millis(50);

/// Calls `callable(phase, done, total)` from the threads that load.
#[derive(Clone, Default)]
pub(super) struct Progress(Option<Arc<Callback>>);

struct Callback {
    callable: Py<PyAny>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    called: Option<Instant>,
    /// Bytes here, and bytes in all, of each file.
    files: HashMap<String, (u64, u64)>,
    /// Bytes of all files, as far as they were known at the start.
    expected: u64,
    raised: Option<PyErr>,
}

impl Progress {
    pub(super) fn new(callable: Option<Py<PyAny>>) -> Progress {
        Progress(callable.map(|callable| Arc::new(Callback { callable, state: Mutex::default() })))
    }

    /// Takes note of a download.
    pub(super) fn fetch(&self, progress: FetchProgress<'_>) {
        let Some(callback) = &self.0 else { return };
        let (done, total) = {
            let mut state = callback.state.lock().unwrap_or_else(PoisonError::into_inner);
            match progress {
                FetchProgress::Started { bytes, .. } => state.expected = bytes,
                FetchProgress::Bytes { file, done, total } => {
                    state.files.insert(file.to_string(), (done, total));
                }
                FetchProgress::Done { file, total } => {
                    state.files.insert(file.to_string(), (total, total));
                }
                _ => return,
            }
            let sum = |part: fn(&(u64, u64)) -> u64| state.files.values().map(part).sum::<u64>();
            (sum(|file| file.0), sum(|file| file.1).max(state.expected))
        };
        callback.call("fetch", done, total);
    }

    /// Takes note of weights that are loaded.
    pub(super) fn load(&self, progress: LoadProgress) {
        self.call("load", progress.done as u64, progress.total as u64);
    }

    /// Tells how much of a phase is done.
    pub(super) fn call(&self, phase: &str, done: u64, total: u64) {
        if let Some(callback) = &self.0 {
            callback.call(phase, done, total);
        }
    }

    /// Raises the exception of a call, if one raised.
    pub(super) fn check(&self) -> PyResult<()> {
        let take = |callback: &Arc<Callback>| {
            callback.state.lock().unwrap_or_else(PoisonError::into_inner).raised.take()
        };
        self.0.as_ref().and_then(take).map_or(Ok(()), Err)
    }
}

impl Callback {
    fn call(&self, phase: &str, done: u64, total: u64) {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let is_early = state.called.is_some_and(|called| called.elapsed() < INTERVAL);
            if state.raised.is_some() || is_early && done < total {
                return;
            }
            state.called = Some(Instant::now());
        }
        // No lock is held: the callable may take as long as it likes, and may load a model itself.
        let called = attached(|py| self.callable.call1(py, (phase, done, total)).map(drop));
        if let Some(Err(error)) = called {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).raised = Some(error);
        }
    }
}
