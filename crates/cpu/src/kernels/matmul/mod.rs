//! `C = A · B` for batches of dense matrices of any strides; f32, bf16 and f16 in, f32 out.
//!
//! Each element is one sum over `k` in order, `sum = a · b + sum`, from 0: its bits depend on its row and column alone,
//! whatever the other rows, the threads, or the way below.
//!
//! Bound by arithmetic. Both matrices are copied into panels (narrower types are widened there), `BLOCK_K` of `k` at a
//! time, and a tile of the result stays in registers while a block passes by. Large products pack once for all
//! threads, then share tiles; small ones, and batches of small ones, are divided into parts that each pack for themselves.

pub(crate) mod attention;
mod exact;
mod kernel;
mod pack;
mod split;
mod tile;

use std::ops::Range;

pub use self::exact::{Wide, matmul_exact};
pub(crate) use self::kernel::{kernel_for, packing, split_kernel, strides};
use self::pack::LaneSlice;
pub(crate) use self::split::matmul_split;
pub(crate) use self::tile::tile_size;
pub(super) use self::tile::{LeftRows, OperandLayout, ROW};
pub use self::tile::{Product, TileKernel, VARIANTS};
use super::disjoint::Disjoint;
use crate::Pool;
use crate::variant::{Variant, fastest};
use crate::vec::{Scalar, with_scratch};

/// Of `k`, at a time: what of a panel stays in the nearest caches.
const BLOCK_K: usize = 512;

/// Rows and columns packed at a time by a large product: two buffers of 8 MiB.
const BLOCK_LANES: usize = 4096;

/// So few rows that the right matrix is read, not computed with: long runs of it at a time, few `k`.
const FEW_ROWS: usize = 8;
const FEW_ROWS_BLOCK_K: usize = 16;

/// Multiplications from which threads pack together.
const LARGE: usize = 1 << 24;

/// The sizes of a product: `[batch…, m, k] · [batch…, k, n] → [batch…, m, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulShape<'a> {
    /// Leading dims.
    pub batch: &'a [usize],
    /// Rows of the left matrix and of the result.
    pub m: usize,
    /// Columns of the left matrix, rows of the right.
    pub k: usize,
    /// Columns of the right matrix and of the result.
    pub n: usize,
}

/// One side of a product.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T> {
    /// From the first element on.
    pub data: &'a [T],
    /// Elements from one index to the next, for each batch dim, for rows, for columns; 0 repeats.
    pub strides: &'a [usize],
}

/// Writes the product of `a` and `b` to `out`, `[batch…, m, n]` without gaps.
///
/// # Panics
/// When strides are missing or reach beyond the data, or `out` has another length.
pub fn matmul<A: Scalar, B: Scalar>(
    pool: &Pool,
    shape: MatmulShape,
    a: Matrix<A>,
    b: Matrix<B>,
    out: &mut [f32],
) {
    matmul_with(fastest(VARIANTS), pool, shape, a, b, out);
}

/// [`matmul`] by a variant of the caller's choice.
///
/// # Panics
/// As [`matmul`], and when this machine cannot run the variant.
pub fn matmul_with<A: Scalar, B: Scalar>(
    variant: &Variant<TileKernel>,
    pool: &Pool,
    shape: MatmulShape,
    a: Matrix<A>,
    b: Matrix<B>,
    out: &mut [f32],
) {
    assert!((variant.available)(), "matmul: this machine cannot run {}", variant.name);
    let MatmulShape { batch, m, k, n } = shape;
    let items: usize = batch.iter().product();
    assert_eq!(out.len(), items * m * n, "matmul: length of out for {shape:?}");
    if out.is_empty() || k == 0 {
        return out.fill(0.0);
    }
    check("left", a, batch, m, k);
    check("right", b, batch, k, n);
    let (tile_rows, tile_columns) = tile_size(variant.name);
    let call =
        MatMulCall { kernel: variant.run, tile_rows, tile_columns, shape, a, b, out: Disjoint::new(out) };
    if m > 2 * tile_rows && m.saturating_mul(k).saturating_mul(n) >= LARGE {
        (0..items).for_each(|item| call.together(pool, item));
    } else {
        call.apart(pool, items);
    }
}

