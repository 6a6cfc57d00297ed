//! The product of packed panels: a tile of the result stays in registers while `k` passes by.

use crate::variant::variants;
use crate::vec::{LANES, Simd};

/// One panel of the left matrix, several of the right, and the part of the result that is their product.
pub struct Product {
    left: *const f32,
    right: *const f32,
    form: OperandLayout,
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
pub(in crate::kernels) enum OperandLayout {
    /// A panel `[k, tile rows]`, and panels `[panels, k, tile columns]`.
    Packed,
    /// As [`OperandLayout::Packed`], but the right matrix as it came: rows of whole tiles, this far apart.
    Direct(usize),
    /// As [`OperandLayout::Packed`], but the left matrix in rows.
    Rows(LeftRows),
}

/// Where the terms of rows lie: those of a row in runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) struct LeftRows {
    /// From one row to the next.
    pub apart: usize,
    /// Terms that lie side by side.
    pub run: usize,
    /// From one run to the next.
    pub jump: usize,
}

/// From one row to the next where rows are copied: no power of two, so that rows do not share sets of the cache.
pub(in crate::kernels) const ROW: usize = 256 + 16;

impl LeftRows {
    /// Rows of copied terms.
    pub(in crate::kernels) const COPIED: LeftRows = LeftRows { apart: ROW, run: ROW, jump: 0 };
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
    /// Until the product has been run, a row that it starts from lives; `left` and `right` hold, in their form, what `rows`
    /// and `columns` need (a left panel all of its rows); `out` is `rows` runs of `columns`, `out_stride` apart, which no one
    /// else uses.
    #[expect(clippy::too_many_arguments, reason = "the plain arguments of a matrix product")]
    pub(in crate::kernels) unsafe fn new(
        left: &[f32],
        right: &[f32],
        form: OperandLayout,
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
            (32, OperandLayout::Direct(stride), 1) => direct::<S, 14, 1, 16, 2>(s, product, stride),
            (32, OperandLayout::Direct(stride), 2) => direct::<S, 14, 2, 8, 2>(s, product, stride),
            (32, OperandLayout::Direct(stride), 3..5) => direct::<S, 14, 4, 4, 2>(s, product, stride),
            (32, OperandLayout::Direct(stride), 5..9) => direct::<S, 14, 8, 2, 2>(s, product, stride),
            (32, OperandLayout::Direct(stride), _) => direct::<S, 14, 14, 2, 2>(s, product, stride),
            (32, OperandLayout::Packed, 1) => packed::<S, 14, 1, 2>(s, product),
            (32, OperandLayout::Packed, 2) => packed::<S, 14, 2, 2>(s, product),
            (32, OperandLayout::Packed, 3..5) => packed::<S, 14, 4, 2>(s, product),
            (32, OperandLayout::Packed, 5..9) => packed::<S, 14, 8, 2>(s, product),
            (32, OperandLayout::Packed, _) => packed::<S, 14, 14, 2>(s, product),
            (32, OperandLayout::Rows(rows), 1..5) => in_rows::<S, 4, 2>(s, product, rows),
            (32, OperandLayout::Rows(rows), 5..9) => in_rows::<S, 8, 2>(s, product, rows),
            (32, OperandLayout::Rows(rows), _) => in_rows::<S, 14, 2>(s, product, rows),
            (8, OperandLayout::Direct(stride), 1) => direct::<S, 6, 1, 4, 1>(s, product, stride),
            (8, OperandLayout::Direct(stride), 2) => direct::<S, 6, 2, 2, 1>(s, product, stride),
            (8, OperandLayout::Direct(stride), 3..5) => direct::<S, 6, 4, 1, 1>(s, product, stride),
            (8, OperandLayout::Direct(stride), _) => direct::<S, 6, 6, 1, 1>(s, product, stride),
            (8, OperandLayout::Packed, 1) => packed::<S, 6, 1, 1>(s, product),
            (8, OperandLayout::Packed, 2) => packed::<S, 6, 2, 1>(s, product),
            (8, OperandLayout::Packed, 3..5) => packed::<S, 6, 4, 1>(s, product),
            (8, OperandLayout::Packed, _) => packed::<S, 6, 6, 1>(s, product),
            (8, OperandLayout::Rows(rows), 1..4) => in_rows::<S, 3, 1>(s, product, rows),
            (8, OperandLayout::Rows(rows), _) => in_rows::<S, 6, 1>(s, product, rows),
            (_, OperandLayout::Direct(stride), 1) => direct::<S, 2, 1, 2, 1>(s, product, stride),
            (_, OperandLayout::Direct(stride), _) => direct::<S, 2, 2, 1, 1>(s, product, stride),
            (_, OperandLayout::Packed, 1) => packed::<S, 2, 1, 1>(s, product),
            (_, OperandLayout::Packed, _) => packed::<S, 2, 2, 1>(s, product),
            (_, OperandLayout::Rows(rows), _) => in_rows::<S, 2, 1>(s, product, rows),
        }
    }
}

