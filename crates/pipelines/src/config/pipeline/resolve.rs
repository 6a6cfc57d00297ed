//! From what was asked for to what will be done: every choice made, every contradiction found, all at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::devices::Platform;
use models::{Architecture, Checkpoint, CheckpointOptions, Network};
use serde_json::Value;
use tensor::DType;
use weights::{Format, Weights};

use super::check::{Problems, check, native};
use super::methods::{ONE_DEVICE, names};
use super::{Auto, PipelineConfig};
use crate::config::content::Content;
use crate::config::{KVCacheStrategy, PipelineEngine, RopeType, SupportedEncoding};
use crate::hub::{HubError, Progress};
use crate::memory_plan::{MemoryPlan, MemoryRequest};
use crate::{ChatTemplate, Error, SamplingOptions, Tokenizer, compiled, memory};

/// What a configuration is resolved against.
#[derive(Clone, Copy)]
pub struct Machine<'p> {
    /// The devices there are.
    pub devices: &'p Platform,
    /// Bytes of memory that are free; `None` where nobody knows.
    pub free_memory: Option<u64>,
}

impl<'p> Machine<'p> {
    /// This machine, with the devices that a door can open.
    pub fn new(devices: &'p Platform) -> Machine<'p> {
        Machine { devices, free_memory: memory::available() }
    }
}

/// A configuration with every choice made, and the model it is of, opened.
#[derive(Debug)]
pub struct ResolvedConfig {
    pub(crate) config: PipelineConfig,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) folder: PathBuf,
    pub(crate) plan: MemoryPlan,
    request: MemoryRequest,
    recommended: SamplingOptions,
    asked_length: Option<usize>,
    pub(super) warnings: Vec<String>,
}

impl PipelineConfig {
    /// Checks everything: what the configuration says, the files it names, the devices and the memory there are.
    /// Gives what is worth a warning.
    ///
    /// # Errors
    /// All that is wrong, each field with its value and what to give instead.
    pub fn validate(&self, machine: Machine<'_>) -> Result<Vec<String>, Error> {
        self.resolve(machine).map(|resolved| resolved.warnings)
    }

    /// Makes every choice that is left open, and opens the model. No weight is read.
    ///
    /// # Errors
    /// As [`PipelineConfig::validate`]. If nothing is wrong but that the model cannot be opened, or does not fit into
    /// memory, that error as it is.
    pub fn resolve(&self, machine: Machine<'_>) -> Result<ResolvedConfig, Error> {
        self.resolve_fetching(machine, &|_| ())
    }

    /// As [`PipelineConfig::resolve`], telling how far files are that must be fetched.
    ///
    /// # Errors
    /// As there.
    pub fn resolve_fetching(
        &self,
        machine: Machine<'_>,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<ResolvedConfig, Error> {
        let mut problems = Problems::default();
        check(self, self.strategy(), &mut problems);
        if self.huggingface_repo_id.trim().is_empty() && self.weight_path.is_empty() {
            return Err(Error::Config(problems.0));
        }
        let mut config = self.clone();
        match config.open(progress) {
            Ok((checkpoint, folder, warnings)) => {
                let mut resolved = config.resolve_with(checkpoint, &folder, machine, problems)?;
                resolved.warnings.splice(0..0, warnings);
                Ok(resolved)
            }
            Err(Error::Config(more)) => {
                problems.0.extend(more);
                Err(Error::Config(problems.0))
            }
            Err(error) if problems.0.is_empty() => Err(error),
            Err(error) => {
                problems.add("huggingface_repo_id", &self.huggingface_repo_id, error.to_string());
                Err(Error::Config(problems.0))
            }
        }
    }

    /// Makes every choice for a model that is open already. Its tokenizer is in the GGUF metadata, or else in `folder`.
    ///
    /// # Errors
    /// As [`PipelineConfig::resolve`].
    pub fn resolve_checkpoint(
        &self,
        checkpoint: Checkpoint,
        folder: &Path,
        machine: Machine<'_>,
    ) -> Result<ResolvedConfig, Error> {
        let mut problems = Problems::default();
        let named = PipelineConfig { huggingface_repo_id: "-".to_string(), ..self.clone() };
        check(&named, self.strategy(), &mut problems);
        self.resolve_with(checkpoint, folder, machine, problems)
    }

