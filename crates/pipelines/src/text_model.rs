//! A model that can write: checkpoint, tokenizer and executable, loaded together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{CompiledModel, InferenceSession, InitOptions, Model, Progress, WeightsRegistry};
use models::{Checkpoint, Decoder};
use tensor::{Bytes, DType, Shape, Tensor};
use weights::Weights;

use crate::memory::{self, MemoryNeed};
use crate::runner::Runner;
use crate::tokenizer::Tokenizer;
use crate::{Error, OutOfMemory};

/// Tokens in a page of the KV cache, unless asked otherwise: small against a text, large against its bookkeeping.
const DEFAULT_PAGE_SIZE: usize = 64;
/// What the KV cache keeps, unless asked otherwise: keys and values as they are computed.
const DEFAULT_CACHE_DTYPE: DType = DType::F32;

/// Where a model is, and how it is to be loaded.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// A GGUF file, or a folder (or weights file in a folder) with a `config.json`.
    pub model: PathBuf,
    /// The weights, if they are elsewhere.
    pub weights: Option<PathBuf>,
    /// Tokens in a page of the KV cache: a power of two, at least 16.
    pub page_size: usize,
    /// What the KV cache keeps: f32, or bf16 or f16, which take half the memory.
    pub cache_dtype: DType,
}

impl LoadOptions {
    /// The model at a path, with the defaults.
    pub fn new(model: impl Into<PathBuf>) -> LoadOptions {
        LoadOptions {
            model: model.into(),
            weights: None,
            page_size: DEFAULT_PAGE_SIZE,
            cache_dtype: DEFAULT_CACHE_DTYPE,
        }
    }
}

/// A checkpoint that was opened and compiled, without weights or tokenizer yet.
pub struct CompiledText {
    checkpoint: Arc<Checkpoint>,
    /// The folder with the tokenizer's files, for checkpoints that do not carry one.
    folder: PathBuf,
    compiled: CompiledModel,
    page_size: usize,
    cache_dtype: DType,
}

/// A model ready to write.
pub struct TextModel {
    checkpoint: Arc<Checkpoint>,
    tokenizer: Arc<Tokenizer>,
    model: Model,
    page_size: usize,
    cache_dtype: DType,
}

impl CompiledText {
    /// Opens a model and compiles its graph; no weight is read.
    ///
    /// # Errors
    /// If the files cannot be read, or the architecture is not supported.
    pub fn open(session: &InferenceSession, options: &LoadOptions) -> Result<CompiledText, Error> {
        let checkpoint = Checkpoint::open(&options.model, options.weights.as_deref())?;
        let folder =
            if options.model.is_dir() { Some(options.model.as_path()) } else { options.model.parent() };
        let folder = folder.unwrap_or(Path::new(""));
        CompiledText::new(session, checkpoint, folder, options.page_size, options.cache_dtype)
    }

    /// Compiles the model of a GGUF file that is in memory already; `name` stands for its path in messages.
    ///
    /// # Errors
    /// As [`CompiledText::open`].
    pub fn from_gguf(session: &InferenceSession, name: &str, bytes: Bytes) -> Result<CompiledText, Error> {
        let weights = Weights::from_bytes(name, bytes).map_err(models::Error::from)?;
        let checkpoint = Checkpoint::from_weights(weights, Path::new("config.json"))?;
        CompiledText::new(session, checkpoint, Path::new(""), DEFAULT_PAGE_SIZE, DEFAULT_CACHE_DTYPE)
    }

    /// Compiles a checkpoint that is open already. Its tokenizer is in the GGUF metadata, or else in `folder`.
    ///
    /// # Errors
    /// If the graph cannot be built or compiled.
    pub fn new(
        session: &InferenceSession,
        checkpoint: Checkpoint,
        folder: &Path,
        page_size: usize,
        cache_dtype: DType,
    ) -> Result<CompiledText, Error> {
        let compiled = session.compile(&checkpoint.graph(page_size, cache_dtype)?)?;
        let folder = folder.to_path_buf();
        Ok(CompiledText { checkpoint: Arc::new(checkpoint), folder, compiled, page_size, cache_dtype })
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Builds the tokenizer: that of the GGUF metadata, or of the files in the model's folder.
    ///
    /// # Errors
    /// If there is none, or it is of a kind that is not supported.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        let weights = self.checkpoint.weights();
        match weights.format() {
            weights::Format::Gguf => Tokenizer::from_gguf(weights.metadata()),
            _ => Tokenizer::from_directory(&self.folder),
        }
    }

