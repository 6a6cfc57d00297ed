//! The models that the server lists: what is in memory, who waits, and what has to be done after each command.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use pipelines::MemoryBytes;
use tokio::sync::{OnceCell, oneshot};

use super::LoadedModel;
use super::active_model::{ActiveModel, SleepingText};
use super::preset::Preset;
use super::progress::{LoadProgress, PhaseTimes, Progress};
use super::residency::{Command, Decision, ModelKey, Refusal, Residency, State, Ticket};
use super::served_model::{ModelFacts, ServedModel};
use crate::api_error::ApiError;
use crate::config::ModelConfig;
use crate::stamp;

/// When to try again if a model cannot be loaded.
const RETRY: Duration = Duration::from_secs(5);

/// Hosts before the names of repositories.
const HOSTS: [&str; 2] = ["hf.co/", "huggingface.co/"];

/// The models, and what decides where they are.
#[derive(Default)]
pub(super) struct Table {
    pub(super) residency: Residency,
    pub(super) listed: BTreeMap<ModelKey, Listed>,
    pub(super) next_key: u64,
    pub(super) next_ticket: u64,
    /// When the task that lets unused models go wakes up.
    pub(super) expiry_at: Option<Duration>,
}

/// A model that the server lists.
pub(super) struct Listed {
    pub(super) model: Arc<ServedModel>,
    /// Whether requests cannot name it any more.
    pub(super) removed: bool,
    pub(super) loaded: Option<Arc<LoadedModel>>,
    pub(super) progress: Arc<LoadProgress>,
    /// Why it could not be loaded the last time.
    pub(super) failure: Option<pipelines::Error>,
    pub(super) waiting: BTreeMap<Ticket, oneshot::Sender<Reply>>,
    /// Read while it is not in memory.
    pub(super) text: Arc<OnceCell<Arc<SleepingText>>>,
}

/// The answer to a request that waits for a model.
pub(super) type Reply = Result<ActiveModel, ApiError>;

/// A model, and the preset whose name a request gave.
pub(crate) type Named = (Arc<ServedModel>, Option<Arc<Preset>>);

/// Actions that follow from decisions, to be taken without the lock.
pub(super) enum Action {
    Grant(Option<oneshot::Sender<Reply>>, Arc<ServedModel>, Arc<LoadedModel>),
    Refuse(oneshot::Sender<Reply>, ApiError),
    Load(Arc<ServedModel>, Arc<LoadProgress>),
    Unload(ModelKey, Arc<LoadedModel>),
    Wake,
}

/// Where a model can be.
pub(crate) const STATES: [&str; 5] = ["absent", "loading", "ready", "draining", "failed"];

/// A model, and where it is.
pub(crate) struct ModelStatus {
    pub(crate) model: Arc<ServedModel>,
    /// One of [`STATES`].
    pub(crate) state: &'static str,
    /// Of a model that is being loaded.
    pub(crate) progress: Option<Progress>,
    /// Of its last load.
    pub(crate) phase_times: PhaseTimes,
    /// Why it could not be loaded.
    pub(crate) failure: Option<String>,
    /// Of a model in memory.
    pub(crate) loaded: Option<Arc<LoadedModel>>,
    /// How long it stays if no request uses it; `None` if it does not leave by itself.
    pub(crate) expires_in: Option<Duration>,
    pub(crate) pinned: bool,
    /// Requests that use it.
    pub(crate) running: usize,
    /// Requests that wait until it is loaded.
    pub(crate) waiting: usize,
}

impl Table {
    pub(super) fn served(&self) -> impl Iterator<Item = &Arc<ServedModel>> {
        self.listed.values().filter(|listed| !listed.removed).map(|listed| &listed.model)
    }

