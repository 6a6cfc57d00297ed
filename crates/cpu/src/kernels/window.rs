//! Which positions of a sliding window see an element through one of its taps.

use std::ops::Range;

/// The positions `i` of `0..count` for which `i · stride + offset` is below `size` and not negative.
pub(super) fn inside(count: usize, stride: usize, offset: isize, size: usize) -> Range<usize> {
    let first = if offset < 0 { offset.unsigned_abs().div_ceil(stride) } else { 0 };
    let end = match size as isize - offset {
        room if room > 0 => room.unsigned_abs().div_ceil(stride).min(count),
        _ => 0,
    };
    first.min(end)..end
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn as_defined() {
        for (count, stride, size) in [(0, 1, 3), (5, 1, 3), (5, 2, 7), (4, 3, 1), (3, 5, 0)] {
            for offset in -9..9isize {
                let sees = |&i: &usize| (0..size as isize).contains(&((i * stride) as isize + offset));
                let expected: Vec<usize> = (0..count).filter(sees).collect();
                assert_eq!(inside(count, stride, offset, size).collect::<Vec<_>>(), expected);
            }
        }
    }
}
