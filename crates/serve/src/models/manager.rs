//! Loads models and lets them go as [`Residency`](super::residency::Residency) decides, and wakes the requests that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use engine::InferenceSession;
use engine::devices::Platform;
use pipelines::config::PipelineConfig;
use pipelines::{Machine, MemoryBytes, Plan, TextGeneratorOptions, available_memory};
use tensor::DeviceSpec;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::active_model::{ActiveModel, Lease, ModelText, SleepingText};
use super::catalog::Catalog;
use super::preset::Preset;
use super::progress::{LoadProgress, Progress};
use super::pull::Pulls;
use super::residency::{Command, ModelKey, Refusal, ResidencyTerms, State, Ticket};
use super::served_model::{ModelFacts, ServedModel};
use super::shares::{CacheDemand, fair_shares};
use super::table::{
    Action, ModelStatus, Named, Reply, Table, find, find_exactly, refusal, unavailable, unknown,
};
use super::{LoadedModel, ModelWorker};
use crate::Error;
use crate::api_error::ApiError;
use crate::blocking;
use crate::config::Address;
use crate::config::{KeepAlive, ModelConfig, ModelKind, ModelSettings};
use crate::kv_events::{KvEvents, KvEventsConfig};

/// How long one of several models stays in memory unused.
pub(super) const KEEP_ALIVE: KeepAlive = KeepAlive::For(Duration::from_secs(300));
/// How long the files of a model in memory count as unchanged after a check, so that not each request takes part in one.
/// Until then, the requests of a model whose files change fail.
const FILE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The models of a server.
pub(crate) struct Models {
    session: Arc<InferenceSession>,
    platform: &'static Platform,
    pub(super) settings: ModelSettings,
    pub(super) catalog: Catalog,
    pub(super) pulls: Pulls,
    began: Instant,
    pub(super) runtime: Handle,
    table: Mutex<Table>,
    /// Wakes the task that lets unused models go, because one is to leave earlier than it thinks.
    earlier_expiry: Notify,
    kv_events: OnceLock<Arc<KvEvents>>,
}

/// A model that is to be listed.
struct PlannedModel {
    /// That of the same model, if it is listed already.
    known: Option<ModelKey>,
    plan: Plan,
    config: ModelConfig,
}

/// A request that waits for a model; gives up when it is dropped.
struct Waiting<'m> {
    models: &'m Arc<Models>,
    model: ModelKey,
    ticket: Ticket,
}

impl Models {
    /// Lists models, and those of the catalog.
    ///
    /// # Errors
    /// If two have the same name, one cannot run here, or the catalog cannot be read.
    pub(crate) fn new(
        configs: Vec<ModelConfig>,
        settings: ModelSettings,
        session: Arc<InferenceSession>,
        platform: &'static Platform,
        runtime: &Handle,
    ) -> Result<Arc<Models>, Error> {
        let memory = settings.memory.or_else(available_memory);
        let models = Arc::new(Models {
            session,
            platform,
            catalog: Catalog::open(settings.catalog.clone())?,
            settings: ModelSettings { memory, ..settings },
            pulls: Pulls::default(),
            began: Instant::now(),
            runtime: runtime.clone(),
            table: Mutex::default(),
            earlier_expiry: Notify::new(),
            kv_events: OnceLock::new(),
        });
        if configs.is_empty() {
            // For those that requests add.
            models.add_devices([&models.settings.defaults]);
        }
        models.list(configs)?;
        models.list_catalog();
        runtime.spawn(Arc::clone(&models).let_unused_go());
        Ok(models)
    }

