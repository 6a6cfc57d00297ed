//! Scores against keys that lie row by row: dot products along the dims, a few rows and positions at a time.
//!
//! Each score is the sum of sixteen sums over every sixteenth dim. With the lanes of a vector as those sixteen sums, keys are
//! read as they lie ([`Dots::score`]). For many query rows, sixteen keys are transposed first, and lanes are positions
//! ([`score_tile`]): twice as many products for each load, and the same sums in the same order.

use std::ops::Range;

use super::plan::{SCORES_STRIDE, TILES};
use crate::kernels::kv_cache::TILE;
use crate::vec::{LANES, Scalar, Simd, interleave};

/// The queries of a tile, and the keys of a range of positions.
pub(in crate::kernels) struct Dots<'a, T> {
    /// `[rows, dims]`, with rows of whole vectors that end in zeros.
    pub(in crate::kernels) queries: *const f32,
    /// `[16, dims]` each.
    pub(in crate::kernels) keys: &'a [*const T; TILES],
    pub(in crate::kernels) dims: usize,
    /// [`SCORES_STRIDE`] a row.
    pub(in crate::kernels) scores: *mut f32,
}

impl<T: Scalar> Dots<'_, T> {
    /// The scores of the first `rows` rows at `positions`. Each sums products along the dims in sixteen lanes, and the lanes
    /// last, so that no score depends on which others share its registers.
    ///
    /// # Safety
    /// `queries` and `scores` hold the rows, and the positions lie in tiles that `keys` has.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn score<S: Simd>(&self, s: S, rows: usize, positions: Range<usize>) {
        let mut position = positions.start;
        while position < positions.end {
            let mut row = 0;
            let at_once = positions.end - position;
            let mut taken = 1;
            while row < rows {
                // SAFETY: each arm takes no more rows and positions than there are.
                let (rows_taken, positions_taken) = unsafe {
                    if const { S::REGISTERS == 32 } {
                        match (rows - row, at_once) {
                            (4.., 4..) => self.dot::<S, 4, 4>(s, row, position),
                            (_, 4..) => self.dot::<S, 1, 4>(s, row, position),
                            (4.., _) => self.dot::<S, 4, 1>(s, row, position),
                            _ => self.dot::<S, 1, 1>(s, row, position),
                        }
                    } else {
                        match (rows - row, at_once) {
                            (2.., 2..) => self.dot::<S, 2, 2>(s, row, position),
                            (_, 2..) => self.dot::<S, 1, 2>(s, row, position),
                            (2.., _) => self.dot::<S, 2, 1>(s, row, position),
                            _ => self.dot::<S, 1, 1>(s, row, position),
                        }
                    }
                };
                row += rows_taken;
                taken = positions_taken;
            }
            position += taken;
        }
    }

    /// The scores of `R` rows at `C` positions; returns both.
    ///
    /// # Safety
    /// As [`Dots::score`].
    #[inline(always)]
    unsafe fn dot<S: Simd, const R: usize, const C: usize>(
        &self,
        s: S,
        row: usize,
        position: usize,
    ) -> (usize, usize) {
        let stride = self.dims.next_multiple_of(LANES);
        let mut sums = [[s.splat(0.0); C]; R];
        // SAFETY: the caller's promise; each step ends within the dims of a key and within the vectors of a query.
        unsafe {
            let queries = self.queries.add(row * stride);
            let mut keys = [std::ptr::null(); C];
            for (c, key) in keys.iter_mut().enumerate() {
                *key = self.keys[(position + c) / TILE].add((position + c) % TILE * self.dims);
            }
            for dim in (0..self.dims).step_by(LANES) {
                let left = self.dims - dim;
                let mut values = [s.splat(0.0); C];
                for (value, key) in values.iter_mut().zip(keys) {
                    let key = key.add(dim);
                    *value = if left < LANES { T::load_partial(s, key, left) } else { T::load(s, key) };
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let query = s.load(queries.add(r * stride + dim));
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = s.fma(query, value, *sum);
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (c, sum) in sums.iter().enumerate() {
                    *self.scores.add((row + r) * SCORES_STRIDE + position + c) = s.sum(*sum);
                }
            }
        }
        (R, C)
    }
}

/// The sixteen sums in the order in which [`Simd::sum`] adds them: neighbors first, then neighboring pairs, and so on.
const SUM_ORDER: [usize; LANES] = [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15];

/// Rows that are widened at a time.
const WIDENED: usize = 4;

/// Elements of working memory of [`transpose`].
pub(super) fn transposed_len(dims: usize) -> usize {
    (TILE + WIDENED) * dims.next_multiple_of(LANES)
}

