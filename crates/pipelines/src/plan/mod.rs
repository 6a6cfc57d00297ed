//! What will be loaded and within which limits, decided before anything is loaded: from a configuration, the headers of
//! a model's files and the memory of a machine.

pub mod config;
mod decide;
mod describe;
mod digest;
pub(crate) mod memory;
pub(crate) mod model_files;
mod saved;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use models::{Checkpoint, Model, Output, Parameters, QuantizeOptions};
use serde::{Deserialize, Serialize};
use sources::{FileSet, PlannedFile, Progress};
use tensor::DType;
use text::{ChatTemplate, Error as TextError, Tokenizer};
use weights::{Format, Weights};

pub use self::decide::Machine;
pub(crate) use self::saved::Identity;
use crate::error::OutOfMemory;
use crate::plan::config::{FIELDS, Field, PipelineConfig, Problems, check};
use crate::plan::memory::{MemoryPlan, MemoryRequest, Room};
use crate::plan::model_files::gguf::{expect_quantizable, other_metadata};
use crate::plan::model_files::transformers::TransformersFacts;
use crate::{Error, SamplingOptions};

/// Fields that say which weights a plan opens, and as what.
const OF_WEIGHTS: [&str; 9] = [
    "huggingface_repo_id",
    "engine",
    "architecture",
    "weight_path",
    "quantization_encoding",
    "rope_type",
    "revision",
    "weights_dtype",
    "quantize",
];

/// A model, the settings that it runs with, and how memory is divided. [`PipelineConfig::plan`] makes it.
///
/// It is the one owner of lengths, batch sizes, pages and dtypes: models, generators and embedders read them here.
/// Clones share the model's headers.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The configuration as it was given, with its devices found.
    asked: PipelineConfig,
    /// The same with every field decided.
    config: PipelineConfig,
    model: Arc<Description>,
    /// The artifact of `serialized_model_path`, as it was saved.
    saved: Option<Arc<Identity>>,
    room: Room,
    request: MemoryRequest,
    memory: Result<MemoryPlan, OutOfMemory>,
    warnings: Vec<String>,
}

/// What a model is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Predict tokens.
    Write,
    /// Give hidden states.
    Embed,
    /// Give logits of labels.
    Classify,
}

/// What the files of a model say before it is loaded.
#[derive(Debug)]
struct Description {
    /// Files to fetch; `None` if the weights are on this machine.
    remote: Option<FileSet>,
    /// `None` of PyTorch files that are to be fetched: they have no headers, and `config.json` describes the model. `None` of
    /// models that do not run as graphs.
    checkpoint: Option<Arc<Checkpoint>>,
    architecture: String,
    outline: Outline,
    /// Bytes of weights in memory; `None` if a hub does not give the sizes of PyTorch files.
    weight_bytes: Option<u64>,
    folder: PathBuf,
    recommended: SamplingOptions,
    warnings: Vec<String>,
}

/// What is known of a model before it is loaded.
#[derive(Debug)]
enum Outline {
    /// Of one that runs as a graph: all of it.
    Graph(Arc<Model>),
    /// Of one that Transformers runs.
    Transformers(TransformersFacts),
}

impl Outline {
    fn context_length(&self) -> usize {
        match self {
            Outline::Graph(model) => model.context_length,
            Outline::Transformers(facts) => facts.context_length,
        }
    }

    fn cache_bytes_per_token(&self, dtype: DType) -> u64 {
        match self {
            Outline::Graph(model) => model.state.bytes_per_token(dtype) as u64,
            Outline::Transformers(facts) => facts.cache_bytes_per_token(dtype),
        }
    }

    /// The size of the largest cache, in bytes, if no buffer may be larger than `buffer`. Each shape of keys and values has
    /// one buffer.
    fn cache_bound(&self, buffer: u64, dtype: DType) -> u64 {
        let Outline::Graph(model) = self else { return u64::MAX };
        let caches = &model.state.per_token;
        let Some(largest) = caches.iter().map(|cache| cache.bytes_per_token(dtype)).max() else {
            return u64::MAX;
        };
        let all = u128::from(buffer) * self.cache_bytes_per_token(dtype) as u128 / (largest as u128).max(1);
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    fn state_bytes_per_slot(&self) -> u64 {
        match self {
            Outline::Graph(model) => model.state.bytes_per_slot() as u64,
            Outline::Transformers(_) => 0,
        }
    }
}

impl Plan {
    /// The configuration with every field decided. If the model does not fit into memory, `max_length` and the batch
    /// sizes are as they were given.
    pub fn config(&self) -> &PipelineConfig {
        &self.config
    }

