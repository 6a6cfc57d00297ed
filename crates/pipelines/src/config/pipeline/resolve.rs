//! From what was asked for to what will be done: every choice made, every contradiction found, all at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::devices::Platform;
use models::{Architecture, Checkpoint, CheckpointOptions, EncoderArchitecture, Network};
use sources::{Content, FileSet, Progress};
use tensor::DType;
use weights::{Format, WeightFile, Weights};

use super::check::{Problems, check, native};
use super::methods::{ONE_DEVICE, names};
use super::{Auto, Described, PipelineConfig, ResolvedConfig, saved};
use crate::config::{FloatType, KVCacheStrategy, PipelineEngine, RopeType, SupportedEncoding};
use crate::memory_plan::MemoryRequest;
use crate::serialized::weights_of_artifact;
use crate::{Error, SamplingOptions, memory};

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
        if let Some(path) = self.artifact() {
            let weights = weights_of_artifact(&path)?;
            let config = PipelineConfig { serialized_model_path: Some(path), ..self.clone() };
            return config.resolve_weights(weights, Path::new(""), machine);
        }
        let mut problems = Problems::default();
        let mut config = self.prepare(machine.devices, &mut problems);
        if self.huggingface_repo_id.trim().is_empty() && self.weight_path.is_empty() {
            return Err(Error::Config(problems.0));
        }
        match config.locate_and_look(machine, &problems) {
            // The files agree with the headers: the hub's digests say so.
            Ok((files, Some(Described::ByHeaders(resolved)))) => resolved.fetch(&files, progress),
            Ok((files, _)) => match config.open(&files, progress) {
                Ok((checkpoint, folder, warnings)) => {
                    let mut resolved = config.resolve_with(checkpoint, &folder, machine, problems)?;
                    resolved.warnings.splice(0..0, warnings);
                    Ok(resolved)
                }
                Err(error) => Err(problems.and(&self.huggingface_repo_id, error)),
            },
            Err(error) => Err(problems.and(&self.huggingface_repo_id, error)),
        }
    }

    /// The files of the model and, unless they are here, what is known of it before they are fetched: enough to tell
    /// whether it can run on this machine. `problems` are those of the configuration.
    fn locate_and_look(
        &mut self,
        machine: Machine<'_>,
        problems: &Problems,
    ) -> Result<(FileSet, Option<Described>), Error> {
        let files = self.locate()?;
        if files.are_here()? {
            return Ok((files, None));
        }
        if !problems.0.is_empty() {
            // They are added by the caller.
            return Err(Error::Config(Vec::new()));
        }
        match self.ahead(&files, machine) {
            Ok(unfetched) => {
                unfetched.check()?;
                Ok((files, Some(unfetched.described)))
            }
            // A hub that gives files whole or not at all.
            Err(Error::Source(sources::Error::Protocol { .. })) => Ok((files, None)),
            Err(error) => Err(error),
        }
    }

    /// Makes every choice for weights that are open already, of whatever place. The model's configuration and its
    /// tokenizer are in the GGUF metadata, or else in `folder`.
    ///
    /// # Errors
    /// As [`PipelineConfig::resolve`].
    pub fn resolve_weights(
        &self,
        weights: Weights,
        folder: &Path,
        machine: Machine<'_>,
    ) -> Result<ResolvedConfig, Error> {
        let mut problems = Problems::default();
        let named = PipelineConfig { huggingface_repo_id: "-".to_string(), ..self.clone() };
        let mut config = named.prepare(machine.devices, &mut problems);
        config.huggingface_repo_id = self.huggingface_repo_id.clone();
        match config.checkpoint(weights, folder) {
            Ok(checkpoint) => config.resolve_with(checkpoint, folder, machine, problems),
            Err(error) => Err(problems.and(&self.huggingface_repo_id, error)),
        }
    }

    /// Checks what can be checked before the model is known, and finds the devices.
    pub(super) fn prepare(&self, platform: &Platform, problems: &mut Problems) -> PipelineConfig {
        let mut config = self.clone();
        check(self, self.strategy(), problems);
        config.resolve_devices(platform, problems);
        saved::check_paths(self, problems);
        config
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
        warnings.extend(checkpoint.config.warning());
        warnings.extend(config.resolve_encoding(&checkpoint, &mut problems));
        let files = checkpoint.weights().files().iter().filter(|file| file.is_mapped());
        config.weight_path = files.map(|file| file.path().to_path_buf()).collect();
        saved::check_model(&config, &checkpoint, folder, &mut problems);
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
        let asked_length = self.max_length.wished();
        Ok(ResolvedConfig { config, checkpoint, folder, plan, request, recommended, asked_length, warnings })
    }

    /// The saved model that is named as the model itself.
    pub(super) fn artifact(&self) -> Option<PathBuf> {
        let path = Path::new(self.huggingface_repo_id.trim());
        let is_artifact = path.extension().is_some_and(|extension| extension == "mef") && path.is_file();
        let is_alone = self.weight_path.is_empty() && self.serialized_model_path.is_none();
        (is_artifact && is_alone).then(|| path.to_path_buf())
    }

    /// Whether the model is a file, or weights alone.
    pub(super) fn names_no_folder(&self) -> bool {
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
        files: &FileSet,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<(Checkpoint, PathBuf, Vec<String>), Error> {
        let local = self.fetch(files, progress)?;
        self.keep_config(&local.folder);
        let weights = self.converted(local.open()?)?;
        let (checkpoint, more) = self.open_weights(weights, &local.folder)?;
        let warnings = files.warnings().iter().cloned().chain(more).collect();
        Ok((checkpoint, local.folder, warnings))
    }

    /// The model of weights that are open, whose configuration is in `folder` unless they carry it.
    pub(super) fn open_weights(
        &mut self,
        weights: Weights,
        folder: &Path,
    ) -> Result<(Checkpoint, Vec<String>), Error> {
        let mut warnings = Vec::new();
        // A GGUF file names its architecture itself.
        if weights.format() != Format::Gguf && self.huggingface_config().is_ok() {
            warnings.extend(self.update_architecture()?);
        }
        Ok((self.checkpoint(weights, folder)?, warnings))
    }

    /// The model of weights, as the configuration wants it read.
    pub(super) fn checkpoint(&self, weights: Weights, folder: &Path) -> Result<Checkpoint, Error> {
        let options = CheckpointOptions {
            gguf_rope: self.rope_type.and_then(RopeType::style),
            max_length: self.max_length.given(),
            architecture: native().find(|&name| self.architecture.as_deref() == Some(name)),
            dtype: self.weights_dtype.map(FloatType::dtype),
        };
        Ok(Checkpoint::from_weights_with(weights, &folder.join("config.json"), options)?)
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
        let gguf = checkpoint.weights().format() == Format::Gguf;
        let found = native_of(&checkpoint.config.architecture, &checkpoint.network, gguf);
        if let (None, Some(name)) = (&self.architecture, found) {
            self.architecture = Some(name.to_string());
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

    /// A length that the model cannot take is refused, unless it is the default, which is nobody's wish.
    pub(super) fn resolve_length(
        &mut self,
        limit: usize,
        problems: &mut Problems,
        warnings: &mut Vec<String>,
    ) {
        let Some(length) = self.max_length.given().filter(|&length| length > limit) else { return };
        if self.max_length.wished().is_none() {
            warnings.push(format!(
                "max_length is lowered from the default {length} to {limit}, which the model was made for"
            ));
            self.max_length = Auto::At(limit);
        } else {
            problems.add("max_length", length, format!("give at most {limit}, which the model was made for"));
        }
    }

    /// What the KV cache keeps: what was asked for, else what is computed, unless the weights are rounded as much anyway.
    pub(super) fn kept_dtype(&self) -> DType {
        let of_cast = |dtype| if dtype == FloatType::Bf16 { DType::BF16 } else { DType::F32 };
        let stored = || self.quantization_encoding.map_or(DType::F32, SupportedEncoding::cache_dtype);
        let is_plain = self.quantization_encoding.is_none_or(|encoding| !encoding.stored_dtype().is_block());
        let of_weights = self.weights_dtype.filter(|_| is_plain).map(of_cast);
        self.cache_dtype.map(FloatType::dtype).or(of_weights).unwrap_or_else(stored)
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
            cache_bytes_per_token: network.cache_bytes_per_token(self.kept_dtype()) as u64,
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

/// The Hugging Face name of a model's architecture, as its files name it.
fn native_of(found: &str, network: &Network, gguf: bool) -> Option<&'static str> {
    match (network, gguf) {
        (Network::Encoder(_), true) => EncoderArchitecture::from_gguf(found).map(|known| known.hugging_face),
        (Network::Decoder(_), true) => Architecture::from_gguf(found).ok().map(|known| known.hugging_face),
        (_, false) => native().find(|&name| name == found),
    }
}

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
        return Content::of_weights([weights], here).of_file_named(&name).map(Some);
    }
    let mut bytes = BTreeMap::new();
    for (_, tensor) in weights.tensors().filter(|(_, tensor)| tensor.shape().rank() >= 2) {
        if let Some(encoding) = SupportedEncoding::from_dtype(tensor.dtype()) {
            *bytes.entry(encoding).or_insert(0) += tensor.dtype().bytes_for(tensor.elements()).unwrap_or(0);
        }
    }
    Ok(bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(encoding, _)| (encoding, None)))
}

/// What a model's files say of how its tokens are to be chosen. Of a GGUF file, that is its own metadata, and what lies
/// beside it if a folder or a repo was named: beside a single file there may be other models.
pub(super) fn recommended_sampling(
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
    // Of headers alone there is no folder.
    Ok(if is_file || folder.as_os_str().is_empty() { own } else { beside()?.or(own) })
}
