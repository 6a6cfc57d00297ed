//! How far the load of a model is.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use utoipa::ToSchema;

/// How far a load is, and how long its phases took; written by the thread that loads.
#[derive(Debug, Default)]
pub(super) struct LoadProgress(Mutex<Load>);

#[derive(Debug, Default)]
struct Load {
    now: Progress,
    began: Option<Instant>,
    /// The phases that ended.
    took: PhaseTimes,
}

/// How long the phases of a load took.
pub(crate) type PhaseTimes = Vec<(&'static str, Duration)>;

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
    /// A load begins.
    pub(super) fn restart(&self, phase: &'static str) {
        *self.lock() = Load::default();
        self.begin(phase);
    }

    /// A phase begins.
    pub(super) fn begin(&self, phase: &'static str) {
        self.lock().set(Progress { phase, percent: 0 });
    }

    /// The last phase ends.
    pub(super) fn end(&self) {
        self.lock().set(Progress::default());
    }

    /// A part of a download arrived.
    pub(super) fn fetched(&self, step: pipelines::FetchProgress<'_>) {
        if let pipelines::FetchProgress::Bytes { done, total, .. } = step {
            self.lock().set(Progress { phase: "fetching", percent: percent(done, total) });
        }
    }

    /// Weights were packed.
    pub(super) fn packed(&self, engine::Progress { done, total, .. }: engine::Progress) {
        self.lock().set(Progress { phase: "packing", percent: percent(done as u64, total as u64) });
    }

    /// How far it is now.
    pub(super) fn now(&self) -> Progress {
        self.lock().now
    }

    /// How long the phases took that ended.
    pub(super) fn phase_times(&self) -> PhaseTimes {
        self.lock().took.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Load> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    fn set(&mut self, now: Progress) {
        if now.phase != self.now.phase {
            let began = self.began.replace(Instant::now());
            let took = began.map(|began| (self.now.phase, began.elapsed()));
            self.took.extend(took.filter(|(phase, _)| !phase.is_empty()));
        }
        self.now = now;
    }
}

fn percent(done: u64, total: u64) -> u8 {
    let percent = u128::from(done) * 100 / u128::from(total.max(1));
    u8::try_from(percent).unwrap_or(100).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_timed_once_each() {
        let progress = LoadProgress::default();
        for _ in 0..2 {
            progress.restart("planning");
            progress.begin("compiling");
            progress.lock().set(Progress { phase: "packing", percent: 25 });
            progress.lock().set(Progress { phase: "packing", percent: 50 });
            assert_eq!(progress.now(), Progress { phase: "packing", percent: 50 });
            progress.end();
        }
        let phases: Vec<&str> = progress.phase_times().iter().map(|(phase, _)| *phase).collect();
        assert_eq!(phases, ["planning", "compiling", "packing"]);
    }
}
