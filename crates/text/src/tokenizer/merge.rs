//! Byte-pair merging: joins neighboring symbols, best pair first, until no pair can be joined.
//!
//! A queue holds every pair that could be joined; a pair one of whose symbols has meanwhile grown is stale and is
//! skipped when it surfaces. `O(n log n)` in the length of the text.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A run of the text that is, so far, one token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    /// Where it starts, in bytes.
    pub start: u32,
    /// How long it is, in bytes; 0 once it has been joined to its left neighbor.
    pub len: u32,
    /// The caller's name for it.
    pub id: u32,
    previous: u32,
    next: u32,
}

/// The symbol that two neighbors become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Join {
    /// Lower goes first; among equals the leftmost.
    pub order: u32,
    /// The id of the joined symbol.
    pub id: u32,
}

const NONE: u32 = u32::MAX;

/// A candidate join: compared by order, then by place.
type Candidate = Reverse<(u32, u32, u32, u32, u32)>;

/// Buffers that are kept from one text to the next.
#[derive(Debug, Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
}

impl Merger {
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a symbol of `len` bytes.
    pub(super) fn push(&mut self, len: u32, id: u32) {
        let index = self.symbols.len() as u32;
        let (start, previous) = match self.symbols.last_mut() {
            Some(last) => {
                last.next = index;
                (last.start + last.len, index - 1)
            }
            None => (0, NONE),
        };
        self.symbols.push(Symbol { start, len, id, previous, next: NONE });
    }

    /// Joins what `join` allows, and returns the symbols that are left, in order.
    pub(super) fn run(
        &mut self,
        join: impl Fn(&Symbol, &Symbol) -> Option<Join>,
    ) -> impl Iterator<Item = &Symbol> {
        for right in 1..self.symbols.len() as u32 {
            self.consider(right - 1, right, &join);
        }
        while let Some(Reverse((_, left, right, len, id))) = self.queue.pop() {
            let (l, r) = (self.symbols[left as usize], self.symbols[right as usize]);
            if l.len == 0 || r.len == 0 || l.len + r.len != len {
                continue;
            }
            self.symbols[right as usize].len = 0;
            self.symbols[left as usize] = Symbol { len, id, next: r.next, ..l };
            if r.next != NONE {
                self.symbols[r.next as usize].previous = left;
            }
            self.consider(l.previous, left, &join);
            self.consider(left, r.next, &join);
        }
        self.symbols.iter().filter(|symbol| symbol.len > 0)
    }

    fn consider(&mut self, left: u32, right: u32, join: &impl Fn(&Symbol, &Symbol) -> Option<Join>) {
        if left == NONE || right == NONE {
            return;
        }
        let (l, r) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some(Join { order, id }) = join(l, r) {
            self.queue.push(Reverse((order, left, right, l.len + r.len, id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_pair_first_then_leftmost() {
        // Ids are the merged text's letters summed; only these pairs join.
        let join = |l: &Symbol, r: &Symbol| match (l.id, r.id) {
            (1, 1) => Some(Join { order: 1, id: 2 }),
            (1, 3) => Some(Join { order: 0, id: 4 }),
            (2, 4) => Some(Join { order: 2, id: 6 }),
            _ => None,
        };
        let ids = |letters: &[u32]| {
            let mut merger = Merger::default();
            letters.iter().for_each(|&id| merger.push(1, id));
            merger.run(join).map(|symbol| (symbol.start, symbol.len, symbol.id)).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[1, 1, 1, 3]), [(0, 4, 6)]);
        assert_eq!(ids(&[1, 1, 1]), [(0, 2, 2), (2, 1, 1)]);
        assert_eq!(ids(&[1, 1, 3]), [(0, 1, 1), (1, 2, 4)]);
        assert_eq!(ids(&[]), []);
    }
}
