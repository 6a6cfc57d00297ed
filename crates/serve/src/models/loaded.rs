//! A model in memory, ready for requests.

use std::sync::Arc;

use engine::InferenceSession;
use engine::devices::Platform;
use pipelines::config::PipelineConfig;
use pipelines::{Embedder, Machine, Plan, TextGenerator, Tokenizer};

use super::ModelKind;
use crate::error::ApiError;

/// A model in memory.
pub(crate) enum LoadedModel {
    /// One that makes text.
    Text(TextGenerator),
    /// One that makes vectors.
    Embedding(Embedder),
}

impl LoadedModel {
    /// Fetches, compiles and loads a model.
    ///
    /// # Errors
    /// If its files cannot be found or read, or it does not fit into memory.
    pub(super) fn load(
        config: &PipelineConfig,
        kind: Option<ModelKind>,
        session: &InferenceSession,
        platform: &Platform,
    ) -> Result<LoadedModel, pipelines::Error> {
        let plan = config.plan_or_built_in(Machine::new(platform))?;
        plan.memory()?;
        let plan = plan.fetch(&|_| ())?;
        plan.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        match kind.unwrap_or_else(|| ModelKind::of(&plan)) {
            ModelKind::Embedding => Ok(LoadedModel::Embedding(Embedder::from_plan(session, plan)?)),
            ModelKind::Text => Ok(LoadedModel::Text(TextGenerator::from_plan(session, plan)?)),
        }
    }

    /// The plan that it was loaded from.
    pub(crate) fn plan(&self) -> &Plan {
        match self {
            LoadedModel::Text(generator) => generator.model().plan(),
            LoadedModel::Embedding(embedder) => embedder.model().plan(),
        }
    }

    /// Its tokenizer.
    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        match self {
            LoadedModel::Text(generator) => generator.model().tokenizer(),
            LoadedModel::Embedding(embedder) => embedder.model().tokenizer(),
        }
    }

    /// The most tokens of a text, an answer to it included.
    pub(crate) fn max_length(&self) -> usize {
        match self {
            LoadedModel::Text(generator) => generator.model().plan().max_length().unwrap_or(0),
            LoadedModel::Embedding(embedder) => embedder.max_length(),
        }
    }

    /// The generator.
    ///
    /// # Errors
    /// If the model makes vectors.
    pub(crate) fn generator(&self) -> Result<&TextGenerator, ApiError> {
        match self {
            LoadedModel::Text(generator) => Ok(generator),
            LoadedModel::Embedding(_) => {
                Err(ApiError::invalid("model", "the model makes embeddings, not text: use /v1/embeddings"))
            }
        }
    }

    /// The embedder.
    ///
    /// # Errors
    /// If the model makes text.
    pub(crate) fn embedder(&self) -> Result<&Embedder, ApiError> {
        match self {
            LoadedModel::Embedding(embedder) => Ok(embedder),
            LoadedModel::Text(_) => {
                Err(ApiError::invalid("model", "the model makes text, not embeddings: use /v1/completions"))
            }
        }
    }
}

impl ModelKind {
    /// The kind that follows from the architecture: encoders embed, decoders write.
    fn of(plan: &Plan) -> ModelKind {
        if plan.is_encoder() { ModelKind::Embedding } else { ModelKind::Text }
    }
}
