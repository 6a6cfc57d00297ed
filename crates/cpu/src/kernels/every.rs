//! Elements at equal distances, side by side.

use crate::vec::{LANES, Simd};

/// The even lanes of two vectors.
#[inline(always)]
pub(super) fn even_lanes<S: Simd>(s: S, first: S::F32, second: S::F32) -> S::F32 {
    pick(s, first, second, &[0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14])
}

/// The odd lanes of two vectors.
#[inline(always)]
pub(super) fn odd_lanes<S: Simd>(s: S, first: S::F32, second: S::F32) -> S::F32 {
    pick(s, first, second, &[1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15])
}

/// Eight lanes of one vector, then eight of another.
#[inline(always)]
fn pick<S: Simd>(s: S, first: S::F32, second: S::F32, places: &[u8; LANES]) -> S::F32 {
    const LANE: [f32; LANES] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];
    // SAFETY: the array has sixteen values.
    let lower = s.less(unsafe { s.load(LANE.as_ptr()) }, s.splat(8.0));
    s.select(lower, s.permute(first, places), s.permute(second, places))
}

/// `to[i] = join(to[i], from[i · stride])` for as many elements as both have.
#[inline(always)]
pub(super) fn join_every(stride: usize, to: &mut [f32], from: &[f32], join: impl Fn(f32, f32) -> f32) {
    match stride {
        1 => to.iter_mut().zip(from).for_each(
            #[inline(always)]
            |(to, from)| *to = join(*to, *from),
        ),
        2 => join_firsts::<2>(to, from, join),
        3 => join_firsts::<3>(to, from, join),
        4 => join_firsts::<4>(to, from, join),
        _ => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, from)| *to = join(*to, *from)),
    }
}

/// [`join_every`] at a distance that the compiler knows, so that it shuffles vectors.
#[inline(always)]
fn join_firsts<const N: usize>(to: &mut [f32], from: &[f32], join: impl Fn(f32, f32) -> f32) {
    let (chunks, rest) = from.as_chunks::<N>();
    for (to, chunk) in to.iter_mut().zip(chunks) {
        *to = join(*to, chunk[0]);
    }
    if let (Some(to), Some(from)) = (to.get_mut(chunks.len()), rest.first()) {
        *to = join(*to, *from);
    }
}

#[cfg(test)]
mod tests {
    use super::join_every;

    #[test]
    fn as_defined() {
        let from: Vec<f32> = (0..100u8).map(f32::from).collect();
        for stride in 1..7 {
            for len in [0, 1, 15, 16, 17, 100] {
                for room in [0, 1, 5, 6, 7, 100] {
                    let mut to = vec![0.5; room];
                    join_every(stride, &mut to, &from[..len], |a, b| a + b);
                    let joined =
                        |(i, to): (usize, &f32)| *to == 0.5 + from[..len].get(i * stride).unwrap_or(&0.0);
                    assert!(to.iter().enumerate().all(joined), "{room} elements of {len} by {stride}");
                }
            }
        }
    }
}
