//! The k largest, or smallest, along an axis, in order.
//!
//! Along the last axis rows are searched where they lie; columns are copied out first, some at a time.
//! Candidates that beat the worst of the k best so far are collected; when twice as many have come together, the
//! better half is selected and the bar raised. Blocks without a candidate are passed over by a loop that the
//! compiler vectorizes, so that for a small k a row is read about as fast as memory gives it.
//!
//! A session may ask for one of two other ways to the same results: `fused` finds the k-th value digit by digit, from
//! histograms of the elements that share the digits above, and so takes no longer for a large k; `sort` sorts the row.

use std::cmp::Ordering;
use std::sync::Arc;

use engine::{Call, Kernel, TopKKernel as Way};
use graph::ops::TopK;
use tensor::{DType, Element};

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, rows_per_chunk, view, with_type};
use super::variant::{Variant, variants};
use crate::vec::Simd;
use crate::{Cpu, Pool};

/// Elements looked at before it is decided whether to search them.
const BLOCK: usize = 64;

/// Columns copied out together: a cache line of f32.
const BAND: usize = 16;

/// Whether any of the values is above the bar, as NaN is, or else below it. The bar is not NaN.
pub type AnyBeyond<T> = unsafe fn(bool, &[T], T, &mut bool);

variants! {
    /// Looks among f32.
    pub static F32 = any_beyond_f32, (smallest: bool, values: &[f32], bar: f32, any: &mut bool)
}

/// A kernel that picks along an axis.
pub(crate) fn kernel(cpu: &Cpu, op: TopK, dtype: DType, way: Way) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(&cpu.pool);
    with_type!(
        dtype,
        T => Some(Arc::new(TopKKernel::<T> { op, way, variant: T::variant(cpu), pool })),
        _ => None
    )
}

/// An element type that can be compared block by block, and digit by digit.
trait Beyond: Element {
    /// Bits of the keys.
    const BITS: u32 = 8 * size_of::<Self>() as u32;

    fn variant(cpu: &Cpu) -> &'static Variant<AnyBeyond<Self>>;

    /// A whole number of [`Beyond::BITS`] in the order of the values, equal for equal ones; NaN is above all numbers.
    fn key(self) -> u64;
}

macro_rules! beyond {
    ($($T:ty, $key:expr;)*) => { $(
        impl Beyond for $T {
            fn variant(_cpu: &Cpu) -> &'static Variant<AnyBeyond<$T>> {
                static VARIANT: Variant<AnyBeyond<$T>> =
                    Variant { name: "portable", available: || true, run: any_beyond::<$T> };
                &VARIANT
            }

            fn key(self) -> u64 {
                let key: fn($T) -> u64 = $key;
                key(self)
            }
        }
    )* };
}

beyond! {
    tensor::f16, |x| float_key(x.to_bits().into(), 16, x.is_nan());
    tensor::bf16, |x| float_key(x.to_bits().into(), 16, x.is_nan());
    f64, |x| float_key(x.to_bits(), 64, x.is_nan());
    u8, u64::from;
    u16, u64::from;
    u32, u64::from;
    u64, |x| x;
    i8, |x| (x as u8 ^ 1 << 7).into();
    i16, |x| (x as u16 ^ 1 << 15).into();
    i32, |x| (x as u32 ^ 1 << 31).into();
    i64, |x| x as u64 ^ 1 << 63;
}

impl Beyond for f32 {
    fn variant(cpu: &Cpu) -> &'static Variant<AnyBeyond<f32>> {
        cpu.pick(F32)
    }

    fn key(self) -> u64 {
        float_key(self.to_bits().into(), 32, self.is_nan())
    }
}

/// The key of a float: negative ones count down from the middle, positive ones up. Both zeros are the middle, NaN the top.
fn float_key(bits: u64, width: u32, is_nan: bool) -> u64 {
    let (sign, all) = (1u64 << (width - 1), u64::MAX >> (64 - width));
    match bits & sign == 0 || bits == sign {
        _ if is_nan => all,
        true => bits | sign,
        false => !bits & all,
    }
}

struct TopKKernel<T: 'static> {
    op: TopK,
    way: Way,
    variant: &'static Variant<AnyBeyond<T>>,
    pool: Arc<Pool>,
}

