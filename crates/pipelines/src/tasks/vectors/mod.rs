//! Vectors of texts in batches, from any thread: what embedders and classifiers share.
//!
//! Callers make tokens of their texts, a batch or two ahead of what they have read. A worker computes: texts come to it
//! through a bounded queue, those of several callers together, and each vector goes back through a channel of its own.

mod options;
mod stream;
mod worker;

use std::sync::Arc;

pub use options::{EmbeddingPrompt, Truncate};
pub(crate) use options::{chosen_prompt, invalid_prompt};
pub(crate) use stream::{AsyncVectorStream, VectorStream};
pub use worker::BatchStatus;
pub(crate) use worker::Job;
use worker::{BatchLimits, VectorWork};

use crate::Error;
use crate::plan::Plan;
use crate::tasks::worker::{QUEUE, Worker};

/// A model that makes a vector of each text, of many at a time.
pub(crate) trait VectorModel: Send + Sync + Sized + 'static {
    /// The name of the thread, and of what ended in errors.
    const NAME: &'static str;
    /// A caller's request.
    type Text: Send + Sync + Unpin + 'static;
    /// How a request's vectors are made: every choice made.
    type Settled: Send + Sync + 'static;
    /// A vector, and what it is of.
    type Output;

    /// The tokens of text number `index` of a request, at most `limit`.
    ///
    /// # Errors
    /// If there are none, too many, or some that the model does not have.
    fn tokens(
        &self,
        index: usize,
        text: &Self::Text,
        settled: &Self::Settled,
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
pub(crate) struct Tokens {
    pub(crate) ids: Vec<u32>,
    /// The types of pairs' tokens; empty if all are of the first type.
    pub(crate) types: Vec<u32>,
    pub(crate) truncated: usize,
}

/// A worker for a model. Clones share the model and the thread.
pub(crate) struct VectorWorker<M: VectorModel> {
    pub(crate) shared: Arc<Shared<M>>,
    pub(crate) worker: Worker<VectorWork<M>>,
}

/// The state that handles and streams share.
pub(crate) struct Shared<M: VectorModel> {
    pub(crate) model: Arc<M>,
    /// For what requests leave open.
    pub(crate) usual: M::Settled,
    /// The most tokens of a text.
    pub(crate) max_length: usize,
    limits: BatchLimits,
}

/// Most tokens in a batch, unless the configuration sets them: enough to keep all threads busy.
const BATCH_TOKENS: usize = 4096;

impl<M: VectorModel> VectorWorker<M> {
    /// Starts a thread for a model, with the limits of a plan of it, and with a longest text unless the plan sets one.
    ///
    /// # Errors
    /// If the model does not fit into memory, or no thread can be started.
    pub(crate) fn spawn(
        model: Arc<M>,
        plan: &Plan,
        usual: M::Settled,
        max_length: usize,
    ) -> Result<VectorWorker<M>, Error> {
        let limits = BatchLimits {
            texts: plan.memory()?.max_batch,
            tokens: plan.asked_batch_tokens().unwrap_or(BATCH_TOKENS),
        };
        let max_length = plan.asked_length().unwrap_or(max_length);
        let worker = Worker::spawn(VectorWork::new(Arc::clone(&model), limits), QUEUE)?;
        Ok(VectorWorker { shared: Arc::new(Shared { model, usual, max_length, limits }), worker })
    }

    /// The vectors of texts, of which no tokens are made yet.
    pub(crate) fn stream(&self, texts: Vec<M::Text>, settled: M::Settled) -> VectorStream<M> {
        VectorStream::new(Arc::clone(&self.shared), self.worker.clone(), settled, texts)
    }

    /// The counters as they were between two batches, with those of the queue. Never waits for a batch.
    ///
    /// # Errors
    /// If the thread has ended.
    pub(crate) fn status(&self) -> Result<BatchStatus, Error> {
        let (status, queued) = self.worker.status()?;
        Ok(BatchStatus { waiting: status.waiting + queued, ..status })
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

impl<M: VectorModel> Clone for VectorWorker<M> {
    fn clone(&self) -> VectorWorker<M> {
        VectorWorker { shared: Arc::clone(&self.shared), worker: self.worker.clone() }
    }
}

impl<M: VectorModel> std::fmt::Debug for VectorWorker<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VectorWorker").field("shared", &self.shared).field("worker", &self.worker).finish()
    }
}

impl<M: VectorModel> std::fmt::Debug for Shared<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
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