fn check<T>(side: &str, matrix: Matrix<T>, batch: &[usize], rows: usize, columns: usize) {
    let dims = batch.iter().copied().chain([rows, columns]);
    assert_eq!(matrix.strides.len(), batch.len() + 2, "matmul: number of strides of the {side} matrix");
    let last = dims
        .zip(matrix.strides)
        .try_fold(0usize, |last, (dim, stride)| last.checked_add((dim - 1).checked_mul(*stride)?));
    let len = matrix.data.len();
    assert!(
        last.is_some_and(|last| last < len),
        "matmul: the {side} matrix reaches element {last:?} of {len}"
    );
}

struct MatMulCall<'a, A, B> {
    kernel: TileKernel,
    tile_rows: usize,
    tile_columns: usize,
    shape: MatmulShape<'a>,
    a: Matrix<'a, A>,
    b: Matrix<'a, B>,
    out: Disjoint<'a, f32>,
}

/// A part of one item's result.
struct ResultBlock {
    item: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl<A: Scalar, B: Scalar> MatMulCall<'_, A, B> {
    /// All threads on one item: they pack a block of both matrices, then multiply it, block after block.
    fn together(&self, pool: &Pool, item: usize) {
        let MatmulShape { m, k, n, .. } = self.shape;
        let left_len = m.min(BLOCK_LANES).next_multiple_of(self.tile_rows) * k.min(BLOCK_K);
        let right_len = n.min(BLOCK_LANES).next_multiple_of(self.tile_columns) * k.min(BLOCK_K);
        with_scratch(left_len.next_multiple_of(16) + right_len, |scratch| {
            let (left, right) = scratch.split_at_mut(left_len.next_multiple_of(16));
            for columns in blocks(n, BLOCK_LANES) {
                for rows in blocks(m, BLOCK_LANES) {
                    for ks in blocks(k, BLOCK_K) {
                        let part = ResultBlock { item, rows: rows.clone(), columns: columns.clone() };
                        self.pack_together(pool, &part, ks.clone(), left, right);
                        self.multiply_together(pool, &part, ks, left, right);
                    }
                }
            }
        });
    }

    fn pack_together(
        &self,
        pool: &Pool,
        part: &ResultBlock,
        ks: Range<usize>,
        left: &mut [f32],
        right: &mut [f32],
    ) {
        // A few panels to a chunk, the left matrix's first.
        let step = 4;
        let left_lanes = step * self.tile_rows;
        let right_lanes = step * self.tile_columns;
        let left_chunks = part.rows.len().div_ceil(left_lanes);
        let right_chunks = part.columns.len().div_ceil(right_lanes);
        let (left, right) = (Disjoint::new(left), Disjoint::new(right));
        pool.run(left_chunks + right_chunks, &|chunk| {
            if chunk < left_chunks {
                let lanes = sub(&part.rows, chunk * left_lanes, left_lanes);
                let padded = lanes.len().next_multiple_of(self.tile_rows);
                let start = chunk * left_lanes * ks.len();
                // SAFETY: each chunk has panels of its own.
                let panels = unsafe { left.part(start..start + padded * ks.len()) };
                self.left(part.item, lanes, ks.clone()).pack(self.tile_rows, panels);
            } else {
                let chunk = chunk - left_chunks;
                let lanes = sub(&part.columns, chunk * right_lanes, right_lanes);
                let padded = lanes.len().next_multiple_of(self.tile_columns);
                let start = chunk * right_lanes * ks.len();
                // SAFETY: each chunk has panels of its own.
                let panels = unsafe { right.part(start..start + padded * ks.len()) };
                self.right(part.item, lanes, ks.clone()).pack(self.tile_columns, panels);
            }
        });
    }