    /// The plan of the same model with other settings, such as limits of another generator. Nothing is read again.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use perihelion_pipelines::Machine;
    /// # use perihelion_pipelines::config::PipelineConfig;
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
    /// # let platform = engine::devices::Platform::new(|| Arc::new(cpu::Cpu::new(2)));
    /// let plan = PipelineConfig::new(path).plan(Machine::new(&platform))?;
    /// let shorter = plan.with(|config| config.max_length(100).max_cache_batch_size(4))?;
    /// assert_eq!((plan.max_length()?, shorter.max_length()?), (512, 100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the settings contradict each other or the model, or are of other weights.
    pub fn with(&self, change: impl FnOnce(PipelineConfig) -> PipelineConfig) -> Result<Plan, Error> {
        let asked = change(self.asked.clone());
        let mut problems = Problems::default();
        // Weights in memory have no name.
        check(&PipelineConfig { huggingface_repo_id: "-".to_string(), ..asked.clone() }, &mut problems);
        let changed = |field: &&Field| field.value(&asked) != field.value(&self.asked);
        for field in FIELDS.iter().filter(|field| OF_WEIGHTS.contains(&field.name)).filter(changed) {
            let fix = "the weights of this plan are open: plan the configuration again";
            problems.add(field.name, field.text(&asked), fix);
        }
        let (model, saved) = (Arc::clone(&self.model), self.saved.clone());
        Plan::decide(asked, model, saved, self.room, problems)
    }

    /// The plan of the same model with its weights quantized as they are read. An artifact that is saved of it needs no
    /// other file.
    ///
    /// # Errors
    /// If the weights are not fetched yet, GGUF has no way to describe the model or its tokenizer, the mix needs the
    /// importance of columns and there is none, or the settings contradict each other.
    pub fn quantized(&self, options: &QuantizeOptions) -> Result<Plan, Error> {
        let Some(stored) = self.checkpoint() else {
            return Err(Error::Quantize("the weights are not fetched yet".to_string()));
        };
        expect_quantizable(stored, options)?;
        let folder = self.folder().to_path_buf();
        let checkpoint = stored.quantized(&folder.join("config.json"), options)?;
        let quantizer = checkpoint.quantizer().expect("it was quantized");
        other_metadata(quantizer, &checkpoint, &folder)?;
        let asked = PipelineConfig { quantize: Some(options.mix), ..self.asked.clone() };
        let model = Arc::new(asked.description(checkpoint, folder, Vec::new())?);
        Plan::decide(asked, model, None, self.room, Problems::default())
    }

    /// The plan of the same model with a cache of at most `limit` bytes, for models that share a machine. Nothing is read
    /// again.
    ///
    /// # Errors
    /// If the settings contradict each other or the model. That a set length does not fit is an error of [`Plan::memory`].
    pub fn with_cache_limit(&self, limit: u64) -> Result<Plan, Error> {
        let (model, saved) = (Arc::clone(&self.model), self.saved.clone());
        let room = Room { cache_limit: Some(limit), ..self.room };
        Plan::decide(self.asked.clone(), model, saved, room, Problems::default())
    }

    /// The limit of [`Plan::with_cache_limit`], if there is one.
    pub fn cache_limit(&self) -> Option<u64> {
        self.room.cache_limit
    }

    /// The lowest limit of [`Plan::with_cache_limit`], in bytes, with which sequences may be as long as here: all bytes of the
    /// cache if `max_cache_batch_size` was set, else those of one sequence.
    ///
    /// # Errors
    /// If the model does not fit into memory.
    pub fn least_cache_bytes(&self) -> Result<u64, OutOfMemory> {
        Ok(self.request.least_cache(self.memory()?))
    }

    /// The same plan with a cache of `tokens` tokens for all sequences together, rounded up to whole pages.
    #[must_use]
    pub fn with_cache_tokens(mut self, tokens: usize) -> Plan {
        if let Ok(memory) = &mut self.memory {
            memory.cache_tokens = tokens;
        }
        self
    }

    /// The architecture as the model's files name it.
    pub fn architecture(&self) -> &str {
        &self.model.architecture
    }

    /// The model as a value; `None` if it does not run as a graph.
    pub fn model(&self) -> Option<&Model> {
        match &self.model.outline {
            Outline::Graph(model) => Some(model),
            Outline::Transformers(_) => None,
        }
    }

    /// What is known of a model that Transformers runs.
    pub(crate) fn transformers(&self) -> Option<&TransformersFacts> {
        match &self.model.outline {
            Outline::Graph(_) => None,
            Outline::Transformers(facts) => Some(facts),
        }
    }

    /// Whether the model does not run as a graph: the engine is `huggingface`.
    pub fn runs_elsewhere(&self) -> bool {
        self.transformers().is_some()
    }

    /// Checks that the model runs as a graph, for what needs one.
    ///
    /// # Errors
    /// If it does not.
    pub fn expect_graph(&self, what: &'static str) -> Result<(), Error> {
        if self.runs_elsewhere() { Err(Error::NoGraph { what }) } else { Ok(()) }
    }