    /// Sets what models of the devices of configurations may need in all, where that is not known yet: the largest share of
    /// the memory that is free that one of them may have.
    pub(super) fn add_devices<'c>(&self, configs: impl IntoIterator<Item = &'c PipelineConfig>) {
        let mut shares: BTreeMap<DeviceSpec, (&PipelineConfig, f64)> = BTreeMap::new();
        for config in configs {
            let device = config.accelerator().unwrap_or(DeviceSpec::cpu());
            let (_, share) = shares.entry(device).or_insert((config, 0.0));
            *share = share.max(config.gpu_memory_utilization);
        }
        for (device, (config, share)) in shares {
            let free = match config.accelerator() {
                None => self.settings.memory,
                // One that cannot be opened is an error of the plan.
                Some(_) => {
                    let stats = config.device_of(self.platform).ok().and_then(|device| device.stats());
                    stats.map(|stats| stats.free_memory)
                }
            };
            let budget = free.map_or(u64::MAX, |bytes| (bytes as f64 * share) as u64);
            self.lock().residency.add_device(device, budget);
        }
    }

    /// Lists these models in place of all others but those that requests added. Models that stay as they are stay in
    /// memory; others leave once their requests have ended. Reads headers of files, and may block.
    ///
    /// # Errors
    /// If two have the same name, or one cannot run here; all stays as it was.
    pub(crate) fn list(self: &Arc<Self>, configs: Vec<ModelConfig>) -> Result<(), Error> {
        check_names(&configs)?;
        self.add_devices(configs.iter().map(|model| &model.config));
        let mut before: Vec<Arc<ServedModel>> = self.served();
        before.retain(|model| !model.is_added || configs.iter().any(|config| model.is_named(&config.id)));
        let default = self.settings.keep_alive.unwrap_or(match configs.len() {
            0 | 1 => KeepAlive::Forever,
            _ => KEEP_ALIVE,
        });
        let mut planned = Vec::new();
        for config in configs {
            let known = before.iter().find(|old| old.config.is_same_model(&config));
            // A model in memory keeps its share.
            let is_there = |old: &Arc<ServedModel>| self.lock().residency.state(old.key) != State::Absent;
            let share = known.filter(|old| is_there(old)).map(|old| old.facts.cache_bytes);
            let wrong = |source| Error::Model { name: config.id.clone(), source: Box::new(source) };
            let plan = self.plan(&config.config, share).map_err(wrong)?;
            planned.push(PlannedModel { known: known.map(|old| old.key), plan, config });
        }
        self.share_memory(&mut planned)?;
        let kept: Vec<ModelKey> = planned.iter().filter_map(|model| model.known).collect();
        for old in before.iter().filter(|old| !kept.contains(&old.key)) {
            self.remove(old);
        }
        for model in planned {
            let facts = model.facts()?;
            let PlannedModel { known, config, .. } = model;
            let keep_alive = config.keep_alive.unwrap_or(default);
            let terms =
                ResidencyTerms { device: facts.device, need: facts.need, keep_alive, pinned: config.pin };
            let model = self.lock().list(known, facts, config, false);
            self.step(Command::List { model, terms });
        }
        Ok(())
    }

    /// Makes caches smaller on each device whose models do not fit into its memory together, until they do. If even the
    /// smallest caches are too large, the models stay as they are, and make room for each other.
    ///
    /// # Errors
    /// If one cannot run here.
    fn share_memory(&self, models: &mut [PlannedModel]) -> Result<(), Error> {
        let facts = models.iter().map(PlannedModel::facts).collect::<Result<Vec<_>, Error>>()?;
        let devices: BTreeSet<DeviceSpec> = facts.iter().map(|facts| facts.device).collect();
        for device in devices {
            let here = models.iter_mut().zip(&facts).filter(|(_, facts)| facts.device == device);
            self.share_memory_of(device, &mut here.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn share_memory_of(
        &self,
        device: DeviceSpec,
        models: &mut [(&mut PlannedModel, &ModelFacts)],
    ) -> Result<(), Error> {
        let budget = self.lock().residency.budget(device);
        let needs = models.iter().map(|(_, facts)| facts.need);
        if needs.fold(0, u64::saturating_add) <= budget {
            return Ok(());
        }
        let weights = models.iter().map(|(_, facts)| facts.need - facts.cache_bytes);
        let room = budget.saturating_sub(weights.fold(0, u64::saturating_add));
        let demands = models.iter().map(|(model, facts)| model.demand(facts));
        let Some(shares) = fair_shares(room, &demands.collect::<Result<Vec<_>, Error>>()?) else {
            return Ok(());
        };
        for ((model, facts), share) in models.iter_mut().zip(shares) {
            if share < facts.cache_bytes {
                model.plan = model.plan.with_cache_limit(share).map_err(|source| model.wrong(source))?;
                let (own, room) = (MemoryBytes(model.facts()?.cache_bytes), MemoryBytes(room));
                let (id, alone) = (&model.config.id, MemoryBytes(facts.cache_bytes));
                tracing::info!(
                    "{id} has {own} of cache instead of {alone}: all models share {room} after their weights"
                );
            }
        }
        Ok(())
    }

    /// Publishes the cache events of the only model that makes text, whenever it is loaded.
    ///
    /// # Errors
    /// If there are others or none, the model shares no prefixes, or an endpoint cannot be bound.
    pub(crate) fn publish_cache_events(
        &self,
        config: &KvEventsConfig,
        address: &Address,
    ) -> Result<(), Error> {
        let is_text = |model: &&Arc<ServedModel>| model.facts.kind == ModelKind::Text && !model.is_added;
        let served = self.served();
        let [model] = served.iter().filter(is_text).collect::<Vec<_>>()[..] else {
            return Err(Error::NoSingleGenerator);
        };
        if !model.config.config.enable_prefix_caching {
            return Err(Error::NoPrefixCaching { model: model.id().to_string() });
        }
        let events = self.runtime.block_on(KvEvents::bind(config, address, model.id()))?;
        self.kv_events.get_or_init(|| Arc::new(events));
        Ok(())
    }

    /// Loads the models that fit into memory together, in order, unless requests are to load them.
    ///
    /// # Errors
    /// If one that fits cannot be loaded.
    pub(crate) fn load_what_fits(self: &Arc<Self>) -> Result<(), Error> {
        if self.settings.lazy {
            return Ok(());
        }
        for model in self.served().into_iter().filter(|model| !model.is_added) {
            let fits = {
                let table = self.lock();
                let (residency, device) = (&table.residency, model.facts.device);
                model.facts.need <= residency.budget(device).saturating_sub(residency.used(device))
            };
            if !fits {
                let need = MemoryBytes(model.facts.need);
                tracing::info!("{} needs {need} and is loaded when a request needs it", model.id());
                continue;
            }
            if let Err(error) = self.runtime.block_on(self.wait_for(&model)) {
                let mut table = self.lock();
                let failure = table.listed.get_mut(&model.key).and_then(|listed| listed.failure.take());
                let source = failure.unwrap_or(pipelines::Error::Defect(error.message));
                return Err(Error::Model { name: model.id().to_string(), source: Box::new(source) });
            }
        }
        Ok(())
    }

    /// The runtime that answers requests.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Bytes that models take or will take, and the most that they may, on all devices; `None` if that is unknown.
    pub(crate) fn memory(&self) -> (u64, Option<u64>) {
        let (used, budget) = self.lock().residency.total();
        (used, Some(budget).filter(|&bytes| bytes < u64::MAX))
    }

    /// The models that requests can name, in the order in which they are listed.
    pub(crate) fn served(&self) -> Vec<Arc<ServedModel>> {
        self.lock().served().cloned().collect()
    }

    /// Where the models are, in the order in which they are listed.
    pub(crate) fn statuses(&self) -> Vec<ModelStatus> {
        let (now, table) = (self.now(), self.lock());
        table.served().map(|model| table.status(model, now)).collect()
    }

    /// Where a model is.
    pub(crate) fn status(&self, model: &Arc<ServedModel>) -> ModelStatus {
        let now = self.now();
        self.lock().status(model, now)
    }

    /// The model with an id, an alias, or an id that ends in `/name`, or that of a preset. Without a name, the only model
    /// that the server was started with.
    ///
    /// # Errors
    /// If there is none, or several fit.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
        Ok(self.resolve(name)?.0)
    }

    /// As [`Models::find`], with the preset that the name means, if it is one's.
    ///
    /// # Errors
    /// As [`Models::find`].
    pub(crate) fn resolve(&self, name: Option<&str>) -> Result<Named, ApiError> {
        find(&self.served(), &self.catalog.presets(), name)
    }

    /// As [`Models::resolve`], of a whole name only.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn resolve_exactly(&self, name: &str) -> Result<Named, ApiError> {
        let (served, presets) = (self.served(), self.catalog.presets());
        find_exactly(&served, &presets, name).ok_or_else(|| unknown(&served, &presets, name))
    }

    /// The presets whose models are listed, and these models.
    pub(crate) fn presets(&self) -> Vec<(Arc<Preset>, Arc<ServedModel>)> {
        let (served, presets) = (self.served(), self.catalog.presets());
        let with_model = |preset: Arc<Preset>| {
            let (model, found) = find_exactly(&served, &presets, preset.name())?;
            found.is_some().then_some((preset, model))
        };
        presets.iter().cloned().filter_map(with_model).collect()
    }

    /// The model with a name, for a request that uses it; waits until it is loaded. `keep_alive` says how long it stays in
    /// memory afterwards.
    ///
    /// # Errors
    /// As [`Models::find`], and if the model cannot be loaded, or not in time.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        name: Option<&str>,
        keep_alive: Option<KeepAlive>,
    ) -> Result<Arc<ActiveModel>, ApiError> {
        let (model, preset) = self.resolve(name)?;
        let active = self.wait_for(&model).await?;
        if let Some(keep_alive) = keep_alive {
            self.step(Command::KeepAlive { model: model.key, keep_alive });
        }
        Ok(Arc::new(match preset {
            Some(preset) => active.with(preset),
            None => active,
        }))
    }

    /// Sets how long a model stays in memory unused, if it is there.
    pub(crate) fn keep_alive(self: &Arc<Self>, model: &ServedModel, keep_alive: KeepAlive) {
        if self.lock().residency.state(model.key) != State::Absent {
            self.step(Command::KeepAlive { model: model.key, keep_alive });
        }
    }

    /// Has a model leave memory once no request uses it.
    pub(crate) fn unload(self: &Arc<Self>, model: &ServedModel) {
        self.step(Command::Unload(model.key));
    }

    /// Has a model stay in memory once it is there, or lets it leave.
    pub(crate) fn pin(self: &Arc<Self>, model: &ServedModel, pinned: bool) {
        self.step(Command::Pin { model: model.key, pinned });
    }

    /// The tokenizer and the chat template of a model, without loading it.
    ///
    /// # Errors
    /// As [`Models::find`], and if the files cannot be read.
    pub(crate) async fn text(self: &Arc<Self>, name: Option<&str>) -> Result<ModelText, ApiError> {
        let (model, preset) = self.resolve(name)?;
        let (is_ready, cell) = {
            let table = self.lock();
            let cell = table.listed.get(&model.key).map(|listed| Arc::clone(&listed.text));
            (table.residency.state(model.key) == State::Ready, cell.unwrap_or_default())
        };
        if is_ready {
            return Ok(ModelText::Loaded(self.acquire(name, None).await?));
        }
        let read = || async {
            let models = Arc::clone(self);
            match tokio::task::spawn_blocking(move || models.read_text(model)).await {
                Ok(text) => Ok(Arc::new(text?)),
                Err(defect) => Err(pipelines::Error::Defect(defect.to_string())),
            }
        };
        Ok(ModelText::Sleeping(Arc::clone(cell.get_or_try_init(read).await?), preset))
    }

    fn read_text(&self, model: Arc<ServedModel>) -> Result<SleepingText, pipelines::Error> {
        let plan = self.plan(&model.config.config, None)?;
        let tokenizer = Arc::new(plan.tokenizer()?);
        let chat_template = match &model.config.template {
            Some(template) => Some(template.clone()),
            None => plan.chat_template()?,
        };
        Ok(SleepingText { model, tokenizer, chat_template })
    }

    /// Plans a model with a cache of at most `cache_limit` bytes, or else as if it had the memory of all.
    pub(super) fn plan(
        &self,
        config: &PipelineConfig,
        cache_limit: Option<u64>,
    ) -> Result<Plan, pipelines::Error> {
        let machine = Machine { devices: self.platform, free_memory: self.settings.memory };
        let plan = config.plan_or_built_in(machine)?;
        cache_limit.map_or_else(|| Ok(plan.clone()), |limit| plan.with_cache_limit(limit))
    }

    async fn wait_for(self: &Arc<Self>, model: &Arc<ServedModel>) -> Reply {
        self.unload_if_changed(model).await;
        let (send, receive) = oneshot::channel();
        let (ticket, actions) = {
            let mut table = self.lock();
            table.next_ticket += 1;
            let ticket = Ticket(table.next_ticket);
            match table.listed.get_mut(&model.key) {
                Some(listed) => listed.waiting.insert(ticket, send),
                None => return Err(refusal(model, Refusal::Removed)),
            };
            (ticket, table.apply(self.now(), Command::Acquire { model: model.key, ticket }))
        };
        let waiting = Waiting { models: self, model: model.key, ticket };
        self.perform(actions);
        let reply = tokio::time::timeout(self.settings.load_timeout, receive).await;
        match reply {
            Ok(Ok(reply)) => {
                // It was answered, and has nothing to give up.
                std::mem::forget(waiting);
                reply
            }
            Ok(Err(_)) => Err(refusal(model, Refusal::Removed)),
            Err(_) => Err(self.not_in_time(model)),
        }
    }

    /// Has a model leave memory if its files have changed or the process that runs it has ended, so that it is loaded anew.
    /// Requests that come meanwhile wait for the check, and the system is asked at most once every [`FILE_CHECK_INTERVAL`].
    async fn unload_if_changed(self: &Arc<Self>, model: &ServedModel) {
        let loaded = self.lock().listed.get(&model.key).and_then(|listed| listed.loaded.clone());
        let Some(loaded) = loaded else { return };
        let mut checked = loaded.files_checked.lock().await;
        // Whether a process runs is known without asking the system.
        let asks = !loaded.plan().runs_elsewhere();
        if asks && checked.is_some_and(|time| time.elapsed() < FILE_CHECK_INTERVAL) {
            return;
        }
        let of_task = Arc::clone(&loaded);
        let failure = blocking::run(move || Ok(of_task.failure())).await;
        *checked = Some(Instant::now());
        if let Ok(Some(failure)) = failure {
            tracing::warn!("loading {} again: {failure}", model.id());
            self.unload(model);
        }
    }

    fn not_in_time(&self, model: &Arc<ServedModel>) -> ApiError {
        let seconds = self.settings.load_timeout.as_secs_f64();
        let problem = match self.status(model).progress {
            Some(Progress { phase, percent }) => {
                format!("{} is not loaded after {seconds} s: {phase}, {percent} %", model.id())
            }
            None => format!("{} is not loaded after {seconds} s: it waits for memory", model.id()),
        };
        unavailable(problem)
    }

    /// Takes a command, and does what follows from it.
    pub(super) fn step(self: &Arc<Self>, command: Command) {
        let now = self.now();
        let actions = self.lock().apply(now, command);
        self.perform(actions);
    }

    fn perform(self: &Arc<Self>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Grant(reply, model, loaded) => {
                    let (models, key) = (Arc::clone(self), model.key);
                    let lease = Lease::new(move || models.step(Command::Release(key)));
                    let active = ActiveModel::new(model, loaded, self.settings.sampling, lease);
                    // A request that does not wait any more drops it.
                    if let Some(reply) = reply {
                        let _ = reply.send(Ok(active));
                    }
                }
                Action::Refuse(reply, error) => drop(reply.send(Err(error))),
                Action::Load(model, progress) => {
                    drop(self.runtime.spawn(Arc::clone(self).load(model, progress)))
                }
                Action::Unload(model, loaded) => {
                    let models = Arc::clone(self);
                    self.runtime.spawn_blocking(move || {
                        LoadedModel::unload(loaded);
                        (models.settings.return_memory)();
                        models.step(Command::Unloaded(model));
                    });
                }
                Action::Wake => self.earlier_expiry.notify_one(),
            }
        }
    }

    async fn load(self: Arc<Self>, model: Arc<ServedModel>, progress: Arc<LoadProgress>) {
        let (began, key) = (Instant::now(), model.key);
        progress.restart("planning");
        let (models, of_task) = (Arc::clone(&self), Arc::clone(&model));
        let loading = tokio::task::spawn_blocking(move || {
            let loaded = models.load_now(&of_task, &progress);
            progress.end();
            loaded
        });
        let result = loading.await.unwrap_or_else(|panic| Err(pipelines::Error::Defect(panic.to_string())));
        let actions = match result {
            Ok(loaded) => {
                if let (Some(events), ModelWorker::Text(generator)) = (self.kv_events.get(), loaded.worker())
                {
                    self.runtime.spawn(Arc::clone(events).follow(generator.cache_events()));
                }
                tracing::info!("loaded {} in {:.1} s", model.id(), began.elapsed().as_secs_f64());
                self.lock().loaded(key, loaded, self.now())
            }
            Err(error) => {
                tracing::error!("cannot load {}: {error}", model.id());
                self.lock().load_failed(&model, error, self.now())
            }
        };
        self.perform(actions);
    }

    fn load_now(
        self: &Arc<Self>,
        model: &ServedModel,
        progress: &LoadProgress,
    ) -> Result<LoadedModel, pipelines::Error> {
        // The files may have changed since.
        let plan = self.plan(&model.config.config, model.facts.cache_limit)?;
        let facts = ModelFacts::from_plan(&plan, model.config.kind)?;
        if facts.need > model.facts.need {
            let (weights, available) = (facts.need, model.facts.need);
            return Err(pipelines::OutOfMemory::Weights { weights, available }.into());
        }
        let options = TextGeneratorOptions {
            chat_template: model.config.template.clone(),
            max_queue: Some(self.settings.max_queue),
            read_timeout: Some(self.settings.read_timeout),
            ..TextGeneratorOptions::default()
        };
        LoadedModel::load(plan, facts.kind, &self.session, options, progress)
    }

    /// Lets models go that were not used for as long as they are kept.
    async fn let_unused_go(self: Arc<Self>) {
        loop {
            let expiry_at = {
                let mut table = self.lock();
                table.expiry_at = table.residency.next_expiry();
                table.expiry_at
            };
            match expiry_at {
                Some(time) => {
                    let sleep = tokio::time::sleep_until((self.began + time).into());
                    tokio::select! {
                        () = sleep => {}
                        () = self.earlier_expiry.notified() => {}
                    }
                }
                None => self.earlier_expiry.notified().await,
            }
            self.step(Command::Tick);
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(listed) = self.models.lock().listed.get_mut(&self.model) {
            listed.waiting.remove(&self.ticket);
        }
        self.models.step(Command::GiveUp { model: self.model, ticket: self.ticket });
    }
}

impl PlannedModel {
    /// # Errors
    /// If it cannot run here.
    fn facts(&self) -> Result<ModelFacts, Error> {
        ModelFacts::from_plan(&self.plan, self.config.kind).map_err(|source| self.wrong(source))
    }

    /// What it needs and wants of a cache. One that has a share keeps it.
    fn demand(&self, facts: &ModelFacts) -> Result<CacheDemand, Error> {
        let most = facts.cache_bytes;
        let least = self.plan.least_cache_bytes().map_err(|error| self.wrong(error.into()))?;
        Ok(CacheDemand { least: if facts.cache_limit.is_some() { most } else { least }, most })
    }

    fn wrong(&self, source: pipelines::Error) -> Error {
        Error::Model { name: self.config.id.clone(), source: Box::new(source) }
    }
}

fn check_names(configs: &[ModelConfig]) -> Result<(), Error> {
    let mut names: Vec<&String> =
        configs.iter().flat_map(|model| model.aliases.iter().chain([&model.id])).collect();
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::DuplicateName { name: pair[0].clone() }),
        None => Ok(()),
    }
}
