//! The counters of a generator: how much there is to do, and what was done since it was made.

use std::time::Duration;

use super::event::{EventKind, FinishReason};
use crate::Error;
use crate::run::batch::Batch;
use crate::run::scheduler::Scheduler;

/// How much there is to do, and what was done since the generator was made, as it was between two steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Requests that run.
    pub running: usize,
    /// Requests that wait for room.
    pub waiting: usize,
    /// Requests whose answers are not read.
    pub paused: usize,
    /// Tokens that the waiting requests have to run before they can go on: their prompts, and after a preemption their
    /// answers so far. Requests that the worker has not taken yet are not counted.
    pub queued_tokens: usize,
    /// Pages of the KV cache that no request holds.
    pub free_pages: usize,
    /// Of these, pages that hold tokens of earlier requests.
    pub cached_pages: usize,
    /// Slots for states of requests; 0 of models that keep none.
    pub num_state_slots: usize,
    /// Of these, slots that no request holds.
    pub free_state_slots: usize,
    /// Of these, slots with states of earlier requests.
    pub cached_state_slots: usize,
    /// Pages of the KV cache.
    pub num_pages: usize,
    /// Tokens in a page.
    pub page_size: usize,
    /// How often a running request had to give its pages back.
    pub preemptions: u64,
    /// Requests that started.
    pub started: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Of these, tokens that the cache held already.
    pub cached_tokens: u64,
    /// Tokens that were made.
    pub generated_tokens: u64,
    /// Requests that ended, by reason.
    pub finished: FinishedRequests,
    /// Steps in which the model could not run a sequence.
    pub failed_steps: u64,
    /// How often a defect outside of the model failed all requests, and the cache was emptied.
    pub restarts: u64,
    /// Tokens of each step that ran.
    pub step_tokens: Histogram,
    /// Of these, tokens that ran to fill the cache: of prompts, and after a preemption of answers.
    pub step_prefill_tokens: Histogram,
    /// The time of each step that ran, in microseconds.
    pub step_micros: Histogram,
}

/// Requests that ended, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishedRequests {
    /// With a stop token or a stop string.
    pub stop: u64,
    /// At their greatest length.
    pub length: u64,
    /// Because their caller aborted them or dropped the stream.
    pub cancelled: u64,
    /// With a timeout, of the request or of a reader.
    pub timed_out: u64,
    /// With another error.
    pub failed: u64,
}

impl FinishedRequests {
    /// Takes note of a request that ended with an error.
    pub(super) fn note_error(&mut self, error: &Error) {
        let timed_out =
            matches!(error, Error::QueueTimeout { .. } | Error::Timeout { .. } | Error::NotRead { .. });
        if timed_out { self.timed_out += 1 } else { self.failed += 1 }
    }
}

/// How often values of each size were seen: counts for powers of two, so that a difference of two reads is a histogram
/// of the time between them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The sum of all values.
    pub sum: u64,
    counts: [u64; Histogram::BUCKETS],
}

impl Histogram {
    /// Bucket `i` counts values of at most `2^i`, and more than those of the bucket before; the last, all larger ones.
    pub const BUCKETS: usize = 32;

    /// Values seen.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Values of at most `2^exponent`.
    pub fn at_most(&self, exponent: usize) -> u64 {
        self.counts.iter().take(exponent + 1).sum()
    }

    pub(super) fn add(&mut self, value: u64) {
        let exponent = value.max(1).next_power_of_two().trailing_zeros() as usize;
        self.counts[exponent.min(Histogram::BUCKETS - 1)] += 1;
        self.sum += value;
    }
}

impl Status {
    /// The counts of what there is to do, with those of what was done.
    pub(super) fn now(self, scheduler: &Scheduler, paused: usize) -> Status {
        let cache = scheduler.cache();
        Status {
            running: scheduler.num_running(),
            waiting: scheduler.num_waiting(),
            paused,
            queued_tokens: scheduler.queued_tokens(),
            free_pages: cache.num_free(),
            cached_pages: cache.num_cached(),
            num_state_slots: cache.num_state_slots(),
            free_state_slots: cache.num_free_state_slots(),
            cached_state_slots: cache.num_cached_state_slots(),
            num_pages: cache.num_pages(),
            page_size: cache.page_size(),
            preemptions: scheduler.preemptions() as u64,
            ..self
        }
    }

    /// Takes note of an event of a request with so many prompt tokens.
    pub(super) fn note_event(&mut self, kind: &EventKind, prompt: usize) {
        match kind {
            EventKind::Started { cached_tokens, .. } => {
                self.started += 1;
                self.prompt_tokens += prompt as u64;
                self.cached_tokens += *cached_tokens as u64;
            }
            EventKind::Token { .. } => self.generated_tokens += 1,
            EventKind::Finished { reason: FinishReason::Length, .. } => self.finished.length += 1,
            EventKind::Finished { .. } => self.finished.stop += 1,
            EventKind::Failed(error) => self.finished.note_error(error),
            EventKind::Warning(_) | EventKind::PromptToken { .. } => {}
        }
    }

    /// Takes note of a step that ran.
    pub(super) fn note_step(&mut self, batch: &Batch, prefill_tokens: usize, time: Duration) {
        let tokens = batch.slices.iter().map(|slice| slice.tokens.len() as u64).sum();
        self.step_tokens.add(tokens);
        self.step_prefill_tokens.add(prefill_tokens as u64);
        self.step_micros.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_count_by_powers_of_two() {
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 5, 512, 513, u64::from(u32::MAX)] {
            histogram.add(value);
        }
        assert_eq!(
            [0, 1, 2, 3, 9, 10, 31].map(|exponent| histogram.at_most(exponent)),
            [2, 3, 5, 6, 7, 8, 9]
        );
        assert_eq!((histogram.count(), histogram.sum), (9, 1040 + u64::from(u32::MAX)));
    }
}
