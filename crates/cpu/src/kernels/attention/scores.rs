//! Scores of query rows, and the weights that become of them.

use std::ops::Range;

use super::plan::{SCORES_STRIDE, TILES};
use crate::kernels::kv_cache::TILE;
use crate::vec::{self, LANES, Scalar, Simd, exp, tanh};

/// Scores of the first `rows` rows and all positions of `tiles`, as many rows at a time as the registers hold.
///
/// # Safety
/// `queries` holds `[dims, 16]`, each of `tiles` in `keys` points to `[dims, 16]`, and `scores` holds [`TILE_ROWS`] rows.
#[inline(always)]
pub(super) unsafe fn score<S: Simd, T: Scalar>(
    s: S,
    rows: usize,
    queries: *const f32,
    keys: &[*const T; TILES],
    tiles: Range<usize>,
    dims: usize,
    scores: *mut f32,
) {
    let mut row = 0;
    while row < rows {
        // SAFETY: `row + R <= TILE_ROWS` in each arm, as each takes the rows left rounded up to a divisor of 12 or 8.
        unsafe {
            let (queries, scores) = (queries.add(row), scores.add(row * SCORES_STRIDE));
            macro_rules! score {
                ($rows:literal x $tiles:literal) => {
                    score_rows::<S, T, $rows, $tiles>(s, queries, keys, tiles.clone(), dims, scores)
                };
            }
            row += if const { S::REGISTERS == 32 } {
                match rows - row {
                    9.. => score!(12 x 2),
                    5.. => score!(8 x 2),
                    3.. => score!(4 x 4),
                    2 => score!(2 x 4),
                    _ => score!(1 x 4),
                }
            } else if const { S::REGISTERS == 8 } {
                match rows - row {
                    5.. => score!(6 x 1),
                    3.. => score!(4 x 1),
                    2 => score!(2 x 1),
                    _ => score!(1 x 4),
                }
            } else {
                match rows - row {
                    2.. => score!(2 x 1),
                    _ => score!(1 x 2),
                }
            };
        }
    }
}

/// Scores of `R` rows, `C` tiles at a time; returns `R`.
///
/// # Safety
/// As [`score`], for `R` rows.
#[inline(always)]
unsafe fn score_rows<S: Simd, T: Scalar, const R: usize, const C: usize>(
    s: S,
    queries: *const f32,
    keys: &[*const T; TILES],
    tiles: Range<usize>,
    dims: usize,
    scores: *mut f32,
) -> usize {
    for first in tiles.clone().step_by(C) {
        let mut from = [std::ptr::null(); C];
        for c in 0..C {
            // Past the end the last tile is computed again, and not stored.
            from[c] = keys[(first + c).min(tiles.end - 1)];
        }
        let mut sums = [[s.splat(0.0); C]; R];
        for dim in 0..dims {
            let mut key = [s.splat(0.0); C];
            for c in 0..C {
                // SAFETY: `dim < dims`, and a tile is `[dims, 16]`.
                key[c] = unsafe { T::load(s, from[c].add(dim * TILE)) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the queries are `[dims, 16]`, and the rows end within the sixteen.
                let query = s.splat(unsafe { *queries.add(dim * LANES + r) });
                for c in 0..C {
                    sums[c] = s.fma(query, key[c], sums[c]);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                if first + c < tiles.end {
                    // SAFETY: the tile is within the range, and the row within the scores.
                    unsafe { s.store(scores.add(r * SCORES_STRIDE + (first + c) * TILE), *sum) };
                }
            }
        }
    }
    R
}

/// Turns scores `x` into `cap · tanh(x / cap)`.
#[inline(always)]
pub(super) fn bound<S: Simd>(s: S, scores: &mut [f32], cap: f32) {
    let cap = s.splat(cap);
    vec::map(
        s,
        scores,
        [],
        #[inline(always)]
        |score, []| s.mul(cap, tanh(s, s.div(score, cap))),
    );
}

/// Turns the scores at `from..to` into weights and returns their maximum and the sum of the weights.
///
/// Positions of the outer tiles that the row does not see get weight 0.
#[inline(always)]
pub(super) fn weigh<S: Simd>(s: S, scores: &mut [f32], from: usize, to: usize) -> (f32, f32) {
    let (start, end) = (from / TILE * TILE, to.next_multiple_of(TILE));
    let scores = &mut scores[start..end];
    scores[..from - start].fill(f32::NEG_INFINITY);
    scores[to - start..].fill(f32::NEG_INFINITY);
    let mut largest = s.splat(f32::NEG_INFINITY);
    for tile in scores.as_chunks::<LANES>().0 {
        largest = s.max(largest, vec::load(s, tile));
    }
    let largest = s.largest(largest);
    let shift = s.splat(shift(largest));
    let mut sum = s.splat(0.0);
    for tile in scores.as_chunks_mut::<LANES>().0 {
        let weight = exp(s, s.sub(vec::load(s, tile), shift));
        vec::store(s, tile, weight);
        sum = s.add(sum, weight);
    }
    (largest, s.sum(sum))
}

/// What to take off the scores: their maximum, or 0 where every one is `-inf`.
#[inline(always)]
pub(super) fn shift(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { 0.0 } else { largest }
}