/// Copies the keys of sixteen positions as f32, `[dims, 16]`, padded with zeros to a multiple of sixteen dims.
///
/// # Safety
/// `rows` points to `[16, dims]`.
#[inline(always)]
pub(super) unsafe fn transpose<S: Simd, T: Scalar>(
    s: S,
    rows: *const T,
    dims: usize,
    memory: &mut [f32],
) -> &[f32] {
    let stride = dims.next_multiple_of(LANES);
    let (transposed, wide) = memory[..transposed_len(dims)].split_at_mut(TILE * stride);
    for first in (0..TILE).step_by(WIDENED) {
        for (row, wide) in wide.chunks_exact_mut(stride).enumerate() {
            for (dim, to) in (0..dims).step_by(LANES).zip(wide.chunks_exact_mut(LANES)) {
                // SAFETY: the caller's promise; the last vector of a row has the dims that are left.
                unsafe {
                    let from = rows.add((first + row) * dims + dim);
                    let left = dims - dim;
                    let value = if left < LANES { T::load_partial(s, from, left) } else { T::load(s, from) };
                    s.store(to.as_mut_ptr(), value);
                }
            }
        }
        let row = |index: usize| &wide[index * stride..][..stride];
        interleave([row(0), row(1), row(2), row(3)], &mut transposed[first..], TILE);
    }
    transposed
}

/// The scores of `rows` rows at sixteen positions, whose keys are transposed, from `scores` on, [`SCORES_STRIDE`] a row.
///
/// # Safety
/// `queries` holds `[16, dims]` with rows of whole vectors, `keys` the same dims of sixteen positions, and `scores` the rows,
/// rounded up to twelve.
#[inline(always)]
pub(super) unsafe fn score_tile<S: Simd>(
    s: S,
    rows: usize,
    queries: *const f32,
    keys: &[f32],
    scores: *mut f32,
) {
    let stride = keys.len() / TILE;
    let mut row = 0;
    while row < rows {
        // SAFETY: `row + R` is at most twelve in each arm, as each takes the rows left, or a divisor of twelve.
        unsafe {
            let (queries, scores) = (queries.add(row * stride), scores.add(row * SCORES_STRIDE));
            row += if const { S::REGISTERS == 32 } {
                match rows - row {
                    9.. => score_rows::<S, 12>(s, queries, keys, scores),
                    5.. => score_rows::<S, 8>(s, queries, keys, scores),
                    3.. => score_rows::<S, 4>(s, queries, keys, scores),
                    2 => score_rows::<S, 2>(s, queries, keys, scores),
                    _ => score_rows::<S, 1>(s, queries, keys, scores),
                }
            } else if const { S::REGISTERS == 8 } {
                match rows - row {
                    5.. => score_rows::<S, 6>(s, queries, keys, scores),
                    3.. => score_rows::<S, 4>(s, queries, keys, scores),
                    2 => score_rows::<S, 2>(s, queries, keys, scores),
                    _ => score_rows::<S, 1>(s, queries, keys, scores),
                }
            } else {
                match rows - row {
                    2.. => score_rows::<S, 2>(s, queries, keys, scores),
                    _ => score_rows::<S, 1>(s, queries, keys, scores),
                }
            };
        }
    }
}

/// As [`score_tile`], of `R` rows; returns `R`.
///
/// # Safety
/// As [`score_tile`].
#[inline(always)]
unsafe fn score_rows<S: Simd, const R: usize>(
    s: S,
    queries: *const f32,
    keys: &[f32],
    scores: *mut f32,
) -> usize {
    let stride = keys.len() / TILE;
    // Sums of one, two, four and eight of the sixteen, which wait for as many others.
    let mut waiting = [[s.splat(0.0); R]; 4];
    for (index, first) in SUM_ORDER.into_iter().enumerate() {
        let mut sums = [s.splat(0.0); R];
        for dim in (first..stride).step_by(LANES) {
            // SAFETY: `dim < stride`, which is how many dims the keys and each query have.
            unsafe {
                let key = s.load(keys.as_ptr().add(dim * TILE));
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = s.fma(s.splat(*queries.add(r * stride + dim)), key, *sum);
                }
            }
        }
        let level = index.trailing_ones() as usize;
        for others in &waiting[..level] {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = s.add(*other, *sum);
            }
        }
        if level < waiting.len() {
            waiting[level] = sums;
        } else {
            for (r, sum) in sums.into_iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { s.store(scores.add(r * SCORES_STRIDE), sum) };
            }
        }
    }
    R
}
