//! How long answers take and how much of the prompts is read, under llama.cpp's names, which its clients show.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::generation::{self, AnswerStats, Delta, Generation};
use crate::state::Context;

/// The telemetry that a request asks its answers to carry.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
pub(crate) struct TelemetryFields {
    /// Whether to give the times that the answer took; in a stream, with each token.
    timings_per_token: Option<bool>,
    /// Whether a stream tells when the prompt begins to be read, and when it has been.
    return_progress: Option<bool>,
}

/// Tokens of an answer and the time that they took. Numbers are 0 before there is something to measure.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub(crate) struct Timings {
    /// Tokens of the prompt whose keys and values the cache held.
    cache_n: usize,
    /// The other tokens of the prompt.
    prompt_n: usize,
    /// From the queue to the first token.
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    /// Tokens of the answer.
    predicted_n: usize,
    /// From the first token to the last.
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
}

/// How much of a prompt is read.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct PromptProgress {
    /// Tokens of the prompt.
    total: usize,
    /// Those of them whose keys and values the cache held.
    cache: usize,
    /// Those of them that are read, with those of the cache.
    processed: usize,
    /// Since the request left the queue.
    time_ms: u64,
}

impl TelemetryFields {
    /// Takes note of the field that has no effect on an answer that is not a stream.
    pub(crate) fn note(self, is_stream: bool, context: &Context) {
        if !is_stream && self.return_progress.unwrap_or(false) {
            context.note(|facts| facts.ignored.extend(["return_progress".to_string()]));
        }
    }

    /// Returns the timings of an answer so far, if the request asked for them.
    pub(crate) fn timings(self, generation: &Generation, index: usize) -> Option<Timings> {
        self.wants_timings().then(|| Timings::from(generation.stats(index)))
    }

    /// The times of all answers, if the request wants them.
    pub(crate) fn total(self, generation: &Generation) -> Option<Timings> {
        let (usage, timings) = (generation.usage, generation.timings);
        self.wants_timings().then(|| Timings::from(&AnswerStats { usage, timings }))
    }

    /// How much of the prompt is read once `delta` has come, if that is news and the request wants it.
    pub(crate) fn progress(
        self,
        generation: &Generation,
        index: usize,
        delta: &Delta,
    ) -> Option<PromptProgress> {
        let AnswerStats { usage, timings } = generation.stats(index);
        let processed = match delta {
            Delta::Started => usage.cached_tokens,
            Delta::Token { .. } if usage.generated_tokens == 1 => usage.prompt_tokens,
            _ => return None,
        };
        self.return_progress.unwrap_or(false).then(|| PromptProgress {
            total: usage.prompt_tokens,
            cache: usage.cached_tokens,
            processed,
            time_ms: u64::try_from(timings.since_start().as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn wants_timings(self) -> bool {
        self.timings_per_token.unwrap_or(false)
    }
}

impl From<&AnswerStats> for Timings {
    fn from(stats: &AnswerStats) -> Timings {
        let AnswerStats { usage, timings } = stats;
        let generation::Usage { prompt_tokens, cached_tokens, generated_tokens, .. } = *usage;
        let prompt_n = prompt_tokens.saturating_sub(cached_tokens);
        let (prompt, answer) = (timings.prompt(), timings.answer());
        Timings {
            cache_n: cached_tokens,
            prompt_n,
            prompt_ms: milliseconds(prompt),
            prompt_per_token_ms: per(milliseconds(prompt), prompt_n as f64),
            prompt_per_second: per(prompt_n as f64, prompt.as_secs_f64()),
            predicted_n: generated_tokens,
            predicted_ms: milliseconds(answer),
            predicted_per_token_ms: per(milliseconds(answer), generated_tokens as f64),
            predicted_per_second: per(generated_tokens as f64, answer.as_secs_f64()),
        }
    }
}

/// Milliseconds to the microsecond.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// A quotient, which is 0 if there is nothing to divide by.
fn per(amount: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { amount / divisor } else { 0.0 }
}
