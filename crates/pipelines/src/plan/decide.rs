//! From a configuration to a plan: decides every field for a model that is described, and collects all errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::Reproducible;
use engine::devices::Platform;
use models::Checkpoint;
use sources::Content;
use tensor::Bytes;
use weights::{Format, WeightFile, Weights};

use super::{Description, Identity, Outline, Plan, saved};
use crate::Error;
use crate::plan::config::{
    Auto, KVCacheStrategy, ONE_DEVICE, PipelineConfig, PipelineEngine, Problems, SupportedEncoding, check,
    names,
};
use crate::plan::memory::{self, MemoryRequest, Room};

/// The machine that a model is to run on.
#[derive(Clone, Copy)]
pub struct Machine<'p> {
    /// Its devices.
    pub devices: &'p Platform,
    /// Bytes of memory that are free; `None` if that is unknown.
    pub free_memory: Option<u64>,
}

impl<'p> Machine<'p> {
    /// This machine, with the devices of a build.
    pub fn new(devices: &'p Platform) -> Machine<'p> {
        Machine { devices, free_memory: memory::available() }
    }
}

impl Room {
    /// The memory of a machine, or that of the accelerator on which a configuration's model runs, if it tells.
    fn for_machine(machine: Machine<'_>, config: &PipelineConfig) -> Room {
        let host = Room { free: machine.free_memory, cache_limit: None, buffer_limit: None };
        let device = config.accelerator().and_then(|_| config.device_of(machine.devices).ok());
        device.map_or(host, |device| Room {
            free: device.stats().map(|stats| stats.free_memory),
            buffer_limit: Some(device.max_single_alloc_size()).filter(|&bytes| bytes > 0),
            ..host
        })
    }
}

impl PipelineConfig {
    /// Checks everything: the settings, the files that they name, the devices and the memory of the machine. Returns
    /// warnings.
    ///
    /// # Errors
    /// All that is wrong, each field with its value and what to give instead.
    pub fn validate(&self, machine: Machine<'_>) -> Result<Vec<String>, Error> {
        let plan = self.plan(machine)?;
        Ok([plan.warnings(), &plan.memory()?.warnings].concat())
    }

    /// Decides every field that is left open, from the headers of the model's files. Reads no weights, and downloads
    /// none: of a hub it asks for the list of files, `config.json`, and the headers of the weights.
    ///
    /// # Errors
    /// As [`PipelineConfig::validate`], except that a model which does not fit into memory is an error of
    /// [`Plan::memory`]. If nothing is wrong except that the model cannot be opened, that error as it is.
    pub fn plan(&self, machine: Machine<'_>) -> Result<Plan, Error> {
        if let Some(path) = self.artifact() {
            let weights = saved::weights_of_artifact(&path)?;
            let config = PipelineConfig { serialized_model_path: Some(path), ..self.clone() };
            return config.plan_weights(weights, Path::new(""), machine);
        }
        let mut problems = Problems::default();
        let (mut config, saved) = self.prepare(machine.devices, &mut problems);
        if self.huggingface_repo_id.trim().is_empty() && self.weight_path.is_empty() {
            return Err(Error::Config(problems.0));
        }
        match config.describe(problems.0.is_empty()) {
            Ok(model) => {
                let room = Room::for_machine(machine, &config);
                Plan::decide(config, Arc::new(model), saved, room, problems)
            }
            Err(error) => Err(problems.and(&self.huggingface_repo_id, error)),
        }
    }

    /// As [`PipelineConfig::plan`], except that a configuration which names no model is of the built-in one.
    ///
    /// # Errors
    /// As [`PipelineConfig::plan`].
    pub fn plan_or_built_in(&self, machine: Machine<'_>) -> Result<Plan, Error> {
        if !self.is_built_in() {
            return self.plan(machine);
        }
        let weights = Weights::from_bytes(storyteller::NAME, Bytes::new(storyteller::GGUF))?;
        self.plan_weights(weights, Path::new(""), machine)
    }

    /// The plan of weights that are open already. The configuration and the tokenizer of the model are in the GGUF
    /// metadata, or else in `folder`.
    ///
    /// # Errors
    /// As [`PipelineConfig::plan`].
    pub fn plan_weights(&self, weights: Weights, folder: &Path, machine: Machine<'_>) -> Result<Plan, Error> {
        let mut problems = Problems::default();
        let named = PipelineConfig { huggingface_repo_id: "-".to_string(), ..self.clone() };
        let (mut config, saved) = named.prepare(machine.devices, &mut problems);
        config.huggingface_repo_id = self.huggingface_repo_id.clone();
        if config.engine == Some(PipelineEngine::HuggingFace) {
            problems.add("engine", PipelineEngine::HuggingFace, "name the folder or repo of a model for it");
        }
        let checkpoint = config.checkpoint(weights, folder);
        let model = checkpoint.and_then(|open| config.description(open, folder.to_path_buf(), Vec::new()));
        match model {
            Ok(model) => {
                let room = Room::for_machine(machine, &config);
                Plan::decide(config, Arc::new(model), saved, room, problems)
            }
            Err(error) => Err(problems.and(&self.huggingface_repo_id, error)),
        }
    }

