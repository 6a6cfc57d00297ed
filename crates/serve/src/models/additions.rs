//! What requests add to the models of a server, and take from them: pulled models, copies and presets.

use std::sync::Arc;

use pipelines::config::PipelineConfig;
use pipelines::{FetchProgress, MemoryBytes};
use sources::{Hub, HuggingFaceRepo, ModelName, Pull, RepoName, RepoOptions, RepoType, Wanted};
use tokio::sync::watch;

use super::Models;
use super::manager::KEEP_ALIVE;
use super::preset::{Preset, PresetSpec};
use super::pull::{self, PullState};
use super::residency::{Command, ResidencyTerms};
use super::served_model::{ModelFacts, ServedModel};
use crate::api_error::ApiError;
use crate::config::{ModelConfig, ModelKind};
use crate::stamp;

impl Models {
    /// The repository that a name means.
    ///
    /// # Errors
    /// If it is no name of a repository: a path, for one.
    pub(crate) fn repo(name: &str) -> Result<RepoName, ApiError> {
        let wrong = |problem: &str| {
            let shown: String = name.chars().take(128).collect();
            ApiError::invalid("model", format!("`{}` {problem}", shown.escape_debug()))
        };
        let how = "is no repository of a hub: give owner/name, with :LABEL for one of its encodings";
        let parsed = ModelName::from_hub(name.strip_suffix(":latest").unwrap_or(name));
        match parsed.map_err(|_| wrong(how))? {
            ModelName::Repo(repo) if repo.file.is_some() => {
                Err(wrong("is a file: give the repository it is in"))
            }
            ModelName::Repo(repo) if repo.repo.id().contains('/') => Ok(repo),
            _ => Err(wrong(how)),
        }
    }

    /// Makes a preset, in place of one with its name. Of a preset, it has the settings that it does not set itself.
    ///
    /// # Errors
    /// If its model is not listed or makes no text, its name is one of a model, a setting is wrong, or the catalog cannot
    /// be written.
    pub(crate) fn create(&self, spec: PresetSpec) -> Result<(), ApiError> {
        let (model, base) = self.resolve(Some(&spec.from))?;
        let base = base.map(|base| base.spec().clone()).unwrap_or_default();
        let spec = PresetSpec { from: model.id().to_string(), created: stamp::now(), ..spec.or(base) };
        if self.served().iter().any(|model| model.is_named(&spec.name)) {
            let message = format!("`{}` is the name of a model: give another", spec.name);
            return Err(ApiError::invalid("model", message));
        }
        Preset::new(spec.clone())?;
        if model.facts.kind != ModelKind::Text && !spec.is_plain() {
            let message =
                format!("{} makes no text: it takes no system prompt, template or parameters", spec.from);
            return Err(ApiError::invalid("from", message));
        }
        self.catalog.change(|catalog| {
            catalog.add_preset(spec);
            Ok(())
        })
    }

    /// Takes a preset or a pulled model from the list, and deletes the files of a model that no other listed model needs
    /// from the cache of the hub. Requests that use it are finished.
    ///
    /// # Errors
    /// If there is none, the server was started with it, a preset needs it, or the files cannot be deleted.
    pub(crate) fn delete(self: &Arc<Self>, name: &str) -> Result<(), ApiError> {
        let refused = |message: String| Err(ApiError::invalid("model", message));
        let (model, preset) = self.resolve_exactly(name)?;
        if let Some(preset) = preset {
            return self.catalog.change(|catalog| {
                catalog.presets.retain(|other| other.name != preset.name());
                Ok(())
            });
        }
        let id = model.id();
        if !model.is_added {
            return refused(format!(
                "the server was started with {id}: only models that /api/pull fetched, copies and presets are deleted"
            ));
        }
        self.catalog.change(|catalog| {
            if let Some(preset) = catalog.presets.iter().find(|preset| preset.from == id) {
                return refused(format!("`{}` is made from {id}: delete it first", preset.name));
            }
            catalog.models.retain(|other| other != id);
            Ok(())
        })?;
        self.remove(&model);
        self.delete_files(id).map_err(|error| ApiError::from(pipelines::Error::from(error)))
    }

    /// Deletes a repository from the cache of the hub, unless another listed model is of it.
    fn delete_files(&self, name: &str) -> Result<(), sources::Error> {
        let id = |name: &str| match ModelName::from_hub(name) {
            Ok(ModelName::Repo(name)) => Some(name.repo.id().to_string()),
            _ => None,
        };
        let Some(repo) = id(name) else { return Ok(()) };
        if self
            .served()
            .iter()
            .any(|other| id(&other.config.config.huggingface_repo_id).as_ref() == Some(&repo))
        {
            return Ok(());
        }
        let hub = Hub::from_env()?;
        hub.cached_repo(&repo)?.map_or(Ok(()), |cached| hub.remove(&cached))
    }

