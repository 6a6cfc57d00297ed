//! Where one sequence is in its grammar: which tokens may come next.

use std::collections::VecDeque;
use std::fmt;

use toktrie::SimpleVob;

use super::ConstraintError;
use crate::Error;

/// Where one sequence is in its grammar.
///
/// Some texts can only go on in one way. Their tokens are then chosen at once, as the tokenizer cuts the text, so that a
/// sequence gets the same tokens whether it takes them one by one or together.
pub struct Matcher {
    inner: llguidance::Matcher,
    /// Tokens that `inner` has taken and the sequence has not.
    forced: VecDeque<u32>,
    vocabulary: usize,
    constraint: &'static str,
}

/// One bit per token, lowest first in each word: whether it may come next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMask(SimpleVob);

impl TokenMask {
    /// The bits. Tokens past the end may not come.
    pub fn words(&self) -> &[u32] {
        self.0.as_slice()
    }

    /// Lets a token come.
    pub fn allow(&mut self, token: u32) {
        if (token as usize) < self.0.len() {
            self.0.allow_token(token);
        }
    }

    /// Lets a token not come.
    pub fn forbid(&mut self, token: u32) {
        if (token as usize) < self.0.len() {
            self.0.disallow_token(token);
        }
    }

    /// Whether a token may come.
    pub fn allows(&self, token: u32) -> bool {
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }
}

impl Matcher {
    /// A matcher at the start of an answer, which has computed its first mask: what fails there fails here.
    pub(super) fn new(
        inner: llguidance::Matcher,
        vocabulary: usize,
        constraint: &'static str,
    ) -> Result<Matcher, ConstraintError> {
        let mut matcher = Matcher { inner, forced: VecDeque::new(), vocabulary, constraint };
        matcher.force()?;
        matcher.compute_mask()?;
        Ok(matcher)
    }

    /// A copy that shares no caches.
    pub(super) fn independent(&self) -> Matcher {
        Matcher { inner: self.inner.deep_clone(), forced: self.forced.clone(), ..*self }
    }

    /// The tokens that may come next. Those that end a text are among them where the answer may end.
    ///
    /// # Errors
    /// If no token goes on as the grammar asks, or that takes more work than a grammar may cause.
    pub fn mask(&mut self) -> Result<TokenMask, Error> {
        Ok(self.compute_mask()?)
    }

    fn compute_mask(&mut self) -> Result<TokenMask, ConstraintError> {
        let mask = match self.forced.front() {
            Some(&token) => {
                let mut mask = SimpleVob::alloc(self.vocabulary);
                mask.allow_token(token);
                Ok(mask)
            }
            None => self.inner.compute_mask_or_eos(),
        };
        mask.map(TokenMask).map_err(|_| self.error())
    }

    /// Takes the token that was chosen, which must be one that the mask allows and that does not end the text.
    ///
    /// # Errors
    /// If the token may not come here, or takes more work than a grammar may cause.
    pub fn advance(&mut self, token: u32) -> Result<(), Error> {
        match self.forced.front() {
            Some(&next) if next == token => {
                self.forced.pop_front();
                Ok(())
            }
            Some(_) => Err(self.refusal(format!("token {token} is not the one that must come here")).into()),
            None => {
                self.inner.consume_token(token).map_err(|_| self.error())?;
                Ok(self.force()?)
            }
        }
    }

    /// The tokens that come next whatever is chosen, in order; often none.
    pub fn forced(&self) -> impl Iterator<Item = u32> + '_ {
        self.forced.iter().copied()
    }

    /// Whether the text may end here.
    pub fn may_end(&mut self) -> bool {
        self.forced.is_empty() && self.inner.is_accepting().unwrap_or(false)
    }

    /// Whether the text must end here.
    pub fn is_complete(&self) -> bool {
        self.forced.is_empty() && self.inner.is_stopped() && !self.inner.is_error()
    }

    /// Takes the tokens that come next whatever is chosen.
    fn force(&mut self) -> Result<(), ConstraintError> {
        if !self.inner.is_stopped() {
            self.forced.extend(self.inner.consume_ff_tokens());
        }
        if self.inner.is_error() { Err(self.error()) } else { Ok(()) }
    }

    /// Why the grammar cannot go on.
    fn error(&self) -> ConstraintError {
        let problem = self.inner.get_error().unwrap_or_else(|| self.inner.stop_reason().to_string());
        let first = problem.lines().next().unwrap_or_default();
        self.refusal(match first {
            "NoExtensionBias" => "no token of the vocabulary goes on as the constraint asks".to_owned(),
            other => format!("it cannot be enforced any further: {other}"),
        })
    }

    fn refusal(&self, problem: String) -> ConstraintError {
        ConstraintError::new(self.constraint, problem)
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").field("constraint", &self.constraint).field("forced", &self.forced).finish()
    }
}
