//! Vectors of texts in batches, from any thread: what embedders and classifiers share.
//!
//! Callers make tokens of their texts, a batch or two ahead of what they have read. A worker computes: texts come to it
//! through a bounded queue, those of several callers together, and each vector goes back through a channel of its own.

mod options;
mod request;
mod stream;
mod worker;

use std::sync::Arc;

use engine::InferenceSession;
use futures_lite::StreamExt;

pub use options::{EmbeddingPrompt, Truncate};
pub(crate) use options::{chosen_prompt, invalid_prompt};
pub use request::VectorRequest;
pub use stream::VectorStream;
use worker::BatchLimits;
pub use worker::BatchStatus;
pub(crate) use worker::{Job, VectorWork};

use crate::Error;
use crate::plan::Plan;
use crate::tasks::handle::{Handle, Waiting};
use crate::tasks::worker::QUEUE;

/// A model that makes a vector of each text, of many at a time.
pub trait VectorModel: Send + Sync + Sized + 'static {
    /// The name of the thread, and of what ended in errors.
    const NAME: &'static str;
    /// A caller's request.
    type Text: Send + Sync + Unpin + 'static;
    /// How a request's vectors are made, as far as it says.
    type Parameters: Default;
    /// The parameters of a request, with defaults in place of those that it leaves out.
    type Settings: Send + Sync + 'static;
    /// A vector, and what it is of.
    type Output;

    /// Compiles and loads a planned model.
    ///
    /// # Errors
    /// If it is made for another task, or cannot be loaded.
    fn load(session: &InferenceSession, plan: Plan) -> Result<Self, Error>;

    /// The plan that the model was loaded with, and the most tokens of a text as its files say.
    fn limits(&self) -> (&Plan, usize);

    /// The parameters, with what they leave open from `defaults` or, without those, from the model's files.
    ///
    /// # Errors
    /// If the parameters do not fit the model.
    fn resolve(
        &self,
        defaults: Option<&Self::Settings>,
        parameters: &Self::Parameters,
    ) -> Result<Self::Settings, Error>;

    /// The tokens of text number `index` of a request, at most `limit`.
    ///
    /// # Errors
    /// If there are none, too many, or some that the model does not have.
    fn tokens(
        &self,
        index: usize,
        text: &Self::Text,
        settings: &Self::Settings,
        limit: usize,
    ) -> Result<Tokens, Error>;

    /// The vectors of a batch.
    ///
    /// # Errors
    /// If the model fails.
    fn vectors(&self, batch: &[Job<Self>]) -> Result<Vec<Vec<f32>>, Error>;

    /// A vector with the numbers of its text's tokens, and of those that were left out.
    fn output(vector: Vec<f32>, tokens: usize, truncated: usize) -> Self::Output;
}

/// The tokens of a text, and how many of them were left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    pub(crate) ids: Vec<u32>,
    /// The types of pairs' tokens; empty if all are of the first type.
    pub(crate) types: Vec<u32>,
    pub(crate) truncated: usize,
}

/// What handles and streams know.
pub struct VectorContext<M: VectorModel> {
    pub(super) model: Arc<M>,
    /// The settings for what requests leave open.
    pub(super) defaults: M::Settings,
    /// The most tokens of a text.
    pub(super) max_length: usize,
    limits: BatchLimits,
}

/// Most tokens in a batch, unless the configuration sets them: enough to keep all threads busy.
const BATCH_TOKENS: usize = 4096;

impl<M: VectorModel> Handle<VectorWork<M>> {
    /// Starts a thread for a model, with the limits of its plan. `parameters` hold for what requests leave open.
    ///
    /// # Errors
    /// As `with_plan`.
    pub fn new(model: Arc<M>, parameters: &M::Parameters) -> Result<Self, Error> {
        let plan = model.limits().0.clone();
        Self::with_plan(model, &plan, parameters)
    }

    /// Fetches, compiles and loads a planned model, and starts a thread that uses it as the model's files say.
    ///
    /// # Errors
    /// If the model is made for another task or cannot be loaded, and as `with_plan`.
    pub fn from_plan(session: &InferenceSession, plan: Plan) -> Result<Self, Error> {
        Self::new(Arc::new(M::load(session, plan)?), &M::Parameters::default())
    }

    /// Starts a thread for a model, with the limits of another plan of the same model ([`Plan::with`]). A text may have
    /// `max_length` tokens if that is set, even if the model's files say fewer.
    ///
    /// # Errors
    /// If the parameters do not fit the model, neither they nor a decoder's files name a pooling for embeddings, the model
    /// does not fit into memory, or no thread can be started.
    pub fn with_plan(model: Arc<M>, plan: &Plan, parameters: &M::Parameters) -> Result<Self, Error> {
        let defaults = model.resolve(None, parameters)?;
        let limits = BatchLimits {
            texts: plan.memory()?.max_batch,
            tokens: plan.asked_batch_tokens().unwrap_or(BATCH_TOKENS),
        };
        let max_length = plan.asked_length().unwrap_or(model.limits().1);
        let work = VectorWork::new(Arc::clone(&model), limits);
        Handle::spawn(work, QUEUE, VectorContext { model, defaults, max_length, limits })
    }