    /// Lists a model that a pull has fetched, and keeps it in the catalog.
    pub(super) fn list_pulled(self: &Arc<Self>, name: &RepoName) -> Result<(), ApiError> {
        let id = name.to_string();
        if self.served().iter().any(|model| !model.is_added && model.is_named(&id)) {
            return Ok(());
        }
        self.add(name)?;
        self.catalog.change(|catalog| {
            catalog.add_model(id);
            Ok(())
        })
    }

    /// Lists the models of the catalog whose files are in the cache.
    pub(super) fn list_catalog(self: &Arc<Self>) {
        for name in self.catalog.models() {
            let result = Models::repo(&name).and_then(|repo| {
                let hub = Hub::from_env().map_err(pipelines::Error::from)?;
                match hub.cached_repo(repo.repo.id()).map_err(pipelines::Error::from)? {
                    Some(_) => self.add(&repo),
                    None => Err(ApiError::bad_request("its files are not in the cache: pull it again")),
                }
            });
            if let Err(error) = result {
                tracing::warn!("{name} is left out: {}", error.message);
            }
        }
    }

    /// Lists a model of the hub's cache, with its facts as they are now.
    fn add(self: &Arc<Self>, name: &RepoName) -> Result<(), ApiError> {
        let (id, config) = (name.to_string(), self.config_of(name));
        let served = self.served();
        if served.iter().any(|model| !model.is_added && model.is_named(&id)) {
            return Ok(());
        }
        let known = served.iter().find(|model| model.is_named(&id)).map(|model| model.key);
        let facts = self.facts_of(name)?;
        let keep_alive = self.settings.keep_alive.unwrap_or(KEEP_ALIVE);
        let terms = ResidencyTerms { device: facts.device, need: facts.need, keep_alive, pinned: false };
        let config = ModelConfig { id, ..ModelConfig::new(config) };
        let model = self.lock().list(known, facts, config, true);
        self.step(Command::List { model, terms });
        Ok(())
    }

    /// Takes a model from the list. It leaves memory once its requests have ended.
    pub(super) fn remove(self: &Arc<Self>, model: &ServedModel) {
        if let Some(listed) = self.lock().listed.get_mut(&model.key) {
            listed.removed = true;
        }
        self.step(Command::Remove(model.key));
    }

    /// The configuration of a model of the hub.
    pub(super) fn config_of(&self, name: &RepoName) -> PipelineConfig {
        let mut config = self.settings.defaults.clone();
        config.revision = name.has_revision.then(|| name.repo.revision().to_string());
        // With the scheme, no path on this machine is meant.
        let label = name.label.as_ref().map_or_else(String::new, |label| format!(":{label}"));
        config.huggingface_repo_id = format!("hf://{}{label}", name.repo.id());
        config
    }

    /// Fetches the newest commit of a model, and lists it for requests. It goes on if the client leaves.
    pub(crate) fn pull(self: &Arc<Self>, name: RepoName) -> watch::Receiver<PullState> {
        let key = name.to_string();
        let (receiver, first) = self.pulls.follow(&key);
        let Some(state) = first else { return receiver };
        let models = Arc::clone(self);
        self.runtime.spawn_blocking(move || {
            let end = models.pull_now(&name, &state);
            if let Err(error) = &end {
                tracing::error!("cannot pull {name}: {}", error.message);
            }
            models.pulls.end(&key, &state, end);
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
        let pull = HuggingFaceRepo::from_name(ModelName::Repo(name.clone()), options)
            .and_then(|repo| Pull::plan(repo, &Wanted { encoding, ..Wanted::default() }))
            .map_err(pipelines::Error::from)?;
        // A model that cannot run here is not fetched: headers say enough.
        self.facts_of(name)?;
        pull.check_space(&hub).map_err(pipelines::Error::from)?;
        let files = pull::files_of(&pull).map_err(pipelines::Error::from)?;
        state.send_modify(|state| state.files = files);
        let note = |event: FetchProgress<'_>| pull::note(state, event);
        pull.fetch(&note).map_err(pipelines::Error::from)?;
        self.list_pulled(name)
    }

    /// The facts of a model of the hub, of which this machine may have no more than the name.
    ///
    /// # Errors
    /// If the hub does not have it, or it cannot run on this machine.
    pub(super) fn facts_of(&self, name: &RepoName) -> Result<ModelFacts, ApiError> {
        let wrong =
            |problem: String| ApiError::invalid("model", format!("the model cannot run here: {problem}"));
        let facts =
            self.plan(&self.config_of(name), None).and_then(|plan| ModelFacts::from_plan(&plan, None));
        let facts = facts.map_err(|error| match error {
            error @ pipelines::Error::Source(_) => ApiError::from(error),
            error => wrong(error.to_string()),
        })?;
        let budget = self.lock().residency.budget(facts.device);
        if facts.need > budget {
            let (need, budget) = (MemoryBytes(facts.need), MemoryBytes(budget));
            return Err(wrong(format!("it needs {need}, but all models may have {budget}")));
        }
        Ok(facts)
    }
}
