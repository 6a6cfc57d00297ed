//! Where values lie in one arena, so that those alive at the same time never overlap.
//!
//! Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the
//! largest first, each into the smallest gap that fits between those it meets in time, or behind them.

/// A cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// Memory that is needed from one step to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) bytes: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// An arena and each lifetime's offset in it, a multiple of 64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) offsets: Vec<usize>,
    pub(crate) bytes: usize,
}

/// Places lifetimes, or gives `None` if the arena's size overflows. What takes no bytes lies at offset 0.
pub(crate) fn place(lifetimes: &[Lifetime]) -> Option<Placement> {
    let mut by_size: Vec<usize> = (0..lifetimes.len()).filter(|&i| lifetimes[i].bytes > 0).collect();
    by_size.sort_by_key(|&i| (std::cmp::Reverse(lifetimes[i].bytes), lifetimes[i].first, i));
    let mut offsets = vec![0; lifetimes.len()];
    let mut placed: Vec<Placed> = Vec::with_capacity(by_size.len());
    let mut bytes = 0;
    for i in by_size {
        let lifetime = lifetimes[i];
        let size = lifetime.bytes.checked_next_multiple_of(ALIGNMENT)?;
        let start = smallest_gap(&placed, lifetime, size);
        let end = start.checked_add(size)?;
        let position = placed.partition_point(|other| other.start < start);
        placed.insert(position, Placed { start, end, lifetime });
        offsets[i] = start;
        bytes = bytes.max(end);
    }
    Some(Placement { offsets, bytes })
}

struct Placed {
    start: usize,
    end: usize,
    lifetime: Lifetime,
}

/// The start of the tightest gap of at least `size` bytes among those alive with `lifetime`, which are sorted by
/// their starts; the end of the last of them if there is none.
fn smallest_gap(placed: &[Placed], lifetime: Lifetime, size: usize) -> usize {
    let mut best: Option<(usize, usize)> = None;
    let mut end = 0;
    let meets =
        |other: &&Placed| other.lifetime.first <= lifetime.last && lifetime.first <= other.lifetime.last;
    for other in placed.iter().filter(meets) {
        let gap = other.start.saturating_sub(end);
        if gap >= size && best.is_none_or(|(smallest, _)| gap < smallest) {
            best = Some((gap, end));
        }
        end = end.max(other.end);
    }
    best.map_or(end, |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(lifetimes: &[(usize, usize, usize)], offsets: &[usize], bytes: usize) {
        let lifetimes: Vec<Lifetime> =
            lifetimes.iter().map(|&(bytes, first, last)| Lifetime { bytes, first, last }).collect();
        assert_eq!(place(&lifetimes), Some(Placement { offsets: offsets.to_vec(), bytes }));
    }

    #[test]
    fn memory_is_used_again_once_free() {
        check(&[(64, 0, 1), (64, 1, 2), (64, 2, 3)], &[0, 64, 0], 128);
        check(&[(100, 0, 1), (1, 0, 0), (1, 1, 1)], &[0, 128, 128], 192);
        check(&[], &[], 0);
        check(&[(0, 0, 9), (1, 0, 9)], &[0, 0], 64);
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let huge = Lifetime { bytes: usize::MAX / 2, first: 0, last: 0 };
        assert_eq!(place(&[huge; 3]), None);
    }

    proptest! {
        #[test]
        fn live_values_never_overlap(items in prop::collection::vec((0usize..5000, 0usize..30, 0usize..10), 0..60)) {
            let lifetimes: Vec<Lifetime> = items
                .into_iter()
                .map(|(bytes, first, steps)| Lifetime { bytes, first, last: first + steps })
                .collect();
            let placement = place(&lifetimes).unwrap();
            for (i, a) in lifetimes.iter().enumerate() {
                let a_start = placement.offsets[i];
                prop_assert_eq!(a_start % ALIGNMENT, 0);
                prop_assert!(a_start + a.bytes <= placement.bytes);
                for (j, b) in lifetimes.iter().enumerate().skip(i + 1) {
                    let b_start = placement.offsets[j];
                    let in_time = a.first <= b.last && b.first <= a.last;
                    let in_space = a_start < b_start + b.bytes && b_start < a_start + a.bytes;
                    prop_assert!(!(in_time && in_space), "{:?} at {} and {:?} at {}", a, a_start, b, b_start);
                }
            }
        }
    }
}
