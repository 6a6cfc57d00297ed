//! One text in the making: its tokens, and how many of them the cache holds.

use crate::page_pool::Page;

/// Names a sequence for as long as the generator lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// What the scheduler knows of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Its name.
    pub id: SequenceId,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// How many of the tokens are prompt.
    pub prompt: usize,
    /// The sequence ends when it has this many tokens.
    pub max_tokens: usize,
    /// How many tokens' keys and values are in the cache. Set by the scheduler after each step.
    pub cached: usize,
    /// The pages that hold them, in order. Lent by the page pool.
    pub pages: Vec<Page>,
}

impl Sequence {
    /// A sequence that has not run yet.
    ///
    /// # Panics
    /// Without at least one token: there is nothing to predict from.
    pub fn new(id: SequenceId, prompt: Vec<u32>, max_tokens: usize) -> Sequence {
        assert!(!prompt.is_empty(), "a sequence starts with a token");
        Sequence { id, prompt: prompt.len(), tokens: prompt, max_tokens, cached: 0, pages: Vec::new() }
    }

    /// The tokens generated so far.
    pub fn generated(&self) -> &[u32] {
        &self.tokens[self.prompt..]
    }

    /// Tokens that must run before the next one can be predicted.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.cached
    }
}
