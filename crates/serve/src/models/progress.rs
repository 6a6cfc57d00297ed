//! How far the load of a model is.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use utoipa::ToSchema;

/// How far a load is; written by the thread that loads.
#[derive(Debug, Default)]
pub(super) struct LoadProgress(Mutex<Progress>);

/// A phase of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Progress {
    /// `waiting` for memory, `planning`, `fetching` files, `compiling` the graph, or `packing` weights.
    pub(crate) phase: &'static str,
    /// How much of the phase is done.
    #[schema(maximum = 100)]
    pub(crate) percent: u8,
}

impl LoadProgress {
    /// A phase begins.
    pub(super) fn begin(&self, phase: &'static str) {
        *self.lock() = Progress { phase, percent: 0 };
    }

    /// A part of a download arrived.
    pub(super) fn fetched(&self, step: pipelines::FetchProgress<'_>) {
        if let pipelines::FetchProgress::Bytes { done, total, .. } = step {
            *self.lock() = Progress { phase: "fetching", percent: percent(done, total) };
        }
    }

    /// Weights were packed.
    pub(super) fn packed(&self, engine::Progress { done, total, .. }: engine::Progress) {
        *self.lock() = Progress { phase: "packing", percent: percent(done as u64, total as u64) };
    }

    /// How far it is now.
    pub(super) fn now(&self) -> Progress {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn percent(done: u64, total: u64) -> u8 {
    let percent = u128::from(done) * 100 / u128::from(total.max(1));
    u8::try_from(percent).unwrap_or(100).min(100)
}
