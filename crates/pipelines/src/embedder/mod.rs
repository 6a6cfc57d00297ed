//! Vectors of texts, from any thread, blocking or async.
//!
//! Callers make tokens of their texts, a batch or two ahead of what they have read. One plain thread computes: batches
//! come to it through one channel, the texts of several callers together, and each vector goes back through a channel
//! of its own.

mod options;
mod request;
mod stream;
mod worker;

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use async_channel::Sender;
use engine::InferenceSession;
use futures_core::Stream;

pub use options::{EmbedderOptions, EmbeddingParameters, EmbeddingPrompt, Truncate};
pub use request::{Embedding, EmbeddingRequest, EmbeddingText};
pub use stream::{AsyncEmbeddingStream, EmbeddingStream};
pub use worker::EmbedderStatus;

use crate::config::ResolvedConfig;
use crate::embedding_model::EmbeddingModel;
use crate::owner::End;
use crate::{Error, Pooling};
use options::Settled;
use worker::{BatchLimits, Command};

/// A handle to a model that embeds. Clones share the model and its thread, and texts of all of them share batches. What
/// a text gets depends on that text and its parameters alone, to the bit: not on the others, nor on threads.
///
/// - Dropping a stream, or the future of vectors, cancels what was not computed yet.
/// - A stream that is not read holds up nobody: no more than two batches of it are on their way.
/// - The thread ends when the last handle and the last stream are dropped; streams may outlive the handles.
///   [`Embedder::shutdown`] ends it at once.
/// - Should the thread end by a defect of ours, all that wait for it get an error with the reason.
///
/// ```
/// # use std::sync::Arc;
/// # use engine::devices::Platform;
/// use perihelion_pipelines::config::{Machine, PipelineConfig};
/// # use perihelion_pipelines::{
/// #     Embedder, EmbedderOptions, EmbeddingModel, EmbeddingParameters, EmbeddingRequest, Pooling,
/// # };
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
/// # let platform = Platform::new(|| Arc::new(cpu::Cpu::new(2)));
/// let resolved = PipelineConfig::new(path).resolve(Machine::new(&platform))?;
/// let session = engine::InferenceSession::new(resolved.config().devices_of(&platform)?)?;
/// let model = Arc::new(EmbeddingModel::from_config(&session, resolved, &mut |_| ())?);
/// // What the files of an embedding model say need not be said here.
/// let mean = EmbeddingParameters { pooling: Some(Pooling::Mean), ..EmbeddingParameters::default() };
/// let embedder = Embedder::new(model, &EmbedderOptions { parameters: mean, ..EmbedderOptions::default() })?;
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
#[derive(Clone)]
pub struct Embedder {
    shared: Arc<Shared>,
    commands: Sender<Command>,
}

/// What handles and streams share.
struct Shared {
    model: Arc<EmbeddingModel>,
    /// What requests leave open.
    usual: Settled,
    max_length: usize,
    limits: BatchLimits,
    end: End,
}

impl Embedder {
    /// Starts a thread for a model.
    ///
    /// # Errors
    /// If the options do not fit the model, nobody says how a decoder's hidden states become one vector, or no thread
    /// can be started.
    pub fn new(model: Arc<EmbeddingModel>, options: &EmbedderOptions) -> Result<Embedder, Error> {
        let (max_length, usual) = options.settle(&model)?;
        let limits = BatchLimits { texts: options.max_batch_size, tokens: options.max_batch_tokens };
        let (commands, received) = async_channel::unbounded();
        let end = worker::spawn(Arc::clone(&model), limits, received)?;
        let shared = Shared { model, usual, max_length, limits, end };
        Ok(Embedder { shared: Arc::new(shared), commands })
    }

    /// Loads the model of a configuration onto a session's devices, and starts a thread for it that runs as the
    /// configuration says.
    ///
    /// # Errors
    /// As [`EmbeddingModel::from_config`] and [`Embedder::new`].
    pub fn from_config(session: &InferenceSession, resolved: ResolvedConfig) -> Result<Embedder, Error> {
        let options = EmbedderOptions::from(&resolved);
        let model = EmbeddingModel::from_config(session, resolved, &mut |_| ())?;
        Embedder::new(Arc::new(model), &options)
    }

    /// The model.
    pub fn model(&self) -> &Arc<EmbeddingModel> {
        &self.shared.model
    }

    /// How hidden states become one vector, for requests that do not say.
    pub fn pooling(&self) -> Pooling {
        self.shared.usual.pooling
    }

    /// Dims of the vectors, for requests that do not say.
    pub fn dimensions(&self) -> usize {
        self.shared.usual.dimensions
    }

    /// The most tokens of a text, those around it included.
    pub fn max_length(&self) -> usize {
        self.shared.max_length
    }

    /// The vectors of texts, in their order.
    ///
    /// # Errors
    /// As [`Embedder::stream`], and if one of the texts has no vector: the first such error.
    pub fn embed(&self, request: impl Into<EmbeddingRequest>) -> Result<Vec<Embedding>, Error> {
        self.stream(request)?.collect()
    }

    /// The vectors of texts, in their order, as they are made; and for each text that has none an error, if it is too
    /// long, has no tokens, or some that the model does not have.
    ///
    /// # Errors
    /// If the parameters do not fit the model.
    pub fn stream(&self, request: impl Into<EmbeddingRequest>) -> Result<EmbeddingStream, Error> {
        let mut stream = self.submit(request.into())?;
        stream.prepare();
        Ok(stream)
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
        let Shared { model, usual, max_length, .. } = &*self.shared;
        let settled = usual.with(model, parameters)?;
        Ok(EmbeddingText::from(text).tokens(0, model, &settled, *max_length)?.ids)
    }

    /// How much there is to do, and how much was done. Waits for the batch that is computed.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn status(&self) -> Result<EmbedderStatus, Error> {
        self.shared.end.ask(&self.commands, Command::Status)
    }

    /// Cancels all requests, of all handles, and waits until the thread has ended.
    pub fn shutdown(self) {
        let _ = self.commands.send_blocking(Command::Stop);
        self.shared.end.wait();
    }

    fn submit(&self, request: EmbeddingRequest) -> Result<EmbeddingStream, Error> {
        let EmbeddingRequest { texts, parameters } = request;
        let settled = self.shared.usual.with(&self.shared.model, &parameters)?;
        Ok(EmbeddingStream::new(Arc::clone(&self.shared), self.commands.clone(), settled, texts))
    }
}

impl std::fmt::Debug for Embedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedder").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("end", &self.end.reason()).finish_non_exhaustive()
    }
}
