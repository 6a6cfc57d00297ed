//! Which models a server has, and how they come into memory and leave it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pipelines::config::PipelineConfig;
use pipelines::{ChatTemplate, Plan, SamplingOptions};

use super::KeepAlive;

/// A model to serve.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// The name by which requests choose it.
    pub id: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// Which of the server's routes it answers; `None` follows from its architecture.
    pub kind: Option<ModelKind>,
    /// Which files, and how they run.
    pub config: PipelineConfig,
    /// How long it stays in memory unused; `None` is the server's default.
    pub keep_alive: Option<KeepAlive>,
    /// Whether it stays in memory, once it is there, until it is unloaded by name.
    pub pin: bool,
    /// The chat template in place of the model's own.
    pub template: Option<ChatTemplate>,
    /// How tokens are chosen where neither a request nor a preset says.
    pub sampling: SamplingOptions,
}

impl ModelConfig {
    /// A model under its own name: that of its file without the extension, of its folder, or of its repo.
    pub fn new(config: PipelineConfig) -> ModelConfig {
        let path = Path::new(&config.huggingface_repo_id);
        let id = if config.is_built_in() {
            storyteller::NAME.to_string()
        } else if path.is_file() {
            path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
        } else if path.is_dir() || config.huggingface_repo_id.is_empty() {
            config.short_name()
        } else {
            config.huggingface_repo_id.clone()
        };
        ModelConfig {
            id,
            aliases: Vec::new(),
            kind: None,
            config,
            keep_alive: None,
            pin: false,
            template: None,
            sampling: SamplingOptions::default(),
        }
    }

    /// Whether it is the same model under the same name, so that it can stay in memory in place of the other.
    pub(crate) fn is_same_model(&self, other: &ModelConfig) -> bool {
        self.id == other.id
            && self.kind == other.kind
            && self.config == other.config
            && self.template_sources().eq(other.template_sources())
    }

    /// The names and sources of the template.
    pub(crate) fn template_sources(&self) -> impl Iterator<Item = (String, &str)> {
        self.template.iter().flat_map(ChatTemplate::gguf_keys)
    }
}

/// What a model makes of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// More text.
    Text,
    /// Vectors.
    Embedding,
    /// Scores of labels, or of documents that may answer a query.
    Classifier,
}

impl ModelKind {
    /// The kind that follows from the architecture: models embed unless they have a head, which scores texts or makes text.
    pub(crate) fn for_plan(plan: &Plan) -> ModelKind {
        if plan.is_classifier() {
            ModelKind::Classifier
        } else if !plan.makes_text() {
            ModelKind::Embedding
        } else {
            ModelKind::Text
        }
    }
}

/// How models come into memory and leave it.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// Bytes of memory to divide among the models; `None` is what is free when the server starts.
    pub memory: Option<u64>,
    /// How long a model stays in memory unused. `None` is five minutes of several models, and for ever of one.
    pub keep_alive: Option<KeepAlive>,
    /// Whether no model is loaded before a request needs it.
    pub lazy: bool,
    /// How long a request waits until its model is loaded.
    pub load_timeout: Duration,
    /// The most requests of a model that wait for their start; further ones are refused.
    pub max_queue: usize,
    /// How long an answer is kept whose client does not read it.
    pub read_timeout: Duration,
    /// How tokens are chosen where neither a request nor a preset nor the model's settings say.
    pub sampling: SamplingOptions,
    /// Has the allocator of the process return freed memory to the system; called when a model has left.
    pub return_memory: fn(),
    /// The configuration of models that requests pull, except for the model itself.
    pub defaults: PipelineConfig,
    /// The file that keeps models that requests pulled, and presets that they made; `None` keeps them until the server
    /// ends.
    pub catalog: Option<PathBuf>,
}

impl Default for ModelSettings {
    fn default() -> ModelSettings {
        ModelSettings {
            memory: None,
            keep_alive: None,
            lazy: false,
            load_timeout: Duration::from_secs(600),
            max_queue: 512,
            read_timeout: Duration::from_secs(300),
            sampling: SamplingOptions::default(),
            return_memory: || (),
            defaults: PipelineConfig::default(),
            catalog: None,
        }
    }
}