    /// The model.
    pub fn model(&self) -> &Arc<M> {
        &self.context.model
    }

    /// The most tokens of a text or a pair, those around it included.
    pub fn max_length(&self) -> usize {
        self.context.max_length
    }

    /// What is made of texts, in their order, as it is made; and for each text of which nothing is made an error: it is too
    /// long, has no tokens, or some that the model does not have, or it is a pair and nothing joins two texts. Waits while
    /// the queue of texts is full.
    ///
    /// # Errors
    /// If the parameters do not fit the model.
    pub fn stream(
        &self,
        request: impl Into<VectorRequest<M::Text, M::Parameters>>,
    ) -> Result<Waiting<VectorStream<M>>, Error> {
        let mut stream = self.stream_async(request)?;
        stream.prepare();
        Ok(Waiting(stream))
    }

    /// As `stream`, without waiting.
    ///
    /// # Errors
    /// If the parameters do not fit the model, and [`Error::Busy`] if the queue has no room for the first texts.
    pub fn try_stream(
        &self,
        request: impl Into<VectorRequest<M::Text, M::Parameters>>,
    ) -> Result<Waiting<VectorStream<M>>, Error> {
        let mut stream = self.stream_async(request)?;
        stream.try_prepare()?;
        Ok(Waiting(stream))
    }

    /// As `stream`, for a task. It begins when it is first polled.
    ///
    /// # Errors
    /// If the parameters do not fit the model.
    pub fn stream_async(
        &self,
        request: impl Into<VectorRequest<M::Text, M::Parameters>>,
    ) -> Result<VectorStream<M>, Error> {
        let VectorRequest { texts, parameters } = request.into();
        Ok(VectorStream::new(self.clone(), self.resolve(&parameters)?, texts))
    }

    /// All that is made of texts, in their order, or the first error. Dropping the future cancels the rest.
    pub(super) async fn all(
        &self,
        request: impl Into<VectorRequest<M::Text, M::Parameters>>,
    ) -> Result<Vec<M::Output>, Error> {
        self.stream_async(request)?.try_collect().await
    }

    /// The parameters, and for what they leave open the choices of this handle.
    pub(super) fn resolve(&self, parameters: &M::Parameters) -> Result<M::Settings, Error> {
        self.context.model.resolve(Some(&self.context.defaults), parameters)
    }
}

impl Tokens {
    /// Refuses no tokens, and those beyond a vocabulary.
    ///
    /// # Errors
    /// [`Error::EmptyText`], [`Error::UnknownToken`].
    pub(crate) fn check(&self, index: usize, vocab: usize) -> Result<(), Error> {
        if self.ids.is_empty() {
            return Err(Error::EmptyText { index });
        }
        match self.ids.iter().find(|&&token| token as usize >= vocab) {
            Some(&token) => Err(Error::UnknownToken { token, vocab }),
            None => Ok(()),
        }
    }

    /// The type of each token.
    pub(crate) fn all_types(&self) -> impl Iterator<Item = u32> {
        let untyped = if self.types.is_empty() { self.ids.len() } else { 0 };
        self.types.iter().copied().chain(std::iter::repeat_n(0, untyped))
    }

    /// The first or last tokens of a text, and all of those around it: `whole` holds both, `text` the text's alone.
    pub(crate) fn truncated(whole: &[u32], text: &[u32], limit: usize, side: Truncate) -> Tokens {
        let around = whole.len() - text.len().min(whole.len());
        let before = (0..=around).find(|&start| whole[start..].starts_with(text));
        // Where the text cannot be told from what is around it, there is nothing to keep.
        let (before, around) = before.map_or((0, 0), |before| (before, around));
        let (before, rest) = whole.split_at(before);
        let (text, behind) = rest.split_at(whole.len() - around);
        let kept = side.keep(text, limit.saturating_sub(around).min(text.len()));
        let ids = [before, kept, behind].concat();
        Tokens { truncated: whole.len() - ids.len(), ids, types: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_keeps_what_is_around() {
        let check = |whole: &[u32], text: &[u32], limit, right: &[u32], left: &[u32]| {
            for (side, expected) in [(Truncate::Right, right), (Truncate::Left, left)] {
                let tokens = Tokens::truncated(whole, text, limit, side);
                assert_eq!(tokens.ids, expected);
                assert_eq!(tokens.truncated, whole.len() - expected.len());
            }
        };
        check(&[101, 7, 8, 9, 102], &[7, 8, 9], 4, &[101, 7, 8, 102], &[101, 8, 9, 102]);
        check(&[101, 7, 8, 9, 102], &[7, 8, 9], 2, &[101, 102], &[101, 102]);
        check(&[7, 8, 9, 5], &[7, 8, 9], 3, &[7, 8, 5], &[8, 9, 5]);
        check(&[7, 8, 9], &[7, 8, 9], 2, &[7, 8], &[8, 9]);
        check(&[4, 7, 8, 9], &[7, 8, 6], 3, &[4, 7, 8], &[7, 8, 9]);
    }
}
