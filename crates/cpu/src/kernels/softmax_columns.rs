//! Softmax along an axis that is not the last: sixteen columns at a time, each in a lane of its own.
//!
//! Bound by memory: whole cache lines are read three times, and summed along the axis in order.

use super::disjoint::Disjoint;
use super::variant::{Variant, variants};
use crate::Pool;
use crate::vec::{LANES, Simd, exp};

/// `columns(n, inner, x, out, start)`: softmax of the columns that start at elements `start..start + 16` (fewer at
/// the end of a row) and have `n` elements, `inner` apart.
pub(crate) type Kernel = unsafe fn(usize, usize, &[f32], &Disjoint<'_, f32>, usize);

variants! {
    /// Softmax of columns.
    pub(crate) const VARIANTS = columns, (n: usize, inner: usize, x: &[f32], out: &Disjoint<'_, f32>, start: usize)
}

/// Softmax along the middle axis of `x[outer, n, inner]`.
///
/// # Panics
/// When the lengths disagree, or this machine cannot run the variant.
pub(crate) fn softmax(
    variant: &Variant<Kernel>,
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
    let (outer, groups) = (x.len() / (n * inner), inner.div_ceil(LANES));
    let per_task = (super::operands::CHUNK / (n * LANES)).max(1);
    let out = Disjoint::new(out);
    pool.run((outer * groups).div_ceil(per_task), &|task| {
        for group in task * per_task..(outer * groups).min((task + 1) * per_task) {
            let start = group / groups * n * inner + group % groups * LANES;
            // SAFETY: the variant is available, and each group belongs to one task.
            unsafe { (variant.run)(n, inner, x, &out, start) };
        }
    });
}

#[inline(always)]
fn columns<S: Simd>(s: S, n: usize, inner: usize, x: &[f32], out: &Disjoint<'_, f32>, start: usize) {
    let count = LANES.min(inner - start % inner);
    let load = |i: usize| {
        let run = &x[start + i * inner..][..count];
        // SAFETY: the run has `count` values.
        unsafe { s.load_partial(run.as_ptr(), count) }
    };
    let mut largest = s.splat(f32::NEG_INFINITY);
    for i in 0..n {
        // Where an element is NaN, the other operand is the second and stays.
        largest = s.max(load(i), largest);
    }
    let mut sum = s.splat(0.0);
    for i in 0..n {
        let power = exp(s, s.sub(load(i), largest));
        sum = s.add(sum, power);
        // SAFETY: these columns belong to this call alone; the run has `count` values.
        unsafe {
            let run = out.part(start + i * inner..start + i * inner + count);
            s.store_partial(run.as_mut_ptr(), power, count);
        }
    }
    for i in 0..n {
        // SAFETY: as above.
        unsafe {
            let run = out.part(start + i * inner..start + i * inner + count);
            let power = s.load_partial(run.as_ptr(), count);
            s.store_partial(run.as_mut_ptr(), s.div(power, sum), count);
        }
    }
}
