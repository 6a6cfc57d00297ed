//! Running sums along an axis.
//!
//! Floats are summed in f64 and rounded once. The axis is cut into segments, of a length that nothing changes: an
//! element is the sum of all segments before its own, plus the sum of its own up to it. So threads may share a long
//! axis. Bound by additions that wait for each other, and by memory.

use std::sync::Arc;

use engine::{Kernel, KernelCall};
use graph::ops::{CumSum, ReduceKind};
use tensor::DType;

use super::disjoint::Disjoint;
use super::operands::{CHUNK, elements, elements_mut, view, with_type};
use super::reduce::Accumulate;
use crate::Pool;

/// Elements of the axis in a segment.
const SEGMENT: usize = 16 * 1024;
/// Columns that are summed together.
const BAND: usize = 64;

/// A kernel that sums along an axis.
pub(crate) fn kernel(op: CumSum, dtype: DType, pool: &Arc<Pool>) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(pool);
    with_type!(dtype, T => {
        let element = std::marker::PhantomData::<T>;
        Some(Arc::new(CumSumKernel { op, element, pool }))
    }, _ => None)
}

struct CumSumKernel<T> {
    op: CumSum,
    element: std::marker::PhantomData<T>,
    pool: Arc<Pool>,
}

impl<T: Accumulate> Kernel for CumSumKernel<T> {
    fn name(&self) -> String {
        format!("cumsum[{}]", T::DTYPE)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (n, inner) = (x.shape[self.op.axis], x.shape[self.op.axis + 1..].iter().product::<usize>());
        let (x, result) = (elements::<T>(x.bytes), elements_mut::<T>(call.outputs[0].bytes));
        if x.is_empty() {
            return Ok(());
        }
        let (segments, bands, result) = (n.div_ceil(SEGMENT), inner.div_ceil(BAND), Disjoint::new(result));
        let cut = Cut { op: self.op, n, inner, x: &x, result };
        // In the order: plane, band of columns, segment.
        let all = x.len() / (n * inner) * bands * segments;
        let per_task = (CHUNK / (n.min(SEGMENT) * inner.min(BAND))).max(1);
        let each = |body: &(dyn Fn(usize) + Sync)| {
            self.pool.run(all.div_ceil(per_task), &|task| {
                (task * per_task..all.min((task + 1) * per_task)).for_each(body);
            });
        };
        if segments == 1 {
            each(&|item| cut.sum(item / bands, item % bands, 0, &mut [zero::<T>(); BAND]));
            return Ok(());
        }
        let mut before = vec![[zero::<T>(); BAND]; all];
        let totals = Disjoint::new(&mut before);
        each(&|item| {
            let (lanes, segment) = (item / segments, item % segments);
            // SAFETY: each item has a place of its own.
            let total = &mut unsafe { totals.part(item..item + 1) }[0];
            cut.total(lanes / bands, lanes % bands, segment, total);
        });
        for segments in before.chunks_exact_mut(segments) {
            let mut sums = [zero::<T>(); BAND];
            for segment in segments {
                for (sum, slot) in sums.iter_mut().zip(segment) {
                    let total = std::mem::replace(slot, *sum);
                    *sum = T::combine(ReduceKind::Sum, *sum, total);
                }
            }
        }
        each(&|item| {
            let (lanes, segment) = (item / segments, item % segments);
            cut.sum(lanes / bands, lanes % bands, segment, &mut before[item].clone());
        });
        Ok(())
    }
}

fn zero<T: Accumulate>() -> T::Sum {
    T::neutral(ReduceKind::Sum)
}

/// An array around its axis: `[planes, n, inner]`.
struct Cut<'a, T> {
    op: CumSum,
    n: usize,
    inner: usize,
    x: &'a [T],
    result: Disjoint<'a, T>,
}

impl<T: Accumulate> Cut<'_, T> {
    /// The places of a segment, in the order of summation, a run of columns each.
    fn rows(
        &self,
        plane: usize,
        band: usize,
        segment: usize,
    ) -> impl Iterator<Item = std::ops::Range<usize>> + use<T> {
        let (op, n, inner) = (self.op, self.n, self.inner);
        let (first, width) = (band * BAND, BAND.min(inner - band * BAND));
        (segment * SEGMENT..n.min((segment + 1) * SEGMENT)).map(move |i| {
            let i = if op.reverse { n - 1 - i } else { i };
            let start = (plane * n + i) * inner + first;
            start..start + width
        })
    }

    fn total(&self, plane: usize, band: usize, segment: usize, total: &mut [T::Sum; BAND]) {
        for row in self.rows(plane, band, segment) {
            for (sum, x) in total.iter_mut().zip(&self.x[row]) {
                *sum = T::combine(ReduceKind::Sum, *sum, x.widen());
            }
        }
    }

    /// Writes the sums of a segment; `before` holds those of all segments before it.
    fn sum(&self, plane: usize, band: usize, segment: usize, before: &mut [T::Sum; BAND]) {
        let mut sums = [zero::<T>(); BAND];
        for row in self.rows(plane, band, segment) {
            // SAFETY: each segment of a band belongs to one task.
            let out = unsafe { self.result.part(row.clone()) };
            for (((sum, &before), x), slot) in sums.iter_mut().zip(&*before).zip(&self.x[row]).zip(out) {
                let after = T::combine(ReduceKind::Sum, *sum, x.widen());
                let own = if self.op.exclusive { *sum } else { after };
                *slot = T::finish(ReduceKind::Sum, T::combine(ReduceKind::Sum, before, own), 1);
                *sum = after;
            }
        }
    }
}
