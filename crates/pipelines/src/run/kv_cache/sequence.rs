//! One text in the making: its tokens, and how many of them the cache holds.

use std::sync::Arc;

use super::page_pool::Page;
use super::prefix_end::PrefixEnd;

/// Where a version of what recurrent layers keep of a sequence lies: an index along the outermost axis of the states.
pub type StateSlot = u32;

/// Which slots hold versions of a sequence's state. All are lent by the cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StateVersions {
    /// The state after the tokens that are cached; `None` if there are none.
    pub(super) current: Option<StateSlot>,
    /// Where the next step writes; no other sequence holds it.
    pub(super) next: Option<StateSlot>,
    /// The page whose checkpoint the sequence has made last of those that replace each other.
    pub(super) checkpoint: Option<Page>,
}

/// The name of a page and all before it.
pub(super) type Name = [u8; 32];

/// What a sequence's pages are called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PrefixState {
    /// The names of full pages, as far as they were needed yet.
    pub(super) names: Vec<Name>,
    /// How many of the first pages are in the tree.
    pub(super) published: usize,
    /// Of when the sequence started.
    pub(super) epoch: u64,
}

/// Names a sequence for as long as the generator lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
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
    /// Whom pages are shared with: those with the same salt.
    pub cache_salt: Option<Arc<str>>,
    /// Whom it is from: tenants take turns.
    pub tenant: Option<Arc<str>>,
    /// Of those of its tenant that wait, the one with the lowest number starts first.
    pub priority: i32,
    /// Sequences with the same prompt, bounds and tenant, that share what is read of it until the first token is chosen:
    /// from then on each is a sequence by itself.
    pub siblings: Vec<SequenceId>,
    /// Whether every token runs, even if pages that hold its keys and values are found: the logits of the whole
    /// prompt are wanted.
    pub compute_all: bool,
    /// How many tokens' keys and values are in the cache. Set by the scheduler after each step.
    pub cached: usize,
    /// How many tokens of the prompt were in the cache when the sequence first started. Set by the cache.
    pub cached_prompt: Option<usize>,
    /// Why not more of them were. Set by the cache.
    pub prefix_end: PrefixEnd,
    /// The pages that hold the tokens, in order. Lent by the cache.
    pub pages: Vec<Page>,
    /// Whether the last page is also another's, who writes there. Kept by the cache.
    pub(crate) borrows_tail: bool,
    /// What the pages are called. Kept by the cache.
    pub(crate) prefix: PrefixState,
    /// The slots of its state, if the model keeps one.
    pub(crate) state: StateVersions,
}

impl Sequence {
    /// A sequence that has not run yet.
    ///
    /// # Panics
    /// Without at least one token: there is nothing to predict from.
    pub fn new(id: SequenceId, prompt: Vec<u32>, max_tokens: usize) -> Sequence {
        assert!(!prompt.is_empty(), "a sequence starts with a token");
        Sequence {
            id,
            prompt: prompt.len(),
            tokens: prompt,
            max_tokens,
            cache_salt: None,
            tenant: None,
            priority: 0,
            siblings: Vec::new(),
            compute_all: false,
            cached: 0,
            cached_prompt: None,
            prefix_end: PrefixEnd::default(),
            pages: Vec::new(),
            borrows_tail: false,
            prefix: PrefixState::default(),
            state: StateVersions::default(),
        }
    }

    /// Whether another sequence that has not run yet could be a sibling.
    pub(crate) fn reads_as(&self, other: &Sequence) -> bool {
        let shared = |s: &Sequence| (s.max_tokens, s.compute_all, s.priority);
        shared(self) == shared(other)
            && self.generated().is_empty()
            && other.generated().is_empty()
            && self.tokens == other.tokens
            && self.cache_salt == other.cache_salt
            && self.tenant == other.tenant
    }

    /// Its name and those of its siblings.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SequenceId> {
        std::iter::once(self.id).chain(self.siblings.iter().copied())
    }

    /// Parts one from its siblings, who keep what was read of the prompt. `None` if it is not here, or alone.
    pub(crate) fn part(&mut self, id: SequenceId) -> Option<Sequence> {
        if self.siblings.is_empty() {
            return None;
        }
        if self.id == id {
            self.id = self.siblings.remove(0);
        } else {
            let position = self.siblings.iter().position(|&sibling| sibling == id)?;
            self.siblings.remove(position);
        }
        let (prefix, state, pages, siblings) = Default::default();
        Some(Sequence { id, prefix, state, pages, siblings, cached: 0, borrows_tail: false, ..self.clone() })
    }

    /// The tokens generated so far.
    pub fn generated(&self) -> &[u32] {
        &self.tokens[self.prompt..]
    }

    /// Tokens that must run before the next one can be predicted.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.cached
    }

    /// Whether the prompt is done, and only the last token has to run.
    pub fn decodes(&self) -> bool {
        self.pending() == 1 && !self.generated().is_empty()
    }

    /// The slots from which the next step reads the state, and to which it writes it; 0 if the model keeps none.
    pub(crate) fn state_slots(&self) -> (StateSlot, StateSlot) {
        let to = self.state.next.unwrap_or_default();
        (self.state.current.unwrap_or(to), to)
    }

    /// Tokens that may yet be made.
    pub fn remaining(&self) -> usize {
        self.max_tokens.saturating_sub(self.tokens.len())
    }
}
