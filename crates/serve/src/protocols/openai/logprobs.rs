//! Log-probabilities of tokens in the shape of chat completions.

use pipelines::{TokenLogprob, TokenLogprobs};
use serde::Serialize;
use utoipa::ToSchema;

/// The log-probabilities of an answer.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[schema(as = ChatLogprobs)]
pub(crate) struct Logprobs {
    /// One entry for each token.
    pub(crate) content: Vec<TokenEntry>,
}

/// A token, and the likeliest tokens at its place.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct TokenEntry {
    #[serde(flatten)]
    chosen: TokenChoice,
    /// The likeliest tokens, best first.
    top_logprobs: Vec<TokenChoice>,
}

/// A token and its log-probability.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct TokenChoice {
    /// The text of the token; U+FFFD stands for parts of a character.
    token: String,
    /// The natural logarithm of its probability before temperature and filters.
    logprob: f32,
    /// The bytes of the token.
    bytes: Vec<u8>,
}

impl From<&TokenLogprobs> for TokenEntry {
    fn from(logprobs: &TokenLogprobs) -> TokenEntry {
        TokenEntry {
            chosen: TokenChoice::from(&logprobs.chosen),
            top_logprobs: logprobs.top.iter().map(TokenChoice::from).collect(),
        }
    }
}

impl From<&TokenLogprob> for TokenChoice {
    fn from(choice: &TokenLogprob) -> TokenChoice {
        TokenChoice {
            token: choice.text().into_owned(),
            logprob: finite(choice.logprob),
            bytes: choice.bytes.clone(),
        }
    }
}

/// JSON has no infinities: a token that cannot be has the logarithm that OpenAI gives it.
pub(crate) fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}
