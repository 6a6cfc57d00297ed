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

mod event;
mod page_pool;
mod paged;
mod prefix;
mod sequence;
mod slots;

pub use event::CacheEvent;
pub use page_pool::Page;
pub(crate) use prefix::PrefixCache;
pub use prefix::PrefixStats;
pub use sequence::{Sequence, SequenceId};

use paged::Paged;
use slots::Slots;

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
}

#[derive(Debug)]
enum Policy {
    Paged(Box<Paged>),
    Slots(Slots),
}

impl KvCache {
    /// Pages on demand.
    pub fn paged(num_pages: usize, page_size: usize) -> KvCache {
        let policy = Policy::Paged(Box::new(Paged::new(num_pages, page_size)));
        KvCache { page_size, num_pages, policy }
    }

    /// Pages on demand, shared by sequences that begin alike.
    pub fn with_prefix_caching(num_pages: usize, page_size: usize) -> KvCache {
        let policy = Policy::Paged(Box::new(Paged::with_prefix_caching(num_pages, page_size)));
        KvCache { page_size, num_pages, policy }
    }

    /// As many slots of at least `slot_tokens` tokens as `num_pages` pages are enough for.
    pub fn slots(num_pages: usize, page_size: usize, slot_tokens: usize) -> KvCache {
        let slots = Slots::new(num_pages, slot_tokens.div_ceil(page_size));
        KvCache { page_size, num_pages: slots.num_free(), policy: Policy::Slots(slots) }
    }

    /// A cache like this one with nothing in it.
    pub(crate) fn emptied(&self) -> KvCache {
        let &KvCache { page_size, num_pages, ref policy } = self;
        match policy {
            Policy::Paged(paged) => {
                let policy = Policy::Paged(Box::new(paged.emptied(num_pages)));
                KvCache { page_size, num_pages, policy }
            }
            Policy::Slots(slots) => KvCache::slots(num_pages, page_size, slots.pages_per_slot() * page_size),
        }
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
            paged.reset_prefixes();
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
        matches!(self.policy, Policy::Paged(_))
    }

    /// Lends the pages of a sequence's prompt, which has just been read, to another as well, which has no other tokens yet.
    ///
    /// # Panics
    /// If sequences cannot share pages.
    pub(crate) fn fork(&mut self, sequence: &Sequence, id: SequenceId) -> Sequence {
        match &mut self.policy {
            Policy::Paged(paged) => paged.fork(sequence, id),
            Policy::Slots(_) => unreachable!("slots are not shared"),
        }
    }

    /// Lends a sequence that does not run the pages for all its tokens, and sets how many of the tokens they hold
    /// already. Lends nothing, and says no, when too few are free.
    pub(crate) fn start(&mut self, sequence: &mut Sequence) -> bool {
        if !sequence.pages.is_empty() {
            let missing = self.missing(sequence, sequence.tokens.len());
            return match &mut self.policy {
                Policy::Paged(paged) => paged.resume(sequence, missing),
                Policy::Slots(_) => true,
            };
        }
        match &mut self.policy {
            Policy::Paged(paged) => paged.start(sequence),
            Policy::Slots(slots) => slots.start(sequence),
        }
    }

    /// The pages that a running sequence lacks to hold `tokens` tokens.
    pub(crate) fn missing(&self, sequence: &Sequence, tokens: usize) -> usize {
        tokens.div_ceil(self.page_size).saturating_sub(sequence.pages.len())
    }

    /// Lends a running sequence pages until it holds `tokens` tokens. Lends nothing, and says no, when too few are
    /// free.
    pub(crate) fn grow(&mut self, sequence: &mut Sequence, tokens: usize) -> bool {
        let missing = self.missing(sequence, tokens);
        match &mut self.policy {
            Policy::Paged(paged) => paged.grow(sequence, missing),
            Policy::Slots(_) => missing == 0,
        }
    }

    /// Takes note of the tokens that a sequence has cached since last time.
    pub(crate) fn publish(&mut self, sequence: &mut Sequence) {
        if let Policy::Paged(paged) = &mut self.policy {
            paged.publish(sequence);
        }
    }

    /// Takes back all that a sequence holds.
    pub(crate) fn release(&mut self, sequence: &mut Sequence) {
        match &mut self.policy {
            Policy::Paged(paged) => paged.release(sequence),
            Policy::Slots(slots) => slots.release(sequence),
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