    /// Lists a model, or takes other settings for one that is listed.
    pub(super) fn list(
        &mut self,
        known: Option<ModelKey>,
        facts: ModelFacts,
        config: ModelConfig,
        is_added: bool,
    ) -> ModelKey {
        let key = known.unwrap_or_else(|| {
            self.next_key += 1;
            ModelKey(self.next_key)
        });
        let model = Arc::new(ServedModel { key, config, is_added, created: stamp::now(), facts });
        match self.listed.get_mut(&key) {
            Some(listed) => listed.model = model,
            None => drop(self.listed.insert(key, Listed::new(model))),
        }
        key
    }

    /// Takes a command; the result is to be done without the lock.
    pub(super) fn apply(&mut self, now: Duration, command: Command) -> Vec<Action> {
        let decisions = self.residency.apply(now, command);
        let mut actions: Vec<Action> =
            decisions.into_iter().filter_map(|decision| self.action(decision)).collect();
        let residency = &self.residency;
        self.listed.retain(|&key, listed| !listed.removed || residency.state(key) != State::Absent);
        if residency.next_expiry().is_some_and(|time| self.expiry_at.is_none_or(|planned| time < planned)) {
            actions.push(Action::Wake);
        }
        actions
    }

    fn action(&mut self, decision: Decision) -> Option<Action> {
        let (Decision::Grant { model: key, .. }
        | Decision::Refuse { model: key, .. }
        | Decision::Load(key)
        | Decision::Unload(key)) = decision;
        let listed = self.listed.get_mut(&key)?;
        match decision {
            Decision::Grant { ticket, .. } => {
                let loaded = listed.loaded.clone().expect("a model in use is in memory");
                Some(Action::Grant(listed.waiting.remove(&ticket), Arc::clone(&listed.model), loaded))
            }
            Decision::Refuse { ticket, refusal, .. } => {
                let error = self::refusal(&listed.model, refusal);
                Some(Action::Refuse(listed.waiting.remove(&ticket)?, error))
            }
            Decision::Load(_) => {
                listed.failure = None;
                Some(Action::Load(Arc::clone(&listed.model), Arc::clone(&listed.progress)))
            }
            Decision::Unload(_) => {
                let loaded = listed.loaded.take().expect("a model that leaves is in memory");
                Some(Action::Unload(key, loaded))
            }
        }
    }

    pub(super) fn loaded(&mut self, model: ModelKey, loaded: LoadedModel, now: Duration) -> Vec<Action> {
        if let Some(listed) = self.listed.get_mut(&model) {
            listed.loaded = Some(Arc::new(loaded));
            listed.text = Arc::default();
        }
        self.apply(now, Command::Loaded(model))
    }

    pub(super) fn load_failed(
        &mut self,
        model: &ServedModel,
        failure: pipelines::Error,
        now: Duration,
    ) -> Vec<Action> {
        let mut refused = Vec::new();
        if let Some(listed) = self.listed.get_mut(&model.key) {
            let error = unavailable(format!("cannot load {}: {failure}", model.id()));
            let waiting = std::mem::take(&mut listed.waiting).into_values();
            refused.extend(waiting.map(|reply| Action::Refuse(reply, error.clone())));
            listed.failure = Some(failure);
        }
        refused.extend(self.apply(now, Command::LoadFailed(model.key)));
        refused
    }

    pub(super) fn status(&self, model: &Arc<ServedModel>, now: Duration) -> ModelStatus {
        let (key, residency, listed) = (model.key, &self.residency, self.listed.get(&model.key));
        let failure = listed.and_then(|listed| listed.failure.as_ref()).map(ToString::to_string);
        let state = match residency.state(key) {
            State::Absent if failure.is_some() => "failed",
            State::Absent => "absent",
            State::Loading => "loading",
            State::Ready => "ready",
            State::Draining | State::Unloading => "draining",
        };
        let progress = listed.filter(|_| state == "loading").map(|listed| listed.progress.now());
        let (running, waiting) = residency.requests(key);
        ModelStatus {
            model: Arc::clone(model),
            state,
            progress,
            phase_times: listed.map(|listed| listed.progress.phase_times()).unwrap_or_default(),
            failure,
            loaded: listed.and_then(|listed| listed.loaded.clone()),
            expires_in: residency.expires_at(key).map(|time| time.saturating_sub(now)),
            pinned: residency.is_pinned(key),
            running,
            waiting,
        }
    }
}