impl<T: Beyond> Kernel for TopKKernel<T> {
    fn name(&self) -> String {
        let way = match self.way {
            Way::Select => self.variant.name,
            Way::Fused => "fused",
            Way::Sort => "sort",
        };
        format!("{}[{}].{way}", graph::Op::from(self.op).name(), T::DTYPE)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (x, TopK { k, axis, .. }) = (view(&call, 0), self.op);
        let (n, inner) = (x.shape[axis], x.shape[axis + 1..].iter().product::<usize>());
        if k > n {
            return Err(format!("k is {k}, but axis {axis} of operand 0, {}{}, has {n}", x.dtype, x.shape));
        }
        let [values, indices] = call.outputs else { panic!("top_k makes two results") };
        if values.bytes.is_empty() {
            return Ok(());
        }
        let x = elements::<T>(x.bytes);
        let values = Disjoint::new(elements_mut::<T>(values.bytes));
        let indices = Disjoint::new(elements_mut::<i64>(indices.bytes));
        let (width, bands) = (BAND.min(inner), inner.div_ceil(BAND));
        let (all, per_task) = (x.len() / (n * inner) * bands, rows_per_chunk(n * width));
        self.pool.run(all.div_ceil(per_task), &|task| {
            let (mut best, mut lanes) = (Vec::new(), Vec::new());
            for band in task * per_task..all.min((task + 1) * per_task) {
                let (outer, first) = (band / bands, band % bands * BAND);
                let width = BAND.min(inner - first);
                let plane = &x[outer * n * inner..][..n * inner];
                let rows = if inner == 1 { plane } else { copy_out(plane, inner, first, width, &mut lanes) };
                for (column, row) in rows.chunks_exact(n).enumerate() {
                    match self.way {
                        Way::Select => self.select(row, &mut best),
                        Way::Fused => self.search(row, &mut best),
                        Way::Sort => self.sort(row, &mut best),
                    }
                    for (rank, &(value, i)) in best.iter().enumerate() {
                        let slot = (outer * k + rank) * inner + first + column;
                        // SAFETY: each lane of the results belongs to one task.
                        let slots = unsafe { (values.part(slot..slot + 1), indices.part(slot..slot + 1)) };
                        (slots.0[0], slots.1[0]) = (value, i as i64);
                    }
                }
            }
        });
        Ok(())
    }
}

/// The columns `first..first + width` of a plane whose rows have `inner` elements, each made a row.
fn copy_out<'l, T: Element>(
    plane: &[T],
    inner: usize,
    first: usize,
    width: usize,
    lanes: &'l mut Vec<T>,
) -> &'l [T] {
    let n = plane.len() / inner;
    lanes.resize(n * width, T::zeroed());
    for (i, row) in plane.chunks_exact(inner).enumerate() {
        for (column, &x) in row[first..first + width].iter().enumerate() {
            lanes[column * n + i] = x;
        }
    }
    lanes
}

impl<T: Beyond> TopKKernel<T> {
    /// Leaves the best of a row in `best`, in order.
    fn select(&self, row: &[T], best: &mut Vec<(T, usize)>) {
        let k = self.op.k;
        let rank = |a: &(T, usize), b: &(T, usize)| self.rank(a, b);
        best.clear();
        // The first elements are candidates in any case.
        best.extend(row[..k].iter().copied().zip(0..));
        let Some(mut bar) = best.iter().copied().max_by(&rank) else { return };
        let mut start = k;
        for block in row[k..].chunks(BLOCK) {
            if self.any_beyond(block, bar.0) {
                let candidates = block.iter().copied().zip(start..);
                best.extend(candidates.filter(|candidate| rank(candidate, &bar).is_lt()));
                if best.len() >= 2 * k + BLOCK {
                    bar = keep(best, k, &rank);
                }
            }
            start += block.len();
        }
        keep(best, k, &rank);
        best.sort_unstable_by(rank);
    }

    /// As [`TopKKernel::select`], by searching for the key of the worst that is kept.
    fn search(&self, row: &[T], best: &mut Vec<(T, usize)>) {
        best.clear();
        let (bar, mut ties) = self.threshold(row);
        for (i, &value) in row.iter().enumerate() {
            let key = self.key(value);
            if key > bar || (key == bar && ties > 0) {
                ties -= usize::from(key == bar);
                best.push((value, i));
            }
        }
        best.sort_unstable_by(|a, b| self.rank(a, b));
    }

    /// The key of the `k`-th best, and how many elements of that key are among the `k` best.
    fn threshold(&self, row: &[T]) -> (u64, usize) {
        let (mut bar, mut known, mut missing) = (0u64, 0u64, self.op.k);
        for shift in (0..T::BITS).step_by(8).rev() {
            let mut counts = [0usize; 256];
            for key in row.iter().map(|&value| self.key(value)).filter(|key| key & known == bar) {
                counts[(key >> shift) as usize & 0xff] += 1;
            }
            let mut digit = 255;
            while counts[digit] < missing {
                missing -= counts[digit];
                digit -= 1;
            }
            bar |= (digit as u64) << shift;
            known |= 0xff << shift;
        }
        (bar, missing)
    }