    /// Checks what can be checked before the model is known, and finds the devices. Returns what a saved model says of
    /// itself too.
    fn prepare(
        &self,
        platform: &Platform,
        problems: &mut Problems,
    ) -> (PipelineConfig, Option<Arc<Identity>>) {
        let mut config = self.clone();
        check(self, problems);
        config.resolve_devices(platform, problems);
        (config, saved::check_paths(self, problems).map(Arc::new))
    }

    /// The saved model that is named as the model itself.
    fn artifact(&self) -> Option<PathBuf> {
        let path = Path::new(self.huggingface_repo_id.trim());
        let is_artifact = path.extension().is_some_and(|extension| extension == "mef") && path.is_file();
        let is_alone = self.weight_path.is_empty() && self.serialized_model_path.is_none();
        (is_artifact && is_alone).then(|| path.to_path_buf())
    }

    /// Settings without an effect on a model.
    fn warnings(&self, model: &Description) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |given: bool, warning: &str| {
            if given {
                warnings.push(warning.to_string());
            }
        };
        let saved = self.serialized_model_path.is_some();
        warn(
            saved && self.save_to_serialized_model_path.is_some(),
            "save_to_serialized_model_path has no effect with serialized_model_path, which was saved before",
        );
        if let Outline::Transformers(facts) = &model.outline {
            return facts.warnings(self);
        }
        warn(self.trust_remote_code, "trust_remote_code has no effect: the code of a repo is never run");
        warn(
            self.force_download && Path::new(&self.huggingface_repo_id).exists(),
            "force_download has no effect: the model is on this machine",
        );
        warn(
            self.rope_type.is_some()
                && model.checkpoint.as_ref().is_some_and(|open| open.weights().format() != Format::Gguf),
            "rope_type has no effect: it is for GGUF files only",
        );
        if matches!(&model.outline, Outline::Graph(graph) if !graph.runs_in_steps()) {
            warnings.extend(self.idle_in_encoders(&model.architecture));
        }
        warnings
    }

    /// What is set and means nothing to a model that writes nothing.
    fn idle_in_encoders(&self, architecture: &str) -> Vec<String> {
        let set = [
            ("enable_prefix_caching", self.enable_prefix_caching),
            ("top_k", self.top_k.is_some()),
            ("enable_echo", self.enable_echo),
        ];
        let idle = set.into_iter().filter(|(_, set)| *set).map(|(field, _)| field);
        idle.map(|field| {
            format!(
                "{field} has no effect: {architecture} is an encoder, which writes nothing and has no cache"
            )
        })
        .collect()
    }

    fn resolve_devices(&mut self, platform: &Platform, problems: &mut Problems) {
        self.device_specs = self.specs();
        if !platform.devices_exist(&self.device_specs) {
            let error = platform.load_devices(&self.device_specs).map(drop).err();
            let fix = error.map(|error| error.to_string()).unwrap_or_default();
            problems.add(
                "device_specs",
                names(&self.device_specs),
                format!("{fix}: give cpu, or devices that are there"),
            );
        } else if self.device_specs.len() > 1 {
            problems.add("device_specs", names(&self.device_specs), ONE_DEVICE);
        } else if let (Some(spec), Some(Reproducible::Any)) = (self.accelerator(), self.reproducible)
            && self.device_of(platform).is_ok_and(|device| device.own_products().is_some())
        {
            let fix = format!("{spec} sums in its own order: give machine, or leave it out");
            problems.add("reproducible", "any", fix);
        }
    }

    /// What the files name, unless another one was asked for.
    fn resolve_architecture(&mut self, checkpoint: &Checkpoint) {
        if self.architecture.is_none() {
            self.architecture = checkpoint.hugging_face_name().map(str::to_string);
        }
    }

    /// The encoding that the files have, which must be the one that was asked for. Gives what is worth a warning.
    fn resolve_encoding(&mut self, checkpoint: &Checkpoint, problems: &mut Problems) -> Option<String> {
        let files: Vec<&Path> = checkpoint.weights().files().iter().map(|file| file.path()).collect();
        let shown = || files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        let (found, warning) = match encoding_of(checkpoint, &files) {
            Ok(found) => found?,
            Err(error) => {
                let rename = if matches!(error, sources::Error::Contradiction { .. }) { ", or" } else { ":" };
                problems.add("weight_path", shown(), format!("{error}{rename} give other weights"));
                return None;
            }
        };
        if let Some(asked) = self.quantization_encoding
            && asked != found
        {
            problems.add(
                "quantization_encoding",
                asked,
                format!("{} has {found}: give that, or other weights", shown()),
            );
        }
        self.quantization_encoding = Some(found);
        warning
    }

