//! The product of packed panels: a tile of the result stays in registers while `k` passes by.

use crate::kernels::variant::variants;
use crate::vec::{LANES, Simd};

/// One panel of the left matrix, several of the right, and the part of the result that is their product.
pub struct Product {
    left: *const f32,
    right: *const f32,
    form: Form,
    k: usize,
    /// At most the tile's rows.
    rows: usize,
    /// At most what `right` holds.
    columns: usize,
    out: *mut f32,
    out_stride: usize,
    /// Whether sums start from `from`, which is `out` or one row for all, rather than from 0.
    resume: bool,
    from: *const f32,
    /// From one row of `from` to the next.
    from_stride: usize,
    /// The lower bound of results.
    least: f32,
}

/// How both matrices lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) enum Form {
    /// A panel `[k, tile rows]`, and panels `[panels, k, tile columns]`.
    Packed,
    /// As [`Form::Packed`], but the right matrix as it came: rows of whole tiles, this far apart.
    Direct(usize),
    /// As [`Form::Packed`], but the left matrix in rows that are [`ROW`] apart.
    Rows,
}

/// From one row of [`Form::Rows`] to the next: no power of two, so that rows do not share sets of the cache.
pub(in crate::kernels) const ROW: usize = 256 + 16;

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
    /// Until it has been run, a row it starts from lives, `left` holds a panel, `right` in its form what `columns` need, and `out` is `rows` runs of
    /// `columns`, `out_stride` apart, which no one else uses.
    #[expect(clippy::too_many_arguments, reason = "the plain arguments of a matrix product")]
    pub(in crate::kernels) unsafe fn new(
        left: &[f32],
        right: &[f32],
        form: Form,
        k: usize,
        rows: usize,
        columns: usize,
        out: *mut f32,
        out_stride: usize,
        resume: bool,
    ) -> Product {
        let (left, right) = (left.as_ptr(), right.as_ptr());
        let (from, from_stride, least) = (out.cast_const(), out_stride, f32::NEG_INFINITY);
        Product { left, right, form, k, rows, columns, out, out_stride, resume, from, from_stride, least }
    }

    /// The same, each row of sums starting from some numbers, one for each column.
    ///
    /// # Panics
    /// If there are not as many.
    pub(in crate::kernels) fn starting_from(self, row: &[f32]) -> Product {
        assert_eq!(row.len(), self.columns, "the numbers that the sums of a product start from");
        Product { resume: true, from: row.as_ptr(), from_stride: 0, ..self }
    }

    /// The same, smaller results being replaced by a number.
    pub(in crate::kernels) fn at_least(self, least: f32) -> Product {
        Product { least, ..self }
    }
}

#[inline(always)]
fn multiply<S: Simd>(s: S, product: &Product) {
    // SAFETY: the promise made to `Product::new`; each arm has at least as many rows as the product.
    unsafe {
        match (S::REGISTERS, product.form, product.rows) {
            (32, Form::Direct(stride), 1) => direct::<S, 14, 1, 16, 2>(s, product, stride),
            (32, Form::Direct(stride), 2) => direct::<S, 14, 2, 8, 2>(s, product, stride),
            (32, Form::Direct(stride), 3..5) => direct::<S, 14, 4, 4, 2>(s, product, stride),
            (32, Form::Direct(stride), 5..9) => direct::<S, 14, 8, 2, 2>(s, product, stride),
            (32, Form::Direct(stride), _) => direct::<S, 14, 14, 2, 2>(s, product, stride),
            (32, Form::Packed, 1) => packed::<S, 1, 14, 1, 2>(s, product),
            (32, Form::Packed, 2) => packed::<S, 1, 14, 2, 2>(s, product),
            (32, Form::Packed, 3..5) => packed::<S, 1, 14, 4, 2>(s, product),
            (32, Form::Packed, 5..9) => packed::<S, 1, 14, 8, 2>(s, product),
            (32, Form::Packed, _) => packed::<S, 1, 14, 14, 2>(s, product),
            (32, Form::Rows, 1..5) => packed::<S, ROW, 1, 4, 2>(s, product),
            (32, Form::Rows, 5..9) => packed::<S, ROW, 1, 8, 2>(s, product),
            (32, Form::Rows, _) => packed::<S, ROW, 1, 14, 2>(s, product),
            (8, Form::Direct(stride), 1) => direct::<S, 6, 1, 4, 1>(s, product, stride),
            (8, Form::Direct(stride), 2) => direct::<S, 6, 2, 2, 1>(s, product, stride),
            (8, Form::Direct(stride), 3..5) => direct::<S, 6, 4, 1, 1>(s, product, stride),
            (8, Form::Direct(stride), _) => direct::<S, 6, 6, 1, 1>(s, product, stride),
            (8, Form::Packed, 1) => packed::<S, 1, 6, 1, 1>(s, product),
            (8, Form::Packed, 2) => packed::<S, 1, 6, 2, 1>(s, product),
            (8, Form::Packed, 3..5) => packed::<S, 1, 6, 4, 1>(s, product),
            (8, Form::Packed, _) => packed::<S, 1, 6, 6, 1>(s, product),
            (8, Form::Rows, 1..4) => packed::<S, ROW, 1, 3, 1>(s, product),
            (8, Form::Rows, _) => packed::<S, ROW, 1, 6, 1>(s, product),
            (_, Form::Direct(stride), 1) => direct::<S, 2, 1, 2, 1>(s, product, stride),
            (_, Form::Direct(stride), _) => direct::<S, 2, 2, 1, 1>(s, product, stride),
            (_, Form::Packed, 1) => packed::<S, 1, 2, 1, 1>(s, product),
            (_, Form::Packed, _) => packed::<S, 1, 2, 2, 1>(s, product),
            (_, Form::Rows, _) => packed::<S, ROW, 1, 2, 1>(s, product),
        }
    }
}