    /// A key that is larger for what is better.
    fn key(&self, value: T) -> u64 {
        if self.op.smallest { !value.key() & (u64::MAX >> (64 - T::BITS)) } else { value.key() }
    }

    /// As [`TopKKernel::select`], by sorting everything.
    fn sort(&self, row: &[T], best: &mut Vec<(T, usize)>) {
        best.clear();
        best.extend(row.iter().copied().zip(0..));
        best.sort_unstable_by(|a, b| self.rank(a, b));
        best.truncate(self.op.k);
    }

    fn any_beyond(&self, block: &[T], bar: T) -> bool {
        if is_nan(&bar) {
            // NaN is the top: all numbers are below it, and nothing above.
            return self.op.smallest;
        }
        let mut any = false;
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (self.variant.run)(self.op.smallest, block, bar, &mut any) };
        any
    }

    /// The best first, NaN being above all numbers, and the lower index first among equals: no two compare equal.
    fn rank(&self, a: &(T, usize), b: &(T, usize)) -> Ordering {
        let by_value = a.0.partial_cmp(&b.0).unwrap_or_else(|| is_nan(&a.0).cmp(&is_nan(&b.0)));
        let by_value = if self.op.smallest { by_value } else { by_value.reverse() };
        by_value.then(a.1.cmp(&b.1))
    }
}

fn is_nan<T: PartialOrd>(x: &T) -> bool {
    x.partial_cmp(x).is_none()
}

/// Keeps the `k` best, at least 1; returns the worst of them.
fn keep<T: Element>(
    best: &mut Vec<(T, usize)>,
    k: usize,
    rank: &impl Fn(&(T, usize), &(T, usize)) -> Ordering,
) -> (T, usize) {
    if best.len() > k {
        best.select_nth_unstable_by(k - 1, rank);
        best.truncate(k);
        return best[k - 1];
    }
    best.iter().copied().max_by(rank).expect("k is at least 1")
}

#[inline(always)]
fn any_beyond_f32<S: Simd>(_s: S, smallest: bool, values: &[f32], bar: f32, any: &mut bool) {
    any_beyond(smallest, values, bar, any);
}

#[inline(always)]
fn any_beyond<T: Element>(smallest: bool, values: &[T], bar: T, any: &mut bool) {
    // Not `>`, so that NaN is above the bar.
    #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "true of NaN")]
    let found = match smallest {
        true => values.iter().fold(false, |any, &value| any | (value < bar)),
        false => values.iter().fold(false, |any, &value| any | !(value <= bar)),
    };
    *any = found;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Beyond>(row: &[T]) {
        let cpu = Cpu::new(1);
        for (k, smallest) in (1..=row.len()).flat_map(|k| [(k, false), (k, true)]) {
            let op = TopK { k, axis: 0, smallest };
            let kernel = TopKKernel::<T> {
                op,
                way: Way::Select,
                variant: T::variant(&cpu),
                pool: Arc::clone(&cpu.pool),
            };
            type Found<T> = Vec<(T, usize)>;
            let positions = |find: &dyn Fn(&mut Found<T>)| {
                let mut best = Vec::new();
                find(&mut best);
                best.into_iter().map(|(_, position)| position).collect::<Vec<_>>()
            };
            let selected = positions(&|best| kernel.select(row, best));
            assert_eq!(positions(&|best| kernel.search(row, best)), selected, "{op:?} of {row:?}");
            assert_eq!(positions(&|best| kernel.sort(row, best)), selected, "{op:?} of {row:?}");
        }
    }

    #[test]
    fn all_ways_give_the_same() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let floats = [0.0, -0.0, nan, 1.0, -1.0, inf, -inf, 1.0, nan, 3e-40, -2.5, f32::MAX, 0.0];
        check(&floats);
        check(&floats.map(f64::from));
        check(&floats.map(tensor::bf16::from_f32));
        check(&floats.map(tensor::f16::from_f32));
        check(&[i64::MIN, -1, 0, 5, i64::MAX, 5, -1]);
        check(&[i8::MIN, -1, 0, 5, i8::MAX, 5, -1]);
        check(&[u64::MAX, 0, 7, 7, 1 << 40, 255, 256]);
    }
}
