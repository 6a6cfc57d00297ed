//! Softmax along an axis that is not the last: bands of columns, each column in a lane of its own.
//!
//! Bound by memory: a band is read three times, row by row, and summed along the axis in order.

use super::disjoint::Disjoint;
use crate::Pool;
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Simd, exp};

/// Columns of a band at most: a run of 4 KiB in each row, since each row may lie in a page of its own.
const BAND: usize = 1024;

/// `columns(n, inner, x, out, start, count)`: softmax of the `count` columns, at most [`BAND`], that start at elements
/// `start..start + count` and have `n` elements, `inner` apart.
pub(crate) type ColumnsKernel = unsafe fn(usize, usize, &[f32], &Disjoint<'_, f32>, usize, usize);

variants! {
    /// Softmax of columns.
    pub(crate) static VARIANTS = columns,
        (n: usize, inner: usize, x: &[f32], out: &Disjoint<'_, f32>, start: usize, count: usize)
}

/// Softmax along the middle axis of `x[outer, n, inner]`.
///
/// # Panics
/// When the lengths disagree, or this machine cannot run the variant.
pub(crate) fn softmax(
    variant: &Variant<ColumnsKernel>,
    pool: &Pool,
    n: usize,
    inner: usize,
    x: &[f32],
    out: &mut [f32],
) {
    assert!((variant.available)(), "softmax: this machine cannot run {}", variant.name);
    assert_eq!(x.len(), out.len(), "softmax: lengths of x and out");
    if x.is_empty() {
        return;
    }
    let outer = x.len() / (n * inner);
    // As wide as leaves a band to each thread. Columns do not know of each other, so bits do not depend on it.
    let band = inner.div_ceil(pool.threads().div_ceil(outer)).next_multiple_of(LANES).min(BAND);
    let bands = inner.div_ceil(band);
    let per_task = (super::operands::CHUNK / (n * inner.min(band))).max(1);
    let out = Disjoint::new(out);
    pool.run((outer * bands).div_ceil(per_task), &|task| {
        for index in task * per_task..(outer * bands).min((task + 1) * per_task) {
            let first = index % bands * band;
            let (start, count) = (index / bands * n * inner + first, band.min(inner - first));
            // SAFETY: the variant is available, and each band belongs to one task.
            unsafe { (variant.run)(n, inner, x, &out, start, count) };
        }
    });
}

#[inline(always)]
fn columns<S: Simd>(
    s: S,
    n: usize,
    inner: usize,
    x: &[f32],
    out: &Disjoint<'_, f32>,
    start: usize,
    count: usize,
) {
    let mut largest = [f32::NEG_INFINITY; BAND];
    let mut sums = [0f32; BAND];
    let (largest, sums) = (&mut largest[..count], &mut sums[..count]);
    let row = |i: usize| start + i * inner..start + i * inner + count;
    for i in 0..n {
        // Where an element is NaN, the other operand is the second and stays.
        update(
            s,
            largest,
            &x[row(i)],
            #[inline(always)]
            |most, x| s.max(x, most),
        );
    }
    for i in 0..n {
        // SAFETY: these columns belong to this call alone.
        let out = unsafe { out.part(row(i)) };
        out.copy_from_slice(&x[row(i)]);
        update(
            s,
            out,
            largest,
            #[inline(always)]
            |x, most| exp(s, s.sub(x, most)),
        );
        update(
            s,
            sums,
            out,
            #[inline(always)]
            |sum, power| s.add(sum, power),
        );
    }
    for i in 0..n {
        // SAFETY: as above.
        let out = unsafe { out.part(row(i)) };
        update(
            s,
            out,
            sums,
            #[inline(always)]
            |power, sum| s.div(power, sum),
        );
    }
}

/// `a = function(a, b)` for each element.
#[inline(always)]
fn update<S: Simd>(s: S, a: &mut [f32], b: &[f32], function: impl Fn(S::F32, S::F32) -> S::F32) {
    for (a, b) in a.chunks_mut(LANES).zip(b.chunks(LANES)) {
        assert_eq!(a.len(), b.len(), "softmax: rows of one length");
        s.store_slice(a, function(s.load_slice(a), s.load_slice(b)));
    }
}
