//! The work of the thread: texts in, vectors out, one batch at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use async_channel::Sender;

use super::{Tokens, VectorContext, VectorModel};
use crate::Error;
#[cfg(test)]
use crate::run::isolation::Fault;
use crate::run::isolation::guarded;
use crate::tasks::worker::Work;

/// Batches of texts that wait; further texts stay in the queue.
const BATCHES_WAITING: usize = 4;

/// A text, and where its vector goes. It is dropped if the stream that waits for it is.
pub struct Job<M: VectorModel> {
    pub(crate) tokens: Tokens,
    pub(crate) settings: Arc<M::Settings>,
    pub(super) reply: Sender<Result<Vec<f32>, Error>>,
}

/// How much there is to do, and how much was done, as it was between two batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchStatus {
    /// Texts that wait to be computed.
    pub waiting: usize,
    /// Batches that were computed.
    pub batches: u64,
    /// Texts in them.
    pub texts: u64,
    /// Tokens of these.
    pub tokens: u64,
}

/// How large batches are.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    pub(super) texts: usize,
    /// A longer text is a batch of its own.
    pub(super) tokens: usize,
}

/// A model, and the texts that wait for it.
pub struct VectorWork<M: VectorModel> {
    model: Arc<M>,
    limits: BatchLimits,
    queue: VecDeque<Job<M>>,
    status: BatchStatus,
    /// Happen in the next calls of the model.
    #[cfg(test)]
    pub(crate) faults: VecDeque<Fault>,
}

impl<M: VectorModel> VectorWork<M> {
    pub(super) fn new(model: Arc<M>, limits: BatchLimits) -> VectorWork<M> {
        VectorWork {
            model,
            limits,
            queue: VecDeque::new(),
            status: BatchStatus::default(),
            #[cfg(test)]
            faults: VecDeque::new(),
        }
    }

    /// The texts that are computed next: the oldest.
    fn batch(&mut self) -> Vec<Job<M>> {
        let (mut batch, mut tokens) = (Vec::new(), 0);
        while let Some(job) = self.queue.pop_front() {
            tokens += job.tokens.ids.len();
            if !batch.is_empty() && tokens > self.limits.tokens {
                self.queue.push_front(job);
                break;
            }
            batch.push(job);
            if batch.len() == self.limits.texts {
                break;
            }
        }
        batch
    }

    /// Computes a batch. If that fails, each text by itself, so that an error is its own.
    fn compute(&mut self, batch: Vec<Job<M>>) {
        #[cfg(test)]
        let fault = self.faults.pop_front();
        let computed = guarded(|| {
            #[cfg(test)]
            fault.map_or(Ok(()), |fault| fault())?;
            self.model.vectors(&batch)
        });
        match computed {
            Ok(vectors) => {
                self.status.batches += 1;
                for (job, vector) in batch.into_iter().zip(vectors) {
                    self.status.texts += 1;
                    self.status.tokens += job.tokens.ids.len() as u64;
                    // The stream may have been dropped meanwhile.
                    let _ = job.reply.try_send(Ok(vector));
                }
            }
            Err(error) if batch.len() == 1 => drop(batch[0].reply.try_send(Err(error))),
            Err(_) => batch.into_iter().for_each(|job| self.compute(vec![job])),
        }
    }
}

impl<M: VectorModel> Work for VectorWork<M> {
    const NAME: &'static str = M::NAME;

    /// Texts that are to become vectors, in this order.
    type Job = Vec<Job<M>>;
    type Status = BatchStatus;
    type Context = VectorContext<M>;

    fn add(&mut self, jobs: Vec<Job<M>>) {
        self.queue.extend(jobs);
    }

    fn is_full(&self) -> bool {
        self.queue.len() >= self.limits.texts.saturating_mul(BATCHES_WAITING)
    }

    fn tend(&mut self) {
        self.queue.retain(|job| !job.reply.is_closed());
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn alarm(&self) -> Option<Instant> {
        None
    }

    fn step(&mut self) {
        let batch = self.batch();
        self.compute(batch);
    }

    fn recover(&mut self, problem: &str) {
        for job in self.queue.drain(..) {
            let _ = job.reply.try_send(Err(Error::Defect(problem.to_string())));
        }
    }

    fn status(&self) -> BatchStatus {
        BatchStatus { waiting: self.queue.len(), ..self.status }
    }

    fn with_queued(status: BatchStatus, queued: usize) -> BatchStatus {
        BatchStatus { waiting: status.waiting + queued, ..status }
    }
}