    /// Checks that the model makes text.
    ///
    /// # Errors
    /// If it is an encoder or a classifier.
    pub fn expect_text(&self) -> Result<(), Error> {
        let architecture = || self.architecture().to_string();
        let refuse =
            || Error::NotForText { architecture: architecture(), is_classifier: self.is_classifier() };
        if self.makes_text() { Ok(()) } else { Err(refuse()) }
    }

    /// The most tokens that the model takes.
    pub fn context_length(&self) -> usize {
        self.model.outline.context_length()
    }

    /// The number of the model's weights; `None` if the model does not run as a graph and the headers of its files are not
    /// read.
    pub fn parameters(&self) -> Option<Parameters> {
        match &self.model.outline {
            Outline::Graph(model) => model.parameters().ok(),
            Outline::Transformers(facts) => facts.parameters.map(|all| Parameters { all, active: all }),
        }
    }

    /// Whether the model has a classification head: it scores texts.
    pub fn is_classifier(&self) -> bool {
        self.model().is_some_and(|model| model.gives(Output::Scores))
    }

    /// Whether the model reads whole texts at once, in both directions, as encoders do.
    pub fn reads_whole_texts(&self) -> bool {
        match &self.model.outline {
            Outline::Graph(model) => !model.runs_in_steps(),
            Outline::Transformers(facts) => !facts.writes,
        }
    }

    /// Whether the model makes text.
    pub fn makes_text(&self) -> bool {
        match &self.model.outline {
            Outline::Graph(model) => model.gives(Output::Logits),
            Outline::Transformers(facts) => facts.writes,
        }
    }

    /// The model's weights, or their headers if they are not fetched yet; `None` of PyTorch files before
    /// [`Plan::fetch`].
    pub fn checkpoint(&self) -> Option<&Arc<Checkpoint>> {
        self.model.checkpoint.as_ref()
    }

    /// How memory is divided.
    ///
    /// # Errors
    /// If the model does not fit, with what to change.
    pub fn memory(&self) -> Result<&MemoryPlan, OutOfMemory> {
        self.memory.as_ref().map_err(|error| *error)
    }

    /// Checks that weights which are not loaded yet, and a cache, fit into the memory of the host that is free now, if they are to
    /// be there. An accelerator refuses what it has no memory for.
    pub(crate) fn check_host_memory(
        &self,
        weights: u64,
        cache: u64,
        tokens: usize,
    ) -> Result<(), OutOfMemory> {
        if self.config.accelerator().is_some() { Ok(()) } else { memory::check(weights, cache, tokens) }
    }

    /// Bytes of memory that were free; `None` if the system does not say.
    pub fn free_memory(&self) -> Option<u64> {
        self.request.free
    }

    /// Bytes of weights; `None` if a hub does not give the sizes of PyTorch files.
    pub fn weight_bytes(&self) -> Option<u64> {
        self.model.weight_bytes
    }

    /// Most tokens of a sequence, prompt and answer together.
    ///
    /// # Errors
    /// If the model does not fit into memory.
    pub fn max_length(&self) -> Result<usize, OutOfMemory> {
        Ok(self.memory()?.max_length)
    }

    /// The `max_length` that someone set; the default and what memory allows do not count.
    pub(crate) fn asked_length(&self) -> Option<usize> {
        self.asked.max_length.asked()
    }

    /// Most tokens in a step, if someone set them.
    pub(crate) fn asked_batch_tokens(&self) -> Option<usize> {
        self.asked.max_batch_tokens.asked()
    }

    /// The dtype of the KV cache.
    pub fn cache_dtype(&self) -> DType {
        self.config.kept_dtype()
    }

    /// Bytes of cache for each token; 0 of encoders.
    pub fn cache_bytes_per_token(&self) -> u64 {
        self.request.cache_bytes_per_token
    }

    /// Bytes of each slot for a state of a sequence; 0 of models that keep nothing of a sequence but its tokens.
    pub fn state_bytes_per_slot(&self) -> u64 {
        self.request.bytes_per_slot
    }

    /// How the model's authors recommend choosing tokens: `generation_config.json`, or the metadata of a GGUF file.
    pub fn recommended_sampling(&self) -> SamplingOptions {
        self.model.recommended
    }

    /// How tokens are chosen if a request leaves it open: by the configuration, else as recommended, else greedily.
    pub fn sampling_defaults(&self) -> SamplingOptions {
        self.config.sampling_defaults().or(self.model.recommended)
    }

    /// The folder with the tokenizer and further files of the model, unless a GGUF file contains them.
    pub fn folder(&self) -> &Path {
        &self.model.folder
    }

