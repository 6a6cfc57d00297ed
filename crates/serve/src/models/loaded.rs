//! A model in memory, ready for requests: how it is loaded, and how it leaves.

use std::sync::Arc;
use std::time::Duration;

use engine::InferenceSession;
use pipelines::{
    ClassificationModel, ClassificationParameters, Classifier, Embedder, EmbeddingModel, EmbeddingParameters,
    Plan, TextGenerator, TextGeneratorOptions, Tokenizer,
};

use super::progress::LoadProgress;
use super::{ModelKind, ModelSettings};
use crate::error::ApiError;

/// A model in memory.
pub(crate) enum LoadedModel {
    /// One that makes text.
    Text(TextGenerator),
    /// One that makes vectors.
    Embedding(Embedder),
    /// One that scores texts.
    Classifier(Classifier),
}

impl LoadedModel {
    /// Fetches, compiles and loads a planned model.
    ///
    /// # Errors
    /// If its files cannot be fetched or read, or it does not fit into memory.
    pub(super) fn load(
        plan: Plan,
        kind: ModelKind,
        session: &InferenceSession,
        settings: &ModelSettings,
        progress: &LoadProgress,
    ) -> Result<LoadedModel, pipelines::Error> {
        progress.begin("fetching");
        let plan = plan.fetch(&|step| progress.fetched(step))?;
        plan.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        progress.begin("compiling");
        let packed = &mut |packed| progress.packed(packed);
        match kind {
            ModelKind::Embedding => {
                let model = EmbeddingModel::from_plan(session, plan, packed)?;
                let embedder = Embedder::new(Arc::new(model), &EmbeddingParameters::default())?;
                Ok(LoadedModel::Embedding(embedder))
            }
            ModelKind::Classifier => {
                let model = ClassificationModel::from_plan(session, plan, packed)?;
                let classifier = Classifier::new(Arc::new(model), &ClassificationParameters::default())?;
                Ok(LoadedModel::Classifier(classifier))
            }
            ModelKind::Text => {
                let model = Arc::new(plan.compile(session)?.load_text(session, packed)?);
                let options = TextGeneratorOptions {
                    max_queue: Some(settings.max_queue),
                    read_timeout: Some(settings.read_timeout),
                    ..TextGeneratorOptions::default()
                };
                let plan = model.plan().clone();
                Ok(LoadedModel::Text(TextGenerator::with_options(model, &plan, options)?))
            }
        }
    }

    /// Ends its thread and frees its memory. Blocks until that is done.
    pub(super) fn unload(mut model: Arc<LoadedModel>) {
        let model = loop {
            match Arc::try_unwrap(model) {
                Ok(model) => break model,
                // A route that reads counters holds it for a moment.
                Err(shared) => model = shared,
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        match model {
            LoadedModel::Text(generator) => generator.shutdown(),
            LoadedModel::Embedding(embedder) => embedder.shutdown(),
            LoadedModel::Classifier(classifier) => classifier.shutdown(),
        }
    }

    /// The plan that it was loaded from.
    pub(crate) fn plan(&self) -> &Plan {
        match self {
            LoadedModel::Text(generator) => generator.model().plan(),
            LoadedModel::Embedding(embedder) => embedder.model().plan(),
            LoadedModel::Classifier(classifier) => classifier.model().plan(),
        }
    }

    /// Whether a file that its weights are mapped from has changed, so that it computes nothing more.
    pub(super) fn is_file_changed(&self) -> bool {
        let model = match self {
            LoadedModel::Text(generator) => generator.model().model(),
            LoadedModel::Embedding(embedder) => embedder.model().model(),
            LoadedModel::Classifier(classifier) => classifier.model().model(),
        };
        model.check_files().is_err_and(|error| error.is_file_changed())
    }

    /// Its tokenizer.
    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        match self {
            LoadedModel::Text(generator) => generator.model().tokenizer(),
            LoadedModel::Embedding(embedder) => embedder.model().tokenizer(),
            LoadedModel::Classifier(classifier) => classifier.model().tokenizer(),
        }
    }

    /// The most tokens of a text, an answer to it included.
    pub(crate) fn max_length(&self) -> usize {
        match self {
            LoadedModel::Text(generator) => generator.model().plan().max_length().unwrap_or(0),
            LoadedModel::Embedding(embedder) => embedder.max_length(),
            LoadedModel::Classifier(classifier) => classifier.max_length(),
        }
    }

    /// The generator.
    ///
    /// # Errors
    /// If the model makes vectors or scores.
    pub(crate) fn generator(&self) -> Result<&TextGenerator, ApiError> {
        match self {
            LoadedModel::Text(generator) => Ok(generator),
            LoadedModel::Embedding(_) => Err(other_task(ModelKind::Embedding)),
            LoadedModel::Classifier(_) => Err(other_task(ModelKind::Classifier)),
        }
    }

    /// The embedder.
    ///
    /// # Errors
    /// If the model makes text or scores.
    pub(crate) fn embedder(&self) -> Result<&Embedder, ApiError> {
        match self {
            LoadedModel::Embedding(embedder) => Ok(embedder),
            LoadedModel::Text(_) => Err(other_task(ModelKind::Text)),
            LoadedModel::Classifier(_) => Err(other_task(ModelKind::Classifier)),
        }
    }

    /// The classifier.
    ///
    /// # Errors
    /// If the model makes text or vectors.
    pub(crate) fn classifier(&self) -> Result<&Classifier, ApiError> {
        match self {
            LoadedModel::Classifier(classifier) => Ok(classifier),
            LoadedModel::Text(_) => Err(other_task(ModelKind::Text)),
            LoadedModel::Embedding(_) => Err(other_task(ModelKind::Embedding)),
        }
    }
}

/// The error of a request for something else than a model of a kind makes.
pub(super) fn other_task(kind: ModelKind) -> ApiError {
    let message = match kind {
        ModelKind::Text => "the model only makes text: use /v1/completions or /v1/chat/completions",
        ModelKind::Embedding => "the model only makes embeddings: use /v1/embeddings",
        ModelKind::Classifier => "the model only scores texts: use /v1/rerank, /v1/score or /v1/classify",
    };
    ApiError::invalid("model", message)
}

impl ModelKind {
    /// The kind that follows from the architecture: encoders embed, or score if they have a head for it; decoders write.
    pub(super) fn of(plan: &Plan) -> ModelKind {
        if plan.is_classifier() {
            ModelKind::Classifier
        } else if plan.is_encoder() {
            ModelKind::Embedding
        } else {
            ModelKind::Text
        }
    }
}