impl Listed {
    pub(super) fn new(model: Arc<ServedModel>) -> Listed {
        Listed {
            model,
            removed: false,
            loaded: None,
            progress: Arc::default(),
            failure: None,
            waiting: BTreeMap::new(),
            text: Arc::default(),
        }
    }
}

/// The model or the preset that a name means, with the model's own names first.
pub(super) fn find(
    models: &[Arc<ServedModel>],
    presets: &[Arc<Preset>],
    name: Option<&str>,
) -> Result<Named, ApiError> {
    let Some(name) = name else {
        let mut started = models.iter().filter(|model| !model.is_added);
        return match (started.next(), started.next()) {
            (Some(only), None) => Ok((Arc::clone(only), None)),
            _ => {
                Err(ApiError::invalid("model", format!("name one of the models: {}", names(models, presets))))
            }
        };
    };
    if let Some(found) = find_exactly(models, presets, name) {
        return Ok(found);
    }
    let ends =
        |model: &&Arc<ServedModel>| model.id().strip_suffix(name).is_some_and(|start| start.ends_with('/'));
    let mut matches = models.iter().filter(ends);
    match (matches.next(), matches.next()) {
        (Some(model), None) => Ok((Arc::clone(model), None)),
        _ => Err(unknown(models, presets, name)),
    }
}

/// The model or the preset with a name, to which clients of Ollama may have added a host and the tag `latest`.
pub(super) fn find_exactly(
    models: &[Arc<ServedModel>],
    presets: &[Arc<Preset>],
    name: &str,
) -> Option<Named> {
    let untagged = name.strip_suffix(":latest").unwrap_or(name);
    let plain = HOSTS.iter().find_map(|host| untagged.strip_prefix(host)).unwrap_or(untagged);
    [name, untagged, plain].into_iter().find_map(|name| {
        if let Some(model) = models.iter().find(|model| model.is_named(name)) {
            return Some((Arc::clone(model), None));
        }
        let preset = presets.iter().find(|preset| preset.name() == name)?;
        let model = models.iter().find(|model| model.id() == preset.spec().from)?;
        Some((Arc::clone(model), Some(Arc::clone(preset))))
    })
}

/// The error for a name that nothing has.
pub(super) fn unknown(models: &[Arc<ServedModel>], presets: &[Arc<Preset>], name: &str) -> ApiError {
    let message = format!("there is no model `{name}`; the models are {}", names(models, presets));
    let error = ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message);
    ApiError { param: Some("model".to_string()), ..error }
}

fn names(models: &[Arc<ServedModel>], presets: &[Arc<Preset>]) -> String {
    let ids = models.iter().map(|model| model.id());
    let listed = |preset: &&Arc<Preset>| models.iter().any(|model| model.id() == preset.spec().from);
    let presets = presets.iter().filter(listed).map(|preset| preset.name());
    ids.chain(presets).collect::<Vec<_>>().join(", ")
}

pub(super) fn refusal(model: &ServedModel, refusal: Refusal) -> ApiError {
    let id = model.id();
    unavailable(match refusal {
        Refusal::TooLarge { need, budget } => {
            format!("{id} needs {}, but all models may have {}", MemoryBytes(need), MemoryBytes(budget))
        }
        Refusal::Pinned { need, free } => {
            let (need, free) = (MemoryBytes(need), MemoryBytes(free));
            format!("{id} needs {need}, but pinned models leave {free}: unpin one")
        }
        Refusal::Removed => format!("{id} was removed from the list of models"),
    })
}

pub(super) fn unavailable(message: String) -> ApiError {
    let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
    ApiError { retry_after: Some(RETRY), ..error }
}
