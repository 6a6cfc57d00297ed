//! Embeddings of texts, from any thread, blocking or async.

mod options;
mod request;
mod stream;

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use engine::InferenceSession;
use futures_core::Stream;

pub use options::EmbeddingParameters;
pub use request::{Embedding, EmbeddingRequest, EmbeddingText};
pub use stream::{AsyncEmbeddingStream, EmbeddingStream};

use crate::plan::Plan;
use crate::pooling::normalize;
use crate::tasks::embedding_model::EmbeddingModel;
use crate::tasks::vectors::{BatchStatus, Job, Tokens, VectorModel, VectorStream, VectorWorker};
use crate::{Error, Pooling};
use options::Settled;

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
#[derive(Debug, Clone)]
pub struct Embedder {
    vectors: VectorWorker<EmbeddingModel>,
}

impl VectorModel for EmbeddingModel {
    const NAME: &'static str = "embedder";
    type Text = EmbeddingText;
    type Settled = Settled;
    type Output = Embedding;

    fn tokens(
        &self,
        index: usize,
        text: &EmbeddingText,
        settled: &Settled,
        limit: usize,
    ) -> Result<Tokens, Error> {
        text.tokens(index, self, settled, limit)
    }

    fn vectors(&self, batch: &[Job<EmbeddingModel>]) -> Result<Vec<Vec<f32>>, Error> {
        let texts: Vec<&[u32]> = batch.iter().map(|job| &job.tokens.ids[..]).collect();
        let hidden = self.hidden(&texts)?;
        let pool =
            |(rows, job): (&[f32], &Job<EmbeddingModel>)| job.settled.pooling.pool(rows, hidden.width());
        let mut vectors = self.dense(hidden.texts().zip(batch).map(pool).collect())?;
        for (vector, job) in vectors.iter_mut().zip(batch) {
            vector.truncate(job.settled.dimensions);
            if job.settled.normalize {
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
    /// Starts a worker for a model, with the limits of its plan. `parameters` hold for what requests leave open.
    ///
    /// # Errors
    /// As [`Embedder::with_plan`].
    pub fn new(model: Arc<EmbeddingModel>, parameters: &EmbeddingParameters) -> Result<Embedder, Error> {
        let plan = model.plan().clone();
        Embedder::with_plan(model, &plan, parameters)
    }

    /// Fetches, compiles and loads a planned model, and starts a worker for it that embeds as the model's files say.
    ///
    /// # Errors
    /// As [`EmbeddingModel::from_plan`] and [`Embedder::new`].
    pub fn from_plan(session: &InferenceSession, plan: Plan) -> Result<Embedder, Error> {
        let model = EmbeddingModel::from_plan(session, plan, &mut |_| ())?;
        Embedder::new(Arc::new(model), &EmbeddingParameters::default())
    }

    /// Starts a worker for a model, with the limits of another plan of the same model ([`Plan::with`]). A text may have
    /// `max_length` tokens if that is set, even if the model's files say fewer.
    ///
    /// # Errors
    /// If the parameters do not fit the model, a decoder's files name no pooling, the
    /// model does not fit into memory, or no thread can be started.
    pub fn with_plan(
        model: Arc<EmbeddingModel>,
        plan: &Plan,
        parameters: &EmbeddingParameters,
    ) -> Result<Embedder, Error> {
        let usual = Settled::of_files(&model, parameters)?;
        let max_length = model.max_length();
        Ok(Embedder { vectors: VectorWorker::spawn(model, plan, usual, max_length)? })
    }

    /// The model.
    pub fn model(&self) -> &Arc<EmbeddingModel> {
        &self.vectors.shared.model
    }

    /// How hidden states become one vector, for requests that do not say.
    pub fn pooling(&self) -> Pooling {
        self.vectors.shared.usual.pooling
    }

    /// Dims of the vectors, for requests that do not say.
    pub fn dimensions(&self) -> usize {
        self.vectors.shared.usual.dimensions
    }

    /// The most tokens of a text, those around it included.
    pub fn max_length(&self) -> usize {
        self.vectors.shared.max_length
    }

    /// The vectors of texts, in their order.
    ///
    /// # Errors
    /// As [`Embedder::stream`], and if one of the texts has no vector: the first such error.
    pub fn embed(&self, request: impl Into<EmbeddingRequest>) -> Result<Vec<Embedding>, Error> {
        self.stream(request)?.collect()
    }

    /// The vectors of texts, in their order, as they are made; and for each text that has none an error, if it is too
    /// long, has no tokens, or some that the model does not have. Waits while the queue of texts is full.
    ///
    /// # Errors
    /// If the parameters do not fit the model.
    pub fn stream(&self, request: impl Into<EmbeddingRequest>) -> Result<EmbeddingStream, Error> {
        let mut stream = self.submit(request.into())?;
        stream.prepare();
        Ok(EmbeddingStream(stream))
    }

    /// As [`Embedder::stream`], without waiting.
    ///
    /// # Errors
    /// As [`Embedder::stream`], and [`Error::Busy`] if the queue has no room for the first texts.
    pub fn try_stream(&self, request: impl Into<EmbeddingRequest>) -> Result<EmbeddingStream, Error> {
        let mut stream = self.submit(request.into())?;
        stream.try_prepare()?;
        Ok(EmbeddingStream(stream))
    }

    /// As [`Embedder::embed`], for a task. Dropping the future cancels what was not computed yet.
    ///
    /// # Errors
    /// As [`Embedder::embed`].
    pub async fn embed_async(&self, request: impl Into<EmbeddingRequest>) -> Result<Vec<Embedding>, Error> {
        let mut stream = self.stream_async(request)?;
        let mut embeddings = Vec::with_capacity(stream.size_hint().0);
        while let Some(embedding) = poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await {
            embeddings.push(embedding?);
        }
        Ok(embeddings)
    }

    /// As [`Embedder::stream`], for a task. It begins when it is first polled.
    ///
    /// # Errors
    /// As [`Embedder::stream`].
    pub fn stream_async(&self, request: impl Into<EmbeddingRequest>) -> Result<AsyncEmbeddingStream, Error> {
        Ok(AsyncEmbeddingStream::new(self.submit(request.into())?))
    }

    /// The tokens that become the vector of a text: with the prompt before it, the tokens that belong around it, and
    /// truncated if that is asked for.
    ///
    /// # Errors
    /// As [`Embedder::stream`], and if the text is too long or has no tokens.
    pub fn tokenize(&self, text: &str, parameters: &EmbeddingParameters) -> Result<Vec<u32>, Error> {
        let shared = &*self.vectors.shared;
        let settled = shared.usual.with(&shared.model, parameters)?;
        Ok(EmbeddingText::from(text).tokens(0, &shared.model, &settled, shared.max_length)?.ids)
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
        let shared = &*self.vectors.shared;
        let settled = shared.usual.with(&shared.model, parameters)?;
        let tokens = text.tokens(0, &shared.model, &settled, shared.max_length)?.ids;
        let hidden = shared.model.hidden(&[&tokens])?;
        let states = hidden.texts().next().map(<[f32]>::to_vec).unwrap_or_default();
        Ok((tokens, states))
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
    /// Dropping the last handle does not wait. A program that profiles its session calls this before it ends: the trace is
    /// written when the last user of the session is gone, and the thread is one.
    pub fn shutdown(self) {
        self.vectors.worker.shutdown();
    }

    fn submit(&self, request: EmbeddingRequest) -> Result<VectorStream<EmbeddingModel>, Error> {
        let EmbeddingRequest { texts, parameters } = request;
        let shared = &self.vectors.shared;
        Ok(self.vectors.stream(texts, shared.usual.with(&shared.model, &parameters)?))
    }
}