/// `R` rows of the left matrix.
#[derive(Clone, Copy)]
struct Left<const R: usize> {
    /// The first term of each.
    rows: [*const f32; R],
    /// From one term to the next.
    step: usize,
    /// Terms that are `step` apart.
    run: usize,
    /// From one run of them to the next.
    jump: usize,
}

impl<const R: usize> Left<R> {
    /// Some rows of the product's left panel, which has `PANEL`.
    #[inline(always)]
    fn of_panel<const PANEL: usize>(product: &Product) -> Left<R> {
        let rows = std::array::from_fn(|r| product.left.wrapping_add(r));
        Left { rows, step: PANEL, run: product.k, jump: 0 }
    }
}

/// Multiplies packed panels, computing `R` rows of a left panel of `PANEL`, `C` vectors across.
///
/// # Safety
/// As `Product::new`, and `product.rows <= R <= PANEL`, and the left panel has `PANEL` rows.
#[inline(always)]
unsafe fn packed<S: Simd, const PANEL: usize, const R: usize, const C: usize>(s: S, product: &Product) {
    let left = Left::<R>::of_panel::<PANEL>(product);
    // SAFETY: the caller's promise.
    unsafe { panels::<S, R, C>(s, product, left) };
}

/// Multiplies rows, computing `R` of them, `C` vectors across: the last row takes the place of those that are missing.
///
/// # Safety
/// As `Product::new`, and `product.rows <= R`.
#[inline(always)]
unsafe fn in_rows<S: Simd, const R: usize, const C: usize>(s: S, product: &Product, lie: LeftRows) {
    let row = |r: usize| product.left.wrapping_add(r.min(product.rows - 1) * lie.apart);
    let left = Left::<R> { rows: std::array::from_fn(row), step: 1, run: lie.run, jump: lie.jump };
    // SAFETY: the caller's promise.
    unsafe { panels::<S, R, C>(s, product, left) };
}

/// Multiplies rows by the packed panels of the right matrix.
///
/// # Safety
/// As `Product::new`, and `product.rows <= R`, and `left` has `k` terms of each row.
#[inline(always)]
unsafe fn panels<S: Simd, const R: usize, const C: usize>(s: S, product: &Product, left: Left<R>) {
    for start in (0..product.columns).step_by(C * LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let right = product.right.add(start * product.k);
            tile::<S, R, C>(s, product, left, right, C * LANES, start);
        }
    }
}

/// Multiplies whole tiles of an unpacked matrix, `C` vectors across, then the rest `LAST` across.
///
/// # Safety
/// As [`packed`], and the columns are a multiple of `LAST` vectors.
#[inline(always)]
unsafe fn direct<S: Simd, const PANEL: usize, const R: usize, const C: usize, const LAST: usize>(
    s: S,
    product: &Product,
    right_stride: usize,
) {
    let left = Left::<R>::of_panel::<PANEL>(product);
    let mut start = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while start + C * LANES <= product.columns {
            tile::<S, R, C>(s, product, left, product.right.add(start), right_stride, start);
            start += C * LANES;
        }
        while start < product.columns {
            tile::<S, R, LAST>(s, product, left, product.right.add(start), right_stride, start);
            start += LAST * LANES;
        }
    }
}

