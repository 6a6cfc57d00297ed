//! Embeddings of texts, from any thread, blocking or async.

mod options;
mod request;

#[cfg(test)]
mod tests;

use engine::InferenceSession;

pub use options::EmbeddingParameters;
pub use request::{Embedding, EmbeddingRequest, EmbeddingText};

use crate::plan::Plan;
use crate::pooling::normalize;
use crate::tasks::embedding_model::EmbeddingModel;
use crate::tasks::handle::{Handle, Waiting};
use crate::tasks::vectors::{Job, Tokens, VectorModel, VectorStream, VectorWork};
use crate::{Error, Pooling};
use options::EmbeddingSettings;

/// A handle to a model that embeds. Clones share the model and its thread, and texts of all of them share batches. What
/// a text gets depends on that text and its parameters alone, to the bit: not on the others, nor on threads.
///
/// - Dropping a stream, or the future of vectors, cancels what was not computed yet.
/// - A stream that is not read delays no other: no more than two batches of it are on their way.
/// - The queue of texts is bounded. While it is full, [`Embedder::stream`] waits, and [`Embedder::try_stream`] returns
///   [`Error::Busy`].
/// - An error or a panic of the model fails the text that caused it, and no others.
/// - The thread ends when the last handle and the last stream are dropped; streams may outlive the handles.
///   [`Embedder::shutdown`] ends it at once.
///
/// ```
/// # use std::sync::Arc;
/// # use engine::devices::Platform;
/// use perihelion_pipelines::config::PipelineConfig;
/// # use perihelion_pipelines::{
/// #     Embedder, EmbeddingModel, EmbeddingParameters, EmbeddingRequest, Machine, Pooling,
/// # };
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
/// # let platform = Platform::new(|| Arc::new(cpu::Cpu::new(2)));
/// let plan = PipelineConfig::new(path).plan(Machine::new(&platform))?;
/// let session = engine::InferenceSession::new(plan.config().devices_of(&platform)?)?;
/// let model = Arc::new(EmbeddingModel::from_plan(&session, plan, &mut |_| ())?);
/// // What the files of an embedding model say need not be said here.
/// let mean = EmbeddingParameters { pooling: Some(Pooling::Mean), ..EmbeddingParameters::default() };
/// let embedder = Embedder::new(model, &mean)?;
///
/// let embeddings = embedder.embed(["The fox", "The raven"])?;
/// assert_eq!((embeddings.len(), embeddings[0].vector.len()), (2, 256));
///
/// let last = EmbeddingParameters { pooling: Some(Pooling::Last), ..EmbeddingParameters::default() };
/// for embedding in embedder.stream(EmbeddingRequest::new(["The fox"]).with(last))? {
///     assert_ne!(embedding?.vector, embeddings[0].vector);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Embedder = Handle<VectorWork<EmbeddingModel>>;

/// The vectors of a request's texts, in their order, for a task on any runtime.
pub type AsyncEmbeddingStream = VectorStream<EmbeddingModel>;

/// The vectors of a request's texts, in their order, for a thread that may wait.
pub type EmbeddingStream = Waiting<AsyncEmbeddingStream>;

impl VectorModel for EmbeddingModel {
    const NAME: &'static str = "embedder";
    type Text = EmbeddingText;
    type Parameters = EmbeddingParameters;
    type Settings = EmbeddingSettings;
    type Output = Embedding;

    fn load(session: &InferenceSession, plan: Plan) -> Result<EmbeddingModel, Error> {
        EmbeddingModel::from_plan(session, plan, &mut |_| ())
    }

    fn limits(&self) -> (&Plan, usize) {
        (self.plan(), self.max_length())
    }

    fn resolve(
        &self,
        defaults: Option<&EmbeddingSettings>,
        parameters: &EmbeddingParameters,
    ) -> Result<EmbeddingSettings, Error> {
        match defaults {
            Some(defaults) => defaults.with(self, parameters),
            None => EmbeddingSettings::for_model(self, parameters),
        }
    }

    fn tokens(
        &self,
        index: usize,
        text: &EmbeddingText,
        settings: &EmbeddingSettings,
        limit: usize,
    ) -> Result<Tokens, Error> {
        text.tokens(index, self, settings, limit)
    }

    fn vectors(&self, batch: &[Job<EmbeddingModel>]) -> Result<Vec<Vec<f32>>, Error> {
        let texts: Vec<&[u32]> = batch.iter().map(|job| &job.tokens.ids[..]).collect();
        let hidden = self.hidden(&texts)?;
        let pool =
            |(rows, job): (&[f32], &Job<EmbeddingModel>)| job.settings.pooling.pool(rows, hidden.width());
        let mut vectors = self.dense(hidden.texts().zip(batch).map(pool).collect())?;
        for (vector, job) in vectors.iter_mut().zip(batch) {
            vector.truncate(job.settings.dimensions);
            if job.settings.normalize {
                normalize(vector);
            }
        }
        Ok(vectors)
    }

    fn output(vector: Vec<f32>, tokens: usize, truncated: usize) -> Embedding {
        Embedding { vector, tokens, truncated }
    }
}

impl Embedder {
    /// How hidden states become one vector, for requests that do not say.
    pub fn pooling(&self) -> Pooling {
        self.context.defaults.pooling
    }

    /// Dims of the vectors, for requests that do not say.
    pub fn dimensions(&self) -> usize {
        self.context.defaults.dimensions
    }

    /// The vectors of texts, in their order.
    ///
    /// # Errors
    /// If the parameters do not fit the model, or one of the texts has no vector: the first such error.
    pub fn embed(&self, request: impl Into<EmbeddingRequest>) -> Result<Vec<Embedding>, Error> {
        self.stream(request)?.collect()
    }

    /// As [`Embedder::embed`], for a task. Dropping the future cancels what was not computed yet.
    ///
    /// # Errors
    /// As [`Embedder::embed`].
    pub async fn embed_async(&self, request: impl Into<EmbeddingRequest>) -> Result<Vec<Embedding>, Error> {
        self.all(request).await
    }

    /// The tokens that become the vector of a text: with the prompt before it, the tokens that belong around it, and
    /// truncated if that is asked for.
    ///
    /// # Errors
    /// If the parameters do not fit the model, or the text is too long or has no tokens.
    pub fn tokenize(&self, text: &str, parameters: &EmbeddingParameters) -> Result<Vec<u32>, Error> {
        self.tokens(&EmbeddingText::from(text), parameters)
    }

    /// The tokens of a text, and the hidden state of each: f32[tokens, width], before pooling and the layers behind it.
    /// This thread computes them while the worker's batches go on.
    ///
    /// # Errors
    /// As [`Embedder::tokenize`], and if the model fails.
    pub fn hidden_states(
        &self,
        text: &EmbeddingText,
        parameters: &EmbeddingParameters,
    ) -> Result<(Vec<u32>, Vec<f32>), Error> {
        let tokens = self.tokens(text, parameters)?;
        let hidden = self.model().hidden(&[&tokens])?;
        let states = hidden.texts().next().map(<[f32]>::to_vec).unwrap_or_default();
        Ok((tokens, states))
    }

    fn tokens(&self, text: &EmbeddingText, parameters: &EmbeddingParameters) -> Result<Vec<u32>, Error> {
        Ok(text.tokens(0, self.model(), &self.resolve(parameters)?, self.max_length())?.ids)
    }
}