    pub(super) fn resolve_with(
        &self,
        checkpoint: Checkpoint,
        folder: &Path,
        machine: Machine<'_>,
        mut problems: Problems,
    ) -> Result<ResolvedConfig, Error> {
        let mut config = self.clone();
        let mut warnings = self.warnings();
        config.resolve_devices(machine.devices, &mut problems);
        config.resolve_architecture(&checkpoint);
        if config.rope_type.is_some() && checkpoint.weights().format() != Format::Gguf {
            warnings.push(
                "rope_type has no effect: the weights are no GGUF files, and only those leave a choice"
                    .into(),
            );
        }
        if matches!(checkpoint.network, Network::Encoder(_)) {
            warnings.extend(config.idle_in_encoders(&checkpoint.config.architecture));
        }
        warnings.extend(unused(&checkpoint));
        config.resolve_encoding(&checkpoint, &mut problems);
        let files = checkpoint.weights().files().iter().map(|file| file.path());
        config.weight_path = files.filter(|file| file.exists()).map(Path::to_path_buf).collect();
        config.resolve_length(checkpoint.network.context_length(), &mut problems, &mut warnings);
        config.engine = Some(PipelineEngine::Max);
        config.cache_strategy = self.strategy();
        let on_host = config.device_specs.first().is_none_or(|spec| spec.is_host());
        if config.max_num_steps == -1 {
            config.max_num_steps = if on_host { 1 } else { STEPS_OF_ACCELERATORS };
        }
        if !problems.0.is_empty() {
            return Err(Error::Config(problems.0));
        }
        let recommended = recommended_sampling(&checkpoint, folder, self.names_no_folder())?;
        let weights = checkpoint.bytes();
        let request = config.memory_request(&checkpoint.network, weights, machine.free_memory, on_host);
        let plan = request.plan()?;
        config.max_length = Auto::At(plan.max_length);
        config.max_cache_batch_size = Auto::At(plan.max_batch);
        config.max_ce_batch_size = config.max_ce_batch_size.min(plan.max_batch);
        warnings.extend(plan.warnings.iter().cloned());
        let folder = folder.to_path_buf();
        let asked_length = self.asked_length();
        Ok(ResolvedConfig { config, checkpoint, folder, plan, request, recommended, asked_length, warnings })
    }

    /// Whether the model is a file, or weights alone.
    fn names_no_folder(&self) -> bool {
        let model = self.huggingface_repo_id.trim();
        model.is_empty() || Path::new(model).is_file()
    }

    /// The cache strategy that will be used. Every decoder can do all of them, and prefers pages.
    pub(super) fn strategy(&self) -> KVCacheStrategy {
        match self.cache_strategy {
            KVCacheStrategy::ModelDefault => KVCacheStrategy::Paged,
            strategy => strategy,
        }
    }