/// One tile of `R` rows and `16 C` columns or fewer, from a column on.
///
/// # Safety
/// As [`panels`]; `right` has `k` rows of `C` whole vectors.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const C: usize>(
    s: S,
    product: &Product,
    left: Left<R>,
    right: *const f32,
    right_stride: usize,
    column: usize,
) {
    let columns = (product.columns - column).min(C * LANES);
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = first_sums::<S, R, C>(s, product, column, columns);
        let (mut right, mut rest, mut start) = (right, product.k, 0);
        while rest > 0 {
            let (run, mut term) = (rest.min(left.run), start);
            for _ in 0..run {
                let mut row = [s.splat(0.0); C];
                for (c, row) in row.iter_mut().enumerate() {
                    *row = s.load(right.add(c * LANES));
                }
                for (sums, left) in sums.iter_mut().zip(left.rows) {
                    let factor = s.splat(*left.add(term));
                    for (sum, row) in sums.iter_mut().zip(row) {
                        *sum = s.fma(factor, row, *sum);
                    }
                }
                term += left.step;
                right = right.wrapping_add(right_stride);
            }
            (rest, start) = (rest - run, start + left.jump);
        }
        write::<S, R, C>(s, product, sums, column, columns);
    }
}

/// Loads the numbers that the sums of a tile start from, or zeros.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn first_sums<S: Simd, const R: usize, const C: usize>(
    s: S,
    product: &Product,
    column: usize,
    columns: usize,
) -> [[S::F32; C]; R] {
    let mut first = [[s.splat(0.0); C]; R];
    if !product.resume {
        return first;
    }
    let from = product.from.wrapping_add(column);
    // SAFETY: only the product's rows and columns of `from` are touched.
    unsafe {
        if product.rows == R && columns == C * LANES {
            for (r, first) in first.iter_mut().enumerate() {
                for (c, first) in first.iter_mut().enumerate() {
                    *first = s.load(from.add(r * product.from_stride + c * LANES));
                }
            }
            return first;
        }
        // Loops over rows that there may be fewer of index arrays in memory, so they have arrays of their own: the sums
        // then stay in registers.
        let mut some = [[s.splat(0.0); C]; R];
        for (r, some) in some.iter_mut().enumerate().take(product.rows) {
            for (c, some) in some.iter_mut().enumerate() {
                if c * LANES < columns {
                    let from = from.add(r * product.from_stride + c * LANES);
                    *some = s.load_partial(from, LANES.min(columns - c * LANES));
                }
            }
        }
        some
    }
}

/// Writes the sums of a tile.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn write<S: Simd, const R: usize, const C: usize>(
    s: S,
    product: &Product,
    sums: [[S::F32; C]; R],
    column: usize,
    columns: usize,
) {
    let least = s.splat(product.least);
    // SAFETY: only the product's rows and columns of `out` are touched.
    unsafe {
        let out = product.out.add(column);
        if product.rows == R && columns == C * LANES {
            for (r, sums) in sums.into_iter().enumerate() {
                for (c, sum) in sums.into_iter().enumerate() {
                    s.store(out.add(r * product.out_stride + c * LANES), s.max(least, sum));
                }
            }
            return;
        }
        // As above.
        let some = sums;
        for (r, some) in some.iter().enumerate().take(product.rows) {
            for (c, sum) in some.iter().enumerate() {
                if c * LANES < columns {
                    let to = out.add(r * product.out_stride + c * LANES);
                    s.store_partial(to, s.max(least, *sum), LANES.min(columns - c * LANES));
                }
            }
        }
    }
}
