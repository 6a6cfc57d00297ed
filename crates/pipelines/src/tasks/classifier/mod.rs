//! Scores of texts and of pairs of texts, from any thread, blocking or async.

mod request;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use engine::InferenceSession;
use futures_core::Stream;

pub use request::{
    Classification, ClassificationParameters, ClassificationRequest, ClassificationText, Ranked, Ranking,
    RerankRequest,
};

use crate::Error;
use crate::activation::ScoreActivation;
use crate::plan::Plan;
use crate::tasks::classification_model::ClassificationModel;
use crate::tasks::vectors::{
    AsyncVectorStream, BatchStatus, Job, Tokens, VectorModel, VectorStream, VectorWorker,
};
use request::Settled;

/// A handle to a model with a classification head: it scores texts for each of its labels, and ranks documents by how
/// they answer a query if it has one label (cross-encoders). Clones share the model and its thread, and texts of all of
/// them share batches. The scores of a text depend on that text and its parameters alone, to the bit: not on the others,
/// nor on threads.
///
/// - Dropping the future of scores cancels those that were not computed yet.
/// - The queue of texts is bounded; callers wait while it is full.
/// - An error or a panic of the model fails the text that caused it, and no others.
/// - The thread ends when the last handle is dropped; [`Classifier::shutdown`] ends it at once.
#[derive(Debug, Clone)]
pub struct Classifier {
    vectors: VectorWorker<ClassificationModel>,
}

impl VectorModel for ClassificationModel {
    const NAME: &'static str = "classifier";
    type Text = ClassificationText;
    type Settled = Settled;
    type Output = Classification;

    fn tokens(
        &self,
        index: usize,
        text: &ClassificationText,
        settled: &Settled,
        limit: usize,
    ) -> Result<Tokens, Error> {
        let limit = settled.max_tokens.map_or(limit, |most| most.min(limit));
        text.tokens(index, self, settled, limit)
    }

    fn vectors(&self, batch: &[Job<ClassificationModel>]) -> Result<Vec<Vec<f32>>, Error> {
        let texts: Vec<&Tokens> = batch.iter().map(|job| &job.tokens).collect();
        let mut scores = self.logits(&texts)?;
        for (scores, job) in scores.iter_mut().zip(batch) {
            job.settled.activation.apply(scores);
        }
        Ok(scores)
    }

    fn output(scores: Vec<f32>, tokens: usize, truncated: usize) -> Classification {
        Classification { scores, tokens, truncated }
    }
}

impl Classifier {
    /// Starts a worker for a model, with the limits of its plan. `parameters` hold for what requests leave open.
    ///
    /// # Errors
    /// As [`Classifier::with_plan`].
    pub fn new(
        model: Arc<ClassificationModel>,
        parameters: &ClassificationParameters,
    ) -> Result<Classifier, Error> {
        let plan = model.plan().clone();
        Classifier::with_plan(model, &plan, parameters)
    }

    /// Fetches, compiles and loads a planned model, and starts a worker for it that scores as the model's files say.
    ///
    /// # Errors
    /// As [`ClassificationModel::from_plan`] and [`Classifier::new`].
    pub fn from_plan(session: &InferenceSession, plan: Plan) -> Result<Classifier, Error> {
        let model = ClassificationModel::from_plan(session, plan, &mut |_| ())?;
        Classifier::new(Arc::new(model), &ClassificationParameters::default())
    }

    /// Starts a worker for a model, with the limits of another plan of the same model ([`Plan::with`]). A text may have
    /// `max_length` tokens if that is set, even if the model's files say fewer.
    ///
    /// # Errors
    /// If the parameters do not fit the model, it does not fit into memory, or no thread can be started.
    pub fn with_plan(
        model: Arc<ClassificationModel>,
        plan: &Plan,
        parameters: &ClassificationParameters,
    ) -> Result<Classifier, Error> {
        let (usual, max_length) = (Settled::of_files(&model, parameters)?, model.max_length());
        Ok(Classifier { vectors: VectorWorker::spawn(model, plan, usual, max_length)? })
    }

    /// The model.
    pub fn model(&self) -> &Arc<ClassificationModel> {
        &self.vectors.shared.model
    }

    /// The names of the labels, in the order of the scores.
    pub fn labels(&self) -> &[String] {
        self.model().labels()
    }

    /// How logits become scores, for requests that do not say.
    pub fn activation(&self) -> ScoreActivation {
        self.vectors.shared.usual.activation
    }

    /// The most tokens of a text or a pair, those around it included.
    pub fn max_length(&self) -> usize {
        self.vectors.shared.max_length
    }

    /// The scores of texts and pairs, in their order. Waits while the queue of texts is full.
    ///
    /// # Errors
    /// If the parameters do not fit the model, or one of the texts has no scores: it is too long, has no tokens, or is a
    /// pair and nothing joins two texts.
    pub fn classify(&self, request: impl Into<ClassificationRequest>) -> Result<Vec<Classification>, Error> {
        let mut stream = self.stream(request.into())?;
        stream.prepare();
        stream.collect()
    }

    /// As [`Classifier::classify`], for a task. Dropping the future cancels what was not computed yet.
    ///
    /// # Errors
    /// As [`Classifier::classify`].
    pub async fn classify_async(
        &self,
        request: impl Into<ClassificationRequest>,
    ) -> Result<Vec<Classification>, Error> {
        let mut stream = AsyncVectorStream::new(self.stream(request.into())?);
        let mut scores = Vec::with_capacity(stream.size_hint().0);
        while let Some(next) = poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await {
            scores.push(next?);
        }
        Ok(scores)
    }

    /// Documents by how well they answer a query, best first. Of equal scores, the earlier document comes first.
    ///
    /// # Errors
    /// [`Error::NotARanker`] if the model has several labels, and as [`Classifier::classify`], where the index of a text
    /// is that of a document.
    pub fn rerank(&self, request: RerankRequest) -> Result<Ranking, Error> {
        self.expect_one_label()?;
        let top = request.top_n;
        Ok(Ranking::new(self.classify(request.into_pairs())?, top))
    }

    /// As [`Classifier::rerank`], for a task. Dropping the future cancels what was not computed yet.
    ///
    /// # Errors
    /// As [`Classifier::rerank`].
    pub async fn rerank_async(&self, request: RerankRequest) -> Result<Ranking, Error> {
        self.expect_one_label()?;
        let top = request.top_n;
        Ok(Ranking::new(self.classify_async(request.into_pairs()).await?, top))
    }

    /// Checks that the model has one label, so that texts have one score each.
    ///
    /// # Errors
    /// [`Error::NotARanker`] if it has several.
    pub fn expect_one_label(&self) -> Result<(), Error> {
        match self.labels().len() {
            1 => Ok(()),
            labels => {
                let architecture = self.model().checkpoint().config.architecture.clone();
                Err(Error::NotARanker { architecture, labels })
            }
        }
    }

    /// How much there is to do, and how much was done: as it was between two batches. Never waits for a batch. Groups
    /// of texts in the queue count as one text each.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn status(&self) -> Result<BatchStatus, Error> {
        self.vectors.status()
    }

    /// Cancels all requests, of all handles, and waits until the thread has ended.
    ///
    /// Dropping the last handle does not wait. A program that profiles its session calls this before it ends.
    pub fn shutdown(self) {
        self.vectors.worker.shutdown();
    }

    fn stream(&self, request: ClassificationRequest) -> Result<VectorStream<ClassificationModel>, Error> {
        let settled = self.vectors.shared.usual.with(self.model(), &request.parameters)?;
        Ok(self.vectors.stream(request.texts, settled))
    }
}
