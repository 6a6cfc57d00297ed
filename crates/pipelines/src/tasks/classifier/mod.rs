//! Scores of texts and of pairs of texts, from any thread, blocking or async.

mod request;

use engine::InferenceSession;

pub use request::{
    Classification, ClassificationParameters, ClassificationRequest, ClassificationText, Ranked, Ranking,
    RerankRequest,
};

use crate::Error;
use crate::activation::ScoreActivation;
use crate::plan::Plan;
use crate::tasks::classification_model::ClassificationModel;
use crate::tasks::handle::Handle;
use crate::tasks::vectors::{Job, Tokens, VectorModel, VectorWork};
use request::ClassificationSettings;

/// A handle to a model with a classification head: it scores texts for each of its labels, and ranks documents by how
/// they answer a query if it has one label (cross-encoders). Clones share the model and its thread, and texts of all of
/// them share batches. The scores of a text depend on that text and its parameters alone, to the bit: not on the others,
/// nor on threads.
///
/// - Dropping the future of scores cancels those that were not computed yet.
/// - The queue of texts is bounded; callers wait while it is full.
/// - An error or a panic of the model fails the text that caused it, and no others.
/// - The thread ends when the last handle is dropped; [`Classifier::shutdown`] ends it at once.
pub type Classifier = Handle<VectorWork<ClassificationModel>>;

impl VectorModel for ClassificationModel {
    const NAME: &'static str = "classifier";
    type Text = ClassificationText;
    type Parameters = ClassificationParameters;
    type Settings = ClassificationSettings;
    type Output = Classification;

    fn load(session: &InferenceSession, plan: Plan) -> Result<ClassificationModel, Error> {
        ClassificationModel::from_plan(session, plan, &mut |_| ())
    }

    fn limits(&self) -> (&Plan, usize) {
        (self.plan(), self.max_length())
    }

    fn resolve(
        &self,
        defaults: Option<&ClassificationSettings>,
        parameters: &ClassificationParameters,
    ) -> Result<ClassificationSettings, Error> {
        match defaults {
            Some(defaults) => defaults.with(self, parameters),
            None => ClassificationSettings::for_model(self, parameters),
        }
    }

    fn tokens(
        &self,
        index: usize,
        text: &ClassificationText,
        settings: &ClassificationSettings,
        limit: usize,
    ) -> Result<Tokens, Error> {
        let limit = settings.max_tokens.map_or(limit, |most| most.min(limit));
        text.tokens(index, self, settings, limit)
    }

    fn vectors(&self, batch: &[Job<ClassificationModel>]) -> Result<Vec<Vec<f32>>, Error> {
        let texts: Vec<&Tokens> = batch.iter().map(|job| &job.tokens).collect();
        let mut scores = self.logits(&texts)?;
        for (scores, job) in scores.iter_mut().zip(batch) {
            job.settings.activation.apply(scores);
        }
        Ok(scores)
    }

    fn output(scores: Vec<f32>, tokens: usize, truncated: usize) -> Classification {
        Classification { scores, tokens, truncated }
    }
}

impl Classifier {
    /// The names of the labels, in the order of the scores.
    pub fn labels(&self) -> &[String] {
        self.model().labels()
    }

    /// How logits become scores, for requests that do not say.
    pub fn activation(&self) -> ScoreActivation {
        self.context.defaults.activation
    }

    /// The scores of texts and pairs, in their order. Waits while the queue of texts is full.
    ///
    /// # Errors
    /// If the parameters do not fit the model, or one of the texts has no scores: it is too long, has no tokens, or is a
    /// pair and nothing joins two texts.
    pub fn classify(&self, request: impl Into<ClassificationRequest>) -> Result<Vec<Classification>, Error> {
        self.stream(request)?.collect()
    }

    /// As [`Classifier::classify`], for a task. Dropping the future cancels what was not computed yet.
    ///
    /// # Errors
    /// As [`Classifier::classify`].
    pub async fn classify_async(
        &self,
        request: impl Into<ClassificationRequest>,
    ) -> Result<Vec<Classification>, Error> {
        self.all(request).await
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
}
