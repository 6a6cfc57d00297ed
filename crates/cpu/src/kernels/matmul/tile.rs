//! The product of packed panels: a tile of the result stays in registers while `k` passes by.

use crate::kernels::variant::variants;
use crate::vec::{LANES, Simd};

/// Vectors across the widest tile.
const MAX_VECTORS: usize = 2;

/// One panel of the left matrix, several of the right, and the part of the result that is their product.
pub struct Product {
    /// `[k, tile rows]`
    left: *const f32,
    /// `[panels, k, tile columns]`
    right: *const f32,
    k: usize,
    /// At most the tile's rows.
    rows: usize,
    /// At most what the panels hold.
    columns: usize,
    out: *mut f32,
    out_stride: usize,
    /// Continue the sums in `out`, rather than start from 0.
    resume: bool,
}

/// Multiplies panels; sound where [`Product::new`]'s promise holds and the variant is available.
pub type Kernel = unsafe fn(&Product);

variants! {
    /// Tiles of 14 × 32 (AVX-512), 6 × 16 (AVX2) and 2 × 16.
    pub const VARIANTS = multiply, (product: &Product)
}

/// Rows and columns of the tile of the variant with this name.
pub(super) fn tile_size(variant: &str) -> (usize, usize) {
    match variant {
        "avx512" => (14, 32),
        "avx2" => (6, 16),
        _ => (2, 16),
    }
}

impl Product {
    /// A product of `rows × k` by `k × columns`.
    ///
    /// # Safety
    /// Until it has been run, `left` holds a panel, `right` as many panels as `columns` need, and `out` is `rows`
    /// runs of `columns`, `out_stride` apart, which no one else uses.
    #[expect(clippy::too_many_arguments, reason = "the plain arguments of a matrix product")]
    pub(super) unsafe fn new(
        left: &[f32],
        right: &[f32],
        k: usize,
        rows: usize,
        columns: usize,
        out: *mut f32,
        out_stride: usize,
        resume: bool,
    ) -> Product {
        Product { left: left.as_ptr(), right: right.as_ptr(), k, rows, columns, out, out_stride, resume }
    }
}

#[inline(always)]
fn multiply<S: Simd>(s: S, product: &Product) {
    // SAFETY: the promise made to `Product::new`; each arm has at least as many rows as the product.
    unsafe {
        match (S::REGISTERS, product.rows) {
            (32, 9..) => panels::<S, 14, 14, 2>(s, product),
            (32, 5..) => panels::<S, 14, 8, 2>(s, product),
            (32, 3..) => panels::<S, 14, 4, 2>(s, product),
            (32, 2) => panels::<S, 14, 2, 2>(s, product),
            (32, _) => panels::<S, 14, 1, 2>(s, product),
            (8, 5..) => panels::<S, 6, 6, 1>(s, product),
            (8, 3..) => panels::<S, 6, 4, 1>(s, product),
            (8, 2) => panels::<S, 6, 2, 1>(s, product),
            (8, _) => panels::<S, 6, 1, 1>(s, product),
            (_, 2..) => panels::<S, 2, 2, 1>(s, product),
            _ => panels::<S, 2, 1, 1>(s, product),
        }
    }
}

/// Multiplies by each right panel, computing `R` rows of a left panel that has `STRIDE`, `C` vectors across.
///
/// # Safety
/// As [`Product::new`], and `product.rows <= R <= STRIDE`.
#[inline(always)]
unsafe fn panels<S: Simd, const STRIDE: usize, const R: usize, const C: usize>(s: S, product: &Product) {
    const { assert!(C <= MAX_VECTORS && R <= STRIDE) };
    for start in (0..product.columns).step_by(C * LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let right = product.right.add(start * product.k);
            let out = product.out.add(start);
            tile::<S, STRIDE, R, C>(s, product, right, out, (product.columns - start).min(C * LANES));
        }
    }
}

/// One tile of `R` rows and `columns <= 16 C` columns.
///
/// # Safety
/// As [`panels`].
#[inline(always)]
unsafe fn tile<S: Simd, const STRIDE: usize, const R: usize, const C: usize>(
    s: S,
    product: &Product,
    right: *const f32,
    out: *mut f32,
    columns: usize,
) {
    let mut sums = [[s.splat(0.0); C]; R];
    // SAFETY: the caller's promise; only the product's rows and columns of `out` are touched.
    unsafe {
        if product.resume {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (c, sum) in sums.iter_mut().enumerate() {
                    if r < product.rows && c * LANES < columns {
                        let from = out.add(r * product.out_stride + c * LANES);
                        *sum = s.load_partial(from, LANES.min(columns - c * LANES));
                    }
                }
            }
        }
        let (mut left, mut right) = (product.left, right);
        for _ in 0..product.k {
            let mut row = [s.splat(0.0); C];
            for (c, row) in row.iter_mut().enumerate() {
                *row = s.load(right.add(c * LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let factor = s.splat(*left.add(r));
                for (sum, row) in sums.iter_mut().zip(row) {
                    *sum = s.fma(factor, row, *sum);
                }
            }
            left = left.add(STRIDE);
            right = right.add(C * LANES);
        }
        for (r, sums) in sums.iter().enumerate() {
            for (c, sum) in sums.iter().enumerate() {
                if r < product.rows && c * LANES < columns {
                    let to = out.add(r * product.out_stride + c * LANES);
                    s.store_partial(to, *sum, LANES.min(columns - c * LANES));
                }
            }
        }
    }
}
