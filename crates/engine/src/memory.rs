//! Where values lie in one arena, so that those alive at the same time never overlap.
//!
//! Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the
//! largest first, each into the smallest gap that fits between those it meets in time, or behind them.

/// What the host's places are multiples of: a cache line, and the widest vector register.
pub(crate) const ALIGNMENT: usize = 64;

/// Memory that is needed from one step to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) bytes: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// How large an arena is, and where in it each lifetime lies. Offsets are multiples of the alignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) offsets: Vec<usize>,
    pub(crate) bytes: usize,
}

/// Places lifetimes, or gives `None` if the arena's size overflows. What takes no bytes lies at offset 0.
pub(crate) fn place(lifetimes: &[Lifetime], alignment: usize) -> Option<Placement> {
    place_on(lifetimes, alignment, &mut Timeline::new(lifetimes))
}

fn place_on(lifetimes: &[Lifetime], alignment: usize, timeline: &mut Timeline) -> Option<Placement> {
    let mut by_size: Vec<usize> = (0..lifetimes.len()).filter(|&i| lifetimes[i].bytes > 0).collect();
    by_size.sort_by_key(|&i| (std::cmp::Reverse(lifetimes[i].bytes), lifetimes[i].first, i));
    let mut offsets = vec![0; lifetimes.len()];
    let mut bytes = 0;
    for i in by_size {
        let lifetime = lifetimes[i];
        let size = lifetime.bytes.checked_next_multiple_of(alignment)?;
        let start = smallest_gap(timeline.alive_with(lifetime), size);
        let end = start.checked_add(size)?;
        timeline.add(Placed { start, end, lifetime });
        offsets[i] = start;
        bytes = bytes.max(end);
    }
    Some(Placement { offsets, bytes })
}

#[derive(Debug, Clone, Copy)]
struct Placed {
    start: usize,
    end: usize,
    lifetime: Lifetime,
}

/// The start of the tightest gap of at least `size` bytes among those that are alive, which are sorted by their starts;
/// the end of the last of them if there is none.
fn smallest_gap(alive: &[Placed], size: usize) -> usize {
    let mut best: Option<(usize, usize)> = None;
    let mut end = 0;
    for other in alive {
        let gap = other.start.saturating_sub(end);
        if gap >= size && best.is_none_or(|(smallest, _)| gap < smallest) {
            best = Some((gap, end));
        }
        end = end.max(other.end);
    }
    best.map_or(end, |(_, start)| start)
}

/// Steps of an era: most values live shorter.
const ERA: usize = 32;

/// What is placed so far, by when it is alive: a search for those that it meets need not look at all.
struct Timeline {
    /// Of each era: those alive in it.
    eras: Vec<Vec<Placed>>,
    /// What was found last.
    found: Vec<Placed>,
    /// How many were looked at.
    looks: usize,
}

impl Timeline {
    fn new(lifetimes: &[Lifetime]) -> Timeline {
        let end = lifetimes.iter().map(|lifetime| lifetime.last / ERA + 1).max().unwrap_or(0);
        Timeline { eras: vec![Vec::new(); end], found: Vec::new(), looks: 0 }
    }

    fn add(&mut self, placed: Placed) {
        let Lifetime { first, last, .. } = placed.lifetime;
        self.eras[first / ERA..=last / ERA].iter_mut().for_each(|era| era.push(placed));
    }

    /// Those alive at some time of a lifetime, sorted by their starts.
    fn alive_with(&mut self, Lifetime { first, last, .. }: Lifetime) -> &[Placed] {
        self.found.clear();
        for number in first / ERA..=last / ERA {
            let era = &self.eras[number];
            self.looks += era.len();
            let meets = |Lifetime { first: a, last: b, .. }: Lifetime| a <= last && first <= b;
            // Each in the first era that both share.
            let here = |lifetime: Lifetime| (lifetime.first.max(first)) / ERA == number;
            self.found.extend(era.iter().filter(|other| meets(other.lifetime) && here(other.lifetime)));
        }
        self.found.sort_unstable_by_key(|placed| placed.start);
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(lifetimes: &[(usize, usize, usize)], offsets: &[usize], bytes: usize) {
        let lifetimes: Vec<Lifetime> =
            lifetimes.iter().map(|&(bytes, first, last)| Lifetime { bytes, first, last }).collect();
        assert_eq!(place(&lifetimes, ALIGNMENT), Some(Placement { offsets: offsets.to_vec(), bytes }));
    }

    #[test]
    fn memory_is_used_again_once_free() {
        check(&[(64, 0, 1), (64, 1, 2), (64, 2, 3)], &[0, 64, 0], 128);
        check(&[(100, 0, 1), (1, 0, 0), (1, 1, 1)], &[0, 128, 128], 192);
        check(&[], &[], 0);
        check(&[(0, 0, 9), (1, 0, 9)], &[0, 0], 64);
    }

    #[test]
    fn values_meet_those_of_their_time_alone() {
        let count = 10_000;
        let lifetimes: Vec<Lifetime> =
            (0..count).map(|i| Lifetime { bytes: 64 + i % 7, first: i, last: i + 2 }).collect();
        let mut timeline = Timeline::new(&lifetimes);
        let placement = place_on(&lifetimes, ALIGNMENT, &mut timeline).unwrap();
        assert!(placement.bytes <= 5 * 128, "{}", placement.bytes);
        assert!(timeline.looks < 2 * (ERA + 2) * count, "{} looks", timeline.looks);
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let huge = Lifetime { bytes: usize::MAX / 2, first: 0, last: 0 };
        assert_eq!(place(&[huge; 3], ALIGNMENT), None);
    }

    proptest! {
        #[test]
        fn live_values_never_overlap(items in prop::collection::vec((0usize..5000, 0usize..30, 0usize..10), 0..60)) {
            let lifetimes: Vec<Lifetime> = items
                .into_iter()
                .map(|(bytes, first, steps)| Lifetime { bytes, first, last: first + steps })
                .collect();
            let placement = place(&lifetimes, ALIGNMENT).unwrap();
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
