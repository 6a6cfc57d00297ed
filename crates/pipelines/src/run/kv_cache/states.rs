//! The states of sequences: what recurrent layers keep of all earlier tokens together.
//!
//! A slot holds one version of a sequence's state and is not changed while a sequence holds it: a step reads one slot and
//! writes another. So a step that failed can run again, sequences with one prompt share its slot, and a checkpoint, the state
//! after a page, is a slot that is kept. Checkpoints are given up, the one first that was used longest ago, when a sequence
//! that runs needs a slot.
//!
//! If none is shared or kept, a sequence uses its two slots in turn.

use std::collections::HashMap;

use super::page_pool::{Page, PagePool};
use super::sequence::{Sequence, StateSlot, StateVersions};

/// Tokens of a prompt between the states of it that are kept. A state takes as much memory as thousands of tokens of keys and
/// values, and prompts that part in the middle run at most so many tokens again.
const CHECKPOINT_INTERVAL: usize = 2048;

/// Who holds which slot, and which are checkpoints. Without slots, the model keeps no states.
#[derive(Debug)]
pub(super) struct States {
    num_slots: usize,
    pool: PagePool,
    /// Checkpoints by the page after whose last token they are the state. The page is in the tree of prefixes.
    by_page: HashMap<Page, StateSlot>,
    /// The same pages by slot.
    pages: Vec<Option<Page>>,
    interval: usize,
}

impl States {
    pub(super) fn new(num_slots: usize) -> States {
        States {
            num_slots,
            pool: PagePool::new(num_slots),
            by_page: HashMap::new(),
            pages: vec![None; num_slots],
            interval: CHECKPOINT_INTERVAL,
        }
    }

    #[cfg(test)]
    pub(super) fn set_interval(&mut self, tokens: usize) {
        self.interval = tokens;
    }

    /// Tokens of a prompt between the states of it that are kept, in whole pages.
    pub(super) fn interval(&self, page_size: usize) -> usize {
        self.interval.next_multiple_of(page_size)
    }

    /// Whether the model keeps states.
    pub(super) fn are_kept(&self) -> bool {
        self.num_slots > 0
    }

    pub(super) fn num_slots(&self) -> usize {
        self.num_slots
    }

    /// Slots that no sequence holds.
    pub(super) fn num_free(&self) -> usize {
        self.pool.num_free()
    }

    /// Of these, checkpoints.
    pub(super) fn num_kept(&self) -> usize {
        self.pool.num_kept()
    }

    /// Whether there is a free slot for a sequence that starts from a checkpoint, or from nothing.
    pub(super) fn can_start(&self, checkpoint: Option<StateSlot>) -> bool {
        let taken = checkpoint.is_some_and(|slot| self.pool.is_free(slot));
        !self.are_kept() || self.num_free() > usize::from(taken)
    }

    /// Lends a sequence a checkpoint to start from.
    pub(super) fn hold(&mut self, sequence: &mut Sequence, checkpoint: Option<StateSlot>) {
        checkpoint.into_iter().for_each(|slot| self.pool.hold(slot));
        sequence.state = StateVersions { current: checkpoint, ..StateVersions::default() };
    }

    /// Makes sure that a sequence has a slot that its next step can write. Says no when none is free.
    pub(super) fn prepare(&mut self, sequence: &mut Sequence) -> bool {
        if self.are_kept() && sequence.state.next.is_none() {
            let Some(slot) = self.pool.take(&sequence.tenant) else { return false };
            self.detach(slot);
            sequence.state.next = Some(slot);
        }
        true
    }

    /// Takes note that a step has written the next version of a sequence's state.
    pub(super) fn advance(&mut self, sequence: &mut Sequence) {
        let state = &mut sequence.state;
        let Some(written) = state.next.take() else { return };
        let Some(read) = state.current.replace(written) else { return };
        if self.pool.has_one_holder(read) && !self.is_checkpoint(read) {
            state.next = Some(read);
        } else {
            self.release_slot(read);
        }
    }

    /// The slots of a sequence that goes on from the state of another.
    pub(super) fn fork(&mut self, sequence: &Sequence) -> StateVersions {
        let current = sequence.state.current;
        current.into_iter().for_each(|slot| self.pool.hold(slot));
        StateVersions { current, ..StateVersions::default() }
    }

    /// Takes back all slots of a sequence.
    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        let StateVersions { current, next, .. } = std::mem::take(&mut sequence.state);
        current.into_iter().chain(next).for_each(|slot| self.release_slot(slot));
    }

    /// The state after the last token of a page, if it is kept.
    pub(super) fn checkpoint(&self, page: Page) -> Option<StateSlot> {
        self.by_page.get(&page).copied()
    }

    /// Keeps the state of a sequence, whose last cached token is the last of a page in the tree. If `replaces`, the checkpoint
    /// that it made before in this way is given up. A page that has a checkpoint keeps that one.
    pub(super) fn keep(&mut self, sequence: &mut Sequence, page: Page, replaces: bool) {
        let Some(slot) = sequence.state.current else { return };
        if replaces && let Some(before) = sequence.state.checkpoint.take() {
            self.forget(before);
        }
        if let Some(known) = self.checkpoint(page) {
            self.pool.touch(known);
            return;
        }
        self.by_page.insert(page, slot);
        self.pages[slot as usize] = Some(page);
        if replaces {
            sequence.state.checkpoint = Some(page);
        }
    }

    /// Gives up the checkpoint of a page, if it has one.
    pub(super) fn forget(&mut self, page: Page) {
        if let Some(&slot) = self.by_page.get(&page) {
            self.detach(slot);
            self.pool.forget(slot);
        }
    }

    /// Gives up all checkpoints.
    pub(super) fn forget_all(&mut self) {
        self.by_page.clear();
        self.pages.fill(None);
        self.pool.forget_kept();
    }

    fn is_checkpoint(&self, slot: StateSlot) -> bool {
        self.pages[slot as usize].is_some()
    }

    fn detach(&mut self, slot: StateSlot) {
        if let Some(page) = self.pages[slot as usize].take() {
            self.by_page.remove(&page);
        }
    }

    fn release_slot(&mut self, slot: StateSlot) {
        self.pool.release(slot, self.is_checkpoint(slot));
    }
}
