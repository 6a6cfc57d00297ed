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
}

/// More about the tokens of prompts.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct PromptTokensDetails {
    /// Those whose keys and values the cache held.
    cached_tokens: usize,
}

impl From<generation::Usage> for Usage {
    fn from(usage: generation::Usage) -> Usage {
        let generation::Usage { prompt_tokens, cached_tokens, generated_tokens } = usage;
        Usage {
            prompt_tokens,
            completion_tokens: generated_tokens,
            total_tokens: prompt_tokens + generated_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens },
        }
    }
}
