//! Models as requests use them: found by name, and kept in memory while they answer.

use std::ops::Deref;
use std::sync::Arc;

use pipelines::{AnswerFormat, ChatTemplate, Plan, Request, SamplingOptions, TextGenerator, Tokenizer};

use super::loaded::other_task;
use super::preset::Preset;
use super::residency::{Command, ModelKey};
use super::{LoadedModel, ModelConfig, ModelKind, Models};
use crate::error::ApiError;
use crate::sampling::{Lengths, Sampling};

/// Digits of each digest in a fingerprint.
const FINGERPRINT_DIGITS: usize = 12;

/// A model that the server lists, in memory or not.
pub(crate) struct ServedModel {
    pub(super) key: ModelKey,
    /// Its name and its settings.
    pub(super) config: ModelConfig,
    /// Whether a request added it, and not the command line or the settings.
    pub(super) is_added: bool,
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
    pub(crate) parameters: Option<usize>,
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
            cache_bytes: memory.cache,
            cache_limit: plan.cache_limit(),
            need: memory.weights.saturating_add(memory.cache),
            max_length: memory.max_length,
            sampling: plan.sampling_defaults(),
        })
    }
}

/// A model that a request uses. It stays in memory until the last clone is dropped.
pub(crate) struct ActiveModel {
    /// The model's id, or the name of the preset.
    pub(crate) id: String,
    pub(crate) loaded: Arc<LoadedModel>,
    /// The preset that the request named.
    pub(super) preset: Option<Arc<Preset>>,
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
        ActiveModel { id: lease.model.config.id.clone(), loaded, preset: None, lease }
    }

    /// The same model under the name of a preset.
    pub(super) fn with(self, preset: Arc<Preset>) -> ActiveModel {
        ActiveModel { id: preset.name().to_string(), preset: Some(preset), ..self }
    }

    /// How tokens are chosen where neither the request nor a preset says.
    fn sampling_defaults(&self) -> SamplingOptions {
        let settings = &self.lease.models.settings;
        self.config.sampling.or(settings.sampling).or(self.loaded.plan().sampling_defaults())
    }

    /// A digest of its template and its sampling defaults, if the server's settings change them.
    fn settings_digest(&self) -> Option<String> {
        let sampling = self.config.sampling.or(self.lease.models.settings.sampling);
        let template: Vec<_> = self.config.template_sources().collect();
        let is_own = template.is_empty() && sampling == SamplingOptions::default();
        let digest = || blake3::hash(format!("{template:?}{sampling:?}").as_bytes()).to_hex();
        (!is_own).then(|| digest()[..FINGERPRINT_DIGITS].to_string())
    }

    /// Identifies its files, its settings, those of the preset, and the products that its results depend on.
    pub(crate) fn fingerprint(&self) -> String {
        let digest = &self.loaded.digest()[..FINGERPRINT_DIGITS.min(self.loaded.digest().len())];
        let preset = self.preset.as_ref().map(|preset| &preset.digest()[..FINGERPRINT_DIGITS]);
        let settings = self.settings_digest();
        let parts = [Some(digest), settings.as_deref(), preset, self.loaded.own_products()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(".")
    }

    /// The preset that the request named.
    pub(crate) fn preset(&self) -> Option<&Arc<Preset>> {
        self.preset.as_ref()
    }

    /// The most tokens of a text, an answer to it included.
    pub(crate) fn max_length(&self) -> usize {
        self.lengths().num_ctx.unwrap_or(usize::MAX).min(self.loaded.max_length())
    }

    /// How many tokens there may be if the request leaves it open.
    pub(crate) fn lengths(&self) -> Lengths {
        self.preset.as_ref().map(|preset| preset.lengths()).unwrap_or_default()
    }

    /// A request without a prompt. If a field is not set, it is that of the preset, then of the settings of the model and
    /// of the server, then of the model's files.
    ///
    /// # Errors
    /// If a field has a value that the library cannot be given.
    pub(crate) fn request(&self, sampling: Sampling) -> Result<Request, ApiError> {
        let of_preset = self.preset.as_ref().map(|preset| preset.sampling()).unwrap_or_default();
        sampling.or(of_preset).request(self.sampling_defaults(), Some(self.loaded.tokenizer()))
    }

    /// The same request, with an answer that ends at the preset's `num_ctx`.
    ///
    /// # Errors
    /// If the prompt leaves no room for an answer.
    pub(crate) fn bound(&self, request: Request) -> Result<Request, ApiError> {
        let Some(limit) = self.lengths().num_ctx else { return Ok(request) };
        let (tokens, wanted) = (request.prompt.len(), request.max_new_tokens.unwrap_or(usize::MAX));
        match limit.checked_sub(tokens) {
            Some(room) if room > 0 || wanted == 0 => {
                Ok(Request { max_new_tokens: Some(wanted.min(room)), ..request })
            }
            _ => Err(pipelines::Error::PromptTooLong { tokens, limit }.into()),
        }
    }

    /// The template of conversations, if there is one.
    pub(crate) fn chat_template(&self) -> Option<&ChatTemplate> {
        let own = self.preset.as_ref().and_then(|preset| preset.template());
        own.or_else(|| self.loaded.generator().ok()?.chat_template())
    }

    /// How answers to prompts of the template are read.
    pub(crate) fn answer_format(&self) -> AnswerFormat {
        let own = self.preset.as_ref().and_then(|preset| preset.answer_format(self.loaded.tokenizer()));
        let of_model = || self.loaded.generator().map(TextGenerator::answer_format).unwrap_or_default();
        own.unwrap_or_else(of_model)
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
    /// With the preset that the request named.
    Sleeping(Arc<SleepingText>, Option<Arc<Preset>>),
}

/// The tokenizer and the chat template of a model that is not in memory.
pub(crate) struct SleepingText {
    pub(super) model: Arc<ServedModel>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) chat_template: Option<ChatTemplate>,
}