    /// Warnings, except those about memory, which are in [`MemoryPlan::warnings`].
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The files of the weights: names, sizes, and which of them are on this machine.
    ///
    /// # Errors
    /// If one is missing.
    pub fn files(&self) -> Result<Vec<PlannedFile>, Error> {
        if let Some(remote) = &self.model.remote {
            return Ok(remote.files()?);
        }
        let files = self.checkpoint().into_iter().flat_map(|checkpoint| checkpoint.weights().files());
        let file = |file: &weights::WeightFile| PlannedFile {
            name: file.path().display().to_string(),
            size: file.path().metadata().ok().map(|metadata| metadata.len()),
            cached: true,
            arrived: 0,
        };
        Ok(files.map(file).collect())
    }

    /// Whether the weights are on this machine.
    pub fn is_local(&self) -> bool {
        self.model.remote.is_none()
    }

    /// Fetches the files that are not on this machine, and opens them. The plan stays: the headers were planned with,
    /// and the hub's digests say that the files agree. PyTorch files have no headers, and are planned with now.
    ///
    /// # Errors
    /// If a file cannot be fetched, is damaged, or contradicts the configuration.
    pub fn fetch(mut self, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Plan, Error> {
        let Some(files) = &self.model.remote else { return Ok(self) };
        if self.model.checkpoint.is_none() && !self.runs_elsewhere() {
            let mut asked = self.asked;
            let model = Arc::new(asked.open(files, progress)?);
            return Plan::decide(asked, model, self.saved, self.room, Problems::default());
        }
        if self.runs_elsewhere() {
            let mut asked = self.asked;
            let model = Arc::new(asked.fetch_for_transformers(files, progress)?);
            return Plan::decide(asked, model, None, self.room, Problems::default());
        }
        let local = self.config.fetch(files, progress)?;
        let weights = self.config.converted(local.open()?)?;
        let checkpoint = self.config.checkpoint(weights, &local.folder)?;
        let warnings = self.model.warnings.clone();
        self.model = Arc::new(self.config.description(checkpoint, local.folder, warnings)?);
        Ok(self)
    }

    /// Builds the tokenizer: that of the GGUF metadata, or of the files in the model's folder.
    ///
    /// # Errors
    /// If there is none, or it is of a kind that is not supported.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        let weights = self.checkpoint().map(|checkpoint| checkpoint.weights());
        let Some(weights) = weights.filter(|weights| has_tokenizer(weights)) else {
            return match (Tokenizer::from_directory(self.folder()), weights) {
                // A GGUF file is expected to have one, so the error names the file.
                (Err(TextError::Tokenizer { problem, .. }), Some(weights))
                    if weights.format() == Format::Gguf =>
                {
                    let problem = format!("the file has none inside, nor is there one next to it: {problem}");
                    Err(TextError::tokenizer(origin(weights), problem).into())
                }
                (other, _) => Ok(other?),
            };
        };
        let tokenizer = Tokenizer::from_gguf(weights.metadata()).map_err(|error| match error {
            TextError::Tokenizer { problem, .. } => TextError::tokenizer(origin(weights), problem),
            TextError::Weights(error) => TextError::tokenizer(origin(weights), error),
            other => other,
        });
        Ok(tokenizer?)
    }

    /// Reads the chat template from the GGUF metadata or the files in the model's folder, if they have one. The built-in
    /// model has `plain`. One that is broken gives its error when it is rendered.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        let weights = self.checkpoint().map(|checkpoint| checkpoint.weights());
        let own = match weights.filter(|weights| has_tokenizer(weights)) {
            Some(weights) => ChatTemplate::from_gguf(weights.metadata()),
            None => ChatTemplate::from_directory(self.folder())?,
        };
        Ok(own.or_else(|| ChatTemplate::named("plain").filter(|_| self.asked.is_built_in())))
    }

    /// The plan, if the model fits into memory.
    pub(crate) fn checked(self) -> Result<Plan, Error> {
        self.memory()?;
        Ok(self)
    }

    /// What the file of `serialized_model_path` was made from.
    pub(crate) fn saved(&self) -> Option<&Identity> {
        self.saved.as_deref()
    }
}

impl Task {
    /// What such a model does, in a word.
    fn does(self) -> &'static str {
        match self {
            Task::Write => "writes",
            Task::Embed => "embeds",
            Task::Classify => "classifies",
        }
    }
}

/// Whether weights contain a tokenizer, as most GGUF files do.
fn has_tokenizer(weights: &Weights) -> bool {
    let mut keys = weights.metadata().iter().map(|(key, _)| key);
    weights.format() == Format::Gguf && keys.any(|key| key.starts_with("tokenizer.ggml."))
}

/// The first file of weights, as messages name it.
fn origin(weights: &Weights) -> String {
    weights.files().first().map(|file| file.path().display().to_string()).unwrap_or_default()
}