/// Multiplies packed panels, computing `R` rows of a left panel whose rows are `APART` apart and its terms `STEP`, `C`
/// vectors across.
///
/// # Safety
/// As `Product::new`, and `product.rows <= R`, and the left panel has `R` rows.
#[inline(always)]
unsafe fn packed<S: Simd, const APART: usize, const STEP: usize, const R: usize, const C: usize>(
    s: S,
    product: &Product,
) {
    for start in (0..product.columns).step_by(C * LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let right = product.right.add(start * product.k);
            tile::<S, APART, STEP, R, C>(s, product, right, C * LANES, start);
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
            tile::<S, 1, STRIDE, R, C>(s, product, product.right.add(start), right_stride, start);
            start += C * LANES;
        }
        while start < product.columns {
            tile::<S, 1, STRIDE, R, LAST>(s, product, product.right.add(start), right_stride, start);
            start += LAST * LANES;
        }
    }
}

/// One tile of `R` rows and `16 C` columns or fewer, from a column on.
///
/// # Safety
/// As [`packed`]; `right` has `k` rows of `C` whole vectors.
#[inline(always)]
unsafe fn tile<S: Simd, const APART: usize, const STEP: usize, const R: usize, const C: usize>(
    s: S,
    product: &Product,
    right: *const f32,
    right_stride: usize,
    column: usize,
) {
    let columns = (product.columns - column).min(C * LANES);
    // Loops over rows that there may be fewer of index arrays in memory, so they have arrays of their own: the sums then
    // stay in registers.
    let mut start = [[s.splat(0.0); C]; R];
    // SAFETY: the caller's promise; only the product's rows and columns of `from` and `out` are touched.
    unsafe {
        let (from, out) = (product.from.wrapping_add(column), product.out.add(column));
        if product.resume {
            for (r, start) in start.iter_mut().enumerate() {
                for (c, start) in start.iter_mut().enumerate() {
                    if r < product.rows && c * LANES < columns {
                        let from = from.add(r * product.from_stride + c * LANES);
                        *start = s.load_partial(from, LANES.min(columns - c * LANES));
                    }
                }
            }
        }
        let mut sums = start;
        let (mut left, mut right) = (product.left, right);
        for _ in 0..product.k {
            let mut row = [s.splat(0.0); C];
            for (c, row) in row.iter_mut().enumerate() {
                *row = s.load(right.add(c * LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let factor = s.splat(*left.add(r * APART));
                for (sum, row) in sums.iter_mut().zip(row) {
                    *sum = s.fma(factor, row, *sum);
                }
            }
            left = left.wrapping_add(STEP);
            right = right.wrapping_add(right_stride);
        }
        let (results, least) = (sums, s.splat(product.least));
        for (r, results) in results.iter().enumerate() {
            for (c, result) in results.iter().enumerate() {
                if r < product.rows && c * LANES < columns {
                    let to = out.add(r * product.out_stride + c * LANES);
                    s.store_partial(to, s.max(least, *result), LANES.min(columns - c * LANES));
                }
            }
        }
    }
}
