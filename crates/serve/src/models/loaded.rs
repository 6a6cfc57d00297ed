//! A model in memory, ready for requests: how it is loaded, and how it leaves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{InferenceSession, Model, Reproducible};
use pipelines::{
    ClassificationModel, ClassificationParameters, Classifier, Embedder, EmbeddingModel, EmbeddingParameters,
    Plan, TextGenerator, TextGeneratorOptions, Tokenizer,
};
use tokio::sync::Mutex;

use super::progress::LoadProgress;
use crate::api_error::ApiError;
use crate::config::ModelKind;

/// A model in memory.
pub(crate) struct LoadedModel {
    worker: ModelWorker,
    /// Of its files and settings, as [`Plan::digest`] has it.
    digest: String,
    /// The products by which its results differ from those of other machines, if they do.
    own_products: Option<&'static str>,
    /// When its files were last seen to be unchanged.
    pub(super) files_checked: Mutex<Option<Instant>>,
}

/// The worker of a model.
pub(crate) enum ModelWorker {
    /// Of one that makes text.
    Text(TextGenerator),
    /// Of one that makes vectors.
    Embedding(Embedder),
    /// Of one that scores texts.
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
        options: TextGeneratorOptions,
        progress: &LoadProgress,
    ) -> Result<LoadedModel, pipelines::Error> {
        progress.begin("fetching");
        let plan = plan.fetch(&|step| progress.fetched(step))?;
        let of_memory = plan.memory().map_or(&[][..], |memory| &memory.warnings);
        plan.warnings().iter().chain(of_memory).for_each(|warning| tracing::warn!("{warning}"));
        progress.begin("compiling");
        let digest = plan.digest().unwrap_or_default();
        let is_of_machine = plan.reproducible(session) == Reproducible::Machine;
        let worker = ModelWorker::start(plan, kind, session, options, progress)?;
        let device =
            worker.model().map_or(Arc::clone(session.host()), |model| model.devices().swap_remove(0));
        let own_products = device.own_products().filter(|_| is_of_machine || !device.is_host());
        // Otherwise, the second step of the first request would.
        worker.model().map_or(Ok(()), Model::pack_weights)?;
        Ok(LoadedModel { worker, digest, own_products, files_checked: Mutex::new(None) })
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
        match model.worker {
            ModelWorker::Text(generator) => generator.shutdown(),
            ModelWorker::Embedding(embedder) => embedder.shutdown(),
            ModelWorker::Classifier(classifier) => classifier.shutdown(),
        }
    }

    /// The worker.
    pub(crate) fn worker(&self) -> &ModelWorker {
        &self.worker
    }

    /// The digest of its files and settings.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// The products by which its results differ from those of other machines, if they do.
    pub(crate) fn own_products(&self) -> Option<&'static str> {
        self.own_products
    }

    /// The plan that it was loaded from.
    pub(crate) fn plan(&self) -> &Plan {
        match &self.worker {
            ModelWorker::Text(generator) => generator.model().plan(),
            ModelWorker::Embedding(embedder) => embedder.model().plan(),
            ModelWorker::Classifier(classifier) => classifier.model().plan(),
        }
    }

    /// Why it computes nothing more: a file that its weights are mapped from has changed, or the process that runs it has
    /// ended. Asks the file system, and may block.
    pub(super) fn failure(&self) -> Option<pipelines::Error> {
        let checked = match &self.worker {
            ModelWorker::Text(generator) => generator.model().check(),
            ModelWorker::Embedding(embedder) => embedder.model().check(),
            ModelWorker::Classifier(classifier) => classifier.model().check(),
        };
        checked.err().filter(|error| error.is_file_changed() || error.is_worker_ended())
    }

    /// Its tokenizer.
    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        match &self.worker {
            ModelWorker::Text(generator) => generator.model().tokenizer(),
            ModelWorker::Embedding(embedder) => embedder.model().tokenizer(),
            ModelWorker::Classifier(classifier) => classifier.model().tokenizer(),
        }
    }

    /// The most tokens of a text, an answer to it included.
    pub(crate) fn max_length(&self) -> usize {
        match &self.worker {
            ModelWorker::Text(generator) => generator.model().plan().max_length().unwrap_or(0),
            ModelWorker::Embedding(embedder) => embedder.max_length(),
            ModelWorker::Classifier(classifier) => classifier.max_length(),
        }
    }

    /// The generator.
    ///
    /// # Errors
    /// If the model makes vectors or scores.
    pub(crate) fn generator(&self) -> Result<&TextGenerator, ApiError> {
        match &self.worker {
            ModelWorker::Text(generator) => Ok(generator),
            ModelWorker::Embedding(_) => Err(other_task(ModelKind::Embedding)),
            ModelWorker::Classifier(_) => Err(other_task(ModelKind::Classifier)),
        }
    }

    /// The embedder.
    ///
    /// # Errors
    /// If the model makes text or scores.
    pub(crate) fn embedder(&self) -> Result<&Embedder, ApiError> {
        match &self.worker {
            ModelWorker::Embedding(embedder) => Ok(embedder),
            ModelWorker::Text(_) => Err(other_task(ModelKind::Text)),
            ModelWorker::Classifier(_) => Err(other_task(ModelKind::Classifier)),
        }
    }

    /// The classifier.
    ///
    /// # Errors
    /// If the model makes text or vectors.
    pub(crate) fn classifier(&self) -> Result<&Classifier, ApiError> {
        match &self.worker {
            ModelWorker::Classifier(classifier) => Ok(classifier),
            ModelWorker::Text(_) => Err(other_task(ModelKind::Text)),
            ModelWorker::Embedding(_) => Err(other_task(ModelKind::Embedding)),
        }
    }
}

impl ModelWorker {
    /// The executable, if the model runs as a graph.
    fn model(&self) -> Option<&Model> {
        match self {
            ModelWorker::Text(generator) => generator.model().model(),
            ModelWorker::Embedding(embedder) => embedder.model().model(),
            ModelWorker::Classifier(classifier) => Some(classifier.model().model()),
        }
    }

    /// Compiles and loads a model whose files are on this machine, and starts its worker.
    fn start(
        plan: Plan,
        kind: ModelKind,
        session: &InferenceSession,
        options: TextGeneratorOptions,
        progress: &LoadProgress,
    ) -> Result<ModelWorker, pipelines::Error> {
        let packed = &mut |packed| progress.packed(packed);
        Ok(match kind {
            ModelKind::Embedding => {
                let model = Arc::new(EmbeddingModel::from_plan(session, plan, packed)?);
                ModelWorker::Embedding(Embedder::new(model, &EmbeddingParameters::default())?)
            }
            ModelKind::Classifier => {
                let model = Arc::new(ClassificationModel::from_plan(session, plan, packed)?);
                ModelWorker::Classifier(Classifier::new(model, &ClassificationParameters::default())?)
            }
            ModelKind::Text => {
                let model = Arc::new(plan.compile(session)?.load_text(session, packed)?);
                let plan = model.plan().clone();
                ModelWorker::Text(TextGenerator::with_options(model, &plan, options)?)
            }
        })
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