    fn multiply_together(
        &self,
        pool: &Pool,
        part: &ResultBlock,
        ks: Range<usize>,
        left: &[f32],
        right: &[f32],
    ) {
        // A share of both matrices that stays in a core's second cache, and enough of them to even out.
        let (rows, columns) = (6 * self.tile_rows, 256);
        let row_parts = part.rows.len().div_ceil(rows);
        let column_parts = part.columns.len().div_ceil(columns);
        pool.run(row_parts * column_parts, &|chunk| {
            let (row, column) = (chunk % row_parts * rows, chunk / row_parts * columns);
            let share = ResultBlock {
                item: part.item,
                rows: sub(&part.rows, row, rows),
                columns: sub(&part.columns, column, columns),
            };
            let (left, right) = (&left[row * ks.len()..], &right[column * ks.len()..]);
            self.multiply(&share, ks.clone(), left, right, OperandLayout::Packed);
        });
    }

    /// Every thread on parts of its own, for which it packs itself.
    fn apart(&self, pool: &Pool, items: usize) {
        let MatmulShape { m, k, n, .. } = self.shape;
        let (rows, columns) = self.part_size(items, pool.threads());
        let (row_parts, column_parts) = (m.div_ceil(rows), n.div_ceil(columns));
        let left_len = (rows.next_multiple_of(self.tile_rows) * k.min(BLOCK_K)).next_multiple_of(16);
        let right_len = columns.next_multiple_of(self.tile_columns) * k.min(BLOCK_K);
        pool.run(items * row_parts * column_parts, &|chunk| {
            let (item, chunk) = (chunk / (row_parts * column_parts), chunk % (row_parts * column_parts));
            let part = ResultBlock {
                item,
                rows: sub(&(0..m), chunk / column_parts * rows, rows),
                columns: sub(&(0..n), chunk % column_parts * columns, columns),
            };
            with_scratch(left_len + right_len, |scratch| {
                let (left, right) = scratch.split_at_mut(left_len);
                self.multiply_part(part, left, right);
            });
        });
    }

    fn multiply_part(&self, part: ResultBlock, left: &mut [f32], right: &mut [f32]) {
        let direct = self.direct();
        let whole = direct.map_or(0, |_| part.columns.len() / self.tile_columns * self.tile_columns);
        let middle = part.columns.start + whole;
        let first = ResultBlock { columns: part.columns.start..middle, rows: part.rows.clone(), ..part };
        let rest = ResultBlock { columns: middle..part.columns.end, ..part };
        let block_k = if whole > 0 && rest.rows.len() <= FEW_ROWS { FEW_ROWS_BLOCK_K } else { BLOCK_K };
        for ks in blocks(self.shape.k, block_k) {
            self.left(rest.item, rest.rows.clone(), ks.clone()).pack(self.tile_rows, left);
            if let (Some(b), [.., stride, _]) = (direct, self.b.strides)
                && whole > 0
            {
                let start = self.right(first.item, first.columns.clone(), ks.clone()).start;
                let end = start + (ks.len() - 1) * stride + whole;
                self.multiply(&first, ks.clone(), left, &b[start..end], OperandLayout::Direct(*stride));
            }
            if !rest.columns.is_empty() {
                self.right(rest.item, rest.columns.clone(), ks.clone()).pack(self.tile_columns, right);
                self.multiply(&rest, ks, left, right, OperandLayout::Packed);
            }
        }
    }

    /// The right matrix, if its whole tiles can be read as they lie: f32, columns side by side.
    fn direct(&self) -> Option<&[f32]> {
        match self.b.strides {
            [.., _, 1] => B::as_f32(self.b.data),
            _ => None,
        }
    }

