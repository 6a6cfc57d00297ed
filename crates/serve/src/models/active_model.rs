//! Models as requests use them: kept in memory while they answer, or asleep while only their text is needed.

use std::ops::Deref;
use std::sync::Arc;

use pipelines::{AnswerFormat, ChatTemplate, Request, SamplingOptions, TextGenerator, Tokenizer};

use super::loaded::{LoadedModel, other_task};
use super::preset::Preset;
use super::served_model::ServedModel;
use crate::api_error::ApiError;
use crate::config::ModelKind;
use crate::sampling::{Lengths, Sampling};

/// Digits of each digest in a fingerprint.
const FINGERPRINT_DIGITS: usize = 12;

/// A model that a request uses. It stays in memory until the last clone is dropped.
pub(crate) struct ActiveModel {
    /// The model's id, or the name of the preset.
    pub(crate) id: String,
    pub(crate) loaded: Arc<LoadedModel>,
    /// The preset that the request named.
    pub(super) preset: Option<Arc<Preset>>,
    model: Arc<ServedModel>,
    /// How tokens are chosen where neither a request nor a preset nor the model's settings say.
    server_sampling: SamplingOptions,
    // Dropped last, when this request holds nothing of the model any more.
    _lease: Lease,
}

/// Counts a request that uses a model, until it is dropped.
pub(super) struct Lease(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Lease {
    /// A lease with what is to be done at its end.
    pub(super) fn new(release: impl FnOnce() + Send + Sync + 'static) -> Lease {
        Lease(Some(Box::new(release)))
    }
}

impl ActiveModel {
    pub(super) fn new(
        model: Arc<ServedModel>,
        loaded: Arc<LoadedModel>,
        server_sampling: SamplingOptions,
        lease: Lease,
    ) -> ActiveModel {
        ActiveModel {
            id: model.id().to_string(),
            loaded,
            preset: None,
            model,
            server_sampling,
            _lease: lease,
        }
    }

    /// The same model under the name of a preset.
    pub(super) fn with(self, preset: Arc<Preset>) -> ActiveModel {
        ActiveModel { id: preset.name().to_string(), preset: Some(preset), ..self }
    }

    /// How tokens are chosen where neither the request nor a preset says.
    fn sampling_defaults(&self) -> SamplingOptions {
        self.config.sampling.or(self.server_sampling).or(self.loaded.plan().sampling_defaults())
    }

    /// A digest of its template and its sampling defaults, if the server's settings change them.
    fn settings_digest(&self) -> Option<String> {
        let sampling = self.config.sampling.or(self.server_sampling);
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

    /// The format of reasoning and tool calls in answers to prompts that the chat template rendered.
    pub(crate) fn answer_format(&self) -> AnswerFormat {
        let own = self.preset.as_ref().and_then(|preset| preset.answer_format(self.loaded.tokenizer()));
        let of_model = || self.loaded.generator().map(TextGenerator::answer_format).unwrap_or_default();
        own.unwrap_or_else(of_model)
    }
}

impl Deref for ActiveModel {
    type Target = ServedModel;

    fn deref(&self) -> &ServedModel {
        &self.model
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release();
        }
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
