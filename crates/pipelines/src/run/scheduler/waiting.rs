//! Who starts next: tenants take turns; of a tenant's sequences, the one with the lowest priority number starts first, and of
//! these the one that came first.
//!
//! A sequence is passed when another starts that came later. One that passes a sequence passes those before it too, so the
//! first has been passed most often. Once that is [`MAX_PASSES`] times, the first is next, which passes none. So none is
//! ever passed more often, and each starts after finitely many others.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::run::kv_cache::{Sequence, SequenceId};

/// The most sequences that start before one that was there earlier.
pub const MAX_PASSES: usize = 64;

/// Sequences that have not started, and the turns of their tenants.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// In the order in which they came.
    places: VecDeque<Place>,
    /// The tenants of these. The first is next; who has had a turn, or comes, is last.
    turns: VecDeque<Tenant>,
}

type Tenant = Option<Arc<str>>;

#[derive(Debug)]
struct Place {
    sequence: Sequence,
    /// How many have started that came later.
    passed: usize,
}

impl Waiting {
    pub(super) fn push(&mut self, sequence: Sequence) {
        if !self.turns.contains(&sequence.tenant) {
            self.turns.push_back(sequence.tenant.clone());
        }
        self.places.push_back(Place { sequence, passed: 0 });
    }

    pub(super) fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
        let index = self.iter().position(|sequence| sequence.id == id)?;
        self.take(index)
    }

    /// Where the sequence is that starts next.
    pub(super) fn next(&self) -> Option<usize> {
        let first = self.places.front()?;
        if first.passed >= MAX_PASSES {
            return Some(0);
        }
        let tenant = self.turns.front()?;
        let own = self.iter().enumerate().filter(|(_, sequence)| sequence.tenant == *tenant);
        own.min_by_key(|(_, sequence)| sequence.priority).map(|(index, _)| index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Sequence {
        &mut self.places[index].sequence
    }

    /// Takes out a sequence that starts: its tenant has had its turn.
    pub(super) fn start(&mut self, index: usize) -> Option<Sequence> {
        self.places.range_mut(..index).for_each(|place| place.passed += 1);
        let tenant = &self.places[index].sequence.tenant;
        let turn = self.turns.iter().position(|other| other == tenant);
        let tenant = turn.and_then(|turn| self.turns.remove(turn));
        self.turns.extend(tenant);
        self.take(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.places.iter().map(|place| &place.sequence)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sequence> {
        self.places.iter_mut().map(|place| &mut place.sequence)
    }

    fn take(&mut self, index: usize) -> Option<Sequence> {
        let Place { sequence, .. } = self.places.remove(index)?;
        if !self.iter().any(|other| other.tenant == sequence.tenant) {
            self.turns.retain(|tenant| *tenant != sequence.tenant);
        }
        Some(sequence)
    }
}
