//! A checkpoint compiled for what it is to do, whose weights are packed, or read as they were saved.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{CompiledModel, InferenceSession, InitOptions, Model, PackError, Progress, WeightsRegistry};
use graph::Graph;
use models::{Checkpoint, Network};
use serde::{Deserialize, Serialize};
use tensor::{DType, Shape, Tensor};
use text::{ChatTemplate, Error as TextError, Tokenizer};
use weights::{Format, Weights};

use crate::Error;
use crate::config::ResolvedConfig;
use crate::memory::{self, MemoryNeed};
use crate::serialized::{Recipe, Settings};

/// What a model is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Predict tokens.
    Write,
    /// Give hidden states.
    Embed,
}

/// What the KV cache of a compiled model is like; encoders have none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheLayout {
    /// Tokens in a page: a power of two, at least 16.
    pub(crate) page_size: usize,
    /// What is kept: f32, bf16 or f16.
    pub(crate) dtype: DType,
}

/// A checkpoint that was opened and compiled, without weights or tokenizer yet.
pub(crate) struct Compiled {
    pub(crate) checkpoint: Arc<Checkpoint>,
    /// The folder with the tokenizer's files, for checkpoints that do not carry one.
    pub(crate) folder: PathBuf,
    pub(crate) model: CompiledModel,
    pub(crate) cache: CacheLayout,
    packed: Packed,
}

/// Where the packed weights of a compiled model are.
enum Packed {
    /// Nowhere: they are packed when the model is initialized.
    No,
    /// In the file that it was read from.
    Stored,
    /// In a file that is to be written first.
    ToSave(PathBuf, Recipe),
}

/// A model with its weights and its tokenizer.
pub(crate) struct Initialized {
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) folder: PathBuf,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) model: Model,
    pub(crate) cache: CacheLayout,
}

impl Task {
    /// What a model does that is asked for nothing in particular.
    pub(crate) fn of(network: &Network) -> Task {
        match network {
            Network::Decoder(_) => Task::Write,
            Network::Encoder(_) => Task::Embed,
        }
    }

    /// The same in a word.
    pub(crate) fn does(self) -> &'static str {
        match self {
            Task::Write => "writes",
            Task::Embed => "embeds",
        }
    }

    fn graph(self, checkpoint: &Checkpoint, cache: CacheLayout) -> Result<Graph, models::Error> {
        match self {
            Task::Write => checkpoint.graph(cache.page_size, cache.dtype),
            Task::Embed => checkpoint.hidden_graph(cache.page_size, cache.dtype),
        }
    }
}

impl Compiled {
    /// Compiles a checkpoint. Its tokenizer is in the GGUF metadata, or else in `folder`.
    pub(crate) fn new(
        session: &InferenceSession,
        checkpoint: Checkpoint,
        folder: &Path,
        cache: CacheLayout,
        task: Task,
    ) -> Result<Compiled, Error> {
        let model = session.compile(&task.graph(&checkpoint, cache)?)?;
        let (checkpoint, folder) = (Arc::new(checkpoint), folder.to_path_buf());
        Ok(Compiled { checkpoint, folder, model, cache, packed: Packed::No })
    }

    /// Compiles the model of a resolved configuration, or reads it from the file of `serialized_model_path`.
    ///
    /// # Errors
    /// As [`Compiled::new`], and if the file was made from another model or with other settings.
    pub(crate) fn from_config(
        session: &InferenceSession,
        resolved: ResolvedConfig,
        task: Task,
    ) -> Result<Compiled, Error> {
        let dtype = resolved.cache_dtype();
        let ResolvedConfig { config, checkpoint, folder, .. } = resolved;
        let cache = CacheLayout { page_size: config.kv_cache_page_size, dtype };
        let recipe = |graph: &Graph| {
            Recipe::new(Settings::of(&checkpoint, config.quantization_encoding, cache), task, graph)
        };
        let graph = task.graph(&checkpoint, cache)?;
        let (model, packed) = match (config.serialized_model_path, config.save_to_serialized_model_path) {
            (Some(path), _) => (recipe(&graph).load(session, &path, checkpoint.weights())?, Packed::Stored),
            (None, Some(path)) => (session.compile(&graph)?, Packed::ToSave(path, recipe(&graph))),
            (None, None) => (session.compile(&graph)?, Packed::No),
        };
        Ok(Compiled { checkpoint: Arc::new(checkpoint), folder, model, cache, packed })
    }

