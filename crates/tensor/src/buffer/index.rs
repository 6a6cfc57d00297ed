//! Positions and ranges along axes, as NumPy's basic indexing takes them.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};

/// What is taken along one axis. Negative positions count from the end.
///
/// ```
/// use perihelion_tensor::{Buffer, Index};
///
/// # fn main() -> Result<(), perihelion_tensor::Error> {
/// let buffer = Buffer::from_slice([2, 3], &[1, 2, 3, 4, 5, 6]);
/// let last_row = buffer.slice(&[Index::At(-1)])?;
/// assert_eq!(last_row.to_vec::<i32>(), [4, 5, 6]);
/// let reversed = buffer.slice(&[(..).into(), Index::from(..).step(-1)])?;
/// assert_eq!(reversed.to_vec::<i32>(), [3, 2, 1, 6, 5, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Index {
    /// One position; the axis goes away.
    At(isize),
    /// The positions from `start` on before `end`, each `step` from the one before. What lies outside the axis is left
    /// out. A negative step walks backwards.
    Range {
        /// Included; without it, the end to start from: the last position for a negative step.
        start: Option<isize>,
        /// Not included; without it, all there are.
        end: Option<isize>,
        /// Not 0.
        step: isize,
    },
}

impl Index {
    /// The whole axis.
    pub const ALL: Index = Index::Range { start: None, end: None, step: 1 };

    /// The same range in other steps; a position stays itself.
    pub fn step(self, step: isize) -> Index {
        match self {
            Index::At(_) => self,
            Index::Range { start, end, .. } => Index::Range { start, end, step },
        }
    }

    /// What is taken of an axis of `dim` elements; in words, why nothing can be.
    pub(super) fn of_axis(self, dim: usize) -> Result<Taken, String> {
        let size = isize::try_from(dim).map_err(|_| format!("an axis of {dim} cannot be indexed"))?;
        match self {
            Index::At(position) => {
                let from_start = if position < 0 { position.saturating_add(size) } else { position };
                match (0..size).contains(&from_start) {
                    true => Ok(Taken { first: from_start as usize, count: None, step: 0 }),
                    false => Err(format!("position {position} is outside the axis of {dim}")),
                }
            }
            Index::Range { step: 0, .. } => Err("a range in steps of 0".to_string()),
            Index::Range { start, end, step } => Ok(range(size, start, end, step)),
        }
    }
}

/// Positions along an axis.
pub(super) struct Taken {
    pub(super) first: usize,
    /// `None` where the axis goes away.
    pub(super) count: Option<usize>,
    pub(super) step: isize,
}

fn range(size: isize, start: Option<isize>, end: Option<isize>, step: isize) -> Taken {
    // Where walks may start and stop: a walk backwards stops before the first element.
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let clip = |position: isize| {
        let from_start = if position < 0 { position.saturating_add(size) } else { position };
        from_start.clamp(low, high)
    };
    let (from, to) = if step > 0 { (low, high) } else { (high, low) };
    let (from, to) = (start.map_or(from, clip), end.map_or(to, clip));
    let distance = if step > 0 { to - from } else { from - to };
    let count = usize::try_from(distance).unwrap_or(0).div_ceil(step.unsigned_abs());
    let first = if count == 0 { 0 } else { from as usize };
    Taken { first, count: Some(count), step }
}

impl From<isize> for Index {
    fn from(position: isize) -> Index {
        Index::At(position)
    }
}

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::ALL
    }
}

impl From<Range<isize>> for Index {
    fn from(range: Range<isize>) -> Index {
        Index::Range { start: Some(range.start), end: Some(range.end), step: 1 }
    }
}

impl From<RangeFrom<isize>> for Index {
    fn from(range: RangeFrom<isize>) -> Index {
        Index::Range { start: Some(range.start), end: None, step: 1 }
    }
}

impl From<RangeTo<isize>> for Index {
    fn from(range: RangeTo<isize>) -> Index {
        Index::Range { start: None, end: Some(range.end), step: 1 }
    }
}

/// Up to and with the last position; `..=-1` takes all there are.
impl From<RangeInclusive<isize>> for Index {
    fn from(range: RangeInclusive<isize>) -> Index {
        let end = (*range.end() != -1).then(|| range.end().saturating_add(1));
        Index::Range { start: Some(*range.start()), end, step: 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn positions(index: Index, dim: usize) -> Vec<isize> {
        let taken = index.of_axis(dim).unwrap();
        (0..taken.count.unwrap()).map(|i| taken.first as isize + i as isize * taken.step).collect()
    }

    #[test]
    fn ranges_are_clipped() {
        assert_eq!(positions(Index::from(1..3), 5), [1, 2]);
        assert_eq!(positions(Index::from(-2..), 5), [3, 4]);
        assert_eq!(positions(Index::from(..100), 3), [0, 1, 2]);
        assert_eq!(positions(Index::from(-4..=-1), 3), [0, 1, 2]);
        assert_eq!(positions(Index::from(1..=2), 5), [1, 2]);
        assert_eq!(positions(Index::ALL.step(-1), 3), [2, 1, 0]);
        assert_eq!(positions(Index::Range { start: Some(3), end: Some(0), step: -2 }, 5), [3, 1]);
        assert_eq!(positions(Index::ALL.step(isize::MIN), 3), [2]);
        assert_eq!(positions(Index::ALL.step(isize::MAX), 3), [0]);
        assert_eq!(
            positions(Index::Range { start: Some(isize::MIN), end: Some(isize::MAX), step: 2 }, 3),
            [0, 2]
        );
        assert_eq!(positions(Index::ALL.step(-1), 0), []);
    }

    proptest! {
        /// Python's rule: the positions of the infinite walk from the start that lie before the end, and inside.
        #[test]
        fn ranges_take_what_a_walk_over_the_axis_meets(
            dim in 0usize..8, start in prop::option::of(-10isize..10), end in prop::option::of(-10isize..10),
            step in (-4isize..4).prop_filter("not 0", |&step| step != 0),
        ) {
            let size = dim as isize;
            let wrap = |position: isize| if position < 0 { position + size } else { position };
            let first = match start.map(wrap) {
                Some(start) if step > 0 => start.max(0),
                Some(start) => start.min(size - 1),
                None if step > 0 => 0,
                None => size - 1,
            };
            let before_end = |&position: &isize| match end.map(wrap) {
                Some(end) if step > 0 => position < end,
                Some(end) => position > end,
                None => true,
            };
            let walk = (0..20).map(|i| first + i * step).take_while(|position| (0..size).contains(position));
            let expected: Vec<isize> = walk.take_while(before_end).collect();
            prop_assert_eq!(positions(Index::Range { start, end, step }, dim), expected);
        }
    }
}