impl ModelText {
    /// The model's id, or the name of the preset.
    pub(crate) fn id(&self) -> &str {
        match self {
            ModelText::Loaded(model) => &model.id,
            ModelText::Sleeping(_, Some(preset)) => preset.name(),
            ModelText::Sleeping(text, None) => text.model.id(),
        }
    }

    /// The preset that the request named.
    pub(crate) fn preset(&self) -> Option<&Arc<Preset>> {
        match self {
            ModelText::Loaded(model) => model.preset(),
            ModelText::Sleeping(_, preset) => preset.as_ref(),
        }
    }

    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        match self {
            ModelText::Loaded(model) => model.loaded.tokenizer(),
            ModelText::Sleeping(text, _) => &text.tokenizer,
        }
    }

    /// The template of conversations.
    ///
    /// # Errors
    /// If the model makes no text, or has no template.
    pub(crate) fn chat_template(&self) -> Result<&ChatTemplate, ApiError> {
        let template = match self {
            ModelText::Loaded(model) => model.loaded.generator().map(|_| model.chat_template())?,
            ModelText::Sleeping(text, _) if text.model.facts.kind != ModelKind::Text => {
                return Err(other_task(text.model.facts.kind));
            }
            ModelText::Sleeping(text, preset) => {
                let own = preset.as_ref().and_then(|preset| preset.template());
                own.or(text.chat_template.as_ref())
            }
        };
        template.ok_or_else(|| pipelines::Error::NoChatTemplate.into())
    }

    /// The most tokens of a text, an answer to it included.
    pub(crate) fn max_length(&self) -> usize {
        match self {
            ModelText::Loaded(model) => model.max_length(),
            ModelText::Sleeping(text, preset) => {
                let own = preset.as_ref().and_then(|preset| preset.lengths().num_ctx);
                own.unwrap_or(usize::MAX).min(text.model.facts.max_length)
            }
        }
    }
}
