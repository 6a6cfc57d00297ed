//! Pulls: models on their way from a hub into its cache, because requests asked for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pipelines::{FetchProgress, MemoryBytes};
use sources::{Hub, HuggingFaceRepo, ModelName, Pull, RepoName, RepoOptions, RepoType, Wanted};
use tokio::sync::watch;

use super::Models;
use super::served_model::Facts;
use crate::error::ApiError;

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

impl Models {
    /// Fetches the newest commit of a model, and lists it for requests. It goes on if the client leaves.
    pub(crate) fn pull(self: &Arc<Self>, name: RepoName) -> watch::Receiver<PullState> {
        let key = name.to_string();
        let mut pulls = self.pulls.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pulls.get(&key).and_then(Weak::upgrade) {
            return known.subscribe();
        }
        let (state, receiver) = watch::channel(PullState::default());
        let state = Arc::new(state);
        pulls.insert(key.clone(), Arc::downgrade(&state));
        let models = Arc::clone(self);
        self.runtime.spawn_blocking(move || {
            let end = models.pull_now(&name, &state);
            if let Err(error) = &end {
                tracing::error!("cannot pull {name}: {}", error.message);
            }
            models.pulls.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            state.send_modify(|state| state.end = Some(end));
        });
        receiver
    }

    fn pull_now(self: &Arc<Self>, name: &RepoName, state: &watch::Sender<PullState>) -> Result<(), ApiError> {
        let hub = Hub::from_env().map_err(pipelines::Error::from)?;
        let options = RepoOptions {
            repo_type: Some(RepoType::Online),
            hub: Some(hub.clone()),
            refresh: true,
            ..RepoOptions::default()
        };
        let encoding = self.settings.defaults.quantization_encoding;
        let pull = HuggingFaceRepo::of_name(ModelName::Repo(name.clone()), options)
            .and_then(|repo| Pull::plan(repo, &Wanted { encoding, ..Wanted::default() }))
            .map_err(pipelines::Error::from)?;
        // A model that cannot run here is not fetched: headers say enough.
        self.facts_of(name)?;
        pull.check_space(&hub).map_err(pipelines::Error::from)?;
        let files = files_of(&pull).map_err(pipelines::Error::from)?;
        state.send_modify(|state| state.files = files);
        let note = |event: FetchProgress<'_>| note(state, event);
        pull.fetch(&note).map_err(pipelines::Error::from)?;
        self.list_pulled(name)
    }

    /// The facts of a model of the hub, of which this machine may have no more than the name.
    ///
    /// # Errors
    /// If the hub does not have it, or it cannot run on this machine.
    pub(super) fn facts_of(&self, name: &RepoName) -> Result<Facts, ApiError> {
        let wrong =
            |problem: String| ApiError::invalid("model", format!("the model cannot run here: {problem}"));
        let facts = self.plan(&self.config_of(name), None).and_then(|plan| Facts::of(&plan, None));
        let facts = facts.map_err(|error| match error {
            error @ pipelines::Error::Source(_) => ApiError::from(error),
            error => wrong(error.to_string()),
        })?;
        match self.memory() {
            (_, Some(budget)) if facts.need > budget => {
                let (need, budget) = (MemoryBytes(facts.need), MemoryBytes(budget));
                Err(wrong(format!("it needs {need}, but all models may have {budget}")))
            }
            _ => Ok(facts),
        }
    }
}

/// The files to fetch, and those that are here.
fn files_of(pull: &Pull) -> Result<Vec<PulledFile>, sources::Error> {
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
fn note(state: &watch::Sender<PullState>, event: FetchProgress<'_>) {
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
