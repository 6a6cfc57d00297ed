//! A slot of neighboring pages for each sequence, claimed whole when it starts and given back at its end.

use super::Page;
use super::sequence::Sequence;

/// Which slots are free.
#[derive(Debug)]
pub(super) struct Slots {
    pages_per_slot: usize,
    /// Used as a stack, so that warm slots are used again first.
    free: Vec<usize>,
}

impl Slots {
    /// As many slots of `pages_per_slot` pages as there are pages for.
    pub(super) fn new(num_pages: usize, pages_per_slot: usize) -> Slots {
        assert!(pages_per_slot > 0, "a slot holds something");
        assert!(Page::try_from(num_pages).is_ok(), "fewer than 2^32 pages");
        Slots { pages_per_slot, free: (0..num_pages / pages_per_slot).rev().collect() }
    }

    pub(super) fn pages_per_slot(&self) -> usize {
        self.pages_per_slot
    }

    /// Pages of free slots.
    pub(super) fn num_free(&self) -> usize {
        self.free.len() * self.pages_per_slot
    }

    pub(super) fn start(&mut self, sequence: &mut Sequence) -> bool {
        let Some(slot) = self.free.pop() else { return false };
        let first = slot * self.pages_per_slot;
        sequence.pages = (first..first + self.pages_per_slot).map(|page| page as Page).collect();
        sequence.cached_prompt.get_or_insert(0);
        true
    }

    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        if let Some(&first) = sequence.pages.first() {
            self.free.push(first as usize / self.pages_per_slot);
            sequence.pages.clear();
        }
    }
}
