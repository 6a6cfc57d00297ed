//! Where the tokens of each sequence lie in the KV cache, and for how long.
//!
//! The cache is one buffer of pages, and the decoder finds the tokens of a sequence through its list of pages.
//! What differs is who gets which pages when:
//!
//! - *paged*: pages on demand, from anywhere; they may run out. With prefix caching, full pages are kept under
//!   what they hold, and lent to sequences that begin alike ([`prefix`]).
//! - *slots*: each sequence claims a slot of neighboring pages, large enough for the longest sequence, when it
//!   starts, and gives it back at its end; it never wants for more.
//!
//! Sequences with one prompt share its pages in the first case. Each but the first copies the last of them before it writes
//! there, unless it is the only one left.
//!
//! What a page holds depends on the tokens up to its end alone, so it does not matter where a page came from.
//!
//! Models with recurrent layers keep a state of each sequence in addition ([`states`]). A sequence can only begin with pages
//! of others up to one whose state was kept as well.

mod event;
mod page_pool;
mod paged;
mod prefix;
mod prefix_end;
mod sequence;
mod slots;
mod states;

pub use event::CacheEvent;
pub use page_pool::Page;
pub(crate) use prefix::PrefixCache;
pub use prefix::PrefixStats;
pub use prefix_end::PrefixEnd;
pub use sequence::{Sequence, SequenceId, StateSlot};

use paged::Paged;
use slots::Slots;
use states::States;

/// A page whose contents another page needs before a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCopy {
    /// The page to read.
    pub from: Page,
    /// The page to write.
    pub to: Page,
}

/// The pages of the KV cache, and the rule by which sequences get them.
#[derive(Debug)]
pub struct KvCache {
    page_size: usize,
    num_pages: usize,
    policy: Policy,
    states: States,
    /// Whether what a page stands for cannot be given to another sequence: it is kept elsewhere, by sequence.
    is_by_sequence: bool,
    /// The sequences that gave their pages back, if someone keeps what the pages stand for.
    released: Vec<SequenceId>,
}

#[derive(Debug)]
enum Policy {
    Paged(Box<Paged>),
    Slots(Slots),
}

impl KvCache {
    /// Pages on demand.
    pub fn paged(num_pages: usize, page_size: usize) -> KvCache {
        KvCache::with_policy(num_pages, page_size, Policy::Paged(Box::new(Paged::new(num_pages, page_size))))
    }

    /// Pages on demand, shared by sequences that begin alike.
    pub fn with_prefix_caching(num_pages: usize, page_size: usize) -> KvCache {
        let paged = Paged::with_prefix_caching(num_pages, page_size);
        KvCache::with_policy(num_pages, page_size, Policy::Paged(Box::new(paged)))
    }

    /// As many slots of at least `slot_tokens` tokens as `num_pages` pages are enough for.
    pub fn slots(num_pages: usize, page_size: usize, slot_tokens: usize) -> KvCache {
        let slots = Slots::new(num_pages, slot_tokens.div_ceil(page_size));
        KvCache::with_policy(slots.num_free(), page_size, Policy::Slots(slots))
    }

    /// With slots for the states of sequences, of a model that keeps them.
    #[must_use]
    pub fn with_states(self, num_slots: usize) -> KvCache {
        KvCache { states: States::new(num_slots), ..self }
    }

    /// Of pages that only count what is kept elsewhere, for each sequence by itself: sequences share none, and
    /// [`KvCache::take_released`] says which sequences gave theirs back.
    #[must_use]
    pub(crate) fn by_sequence(self) -> KvCache {
        KvCache { is_by_sequence: true, ..self }
    }

    /// The sequences that gave their pages back since the last call.
    pub(crate) fn take_released(&mut self) -> Vec<SequenceId> {
        std::mem::take(&mut self.released)
    }

    /// With states of prompts that are kept at every so many tokens.
    #[cfg(test)]
    pub(crate) fn with_checkpoint_interval(mut self, tokens: usize) -> KvCache {
        self.states.set_interval(tokens);
        self
    }

    fn with_policy(num_pages: usize, page_size: usize, policy: Policy) -> KvCache {
        let (states, released) = (States::new(0), Vec::new());
        KvCache { page_size, num_pages, policy, states, is_by_sequence: false, released }
    }

    /// A cache like this one with nothing in it.
    pub(crate) fn emptied(&self) -> KvCache {
        let &KvCache { page_size, num_pages, ref policy, ref states, is_by_sequence, released: _ } = self;
        let policy = match policy {
            Policy::Paged(paged) => Policy::Paged(Box::new(paged.emptied(num_pages))),
            Policy::Slots(slots) => Policy::Slots(Slots::new(num_pages, slots.pages_per_slot())),
        };
        let emptied = KvCache::with_policy(num_pages, page_size, policy).with_states(states.num_slots());
        KvCache { is_by_sequence, ..emptied }
    }

    /// Tokens in a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Pages in all.
    pub fn num_pages(&self) -> usize {
        self.num_pages
    }

    /// Pages that no sequence holds.
    pub fn num_free(&self) -> usize {
        match &self.policy {
            Policy::Paged(paged) => paged.num_free(),
            Policy::Slots(slots) => slots.num_free(),
        }
    }

    /// Of these, pages that hold tokens of earlier sequences.
    pub fn num_cached(&self) -> usize {
        match &self.policy {
            Policy::Paged(paged) => paged.num_cached(),
            Policy::Slots(_) => 0,
        }
    }