    /// A length beyond the model's context is an error; the default is lowered with a warning.
    fn resolve_length(&mut self, limit: usize, problems: &mut Problems, warnings: &mut Vec<String>) {
        let Some(length) = self.max_length.given().filter(|&length| length > limit) else { return };
        if self.max_length.asked().is_none() {
            warnings.push(format!(
                "max_length is lowered from the default {length} to {limit}, which the model was made for"
            ));
            self.max_length = Auto::At(limit);
        } else {
            problems.add("max_length", length, format!("give at most {limit}, which the model was made for"));
        }
    }

    fn memory_request(&self, model: &Description, room: Room) -> MemoryRequest {
        let strategy = self.strategy();
        let cache_bound = room.buffer_limit.map(|bytes| model.outline.cache_bound(bytes, self.kept_dtype()));
        MemoryRequest {
            weights: model.weight_bytes.unwrap_or(0),
            cache_bytes_per_token: model.outline.cache_bytes_per_token(self.kept_dtype()),
            bytes_per_slot: model.outline.state_bytes_per_slot(),
            caches_prefixes: strategy == KVCacheStrategy::Paged && self.enable_prefix_caching,
            page_size: self.kv_cache_page_size,
            strategy,
            pad_to_multiple_of: if strategy == KVCacheStrategy::Naive { self.pad_to_multiple_of } else { 1 },
            free: room.free,
            utilization: self.gpu_memory_utilization,
            cache_limit: room.cache_limit.into_iter().chain(cache_bound).min(),
            model_length: model.outline.context_length(),
            max_length: self.max_length,
            max_batch: self.max_cache_batch_size,
            on_host: self.accelerator().is_none(),
        }
    }
}

impl Plan {
    /// Decides every field of a configuration for a model. `problems` are those found so far.
    pub(super) fn decide(
        asked: PipelineConfig,
        model: Arc<Description>,
        saved: Option<Arc<Identity>>,
        room: Room,
        mut problems: Problems,
    ) -> Result<Plan, Error> {
        let mut config = asked.clone();
        let mut warnings = [&model.warnings[..], &asked.warnings(&model)].concat();
        if let Some(checkpoint) = &model.checkpoint {
            config.resolve_architecture(checkpoint);
            warnings.extend(config.resolve_encoding(checkpoint, &mut problems));
            let files = checkpoint.weights().files().iter().filter(|file| file.is_mapped());
            config.weight_path = files.map(|file| file.path().to_path_buf()).collect();
            saved::check_model(&config, checkpoint, &model.folder, saved.as_deref(), &mut problems);
        }
        config.resolve_length(model.outline.context_length(), &mut problems, &mut warnings);
        config.engine = Some(PipelineEngine::Max);
        if let Outline::Transformers(facts) = &model.outline {
            config.engine = Some(PipelineEngine::HuggingFace);
            config.architecture = Some(facts.architecture.clone());
            config.quantization_encoding = config.quantization_encoding.or(facts.encoding);
            config.enable_prefix_caching = false;
        }
        config.cache_strategy = asked.strategy();
        if config.max_num_steps == -1 {
            config.max_num_steps = if config.accelerator().is_some() { STEPS_OF_ACCELERATORS } else { 1 };
        }
        if let (Some(spec), Outline::Transformers(_)) = (config.accelerator(), &model.outline) {
            problems.add("device_specs", spec, "the engine huggingface runs on the CPU: give cpu");
        }
        if !problems.0.is_empty() {
            return Err(Error::Config(problems.0));
        }
        let request = config.memory_request(&model, room);
        let memory = request.plan();
        if let Ok(memory) = &memory {
            config.max_length = Auto::At(memory.max_length);
            config.max_cache_batch_size = Auto::At(memory.max_batch);
            config.max_ce_batch_size = config.max_ce_batch_size.min(memory.max_batch);
        }
        Ok(Plan { asked, config, model, saved, room, request, memory, warnings })
    }
}

/// Steps without scheduling between them where each launch costs.
const STEPS_OF_ACCELERATORS: i64 = 10;

/// The encoding of a model's files, whose names must not promise another one; of a model in memory, that of most bytes
/// of its matrices. Beside it, what is worth a warning.
fn encoding_of(
    checkpoint: &Checkpoint,
    files: &[&Path],
) -> Result<Option<(SupportedEncoding, Option<String>)>, sources::Error> {
    let weights = checkpoint.weights();
    if !weights.has_values() || weights.files().iter().all(WeightFile::is_mapped) {
        let name = files[0].file_name().unwrap_or_default().to_string_lossy();
        // Beside headers alone there is nothing on this machine.
        let here = if weights.has_values() { files } else { &[] };
        return Content::from_weights([weights], here).encoding_of_file(&name).map(Some);
    }
    let mut bytes = BTreeMap::new();
    for (_, tensor) in weights.tensors().filter(|(_, tensor)| tensor.shape().rank() >= 2) {
        if let Some(encoding) = SupportedEncoding::from_dtype(tensor.dtype()) {
            *bytes.entry(encoding).or_insert(0) += tensor.dtype().bytes_for(tensor.elements()).unwrap_or(0);
        }
    }
    Ok(bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(encoding, _)| (encoding, None)))
}
