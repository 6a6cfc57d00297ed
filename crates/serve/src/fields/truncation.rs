//! `truncate_prompt_tokens` and `truncation_side`: how texts that become vectors or scores are cut, as in vLLM.

use pipelines::Truncate;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api_error::ApiError;

/// How texts are cut.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TruncationFields {
    /// Cuts texts to this many tokens, those that the model wants around a text included; -1 is as many as the model takes.
    /// Without it, texts that are too long are an error.
    #[schema(minimum = -1)]
    truncate_prompt_tokens: Option<i64>,
    /// Which tokens are left out: with `right`, the default, the last ones; with `left`, the first.
    truncation_side: Option<TruncationSide>,
}

/// Which tokens are left out.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum TruncationSide {
    Left,
    Right,
}

/// Whether texts are cut, and to how many tokens.
pub(crate) struct Truncation {
    pub(crate) truncate: Option<Truncate>,
    pub(crate) max_tokens: Option<usize>,
}

impl TruncationFields {
    /// How a model cuts texts that takes at most `limit` tokens.
    ///
    /// # Errors
    /// If texts are to be cut to no tokens, or to more than the model takes.
    pub(crate) fn within(&self, limit: usize) -> Result<Truncation, ApiError> {
        let max_tokens = match self.truncate_prompt_tokens {
            None => return Ok(Truncation { truncate: None, max_tokens: None }),
            Some(-1) => None,
            Some(count) => {
                let fits = usize::try_from(count).ok().filter(|count| (1..=limit).contains(count));
                Some(fits.ok_or_else(|| {
                    let message =
                        format!("truncate_prompt_tokens is {count}: give 1 to {limit}, or -1 for {limit}");
                    ApiError::invalid("truncate_prompt_tokens", message)
                })?)
            }
        };
        let truncate = Some(match self.truncation_side {
            Some(TruncationSide::Left) => Truncate::Left,
            Some(TruncationSide::Right) | None => Truncate::Right,
        });
        Ok(Truncation { truncate, max_tokens })
    }
}
