//! Log-probabilities of the tokens of prompts, in the shape of vLLM.

use indexmap::IndexMap;
use serde::Serialize;
use utoipa::ToSchema;

use super::logprobs::finite;
use crate::generation::PromptToken;

/// The log-probabilities at one place: of the token that stands there, and of the likeliest, by their ids.
pub(crate) type PromptLogprobs = IndexMap<String, PromptLogprob>;

/// The log-probability of a token.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptLogprob {
    logprob: f32,
    /// 1 is the likeliest; `null` for a token that is not among those asked for.
    rank: Option<usize>,
    decoded_token: String,
}

/// The log-probabilities of a prompt; the first token has none.
pub(crate) fn prompt_logprobs(prompt: &[PromptToken]) -> Vec<Option<PromptLogprobs>> {
    let at_place = |token: &PromptToken| {
        let logprobs = token.logprobs.as_ref()?;
        let rank_of = |id: u32| Some(logprobs.top.iter().position(|choice| choice.token == id)? + 1);
        let entries = std::iter::once(&logprobs.chosen).chain(&logprobs.top).map(|choice| {
            let entry = PromptLogprob {
                logprob: finite(choice.logprob),
                rank: rank_of(choice.token),
                decoded_token: choice.text().into_owned(),
            };
            (choice.token.to_string(), entry)
        });
        Some(entries.collect::<PromptLogprobs>())
    };
    prompt.iter().map(at_place).collect()
}