    /// Rows and columns of a part, in whole tiles: halved until there are enough parts, if there can be.
    fn part_size(&self, items: usize, threads: usize) -> (usize, usize) {
        let MatmulShape { m, n, .. } = self.shape;
        // A part that is read costs more the shorter its runs are: caches fetch ahead along them.
        let is_read = m <= FEW_ROWS && self.direct().is_some();
        let (most_columns, wanted) = if is_read { (1024, threads) } else { (256, 4 * threads) };
        let (mut rows, mut columns) = (m.min(16 * self.tile_rows), n.min(most_columns));
        while items * m.div_ceil(rows) * n.div_ceil(columns) < wanted {
            let half = |lanes: usize, tile: usize| (lanes / 2).next_multiple_of(tile);
            if columns > self.tile_columns && (columns > rows || rows <= self.tile_rows) {
                columns = half(columns, self.tile_columns);
            } else if rows > self.tile_rows {
                rows = half(rows, self.tile_rows);
            } else {
                break;
            }
        }
        (rows, columns)
    }

    /// Multiplies packed panels of a part's rows by its columns, from the first on.
    fn multiply(
        &self,
        part: &ResultBlock,
        ks: Range<usize>,
        left: &[f32],
        right: &[f32],
        form: OperandLayout,
    ) {
        let MatmulShape { m, n, .. } = self.shape;
        let k = ks.len();
        let columns = part.columns.len();
        let right_len = match form {
            OperandLayout::Packed => columns.next_multiple_of(self.tile_columns) * k,
            OperandLayout::Direct(stride) => (k - 1) * stride + columns.next_multiple_of(self.tile_columns),
            OperandLayout::Rows(_) => unreachable!("the left matrix is packed"),
        };
        assert!(
            right.len() >= right_len,
            "matmul: {} elements of the right matrix for {right_len}",
            right.len()
        );
        for (panel, first) in part.rows.clone().step_by(self.tile_rows).enumerate() {
            let left = &left[panel * self.tile_rows * k..][..self.tile_rows * k];
            let rows = self.tile_rows.min(part.rows.end - first);
            let start = (part.item * m + first) * n + part.columns.start;
            // SAFETY: the panels are as long as asserted, the part lies within `out` and is this chunk's alone.
            unsafe {
                let out = self.out.pointer(start..start + (rows - 1) * n + columns);
                (self.kernel)(&Product::new(left, right, form, k, rows, columns, out, n, ks.start > 0));
            }
        }
    }

    fn left(&self, item: usize, rows: Range<usize>, ks: Range<usize>) -> LaneSlice<'_, A> {
        let [.., row, column] = *self.a.strides else { unreachable!("checked: two strides and the batch's") };
        let start = offset(self.shape.batch, self.a.strides, item) + rows.start * row + ks.start * column;
        LaneSlice {
            data: self.a.data,
            start,
            lanes: rows.len(),
            k: ks.len(),
            lane_stride: row,
            k_stride: column,
        }
    }

    fn right(&self, item: usize, columns: Range<usize>, ks: Range<usize>) -> LaneSlice<'_, B> {
        let [.., row, column] = *self.b.strides else { unreachable!("checked: two strides and the batch's") };
        let start = offset(self.shape.batch, self.b.strides, item) + columns.start * column + ks.start * row;
        LaneSlice {
            data: self.b.data,
            start,
            lanes: columns.len(),
            k: ks.len(),
            lane_stride: column,
            k_stride: row,
        }
    }
}

/// Where an item of the batch begins.
fn offset(batch: &[usize], strides: &[usize], mut item: usize) -> usize {
    let mut offset = 0;
    for (dim, stride) in batch.iter().zip(strides).rev() {
        offset += item % dim * stride;
        item /= dim;
    }
    offset
}

/// `0..len` in steps of `size`.
fn blocks(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(size).map(move |start| start..len.min(start + size))
}

/// The part of `range` that begins `start` after it, at most `len` long.
fn sub(range: &Range<usize>, start: usize, len: usize) -> Range<usize> {
    range.start + start..range.end.min(range.start + start + len)
}

#[cfg(test)]
mod tests;
