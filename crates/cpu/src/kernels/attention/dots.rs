//! Scores against keys that lie row by row: dot products along the dims, a few rows and positions at a time.

use std::ops::Range;

use super::tile::{SCORES_STRIDE, TILES};
use crate::kernels::kv_cache::TILE;
use crate::vec::{LANES, Scalar, Simd};

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
