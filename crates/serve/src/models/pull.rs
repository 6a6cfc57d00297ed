//! Pulls: models on their way from a hub into its cache, because requests asked for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pipelines::FetchProgress;
use sources::Pull;
use tokio::sync::watch;

use crate::api_error::ApiError;

/// The pulls that go on, by the name of the model. All who ask for one share it.
#[derive(Default)]
pub(super) struct Pulls(Mutex<HashMap<String, Weak<watch::Sender<PullState>>>>);

/// How far a pull is.
#[derive(Debug, Default)]
pub(crate) struct PullState {
    /// The files of the model, once they are known.
    pub(crate) files: Vec<PulledFile>,
    /// How it ended, once it has.
    pub(crate) end: Option<Result<(), ApiError>>,
}

/// A file of a model on its way.
#[derive(Debug)]
pub(crate) struct PulledFile {
    name: String,
    /// Of the content, with the name of the digest before it.
    pub(crate) digest: String,
    /// Bytes it has.
    pub(crate) total: u64,
    /// Bytes on this machine.
    pub(crate) done: u64,
}

impl Pulls {
    /// Follows the pull of a model. The first who does also gets the sender, and does the work.
    pub(super) fn follow(
        &self,
        model: &str,
    ) -> (watch::Receiver<PullState>, Option<Arc<watch::Sender<PullState>>>) {
        let mut pulls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pulls.get(model).and_then(Weak::upgrade) {
            return (known.subscribe(), None);
        }
        let (state, receiver) = watch::channel(PullState::default());
        let state = Arc::new(state);
        pulls.insert(model.to_string(), Arc::downgrade(&state));
        (receiver, Some(state))
    }

    /// Ends the pull of a model.
    pub(super) fn end(&self, model: &str, state: &watch::Sender<PullState>, end: Result<(), ApiError>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(model);
        state.send_modify(|state| state.end = Some(end));
    }
}

/// The files to fetch, and those that are here.
pub(super) fn files_of(pull: &Pull) -> Result<Vec<PulledFile>, sources::Error> {
    let known = &pull.repo().info()?.siblings;
    let file = |file: &sources::PlannedFile| {
        let known = known.iter().find(|known| known.name == file.name);
        let digest = known.and_then(|known| known.content.clone()).unwrap_or_default();
        // Git's digest of small files.
        let kind = if digest.len() == 64 { "sha256" } else { "sha1" };
        let total = file.size.unwrap_or(0);
        PulledFile {
            name: file.name.clone(),
            digest: format!("{kind}:{digest}"),
            total,
            done: if file.cached { total } else { file.arrived },
        }
    };
    Ok(pull.files().iter().map(file).collect())
}

/// Takes note of what arrived.
pub(super) fn note(state: &watch::Sender<PullState>, event: FetchProgress<'_>) {
    let (name, done, total) = match event {
        FetchProgress::Bytes { file, done, total } => (file, done, total),
        FetchProgress::Done { file, total } => (file, total, total),
        _ => return,
    };
    state.send_if_modified(|state| {
        let Some(file) = state.files.iter_mut().find(|file| file.name == name) else { return false };
        let changes = (file.done, file.total) != (done, total);
        (file.done, file.total) = (done, total);
        changes
    });
}
