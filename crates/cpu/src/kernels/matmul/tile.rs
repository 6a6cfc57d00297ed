//! The product of packed panels: a tile of the result stays in registers while `k` passes by.

use crate::kernels::variant::variants;
use crate::vec::{LANES, Simd};

/// One panel of the left matrix, several of the right, and the part of the result that is their product.
pub struct Product {
    /// `[k, tile rows]`
    left: *const f32,
    right: *const f32,
    right_form: RightForm,
    k: usize,
    /// At most the tile's rows.
    rows: usize,
    /// At most what `right` holds.
    columns: usize,
    out: *mut f32,
    out_stride: usize,
    /// Continue the sums in `out`, rather than start from 0.
    resume: bool,
}

/// How the right matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) enum RightForm {
    /// `[panels, k, tile columns]`
    Packed,
    /// As it came: rows of whole tiles, this far apart.
    Direct(usize),
}

/// Multiplies panels; sound where `Product::new`'s promise holds and the variant is available.
pub type TileKernel = unsafe fn(&Product);

variants! {
    /// Tiles of 14 × 32 (AVX-512), 6 × 16 (AVX2, NEON) and 2 × 16.
    pub static VARIANTS = multiply, (product: &Product)
}

/// Rows and columns of the tile of the variant with this name.
pub(crate) fn tile_size(variant: &str) -> (usize, usize) {
    match variant {
        "avx512" => (14, 32),
        "avx2" | "neon" => (6, 16),
        _ => (2, 16),
    }
}

impl Product {
    /// A product of `rows × k` by `k × columns`.
    ///
    /// # Safety
    /// Until it has been run, `left` holds a panel, `right` in its form what `columns` need, and `out` is `rows` runs of
    /// `columns`, `out_stride` apart, which no one else uses.
    #[expect(clippy::too_many_arguments, reason = "the plain arguments of a matrix product")]
    pub(in crate::kernels) unsafe fn new(
        left: &[f32],
        right: &[f32],
        right_form: RightForm,
        k: usize,
        rows: usize,
        columns: usize,
        out: *mut f32,
        out_stride: usize,
        resume: bool,
    ) -> Product {
        let (left, right) = (left.as_ptr(), right.as_ptr());
        Product { left, right, right_form, k, rows, columns, out, out_stride, resume }
    }
}

#[inline(always)]
fn multiply<S: Simd>(s: S, product: &Product) {
    // SAFETY: the promise made to `Product::new`; each arm has at least as many rows as the product.
    unsafe {
        match (S::REGISTERS, product.right_form, product.rows) {
            (32, RightForm::Direct(stride), 1) => direct::<S, 14, 1, 16, 2>(s, product, stride),
            (32, RightForm::Direct(stride), 2) => direct::<S, 14, 2, 8, 2>(s, product, stride),
            (32, RightForm::Direct(stride), 3..5) => direct::<S, 14, 4, 4, 2>(s, product, stride),
            (32, RightForm::Direct(stride), 5..9) => direct::<S, 14, 8, 2, 2>(s, product, stride),
            (32, RightForm::Direct(stride), _) => direct::<S, 14, 14, 2, 2>(s, product, stride),
            (32, RightForm::Packed, 1) => packed::<S, 14, 1, 2>(s, product),
            (32, RightForm::Packed, 2) => packed::<S, 14, 2, 2>(s, product),
            (32, RightForm::Packed, 3..5) => packed::<S, 14, 4, 2>(s, product),
            (32, RightForm::Packed, 5..9) => packed::<S, 14, 8, 2>(s, product),
            (32, RightForm::Packed, _) => packed::<S, 14, 14, 2>(s, product),
            (8, RightForm::Direct(stride), 1) => direct::<S, 6, 1, 4, 1>(s, product, stride),
            (8, RightForm::Direct(stride), 2) => direct::<S, 6, 2, 2, 1>(s, product, stride),
            (8, RightForm::Direct(stride), 3..5) => direct::<S, 6, 4, 1, 1>(s, product, stride),
            (8, RightForm::Direct(stride), _) => direct::<S, 6, 6, 1, 1>(s, product, stride),
            (8, RightForm::Packed, 1) => packed::<S, 6, 1, 1>(s, product),
            (8, RightForm::Packed, 2) => packed::<S, 6, 2, 1>(s, product),
            (8, RightForm::Packed, 3..5) => packed::<S, 6, 4, 1>(s, product),
            (8, RightForm::Packed, _) => packed::<S, 6, 6, 1>(s, product),
            (_, RightForm::Direct(stride), 1) => direct::<S, 2, 1, 2, 1>(s, product, stride),
            (_, RightForm::Direct(stride), _) => direct::<S, 2, 2, 1, 1>(s, product, stride),
            (_, RightForm::Packed, 1) => packed::<S, 2, 1, 1>(s, product),
            (_, RightForm::Packed, _) => packed::<S, 2, 2, 1>(s, product),
        }
    }
}

/// Multiplies packed panels, computing `R` rows of a left panel that has `STRIDE`, `C` vectors across.
///
/// # Safety
/// As `Product::new`, and `product.rows <= R <= STRIDE`.
#[inline(always)]
unsafe fn packed<S: Simd, const STRIDE: usize, const R: usize, const C: usize>(s: S, product: &Product) {
    for start in (0..product.columns).step_by(C * LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let right = product.right.add(start * product.k);
            let columns = (product.columns - start).min(C * LANES);
            tile::<S, STRIDE, R, C>(s, product, right, C * LANES, product.out.add(start), columns);
        }
    }
}

/// Multiplies whole tiles of an unpacked matrix, `C` vectors across, then the rest `LAST` across.
///
/// # Safety
/// As [`packed`], and the columns are a multiple of `LAST` vectors.
#[inline(always)]
unsafe fn direct<S: Simd, const STRIDE: usize, const R: usize, const C: usize, const LAST: usize>(
    s: S,
    product: &Product,
    right_stride: usize,
) {
    let mut start = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while start + C * LANES <= product.columns {
            let (right, out) = (product.right.add(start), product.out.add(start));
            tile::<S, STRIDE, R, C>(s, product, right, right_stride, out, C * LANES);
            start += C * LANES;
        }
        while start < product.columns {
            let (right, out) = (product.right.add(start), product.out.add(start));
            tile::<S, STRIDE, R, LAST>(s, product, right, right_stride, out, LAST * LANES);
            start += LAST * LANES;
        }
    }
}

/// One tile of `R` rows and `columns <= 16 C` columns.
///
/// # Safety
/// As [`packed`]; `right` has `k` rows of `C` whole vectors.
#[inline(always)]
unsafe fn tile<S: Simd, const STRIDE: usize, const R: usize, const C: usize>(
    s: S,
    product: &Product,
    right: *const f32,
    right_stride: usize,
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
            right = right.wrapping_add(right_stride);
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
