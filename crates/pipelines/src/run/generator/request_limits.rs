//! Which requests a generator takes, known to its callers too: they refuse the others before any work.

use crate::Error;
use crate::error::TooLong;
use crate::run::generator::Request;

/// What a request must fit into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    pub(crate) vocab: usize,
    /// Of the model; `max_length` may be less.
    pub(crate) context_length: usize,
    pub(crate) max_length: usize,
    /// For requests that leave it open; `None` if there is no limit.
    pub(crate) max_new_tokens: Option<usize>,
    /// Tokens that the cache holds of one sequence.
    pub(crate) capacity: usize,
}

impl RequestLimits {
    /// The most tokens that the request's sequence may have.
    ///
    /// # Errors
    /// If the prompt is empty, has tokens that the model does not know, is too long for `max_length`, the model or
    /// the cache, or other fields are out of range.
    pub(crate) fn check(&self, request: &Request) -> Result<usize, Error> {
        let max_tokens = self.max_tokens(request)?;
        let vocab = self.vocab;
        if let Some(&token) = request.prompt.iter().find(|&&token| token as usize >= vocab) {
            return Err(Error::UnknownToken { token, vocab });
        }
        request.validate(vocab)?;
        TooLong::check(request.prompt.len(), max_tokens, self.capacity)?;
        Ok(max_tokens)
    }

    fn max_tokens(&self, request: &Request) -> Result<usize, Error> {
        let (tokens, limit) = (request.prompt.len(), self.max_length);
        if tokens == 0 {
            return Err(Error::EmptyPrompt);
        }
        let most = request.max_new_tokens.or(self.max_new_tokens).unwrap_or(usize::MAX);
        let new = most.saturating_sub(request.generated);
        // A prompt that is only read may fill everything.
        if tokens > limit || tokens == limit && new > 0 {
            return Err(if limit == self.context_length {
                Error::PromptTooLong { tokens, limit }
            } else {
                Error::PromptBeyondMaxLength { tokens, limit }
            });
        }
        Ok(tokens.saturating_add(new).min(limit))
    }
}
