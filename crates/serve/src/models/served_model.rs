//! Models as requests use them: found by name, and kept in memory while they answer.

use std::ops::Deref;
use std::sync::Arc;

use pipelines::{ChatTemplate, Plan, Tokenizer};

use super::loaded::other_task;
use super::residency::{Command, ModelKey};
use super::{LoadedModel, ModelConfig, ModelKind, Models};
use crate::error::ApiError;

/// A model that the server lists, in memory or not.
pub(crate) struct ServedModel {
    pub(super) key: ModelKey,
    /// Its name and its settings.
    pub(super) config: ModelConfig,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) facts: Facts,
}

/// The facts of a model, loaded or not.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) kind: ModelKind,
    pub(crate) architecture: String,
    /// The encoding of its weights.
    pub(crate) encoding: String,
    pub(crate) parameters: usize,
    /// Bytes of its weights.
    pub(crate) weight_bytes: u64,
    /// Bytes of its weights and its cache.
    pub(crate) need: u64,
    /// The most tokens of a text, an answer to it included.
    pub(crate) max_length: usize,
}

impl ServedModel {
    /// The name by which requests choose it.
    pub(crate) fn id(&self) -> &str {
        &self.config.id
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

impl Facts {
    /// The facts of a plan.
    ///
    /// # Errors
    /// If the model does not fit into memory.
    pub(super) fn of(plan: &Plan, kind: Option<ModelKind>) -> Result<Facts, pipelines::Error> {
        let memory = plan.memory()?;
        let encoding = plan.config().quantization_encoding;
        Ok(Facts {
            kind: kind.unwrap_or_else(|| ModelKind::of(plan)),
            architecture: plan.architecture().to_string(),
            encoding: encoding.map(|encoding| encoding.to_string()).unwrap_or_default(),
            parameters: plan.parameters(),
            weight_bytes: plan.weight_bytes().unwrap_or(0),
            need: memory.weights.saturating_add(memory.cache),
            max_length: memory.max_length,
        })
    }
}

/// A model that a request uses. It stays in memory until the last clone is dropped.
pub(crate) struct ActiveModel {
    pub(crate) id: String,
    pub(crate) loaded: Arc<LoadedModel>,
    // Dropped last, when this request holds nothing of the model any more.
    lease: Lease,
}

/// Counts a request that uses a model.
struct Lease {
    models: Arc<Models>,
    model: Arc<ServedModel>,
}

impl ActiveModel {
    pub(super) fn new(
        models: &Arc<Models>,
        model: Arc<ServedModel>,
        loaded: Arc<LoadedModel>,
    ) -> ActiveModel {
        let lease = Lease { models: Arc::clone(models), model };
        ActiveModel { id: lease.model.config.id.clone(), loaded, lease }
    }
}

impl Deref for ActiveModel {
    type Target = ServedModel;

    fn deref(&self) -> &ServedModel {
        &self.lease.model
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.models.step(Command::Release(self.model.key));
    }
}

/// The tokenizer and the chat template of a model: of one in memory, or read from the files of one that is not.
#[derive(Clone)]
pub(crate) enum ModelText {
    Loaded(Arc<ActiveModel>),
    Sleeping(Arc<SleepingText>),
}

/// The tokenizer and the chat template of a model that is not in memory.
pub(crate) struct SleepingText {
    pub(super) model: Arc<ServedModel>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) chat_template: Option<ChatTemplate>,
}

impl ModelText {
    /// The model's id.
    pub(crate) fn id(&self) -> &str {
        match self {
            ModelText::Loaded(model) => &model.id,
            ModelText::Sleeping(text) => text.model.id(),
        }
    }

    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        match self {
            ModelText::Loaded(model) => model.loaded.tokenizer(),
            ModelText::Sleeping(text) => &text.tokenizer,
        }
    }

    /// The template of conversations.
    ///
    /// # Errors
    /// If the model makes no text, or has no template.
    pub(crate) fn chat_template(&self) -> Result<&ChatTemplate, ApiError> {
        let template = match self {
            ModelText::Loaded(model) => model.loaded.generator()?.chat_template(),
            ModelText::Sleeping(text) if text.model.facts.kind != ModelKind::Text => {
                return Err(other_task(text.model.facts.kind));
            }
            ModelText::Sleeping(text) => text.chat_template.as_ref(),
        };
        template.ok_or_else(|| pipelines::Error::NoChatTemplate.into())
    }

    /// The most tokens of a text, an answer to it included.
    pub(crate) fn max_length(&self) -> usize {
        match self {
            ModelText::Loaded(model) => model.loaded.max_length(),
            ModelText::Sleeping(text) => text.model.facts.max_length,
        }
    }
}
