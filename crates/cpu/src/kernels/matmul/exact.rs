//! Products of matrices of f64 and of integers: row by row of the result, in the order of the inner axis.
//!
//! Bound by arithmetic; the compiler vectorizes along the columns.

use tensor::Element;

use super::{MatmulShape, Matrix};
use crate::Pool;

/// An element whose sums of products are exact, or at least f64.
pub trait Wide: Element {
    /// `self + x · y`; integers wrap around.
    fn add_product(self, x: Self, y: Self) -> Self;
}

impl Wide for f64 {
    #[inline(always)]
    fn add_product(self, x: f64, y: f64) -> f64 {
        self + x * y
    }
}

macro_rules! integers {
    ($($T:ty),*) => { $(
        impl Wide for $T {
            #[inline(always)]
            fn add_product(self, x: $T, y: $T) -> $T {
                self.wrapping_add(x.wrapping_mul(y))
            }
        }
    )* };
}

integers!(u8, i8, u16, i16, u32, i32, u64, i64);

/// Writes the product of `a` and `b` to `out`, `[batch…, m, n]` without gaps.
pub fn matmul_exact<T: Wide>(
    pool: &Pool,
    shape: MatmulShape<'_>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: &mut [T],
) {
    let MatmulShape { batch, m, k, n } = shape;
    if out.is_empty() {
        return;
    }
    let axes = batch.len();
    pool.run_on_pieces(out, n, &|row, result| {
        let (item, i) = (row / m, row % m);
        let (a_start, b_start) = (start(batch, a.strides, item), start(batch, b.strides, item));
        result.fill(T::zeroed());
        for l in 0..k {
            let x = a.data[a_start + i * a.strides[axes] + l * a.strides[axes + 1]];
            let y = &b.data[b_start + l * b.strides[axes]..][..n];
            for (sum, &y) in result.iter_mut().zip(y) {
                *sum = sum.add_product(x, y);
            }
        }
    });
}

/// Where the matrices of an item of the batch start.
fn start(batch: &[usize], strides: &[usize], mut item: usize) -> usize {
    let mut start = 0;
    for (&size, &stride) in batch.iter().zip(strides).rev() {
        start += item % size * stride;
        item /= size;
    }
    start
}
