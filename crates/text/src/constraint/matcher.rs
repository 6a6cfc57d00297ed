//! Where one sequence is in its grammar: which tokens may come next.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;

use llguidance::{TokenParser, panic_utils};
use toktrie::SimpleVob;

use super::ConstraintError;
use super::unique::UniqueItems;
use crate::Error;

/// Where one sequence is in its grammar.
///
/// Some texts can only go on in one way. Their tokens are then chosen at once, as the tokenizer cuts the text, so that a
/// sequence gets the same tokens whether it takes them one by one or together.
pub struct Matcher {
    parser: TokenParser,
    /// Why the parser cannot go on.
    failure: Option<String>,
    /// If the schema has arrays with unique items.
    unique: Option<UniqueItems>,
    /// Tokens that the parser has taken and the sequence has not.
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

/// The problem where the mask is empty.
const NO_TOKEN: &str = "no token of the vocabulary goes on as the constraint asks";

impl Matcher {
    /// A matcher at the start of an answer, which has computed its first mask: what fails there fails here.
    pub(super) fn new(
        mut parser: TokenParser,
        unique: Option<UniqueItems>,
        vocabulary: usize,
        constraint: &'static str,
    ) -> Result<Matcher, ConstraintError> {
        parser.start_without_prompt();
        let forced = VecDeque::new();
        let mut matcher = Matcher { parser, failure: None, unique, forced, vocabulary, constraint };
        matcher.force()?;
        matcher.compute_mask()?;
        Ok(matcher)
    }

    /// A copy that shares no caches.
    pub(super) fn independent(&self) -> Matcher {
        Matcher {
            parser: self.parser.deep_clone(),
            failure: self.failure.clone(),
            unique: self.unique.clone(),
            forced: self.forced.clone(),
            ..*self
        }
    }

    /// The tokens that may come next. Those that end a text are among them where the answer may end.
    ///
    /// # Errors
    /// If no token goes on as the grammar asks, or that takes more work than a grammar may cause.
    pub fn mask(&mut self) -> Result<TokenMask, Error> {
        Ok(self.compute_mask()?)
    }

    fn compute_mask(&mut self) -> Result<TokenMask, ConstraintError> {
        if let Some(&token) = self.forced.front() {
            let mut mask = SimpleVob::alloc(self.vocabulary);
            mask.allow_token(token);
            return Ok(TokenMask(mask));
        }
        let mut mask = self.run(|parser| {
            if parser.stopped() {
                Ok(parser.token_env.tok_trie().eos_token_set())
            } else {
                parser.compute_mask()
            }
        })?;
        if let Some(unique) = self.unique.take_if(|_| !self.parser.stopped()) {
            let narrowed = self.run(|parser| {
                unique.narrow(parser, &mut mask);
                Ok::<_, String>(())
            });
            self.unique = Some(unique);
            narrowed?;
            if mask.is_zero() {
                return Err(self.fail(NO_TOKEN.to_owned()));
            }
        }
        Ok(TokenMask(mask))
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
                self.take(&[token])?;
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
        self.forced.is_empty() && self.run(|parser| Ok::<_, String>(parser.is_accepting())).unwrap_or(false)
    }

    /// Whether the text must end here.
    pub fn is_complete(&self) -> bool {
        self.forced.is_empty() && self.parser.stopped() && self.failure.is_none()
    }

    /// Takes the tokens that come next whatever is chosen.
    fn force(&mut self) -> Result<(), ConstraintError> {
        if self.parser.stopped() {
            return Ok(());
        }
        let forced = self.run(|parser| Ok::<_, String>(parser.compute_ff_tokens()))?;
        if !forced.is_empty() {
            self.take(&forced)?;
            self.forced.extend(forced);
        }
        Ok(())
    }

    /// Lets the parser take tokens.
    fn take(&mut self, tokens: &[u32]) -> Result<(), ConstraintError> {
        for &token in tokens {
            self.run(|parser| parser.consume_token(token))?;
            let Some(unique) = &mut self.unique else { continue };
            if !unique.take(self.parser.token_env.tok_trie().token(token)) {
                return Err(self.fail("an item would come twice".to_owned()));
            }
        }
        self.run(TokenParser::check_stop)?;
        Ok(())
    }

    /// Asks the parser, unless it failed before.
    fn run<T, E: fmt::Display>(
        &mut self,
        work: impl FnOnce(&mut TokenParser) -> Result<T, E>,
    ) -> Result<T, ConstraintError> {
        if let Some(failure) = &self.failure {
            return Err(self.refusal(failure.clone()));
        }
        let parser = &mut self.parser;
        match panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(work(parser)))) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(self.fail(error.to_string())),
            Err(panic) => Err(self.fail(panic.to_string())),
        }
    }

    /// Notes why the grammar cannot go on.
    fn fail(&mut self, problem: String) -> ConstraintError {
        let first = problem.lines().next().unwrap_or_default();
        let failure = match first {
            "NoExtensionBias" | NO_TOKEN => NO_TOKEN.to_owned(),
            other => format!("it cannot be enforced any further: {other}"),
        };
        self.failure = Some(failure.clone());
        self.refusal(failure)
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