    /// What the KV cache keeps.
    pub fn cache_dtype(&self) -> DType {
        self.cache_dtype
    }

    /// The compiled model, for printing its plan.
    pub fn compiled(&self) -> &CompiledModel {
        &self.compiled
    }

    /// What the weights and a cache of `tokens` tokens need, and what there is.
    pub fn memory(&self, tokens: usize) -> MemoryNeed {
        let decoder = &self.checkpoint.decoder;
        let pages = tokens.div_ceil(self.page_size);
        MemoryNeed {
            weights: self.checkpoint.weights().bytes(),
            cache: (pages as u64)
                .saturating_mul(self.page_size as u64)
                .saturating_mul(decoder.cache_bytes_per_token(self.cache_dtype) as u64),
            available: memory::available().unwrap_or(u64::MAX),
        }
    }

    /// Binds and packs the weights, and builds the tokenizer beside it. `progress` is told of each weight.
    ///
    /// # Errors
    /// If a weight cannot be packed, the weights do not fit into memory, or as [`CompiledText::tokenizer`].
    pub fn init(
        self,
        session: &InferenceSession,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<TextModel, Error> {
        self.memory(0).check(0)?;
        let registry = CheckpointWeights(Arc::clone(&self.checkpoint));
        let options = InitOptions { progress: Some(progress), ..InitOptions::default() };
        let (model, tokenizer) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| self.tokenizer());
            let model = session.init_with(&self.compiled, &registry, options);
            (model, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (model, tokenizer) = (model?, Arc::new(tokenizer?));
        let CompiledText { checkpoint, page_size, cache_dtype, .. } = self;
        Ok(TextModel { checkpoint, tokenizer, model, page_size, cache_dtype })
    }
}

impl TextModel {
    /// Opens, compiles and initializes a model.
    ///
    /// # Errors
    /// As [`CompiledText::open`] and [`CompiledText::init`].
    pub fn load(session: &InferenceSession, options: &LoadOptions) -> Result<TextModel, Error> {
        CompiledText::open(session, options)?.init(session, &mut |_| ())
    }

    /// The model as a value.
    pub fn decoder(&self) -> &Decoder {
        &self.checkpoint.decoder
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The executable.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens in a page of the KV cache.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// What the KV cache keeps.
    pub fn cache_dtype(&self) -> DType {
        self.cache_dtype
    }

    /// A runner with a cache of `pages` pages.
    ///
    /// # Errors
    /// If that does not fit into the memory that is free.
    pub fn runner(&self, pages: usize) -> Result<Runner, OutOfMemory> {
        let tokens = pages.saturating_mul(self.page_size);
        let token_bytes = self.decoder().cache_bytes_per_token(self.cache_dtype) as u64;
        let cache = (tokens as u64).saturating_mul(token_bytes);
        let available = memory::available().unwrap_or(u64::MAX);
        MemoryNeed { weights: 0, cache, available }.check(tokens)?;
        let shape = self.decoder().cache_shape(pages, self.page_size);
        Ok(Runner::new(self.model.clone(), shape, self.decoder().vocab))
    }
}

/// A checkpoint as the engine asks for weights.
struct CheckpointWeights(Arc<Checkpoint>);

impl WeightsRegistry for CheckpointWeights {
    fn get(&self, name: &str) -> Result<Option<Tensor>, String> {
        Ok(self.0.tensor(name))
    }

    fn describe(&self, name: &str) -> Result<Option<(DType, Shape)>, String> {
        Ok(self.0.describe(name))
    }

    fn release(&self, name: &str) {
        self.0.release(name);
    }
}