    /// What the weights and a cache of `tokens` tokens need, and what there is.
    pub(crate) fn memory(&self, tokens: usize) -> MemoryNeed {
        let bytes_per_token = self.checkpoint.network.cache_bytes_per_token(self.cache.dtype);
        let pages = tokens.div_ceil(self.cache.page_size);
        MemoryNeed {
            weights: self.checkpoint.bytes(),
            cache: (pages as u64)
                .saturating_mul(self.cache.page_size as u64)
                .saturating_mul(bytes_per_token as u64),
            available: memory::available().unwrap_or(u64::MAX),
        }
    }

    /// Binds and packs the weights, and builds the tokenizer beside it. `progress` is told of each weight.
    ///
    /// # Errors
    /// If a weight cannot be packed, the weights do not fit into memory, or there is no tokenizer.
    pub(crate) fn init(
        mut self,
        session: &InferenceSession,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Initialized, Error> {
        self.memory(0).check(0)?;
        let mut registry: Box<dyn WeightsRegistry> =
            Box::new(CheckpointWeights(Arc::clone(&self.checkpoint)));
        if let Packed::ToSave(path, recipe) = &self.packed {
            let weights = self.checkpoint.weights();
            recipe.save(&self.model, (weights, &*registry), path, progress)?;
            self.model = session.compile(path.as_path())?;
            self.packed = Packed::Stored;
        }
        if matches!(self.packed, Packed::Stored) {
            registry = Box::new(());
        }
        let options = InitOptions { progress: Some(progress), ..InitOptions::default() };
        let (model, tokenizer) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| tokenizer(&self.checkpoint, &self.folder));
            let model = session.init_with(&self.model, &*registry, options);
            (model, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (model, tokenizer) = (model?, Arc::new(tokenizer?));
        let Compiled { checkpoint, folder, cache, .. } = self;
        Ok(Initialized { checkpoint, folder, tokenizer, model, cache })
    }
}

/// The tokenizer of a checkpoint: in its GGUF metadata, or else in `folder`.
pub(crate) fn tokenizer(checkpoint: &Checkpoint, folder: &Path) -> Result<Tokenizer, Error> {
    let weights = checkpoint.weights();
    if !has_tokenizer(weights) {
        return match Tokenizer::from_directory(folder) {
            // In a GGUF file it was expected, so that is where it lacks.
            Err(TextError::Tokenizer { problem, .. }) if weights.format() == Format::Gguf => {
                let problem = format!("the file has none inside, nor is there one beside it: {problem}");
                Err(TextError::tokenizer(origin(weights), problem).into())
            }
            other => Ok(other?),
        };
    }
    let tokenizer = Tokenizer::from_gguf(weights.metadata()).map_err(|error| match error {
        TextError::Tokenizer { problem, .. } => TextError::tokenizer(origin(weights), problem),
        TextError::Weights(error) => TextError::tokenizer(origin(weights), error),
        other => other,
    });
    Ok(tokenizer?)
}

/// Whether weights have a tokenizer inside, as most GGUF files do.
fn has_tokenizer(weights: &Weights) -> bool {
    let mut keys = weights.metadata().iter().map(|(key, _)| key);
    weights.format() == Format::Gguf && keys.any(|key| key.starts_with("tokenizer.ggml."))
}

/// The first file of weights, as messages name it.
fn origin(weights: &Weights) -> String {
    weights.files().first().map(|file| file.path().display().to_string()).unwrap_or_default()
}

/// The chat template of a checkpoint, as [`tokenizer`].
pub(crate) fn chat_template(checkpoint: &Checkpoint, folder: &Path) -> Result<Option<ChatTemplate>, Error> {
    Ok(if has_tokenizer(checkpoint.weights()) {
        ChatTemplate::from_gguf(checkpoint.weights().metadata())?
    } else {
        ChatTemplate::from_directory(folder)?
    })
}

/// A checkpoint as the engine asks for weights.
pub(crate) struct CheckpointWeights<C>(pub(crate) C);

impl<C: Deref<Target = Checkpoint> + Send + Sync> WeightsRegistry for CheckpointWeights<C> {
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
        Ok(self.0.tensor(name)?)
    }

    fn describe(&self, name: &str) -> Result<Option<(DType, Shape)>, String> {
        Ok(self.0.describe(name))
    }

    fn release(&self, name: &str) {
        self.0.release(name);
    }
}
