//! Models that the server lists, and what is known of them.

use pipelines::{Plan, SamplingOptions};
use tensor::DeviceSpec;

use super::residency::ModelKey;
use crate::config::{ModelConfig, ModelKind};

/// A model that the server lists, in memory or not.
pub(crate) struct ServedModel {
    pub(super) key: ModelKey,
    /// Its name and its settings.
    pub(super) config: ModelConfig,
    /// Whether a request added it, and not the command line or the settings.
    pub(super) is_added: bool,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) facts: ModelFacts,
}

/// The facts of a model, loaded or not.
#[derive(Debug)]
pub(crate) struct ModelFacts {
    pub(crate) kind: ModelKind,
    pub(crate) architecture: String,
    /// The encoding of its weights.
    pub(crate) encoding: String,
    pub(crate) parameters: Option<usize>,
    /// Where its weights and its cache are.
    pub(super) device: DeviceSpec,
    /// Bytes of its weights.
    pub(crate) weight_bytes: u64,
    /// Bytes of its cache.
    pub(crate) cache_bytes: u64,
    /// The most that these may be, if it shares memory with others.
    pub(super) cache_limit: Option<u64>,
    /// Bytes of its weights and its cache.
    pub(crate) need: u64,
    /// The most tokens of a text, an answer to it included.
    pub(crate) max_length: usize,
    /// How tokens are chosen where requests leave it open.
    pub(crate) sampling: SamplingOptions,
}

impl ServedModel {
    /// The name by which requests choose it.
    pub(crate) fn id(&self) -> &str {
        &self.config.id
    }

    /// The file, the folder or the repo that it is read from.
    pub(crate) fn path(&self) -> String {
        if self.config.config.is_built_in() { self.id() } else { &self.config.config.huggingface_repo_id }
            .to_string()
    }

    /// Other names for it.
    pub(crate) fn aliases(&self) -> &[String] {
        &self.config.aliases
    }

    /// Whether a request with a name means it.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.config.id == name || self.config.aliases.iter().any(|alias| alias == name)
    }
}

impl ModelFacts {
    /// The facts of a plan.
    ///
    /// # Errors
    /// If the model does not fit into memory.
    pub(super) fn from_plan(plan: &Plan, kind: Option<ModelKind>) -> Result<ModelFacts, pipelines::Error> {
        let memory = plan.memory()?;
        let encoding = plan.config().quantization_encoding;
        Ok(ModelFacts {
            kind: kind.unwrap_or_else(|| ModelKind::for_plan(plan)),
            architecture: plan.architecture().to_string(),
            encoding: encoding.map(|encoding| encoding.to_string()).unwrap_or_default(),
            parameters: plan.parameters().map(|count| count.all),
            device: plan.config().accelerator().unwrap_or(DeviceSpec::cpu()),
            weight_bytes: plan.weight_bytes().unwrap_or(0),
            cache_bytes: memory.cache,
            cache_limit: plan.cache_limit(),
            need: memory.weights.saturating_add(memory.cache),
            max_length: memory.max_length,
            sampling: plan.sampling_defaults(),
        })
    }
}
