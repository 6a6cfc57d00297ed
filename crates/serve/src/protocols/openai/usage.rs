//! Counts of tokens.

use serde::Serialize;
use utoipa::ToSchema;

use crate::generation;

/// Counts of tokens.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Tokens of the prompts.
    prompt_tokens: usize,
    /// Tokens of the answers.
    completion_tokens: usize,
    /// All tokens.
    total_tokens: usize,
    /// More about the prompts.
    prompt_tokens_details: PromptTokensDetails,
    /// More about the answers.
    completion_tokens_details: CompletionTokensDetails,
}

/// More about the tokens of answers.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct CompletionTokensDetails {
    /// Those of reasoning and its marks.
    reasoning_tokens: usize,
}

/// More about the tokens of prompts.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct PromptTokensDetails {
    /// Those whose keys and values the cache held.
    cached_tokens: usize,
}

impl From<generation::Usage> for Usage {
    fn from(usage: generation::Usage) -> Usage {
        let generation::Usage { prompt_tokens, cached_tokens, generated_tokens, reasoning_tokens } = usage;
        Usage {
            prompt_tokens,
            completion_tokens: generated_tokens,
            total_tokens: prompt_tokens + generated_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens },
            completion_tokens_details: CompletionTokensDetails { reasoning_tokens },
        }
    }
}

/// How long the answers to a request took, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct RequestMetrics {
    queue_ms: f64,
    /// From the queue to the first token.
    prompt_ms: f64,
    /// From the first token to the last.
    answer_ms: f64,
    /// From the request to the first token.
    time_to_first_token_ms: f64,
    /// Of all answers together, after the first token.
    tokens_per_second: f64,
}

impl RequestMetrics {
    pub(crate) fn new(usage: generation::Usage, timings: generation::Timings) -> RequestMetrics {
        let milliseconds = |duration: std::time::Duration| duration.as_secs_f64() * 1000.0;
        let answer = timings.answer();
        let later_tokens = usage.generated_tokens.saturating_sub(1) as f64;
        let is_measured = !answer.is_zero();
        RequestMetrics {
            queue_ms: milliseconds(timings.queue()),
            prompt_ms: milliseconds(timings.prompt()),
            answer_ms: milliseconds(answer),
            time_to_first_token_ms: milliseconds(timings.queue() + timings.prompt()),
            tokens_per_second: if is_measured { later_tokens / answer.as_secs_f64() } else { 0.0 },
        }
    }
}
