//! A configuration with every choice made: what it says, and what follows from it.

use std::path::{Path, PathBuf};

use models::Checkpoint;
use sources::{FileSet, Progress};
use tensor::DType;

use super::PipelineConfig;
use super::resolve::recommended_sampling;
use crate::memory_plan::{MemoryPlan, MemoryRequest};
use crate::{ChatTemplate, Error, SamplingOptions, Tokenizer, compiled};

/// A configuration with every choice made, and the model it is of, opened.
#[derive(Debug)]
pub struct ResolvedConfig {
    pub(crate) config: PipelineConfig,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) folder: PathBuf,
    pub(crate) plan: MemoryPlan,
    pub(super) request: MemoryRequest,
    pub(super) recommended: SamplingOptions,
    pub(super) asked_length: Option<usize>,
    pub(super) warnings: Vec<String>,
}

impl ResolvedConfig {
    /// Fetches the files whose headers were planned with, and opens them. Nothing is decided anew.
    pub(super) fn fetch(
        mut self,
        files: &FileSet,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<ResolvedConfig, Error> {
        let local = self.config.fetch(files, progress)?;
        let weights = self.config.converted(local.open()?)?;
        self.checkpoint = self.config.checkpoint(weights, &local.folder)?;
        self.recommended =
            recommended_sampling(&self.checkpoint, &local.folder, self.config.names_no_folder())?;
        self.folder = local.folder;
        Ok(self)
    }

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
        self.config.kept_dtype()
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
