//! Products whose partial sums, over some of `k` at a time, are rounded to halves before they are added up.
//!
//! Bound by arithmetic: each partial sum is a product of [`super::matmul_with`], which thinner ones make a bit slower.

use super::{MatmulShape, Matrix, TileKernel, matmul_with};
use crate::Pool;
use crate::variant::Variant;
use crate::vec::Scalar;

/// Elements that a thread adds up at a time.
const PIECE: usize = 4096;

/// Writes the product of `a` and `b` to `out`, `[batch…, m, n]` without gaps, `chunk` of `k` at a time. `scratch` holds
/// twice as many elements as `out`.
///
/// # Panics
/// As [`matmul_with`], when `chunk` is 0, and when `scratch` has another length.
pub(crate) fn matmul_split<T: Scalar>(
    variant: &Variant<TileKernel>,
    pool: &Pool,
    shape: MatmulShape,
    (a, b): (Matrix<T>, Matrix<T>),
    chunk: usize,
    scratch: &mut [f32],
    out: &mut [T],
) {
    assert_eq!(scratch.len(), 2 * out.len(), "split_matmul: length of scratch for {shape:?}");
    let (partial, sums) = scratch.split_at_mut(out.len());
    let axes = shape.batch.len();
    sums.fill(0.0);
    for start in (0..shape.k).step_by(chunk) {
        let part = MatmulShape { k: chunk.min(shape.k - start), ..shape };
        let a = from(a, start, axes + 1);
        let b = from(b, start, axes);
        matmul_with(variant, pool, part, a, b, partial);
        pool.run_on_pieces(sums, PIECE, &|index, sums| {
            for (sum, &partial) in sums.iter_mut().zip(&partial[index * PIECE..]) {
                *sum += T::from_f32(partial).to_f32();
            }
        });
    }
    pool.run_on_pieces(out, PIECE, &|index, out| {
        for (out, &sum) in out.iter_mut().zip(&sums[index * PIECE..]) {
            *out = T::from_f32(sum);
        }
    });
}

/// A matrix from an index of an axis on.
fn from<'a, T>(matrix: Matrix<'a, T>, index: usize, axis: usize) -> Matrix<'a, T> {
    // What has no elements has none further on.
    let data = matrix.data.get(index * matrix.strides[axis]..).unwrap_or_default();
    Matrix { data, ..matrix }
}
