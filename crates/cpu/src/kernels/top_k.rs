//! The k largest of each row, in order.
//!
//! Candidates that beat the worst of the k best so far are collected; when twice as many have come together, the
//! better half is selected and the bar raised. Blocks without a candidate are passed over by a loop that the
//! compiler vectorizes, so that for a small k a row is read about as fast as memory gives it.

use std::cmp::Ordering;
use std::sync::Arc;

use engine::{Call, Kernel};
use tensor::{DType, Element};

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, rows_per_chunk, view, with_type};
use super::variant::{Variant, variants};
use crate::vec::Simd;
use crate::{Cpu, Pool};

/// Elements looked at before it is decided whether to search them.
const BLOCK: usize = 64;

/// Whether any of the values is above the bar.
pub type AnyAbove<T> = unsafe fn(&[T], T, &mut bool);

variants! {
    /// Looks among f32.
    pub const F32 = any_above_f32, (values: &[f32], bar: f32, any: &mut bool)
}

/// A kernel that picks the `k` largest of the last axis.
pub(crate) fn kernel(cpu: &Cpu, k: usize, dtype: DType) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(&cpu.pool);
    with_type!(dtype, T => Some(Arc::new(TopKKernel::<T> { k, variant: T::variant(cpu), pool })), _ => None)
}

/// An element type that can be compared block by block.
trait Above: Element {
    fn variant(cpu: &Cpu) -> &'static Variant<AnyAbove<Self>>;
}

macro_rules! portable {
    ($($T:ty),*) => { $(
        impl Above for $T {
            fn variant(_cpu: &Cpu) -> &'static Variant<AnyAbove<$T>> {
                static VARIANT: Variant<AnyAbove<$T>> =
                    Variant { name: "portable", available: || true, run: any_above::<$T> };
                &VARIANT
            }
        }
    )* };
}

portable!(tensor::f16, tensor::bf16, f64, u8, i8, u16, i16, u32, i32, u64, i64);

impl Above for f32 {
    fn variant(cpu: &Cpu) -> &'static Variant<AnyAbove<f32>> {
        cpu.pick(F32)
    }
}

struct TopKKernel<T: 'static> {
    k: usize,
    variant: &'static Variant<AnyAbove<T>>,
    pool: Arc<Pool>,
}

impl<T: Element> Kernel for TopKKernel<T> {
    fn name(&self) -> String {
        format!("top_k[{}].{}", T::DTYPE, self.variant.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let n = *x.shape.last().expect("the type rule asks for a last axis");
        if self.k > n {
            return Err(format!(
                "k is {}, but the last axis of operand 0, {}{}, has {n}",
                self.k, x.dtype, x.shape
            ));
        }
        let [values, indices] = call.outputs else { panic!("top_k makes two results") };
        if values.bytes.is_empty() {
            return Ok(());
        }
        let x = elements::<T>(x.bytes);
        let values = Disjoint::new(elements_mut::<T>(values.bytes));
        let indices = Disjoint::new(elements_mut::<i64>(indices.bytes));
        let (rows, per_task) = (x.len() / n, rows_per_chunk(n));
        self.pool.run(rows.div_ceil(per_task), &|task| {
            let mut best = Vec::new();
            for row in task * per_task..rows.min((task + 1) * per_task) {
                self.select(&x[row * n..][..n], &mut best);
                let part = row * self.k..(row + 1) * self.k;
                // SAFETY: each row belongs to one task.
                let (values, indices) = unsafe { (values.part(part.clone()), indices.part(part)) };
                for ((&(value, i), slot), index) in best.iter().zip(values).zip(indices) {
                    (*slot, *index) = (value, i as i64);
                }
            }
        });
        Ok(())
    }
}

impl<T: Element> TopKKernel<T> {
    /// Leaves the best of a row in `best`, in order.
    fn select(&self, row: &[T], best: &mut Vec<(T, usize)>) {
        let k = self.k;
        best.clear();
        // The first elements are candidates in any case.
        best.extend(row[..k].iter().copied().zip(0..));
        let Some(mut bar) = best.iter().copied().max_by(rank) else { return };
        let mut start = k;
        for block in row[k..].chunks(BLOCK) {
            if self.any_above(block, bar.0) {
                let candidates = block.iter().copied().zip(start..);
                best.extend(candidates.filter(|candidate| rank(candidate, &bar).is_lt()));
                if best.len() >= 2 * k + BLOCK {
                    bar = keep(best, k);
                }
            }
            start += block.len();
        }
        keep(best, k);
        best.sort_unstable_by(rank);
    }

    fn any_above(&self, block: &[T], bar: T) -> bool {
        // Everything else is better than a NaN, but nothing above it.
        let mut any = bar.partial_cmp(&bar).is_none();
        if !any {
            // SAFETY: the variant was chosen because this machine has it.
            unsafe { (self.variant.run)(block, bar, &mut any) };
        }
        any
    }
}

/// Keeps the `k` best, at least 1; returns the worst of them.
fn keep<T: Element>(best: &mut Vec<(T, usize)>, k: usize) -> (T, usize) {
    if best.len() > k {
        best.select_nth_unstable_by(k - 1, rank);
        best.truncate(k);
        return best[k - 1];
    }
    best.iter().copied().max_by(rank).expect("k is at least 1")
}

/// Largest first, NaN last, and the lower index first among equals: no two compare equal.
fn rank<T: Element>(a: &(T, usize), b: &(T, usize)) -> Ordering {
    let is_nan = |x: &T| x.partial_cmp(x).is_none();
    let by_value = b.0.partial_cmp(&a.0).unwrap_or_else(|| is_nan(&a.0).cmp(&is_nan(&b.0)));
    by_value.then(a.1.cmp(&b.1))
}

#[inline(always)]
fn any_above_f32<S: Simd>(_s: S, values: &[f32], bar: f32, any: &mut bool) {
    any_above(values, bar, any);
}

#[inline(always)]
fn any_above<T: Element>(values: &[T], bar: T, any: &mut bool) {
    *any = values.iter().fold(false, |any, &value| any | (value > bar));
}
