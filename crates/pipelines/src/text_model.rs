//! A model that can write: checkpoint, tokenizer and executable, loaded together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{CompiledModel, InferenceSession, Model, Progress};
use models::{Checkpoint, Decoder, Network};
use tensor::DType;

use crate::compiled::{self, CacheLayout, Compiled, Initialized, Task};
use crate::config::ResolvedConfig;
use crate::embedding_model::EmbeddingModel;
use crate::memory::{self, MemoryNeed};
use crate::runner::Runner;
use crate::tokenizer::Tokenizer;
use crate::{ChatTemplate, Error, OutOfMemory};

/// A checkpoint that was opened and compiled, without weights or tokenizer yet.
pub struct CompiledText(Compiled);

/// A model ready to write.
pub struct TextModel {
    checkpoint: Arc<Checkpoint>,
    folder: PathBuf,
    tokenizer: Arc<Tokenizer>,
    model: Model,
    page_size: usize,
    cache_dtype: DType,
}

impl CompiledText {
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
        let cache = CacheLayout { page_size, dtype: cache_dtype };
        let task = Task::of(&checkpoint.network);
        Compiled::new(session, checkpoint, folder, cache, task).map(CompiledText)
    }

    /// Compiles the model of a resolved configuration, or reads it from the file of `serialized_model_path`.
    ///
    /// # Errors
    /// As [`CompiledText::new`], and if the file was made from another model or with other settings.
    pub fn from_config(session: &InferenceSession, resolved: ResolvedConfig) -> Result<CompiledText, Error> {
        let task = Task::of(&resolved.checkpoint.network);
        Compiled::from_config(session, resolved, task).map(CompiledText)
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.0.checkpoint
    }

    /// Builds the tokenizer: that of the GGUF metadata, or of the files in the model's folder.
    ///
    /// # Errors
    /// If there is none, or it is of a kind that is not supported.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        compiled::tokenizer(&self.0.checkpoint, &self.0.folder)
    }

    /// What the KV cache keeps.
    pub fn cache_dtype(&self) -> DType {
        self.0.cache.dtype
    }

    /// The compiled model, for printing its plan.
    pub fn compiled(&self) -> &CompiledModel {
        &self.0.model
    }

    /// What the weights and a cache of `tokens` tokens need, and what there is.
    pub fn memory(&self, tokens: usize) -> MemoryNeed {
        self.0.memory(tokens)
    }

    /// Binds and packs the weights, and builds the tokenizer beside it. `progress` is told of each weight.
    ///
    /// # Errors
    /// If the model is an encoder, a weight cannot be packed, the weights do not fit into memory, or as
    /// [`CompiledText::tokenizer`].
    pub fn init(
        self,
        session: &InferenceSession,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<TextModel, Error> {
        if let Network::Encoder(_) = self.0.checkpoint.network {
            return Err(Error::NotForText { architecture: self.0.checkpoint.config.architecture.clone() });
        }
        let Initialized { checkpoint, folder, tokenizer, model, cache } = self.0.init(session, progress)?;
        let CacheLayout { page_size, dtype: cache_dtype } = cache;
        Ok(TextModel { checkpoint, folder, tokenizer, model, page_size, cache_dtype })
    }

    /// As [`CompiledText::init`], for an encoder.
    ///
    /// # Errors
    /// If the model is a decoder, what its files say of embeddings is not supported, or as [`CompiledText::init`].
    pub fn init_encoder(
        self,
        session: &InferenceSession,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EmbeddingModel, Error> {
        self.0.checkpoint.encoder()?;
        EmbeddingModel::init(session, self.0, progress)
    }
}

impl TextModel {
    /// Compiles and initializes the model of a resolved configuration.
    ///
    /// # Errors
    /// As [`CompiledText::from_config`] and [`CompiledText::init`].
    pub fn from_config(session: &InferenceSession, resolved: ResolvedConfig) -> Result<TextModel, Error> {
        CompiledText::from_config(session, resolved)?.init(session, &mut |_| ())
    }

    /// The model as a value.
    pub fn decoder(&self) -> &Decoder {
        self.checkpoint.decoder().expect("only decoders are initialized")
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The chat template: that of the GGUF metadata, or of the files in the model's folder; `None` where there is
    /// none.
    ///
    /// # Errors
    /// If there is one, but it is no template.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        compiled::chat_template(&self.checkpoint, &self.folder)
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
    /// If that does not fit into the memory that is free, or the system refuses it.
    pub fn runner(&self, pages: usize) -> Result<Runner, OutOfMemory> {
        let tokens = pages.saturating_mul(self.page_size);
        let token_bytes = self.decoder().state().bytes_per_token(self.cache_dtype) as u64;
        let cache = (tokens as u64).saturating_mul(token_bytes);
        let available = memory::available().unwrap_or(u64::MAX);
        MemoryNeed { weights: 0, cache, available }.check(tokens)?;
        Runner::new(self.model.clone(), pages, self.decoder().vocab)
    }
}
