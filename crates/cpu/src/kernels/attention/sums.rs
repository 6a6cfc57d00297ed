//! Sums of values, weighted.

use std::ops::Range;

use super::plan::{RANGE, SCORES_STRIDE, TILES};
use crate::kernels::kv_cache::TILE;
use crate::vec::{LANES, Scalar, Simd};

/// Positions that some rows see, or that all of them do.
#[derive(Clone, Copy)]
enum Part {
    Before,
    Common,
    After,
}

/// Where values and weights lie, and where their sums go.
pub(super) struct Sums<'a, T> {
    /// `[16, stride]` each, of which the first `dims` are summed.
    pub(super) values: &'a [*const T; TILES],
    pub(super) stride: usize,
    pub(super) dims: usize,
    /// Weights, [`SCORES_STRIDE`] a row.
    pub(super) scores: *const f32,
    /// The sums so far, `dims` rounded up to whole vectors a row.
    pub(super) out: *mut f32,
}

impl<T: Scalar> Sums<'_, T> {
    /// Adds to each row's sum the values it sees.
    ///
    /// Positions that some rows do not see are added row by row, before and after those that all see: a weight of 0 would
    /// not do, as the value may be infinite.
    ///
    /// # Safety
    /// The positions lie in tiles that `values` has, and `scores` and `out` have the rows.
    #[inline(always)]
    pub(super) unsafe fn add_visible<S: Simd>(&self, s: S, visible: &[(usize, usize)]) {
        let common = visible.iter().fold((0, RANGE), |all, row| (all.0.max(row.0), all.1.min(row.1)));
        let (from, to) = (common.0, common.1.max(common.0));
        for part in [Part::Before, Part::Common, Part::After] {
            let mut row = 0;
            while row < visible.len() {
                let (first, end) = visible[row];
                let (rows, positions) = match part {
                    Part::Before => (1, first..end.min(from)),
                    Part::Common => (visible.len() - row, from..to),
                    Part::After => (1, to.max(first)..end),
                };
                // SAFETY: the caller's promise, for each row and for all.
                row += unsafe { self.add_rows(s, row, rows, positions) };
            }
        }
    }

    /// Adds the values at `positions` to the sums of as many of `rows` rows as the registers hold; returns how many.
    ///
    /// # Safety
    /// As [`Sums::add_visible`].
    #[inline(always)]
    unsafe fn add_rows<S: Simd>(&self, s: S, row: usize, rows: usize, positions: Range<usize>) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            if const { S::REGISTERS == 32 } {
                match rows {
                    12.. => self.add::<S, 12, 2>(s, row, positions),
                    8.. => self.add::<S, 8, 2>(s, row, positions),
                    4.. => self.add::<S, 4, 4>(s, row, positions),
                    2.. => self.add::<S, 2, 4>(s, row, positions),
                    _ => self.add::<S, 1, 4>(s, row, positions),
                }
            } else if const { S::REGISTERS == 8 } {
                match rows {
                    6.. => self.add::<S, 6, 1>(s, row, positions),
                    4.. => self.add::<S, 4, 1>(s, row, positions),
                    2.. => self.add::<S, 2, 1>(s, row, positions),
                    _ => self.add::<S, 1, 4>(s, row, positions),
                }
            } else {
                match rows {
                    2.. => self.add::<S, 2, 1>(s, row, positions),
                    _ => self.add::<S, 1, 1>(s, row, positions),
                }
            }
        }
    }

    /// Adds the values at `positions` to the sums of `R` rows, `C` vectors of dims at a time; returns `R`.
    ///
    /// # Safety
    /// As [`Sums::add_visible`].
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize, const C: usize>(
        &self,
        s: S,
        row: usize,
        positions: Range<usize>,
    ) -> usize {
        if positions.is_empty() {
            return R;
        }
        let mut dim = 0;
        // SAFETY: the caller's promise, and each step ends within the dims.
        unsafe {
            if const { C > 1 } {
                while dim + C * LANES <= self.dims {
                    self.add_dims::<S, R, C, false>(s, row, positions.clone(), dim);
                    dim += C * LANES;
                }
            }
            while dim + LANES <= self.dims {
                self.add_dims::<S, R, 1, false>(s, row, positions.clone(), dim);
                dim += LANES;
            }
            if dim < self.dims {
                for row in row..row + R {
                    self.add_dims::<S, 1, 1, true>(s, row, positions.clone(), dim);
                }
            }
        }
        R
    }

    /// Adds `C` vectors of dims from `dim` on; fewer than sixteen dims where they are `PARTIAL`.
    ///
    /// # Safety
    /// As [`Sums::add_visible`], and the dims exist.
    #[inline(always)]
    unsafe fn add_dims<S: Simd, const R: usize, const C: usize, const PARTIAL: bool>(
        &self,
        s: S,
        row: usize,
        positions: Range<usize>,
        dim: usize,
    ) {
        let stride = self.dims.next_multiple_of(LANES);
        let mut sums = [[s.splat(0.0); C]; R];
        // SAFETY: the caller's promise; rows of `out` are whole vectors.
        unsafe {
            let out = self.out.add(row * stride + dim);
            let weights = self.scores.add(row * SCORES_STRIDE);
            for (r, sums) in sums.iter_mut().enumerate() {
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = s.load(out.add(r * stride + c * LANES));
                }
            }
            let mut position = positions.start;
            while position < positions.end {
                let end = positions.end.min((position / TILE + 1) * TILE);
                let tile = self.values[position / TILE].add(dim);
                for position in position..end {
                    let from = tile.add(position % TILE * self.stride);
                    let mut value = [s.splat(0.0); C];
                    for (c, value) in value.iter_mut().enumerate() {
                        *value = if PARTIAL {
                            T::load_partial(s, from, self.dims - dim)
                        } else {
                            T::load(s, from.add(c * LANES))
                        };
                    }
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let weight = s.splat(*weights.add(r * SCORES_STRIDE + position));
                        for (sum, value) in sums.iter_mut().zip(value) {
                            *sum = s.fma(weight, value, *sum);
                        }
                    }
                }
                position = end;
            }
            for (r, sums) in sums.iter().enumerate() {
                for (c, sum) in sums.iter().enumerate() {
                    s.store(out.add(r * stride + c * LANES), *sum);
                }
            }
        }
    }
}
