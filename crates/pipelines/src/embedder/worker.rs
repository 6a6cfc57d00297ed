//! The thread that computes: texts come in, vectors go out, one batch at a time.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_channel::{Receiver, Sender};

use super::Settled;
use crate::Error;
use crate::embedding_model::EmbeddingModel;
use crate::generator::guarded;
use crate::owner::{self, End, Owner};
use crate::pooling::normalize;

/// What the thread is told.
pub(super) enum Command {
    /// Texts that are to become vectors, in this order.
    Add(Vec<Job>),
    Status(Sender<EmbedderStatus>),
    Stop,
    /// Nothing is done until the sender is dropped.
    #[cfg(test)]
    Hold(Receiver<()>),
    #[cfg(test)]
    Panic,
}

/// A text, and where its vector goes. It is forgotten once nobody waits for that.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) tokens: Vec<u32>,
    pub(super) settled: Arc<Settled>,
    pub(super) reply: Sender<Result<Vec<f32>, Error>>,
}

/// How much there is to do, and how much was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmbedderStatus {
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

/// Starts the thread.
pub(super) fn spawn(
    model: Arc<EmbeddingModel>,
    limits: BatchLimits,
    commands: Receiver<Command>,
) -> Result<End, Error> {
    let (queue, status) = (VecDeque::new(), EmbedderStatus::default());
    owner::spawn(Worker { model, limits, queue, status }, commands)
}

struct Worker {
    model: Arc<EmbeddingModel>,
    limits: BatchLimits,
    queue: VecDeque<Job>,
    status: EmbedderStatus,
}

impl Owner for Worker {
    const NAME: &'static str = "embedder";

    type Command = Command;

    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn obey(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::Add(jobs) => self.queue.extend(jobs),
            Command::Status(reply) => {
                self.queue.retain(Job::is_awaited);
                // Whoever asked may be gone.
                let _ = reply.try_send(EmbedderStatus { waiting: self.queue.len(), ..self.status });
            }
            Command::Stop => return ControlFlow::Break(()),
            #[cfg(test)]
            Command::Hold(released) => drop(released.recv_blocking()),
            #[cfg(test)]
            Command::Panic => panic!("on purpose"),
        }
        ControlFlow::Continue(())
    }

    fn step(&mut self) {
        let batch = self.batch();
        self.compute(batch);
    }
}

impl Worker {
    /// The texts that are computed next: the oldest that somebody waits for.
    fn batch(&mut self) -> Vec<Job> {
        let (mut batch, mut tokens) = (Vec::new(), 0);
        while let Some(job) = self.queue.pop_front() {
            if !job.is_awaited() {
                continue;
            }
            tokens += job.tokens.len();
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

    /// Computes a batch. Where that fails, each text by itself, so that an error is its own.
    fn compute(&mut self, batch: Vec<Job>) {
        if batch.is_empty() {
            return;
        }
        match guarded(|| vectors(&self.model, &batch)) {
            Ok(vectors) => {
                self.status.batches += 1;
                for (job, vector) in batch.into_iter().zip(vectors) {
                    self.status.texts += 1;
                    self.status.tokens += job.tokens.len() as u64;
                    // Whoever asked may be gone.
                    let _ = job.reply.try_send(Ok(vector));
                }
            }
            Err(error) if batch.len() == 1 => drop(batch[0].reply.try_send(Err(error))),
            Err(_) => batch.into_iter().for_each(|job| self.compute(vec![job])),
        }
    }
}

impl Job {
    fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }
}

/// The vectors of a batch.
fn vectors(model: &EmbeddingModel, batch: &[Job]) -> Result<Vec<Vec<f32>>, Error> {
    let texts: Vec<&[u32]> = batch.iter().map(|job| &job.tokens[..]).collect();
    let hidden = model.hidden(&texts)?;
    let vector = |(states, job): (&[f32], &Job)| {
        let mut vector = job.settled.pooling.pool(states, hidden.width());
        vector.truncate(job.settled.dimensions);
        if job.settled.normalize {
            normalize(&mut vector);
        }
        vector
    };
    Ok(hidden.texts().zip(batch).map(vector).collect())
}
