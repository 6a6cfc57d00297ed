//! Slices in vectors of sixteen lanes: whole vectors, and a shorter one at the end.

use super::{LANES, Simd};

/// The first sixteen values of a slice; zeros if it has fewer.
#[inline(always)]
pub fn load<S: Simd>(s: S, from: &[f32]) -> S::F32 {
    // SAFETY: the slice has as many values as are read.
    unsafe {
        if from.len() < LANES { s.load_partial(from.as_ptr(), from.len()) } else { s.load(from.as_ptr()) }
    }
}

/// Writes the first sixteen values of a slice, or as many as it has.
#[inline(always)]
pub fn store<S: Simd>(s: S, to: &mut [f32], lanes: S::F32) {
    // SAFETY: the slice has room for as many values as are written.
    unsafe {
        if to.len() < LANES {
            s.store_partial(to.as_mut_ptr(), lanes, to.len());
        } else {
            s.store(to.as_mut_ptr(), lanes);
        }
    }
}

/// `to[i] = function(to[i], [from[0][i], from[1][i], …])`.
///
/// # Panics
/// If the slices differ in length.
#[inline(always)]
pub fn map<S: Simd, const N: usize>(
    s: S,
    to: &mut [f32],
    from: [&[f32]; N],
    function: impl Fn(S::F32, [S::F32; N]) -> S::F32,
) {
    let len = to.len();
    assert!(from.iter().all(|from| from.len() == len), "map: slices of one length");
    let whole = len / LANES * LANES;
    let mut values = [s.splat(0.0); N];
    for start in (0..whole).step_by(LANES) {
        // SAFETY: all slices are of one length, and sixteen values from here are within it.
        unsafe {
            for (value, from) in values.iter_mut().zip(&from) {
                *value = s.load(from.as_ptr().add(start));
            }
            let to = to.as_mut_ptr().add(start);
            s.store(to, function(s.load(to), values));
        }
    }
    if whole < len {
        for (value, from) in values.iter_mut().zip(&from) {
            *value = load(s, &from[whole..]);
        }
        let to = &mut to[whole..];
        store(s, to, function(load(s, to), values));
    }
}

/// Folds values into four vectors in turn (value `i` into lane `i mod 64`), and joins these pairwise: an order fixed by the
/// length alone.
#[inline(always)]
pub fn fold<S: Simd>(
    s: S,
    values: &[f32],
    start: f32,
    step: impl Fn(S::F32, S::F32) -> S::F32,
    join: impl Fn(S::F32, S::F32) -> S::F32,
) -> S::F32 {
    let mut folded = [s.splat(start); 4];
    let (groups, rest) = values.as_chunks::<{ 4 * LANES }>();
    for group in groups {
        for (i, folded) in folded.iter_mut().enumerate() {
            // SAFETY: a group has four vectors.
            *folded = step(*folded, unsafe { s.load(group.as_ptr().add(i * LANES)) });
        }
    }
    for (chunk, folded) in rest.chunks(LANES).zip(&mut folded) {
        let next = step(*folded, load(s, chunk));
        *folded = s.select(first_lanes(s, chunk.len()), next, *folded);
    }
    let [a, b, c, d] = folded;
    join(join(a, b), join(c, d))
}

/// True in the first `count` lanes.
#[inline(always)]
pub fn first_lanes<S: Simd>(s: S, count: usize) -> S::Mask {
    static PLACES: [f32; LANES] =
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    s.less(load(s, &PLACES), s.splat(count as f32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::variants;

    variants! { static MAP = both, (to: &mut [f32], x: &[f32], y: &[f32]) }
    variants! { static FOLD = sum, (values: &[f32], to: &mut f32) }

    #[inline(always)]
    fn both<S: Simd>(s: S, to: &mut [f32], x: &[f32], y: &[f32]) {
        map(
            s,
            to,
            [x, y],
            #[inline(always)]
            |to, [x, y]| s.fma(x, y, to),
        );
    }

    #[inline(always)]
    fn sum<S: Simd>(s: S, values: &[f32], to: &mut f32) {
        let folded = fold(
            s,
            values,
            -1.0,
            #[inline(always)]
            |sum, x| s.add(s.add(sum, x), s.splat(0.25)),
            #[inline(always)]
            |a, b| s.sub(a, b),
        );
        *to = s.sum(folded);
    }

    fn values(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919 + seed) % 1009) as f32 / 40.0 - 12.0).collect()
    }

    #[test]
    fn each_value_is_mapped() {
        for variant in MAP.iter().filter(|variant| (variant.available)()) {
            for len in 0..100 {
                let [mut to, x, y] = [1, 2, 3].map(|seed| values(len, seed));
                let want: Vec<f32> = (0..len).map(|i| x[i].mul_add(y[i], to[i])).collect();
                // SAFETY: the variant is available.
                unsafe { (variant.run)(&mut to, &x, &y) };
                assert_eq!(to, want, "{} of {len}", variant.name);
            }
        }
    }

    #[test]
    fn values_are_folded_in_an_order_of_their_length() {
        for variant in FOLD.iter().filter(|variant| (variant.available)()) {
            for len in 0..200 {
                let values = values(len, 5);
                let mut lanes = [-1f32; 4 * LANES];
                for (i, x) in values.iter().enumerate() {
                    lanes[i % (4 * LANES)] = lanes[i % (4 * LANES)] + x + 0.25;
                }
                let [a, b, c, d] = [0, 1, 2, 3].map(|vector| &lanes[vector * LANES..][..LANES]);
                let mut joined: Vec<f32> = (0..LANES).map(|i| (a[i] - b[i]) - (c[i] - d[i])).collect();
                for half in [8, 4, 2, 1] {
                    joined = (0..half).map(|i| joined[i] + joined[i + half]).collect();
                }
                let mut got = 0.0;
                // SAFETY: the variant is available.
                unsafe { (variant.run)(&values, &mut got) };
                assert_eq!(got.to_bits(), joined[0].to_bits(), "{} of {len}", variant.name);
            }
        }
    }

    #[test]
    fn short_slices_load_zeros_and_store_no_more_than_they_hold() {
        let lanes = load(crate::vec::Portable, &[1.0, 2.0, 3.0]);
        let mut to = [9.0; 20];
        store(crate::vec::Portable, &mut to[..5], lanes);
        assert_eq!(to[..6], [1.0, 2.0, 3.0, 0.0, 0.0, 9.0]);
        store(crate::vec::Portable, &mut to, lanes);
        assert_eq!(to[15..], [0.0, 9.0, 9.0, 9.0, 9.0]);
    }

    #[test]
    #[should_panic(expected = "map: slices of one length")]
    fn slices_of_two_lengths_panic() {
        both(crate::vec::Portable, &mut [0.0; 3], &[0.0; 3], &[0.0; 4]);
    }
}
