//! A sequence's way through its grammar: the mask of its next token, and the tokens that follow in any case.

use text::constraint::{Matcher, TokenMask};

use crate::Error;
use crate::run::isolation::guarded;

/// Which tokens a constrained sequence may take next.
pub(super) struct Guide {
    matcher: Matcher,
    /// Of the next token, once it is computed.
    mask: Option<Result<TokenMask, Error>>,
    /// The request's stop tokens, which may come where the answer may end.
    stops: Vec<u32>,
    /// Tokens that end a text, and may not come: the request goes on until its grammar ends.
    ignored: Vec<u32>,
}

impl Guide {
    pub(super) fn new(matcher: Matcher, stops: Vec<u32>, ignored: Vec<u32>) -> Guide {
        Guide { matcher, mask: None, stops, ignored }
    }

    /// Computes the mask of the next token, unless it is there. It may run while the model does.
    pub(super) fn compute(&mut self) {
        if self.mask.is_none() {
            self.mask = Some(guarded(|| self.next_mask()));
        }
    }

    /// The mask of the next token.
    ///
    /// # Errors
    /// If no token can come next.
    pub(super) fn mask(&mut self) -> Result<TokenMask, Error> {
        self.compute();
        self.mask.take().expect("it was computed")
    }

    /// Takes the token that was chosen.
    ///
    /// # Errors
    /// If it cannot come next.
    pub(super) fn advance(&mut self, token: u32) -> Result<(), Error> {
        self.mask = None;
        Ok(self.matcher.advance(token)?)
    }

    /// The token that comes next in any case.
    pub(super) fn forced(&self) -> Option<u32> {
        self.matcher.forced().next()
    }

    /// Whether the answer must end here.
    pub(super) fn is_complete(&self) -> bool {
        self.matcher.is_complete()
    }

    fn next_mask(&mut self) -> Result<TokenMask, Error> {
        let mut mask = self.matcher.mask()?;
        if self.matcher.may_end() {
            self.stops.iter().for_each(|&token| mask.allow(token));
            self.ignored.iter().for_each(|&token| mask.forbid(token));
        }
        Ok(mask)
    }
}