    /// Slots for states of sequences; 0 if the model keeps none.
    pub fn num_state_slots(&self) -> usize {
        self.states.num_slots()
    }

    /// Of these, slots that no sequence holds.
    pub fn num_free_state_slots(&self) -> usize {
        self.states.num_free()
    }

    /// Of these, slots with checkpoints, at which later sequences may begin.
    pub fn num_cached_state_slots(&self) -> usize {
        self.states.num_kept()
    }

    /// Tokens of the longest sequence that the cache can hold.
    pub fn capacity(&self) -> usize {
        let pages = match &self.policy {
            Policy::Paged(_) => self.num_pages,
            Policy::Slots(slots) => slots.pages_per_slot(),
        };
        pages * self.page_size
    }

    /// How many of the prompts' tokens were in the cache already, since the start or the last reset.
    pub fn prefix_stats(&self) -> PrefixStats {
        match &self.policy {
            Policy::Paged(paged) => paged.prefix_stats(),
            Policy::Slots(_) => PrefixStats::default(),
        }
    }

    /// Forgets what pages hold: no sequence that starts from now on gets a page that another has filled before.
    pub fn reset_prefixes(&mut self) {
        if let Policy::Paged(paged) = &mut self.policy {
            paged.reset_prefixes(&mut self.states);
        }
    }

    /// The pages that sequences which begin alike share, if they do.
    pub(crate) fn prefixes_mut(&mut self) -> Option<&mut PrefixCache> {
        match &mut self.policy {
            Policy::Paged(paged) => paged.prefixes_mut(),
            Policy::Slots(_) => None,
        }
    }

    /// Whether sequences can share pages.
    pub(crate) fn shares_pages(&self) -> bool {
        matches!(self.policy, Policy::Paged(_)) && !self.is_by_sequence
    }

    /// Lends the pages of a sequence's prompt, which has just been read, to another as well, which has no other tokens yet.
    ///
    /// # Panics
    /// If sequences cannot share pages.
    pub(crate) fn fork(&mut self, sequence: &Sequence, id: SequenceId) -> Sequence {
        match &mut self.policy {
            Policy::Paged(paged) => paged.fork(sequence, id, &mut self.states),
            Policy::Slots(_) => unreachable!("slots are not shared"),
        }
    }

    /// Lends a sequence that does not run the pages for all its tokens and a slot for its state, and sets how many of the
    /// tokens they hold already. Lends nothing, and says no, when too few are free.
    pub(crate) fn start(&mut self, sequence: &mut Sequence) -> bool {
        let missing = self.missing(sequence, sequence.tokens.len());
        let states = &mut self.states;
        let started = states.can_start(None)
            && match &mut self.policy {
                Policy::Paged(paged) if sequence.pages.is_empty() => paged.start(sequence, states),
                Policy::Paged(paged) => paged.resume(sequence, missing, states),
                Policy::Slots(slots) => !sequence.pages.is_empty() || slots.start(sequence),
            };
        started && self.states.prepare(sequence)
    }

    /// The pages that a running sequence lacks to hold `tokens` tokens.
    pub(crate) fn missing(&self, sequence: &Sequence, tokens: usize) -> usize {
        tokens.div_ceil(self.page_size).saturating_sub(sequence.pages.len())
    }

    /// Lends a running sequence pages until it holds `tokens` tokens, and a slot for its next state. Says no when too few are
    /// free, and lends no pages then.
    pub(crate) fn grow(&mut self, sequence: &mut Sequence, tokens: usize) -> bool {
        let missing = self.missing(sequence, tokens);
        self.prepare(sequence)
            && match &mut self.policy {
                Policy::Paged(paged) => paged.grow(sequence, missing, &mut self.states),
                Policy::Slots(_) => missing == 0,
            }
    }

    /// Lends a running sequence a slot for its next state, if it has none. Says no when none is free.
    pub(crate) fn prepare(&mut self, sequence: &mut Sequence) -> bool {
        self.states.prepare(sequence)
    }

    /// How many of the next `count` tokens of a sequence may run in a step, so that it ends where a state is to be kept.
    pub(crate) fn until_checkpoint(&self, sequence: &Sequence, count: usize) -> usize {
        match &self.policy {
            Policy::Paged(paged) if self.states.are_kept() => {
                paged.until_checkpoint(sequence, count, &self.states)
            }
            _ => count,
        }
    }

    /// Takes note of the tokens that a sequence has cached since last time.
    pub(crate) fn publish(&mut self, sequence: &mut Sequence) {
        self.states.advance(sequence);
        if let Policy::Paged(paged) = &mut self.policy {
            paged.publish(sequence, &mut self.states);
        }
    }

    /// Takes back all that a sequence holds.
    pub(crate) fn release(&mut self, sequence: &mut Sequence) {
        match &mut self.policy {
            Policy::Paged(paged) => paged.release(sequence, &mut self.states),
            Policy::Slots(slots) => slots.release(sequence),
        }
        self.states.release(sequence);
        if self.is_by_sequence {
            self.released.push(sequence.id);
        }
        sequence.cached = 0;
    }

    /// The copies that sequences which have just started need before they run, in the order in which to make them.
    pub(crate) fn take_copies(&mut self) -> Vec<PageCopy> {
        match &mut self.policy {
            Policy::Paged(paged) => paged.take_copies(),
            Policy::Slots(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