    /// Fetches and opens the model.
    fn open(
        &mut self,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<(Checkpoint, PathBuf, Vec<String>), Error> {
        let (folder, mut warnings) = self.fetch(progress)?;
        let weights = self.open_files()?;
        let (checkpoint, more) = self.open_weights(weights, &folder)?;
        warnings.extend(more);
        Ok((checkpoint, folder, warnings))
    }

    /// The model of weights that are open, whose configuration is in `folder` unless they carry it.
    pub(super) fn open_weights(
        &mut self,
        weights: Weights,
        folder: &Path,
    ) -> Result<(Checkpoint, Vec<String>), Error> {
        let mut warnings = Vec::new();
        // A GGUF file names its architecture itself. That config.json names none is for the models to say.
        if weights.format() != Format::Gguf
            && self.huggingface_config().is_ok_and(|config| names_several(&config))
        {
            warnings.extend(self.update_architecture()?);
        }
        let options = CheckpointOptions {
            gguf_rope: self.rope_type.and_then(RopeType::style),
            max_length: self.max_length.given(),
            architecture: native().find(|&name| self.architecture.as_deref() == Some(name)),
        };
        let checkpoint = Checkpoint::from_weights_with(weights, &folder.join("config.json"), options)?;
        Ok((checkpoint, warnings))
    }

    /// What is no error and has no effect either.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |given: bool, warning: &str| {
            if given {
                warnings.push(warning.to_string());
            }
        };
        let saved = self.serialized_model_path.is_some();
        warn(
            saved && self.save_to_serialized_model_path.is_some(),
            "save_to_serialized_model_path has no effect beside serialized_model_path, which was saved before",
        );
        warn(self.trust_remote_code, "trust_remote_code has no effect: the code of a repo is never run");
        warn(
            self.force_download && Path::new(&self.huggingface_repo_id).exists(),
            "force_download has no effect: the model is on this machine",
        );
        warnings
    }

    /// What is set and means nothing to a model that writes nothing.
    fn idle_in_encoders(&self, architecture: &str) -> Vec<String> {
        let set = [
            ("max_new_tokens", self.max_new_tokens != -1),
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

    pub(super) fn resolve_devices(&mut self, platform: &Platform, problems: &mut Problems) {
        self.device_specs = self.specs_of(platform);
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
        }
    }

    /// What the files name, unless another one was asked for.
    fn resolve_architecture(&mut self, checkpoint: &Checkpoint) {
        let found = &checkpoint.config.architecture;
        let architecture = match checkpoint.weights().format() {
            Format::Gguf => Architecture::from_gguf(found),
            _ => Architecture::from_hugging_face(found),
        };
        if let (None, Ok(architecture)) = (&self.architecture, architecture) {
            self.architecture = Some(architecture.hugging_face.to_string());
        }
    }

    fn resolve_encoding(&mut self, checkpoint: &Checkpoint, problems: &mut Problems) {
        let files: Vec<&Path> = checkpoint.weights().files().iter().map(|file| file.path()).collect();
        let shown = || files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        let found = match encoding_of(checkpoint, &files) {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => {
                return problems.add(
                    "weight_path",
                    shown(),
                    format!("{error}: rename it, or give other weights"),
                );
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
    }

    /// The length that was asked for; the default is nobody's wish.
    fn asked_length(&self) -> Option<usize> {
        self.max_length.given().filter(|_| self.max_length != PipelineConfig::default().max_length)
    }

    /// A length that the model cannot take is refused, unless it is the default, which is nobody's wish.
    pub(super) fn resolve_length(
        &mut self,
        limit: usize,
        problems: &mut Problems,
        warnings: &mut Vec<String>,
    ) {
        let Some(length) = self.max_length.given().filter(|&length| length > limit) else { return };
        if self.asked_length().is_none() {
            warnings.push(format!(
                "max_length is lowered from the default {length} to {limit}, which the model was made for"
            ));
            self.max_length = Auto::At(limit);
        } else {
            problems.add("max_length", length, format!("give at most {limit}, which the model was made for"));
        }
    }

    /// What the KV cache keeps: what is computed, unless the weights are rounded as much anyway.
    pub(super) fn cache_dtype(&self) -> DType {
        self.quantization_encoding.map_or(DType::F32, SupportedEncoding::cache_dtype)
    }

    pub(super) fn memory_request(
        &self,
        network: &Network,
        weights: u64,
        free: Option<u64>,
        on_host: bool,
    ) -> MemoryRequest {
        let strategy = self.strategy();
        MemoryRequest {
            weights,
            cache_bytes_per_token: network.cache_bytes_per_token(self.cache_dtype()) as u64,
            page_size: self.kv_cache_page_size,
            strategy,
            pad_to_multiple_of: if strategy == KVCacheStrategy::Naive { self.pad_to_multiple_of } else { 1 },
            free,
            utilization: self.gpu_memory_utilization,
            model_length: network.context_length(),
            max_length: self.max_length,
            max_batch: self.max_cache_batch_size,
            on_host,
        }
    }
}

/// Steps without scheduling between them where each launch costs.
const STEPS_OF_ACCELERATORS: i64 = 10;

/// How many tensors that are left out are named.
const NAMED: usize = 3;

/// That a model does without some of its tensors, which it should not.
fn unused(checkpoint: &Checkpoint) -> Option<String> {
    let unused = checkpoint.unused();
    let (named, rest) = unused.split_at(unused.len().min(NAMED));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    (!named.is_empty()).then(|| {
        format!(
            "{} of the weights have no place in {}, and are left out: the model may be of another architecture",
            named.join(", ") + &more,
            checkpoint.config.architecture
        )
    })
}

/// Whether a `config.json` names several architectures.
fn names_several(config: &Value) -> bool {
    config.get("architectures").and_then(Value::as_array).is_some_and(|names| names.len() > 1)
}

/// The encoding of a model's files, whose names must not promise another one; of a model in memory, that of most bytes
/// of its matrices.
fn encoding_of(checkpoint: &Checkpoint, files: &[&Path]) -> Result<Option<SupportedEncoding>, HubError> {
    let name = || files[0].file_name().unwrap_or_default().to_string_lossy();
    if files.iter().all(|file| file.exists()) {
        return Content::of(files)?.of_file_named(&name()).map(Some);
    }
    if !checkpoint.weights().has_values() {
        return Content::of_weights([checkpoint.weights()]).of_file_named(&name()).map(Some);
    }
    let mut bytes = BTreeMap::new();
    for (_, tensor) in checkpoint.weights().tensors().filter(|(_, tensor)| tensor.shape().rank() >= 2) {
        if let Some(encoding) = SupportedEncoding::from_dtype(tensor.dtype()) {
            *bytes.entry(encoding).or_insert(0) += tensor.dtype().bytes_for(tensor.elements()).unwrap_or(0);
        }
    }
    Ok(bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(encoding, _)| encoding))
}

/// What a model's files say of how its tokens are to be chosen. Of a GGUF file, that is its own metadata, and what lies
/// beside it if a folder or a repo was named: beside a single file there may be other models.
fn recommended_sampling(
    checkpoint: &Checkpoint,
    folder: &Path,
    is_file: bool,
) -> Result<SamplingOptions, Error> {
    let weights = checkpoint.weights();
    let beside = || SamplingOptions::from_generation_config(&folder.join("generation_config.json"));
    if weights.format() != Format::Gguf {
        return beside();
    }
    let own = SamplingOptions::from_gguf(weights.metadata()).map_err(|error| {
        let path = weights.files().first().map_or(folder, |file| file.path()).to_path_buf();
        Error::GenerationConfig { path, problem: error.to_string() }
    })?;
    Ok(if is_file { own } else { beside()?.or(own) })
}

impl ResolvedConfig {
    /// The configuration, with every field decided.
    pub fn config(&self) -> &PipelineConfig {
        &self.config
    }

    /// The model, opened.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// What the KV cache keeps.
    pub fn cache_dtype(&self) -> DType {
        self.config.cache_dtype()
    }

    /// How the makers of the model want its tokens chosen: what its `generation_config.json` says, or the metadata of a
    /// GGUF file.
    pub fn recommended_sampling(&self) -> SamplingOptions {
        self.recommended
    }

    /// How tokens are chosen where requests leave it open: as the configuration says, else as the model's makers
    /// recommend, else greedily.
    pub fn sampling_defaults(&self) -> SamplingOptions {
        self.config.sampling_defaults().or(self.recommended)
    }

    /// Builds the model's tokenizer.
    ///
    /// # Errors
    /// As [`CompiledText::tokenizer`](crate::CompiledText::tokenizer).
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        compiled::tokenizer(&self.checkpoint, &self.folder)
    }

    /// Reads the model's chat template.
    ///
    /// # Errors
    /// As [`TextModel::chat_template`](crate::TextModel::chat_template).
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        compiled::chat_template(&self.checkpoint, &self.folder)
    }

    /// The folder with the model's tokenizer and further files, unless a GGUF file has all inside.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The length that somebody asked for. The default is nobody's wish, nor is what follows from the memory.
    pub(crate) fn asked_length(&self) -> Option<usize> {
        self.asked_length
    }

    /// What is asked of memory, with what was left open as it was.
    pub fn memory_request(&self) -> &MemoryRequest {
        &self.request
    }

    /// How memory is divided.
    pub fn memory(&self) -> &MemoryPlan {
        &self.plan
    }

    /// What is worth a warning.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
