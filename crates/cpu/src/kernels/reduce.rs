//! Sums, means, extremes and products along an axis.
//!
//! An array is `[outer, n, inner]` around its axis of size `n`. It is cut, by shape alone, into segments of the
//! axis and bands of columns; each gives partial results, which are then combined in order. Floats accumulate
//! in f64 (sixteen lanes where the axis is the last), so that the order hardly matters, and memory still bounds.

use std::sync::Arc;

use bytemuck::Pod;
use engine::{Kernel, KernelCall};
use graph::ops::ReduceKind;
use tensor::{DType, Element, Shape, bf16, f16};

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, view};
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Simd};
use crate::{Cpu, Pool};

/// Elements one thread takes at a time.
const TASK: usize = 64 * 1024;
/// Columns that are accumulated together: 4 KiB of f64.
const BAND: usize = 512;

/// `fold(kind, x, stride, sums)` accumulates the rows of `x`, `stride` apart and as long as `sums`, into `sums`.
pub type Fold<T> = unsafe fn(ReduceKind, &[T], usize, &mut [<T as Accumulate>::Sum]);

variants! {
    /// Accumulates f32.
    pub static F32 = fold_f32, (kind: ReduceKind, x: &[f32], stride: usize, sums: &mut [f64])
}

/// A kernel for the reduction of an axis of a dtype.
pub(crate) fn kernel(cpu: &Cpu, kind: ReduceKind, axis: usize, dtype: DType) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(&cpu.pool);
    macro_rules! portable {
        ($T:ty) => {{
            static VARIANT: Variant<Fold<$T>> =
                Variant { name: "portable", available: || true, run: fold::<$T> };
            Some(Arc::new(ReduceKernel { kind, axis, variant: &VARIANT, pool }))
        }};
    }
    match dtype {
        DType::F32 => Some(Arc::new(ReduceKernel { kind, axis, variant: cpu.pick(F32), pool })),
        DType::F16 => portable!(f16),
        DType::BF16 => portable!(bf16),
        DType::F64 => portable!(f64),
        DType::U8 => portable!(u8),
        DType::I8 => portable!(i8),
        DType::U16 => portable!(u16),
        DType::I16 => portable!(i16),
        DType::U32 => portable!(u32),
        DType::I32 => portable!(i32),
        DType::U64 => portable!(u64),
        DType::I64 => portable!(i64),
        _ => None,
    }
}

/// What reductions accumulate in.
pub trait Accumulate: Element {
    /// The type of partial results.
    type Sum: Pod + Send + Sync;

    /// The result for no elements.
    fn neutral(kind: ReduceKind) -> Self::Sum;

    /// An element as a partial result.
    fn widen(self) -> Self::Sum;

    /// Two partial results as one.
    fn combine(kind: ReduceKind, a: Self::Sum, b: Self::Sum) -> Self::Sum;

    /// The result, of `n` elements.
    fn finish(kind: ReduceKind, sum: Self::Sum, n: usize) -> Self;
}

macro_rules! floats {
    ($($T:ty: $widen:expr, $narrow:expr;)*) => { $(
        impl Accumulate for $T {
            type Sum = f64;

            #[inline(always)]
            fn neutral(kind: ReduceKind) -> f64 {
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => 0.0,
                    ReduceKind::Prod => 1.0,
                    ReduceKind::Max => f64::NEG_INFINITY,
                    ReduceKind::Min => f64::INFINITY,
                }
            }

            #[inline(always)]
            fn widen(self) -> f64 {
                $widen(self)
            }

            #[inline(always)]
            fn combine(kind: ReduceKind, a: f64, b: f64) -> f64 {
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => a + b,
                    ReduceKind::Prod => a * b,
                    // A comparison with a NaN in `b` is false and gives `b`; one in `a` is looked for.
                    ReduceKind::Max => if a > b || a.is_nan() { a } else { b },
                    ReduceKind::Min => if a < b || a.is_nan() { a } else { b },
                }
            }

            fn finish(kind: ReduceKind, sum: f64, n: usize) -> $T {
                $narrow(if kind == ReduceKind::Mean { sum / n as f64 } else { sum })
            }
        }
    )* };
}

floats! {
    f16: f64::from, |x| f16::from_f32(super::convert::round_to_odd(x));
    bf16: f64::from, |x| bf16::from_f32(super::convert::round_to_odd(x));
    f32: f64::from, |x| x as f32;
    f64: |x| x, |x| x;
}

macro_rules! integers {
    ($($T:ty),*) => { $(
        impl Accumulate for $T {
            type Sum = $T;

            #[inline(always)]
            fn neutral(kind: ReduceKind) -> $T {
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => 0,
                    ReduceKind::Prod => 1,
                    ReduceKind::Max => <$T>::MIN,
                    ReduceKind::Min => <$T>::MAX,
                }
            }

            #[inline(always)]
            fn widen(self) -> $T {
                self
            }

            #[inline(always)]
            fn combine(kind: ReduceKind, a: $T, b: $T) -> $T {
                match kind {
                    ReduceKind::Sum | ReduceKind::Mean => a.wrapping_add(b),
                    ReduceKind::Prod => a.wrapping_mul(b),
                    ReduceKind::Max => a.max(b),
                    ReduceKind::Min => a.min(b),
                }
            }

            fn finish(_kind: ReduceKind, sum: $T, _n: usize) -> $T {
                sum
            }
        }
    )* };
}

integers!(u8, i8, u16, i16, u32, i32, u64, i64);

struct ReduceKernel<T: Accumulate> {
    kind: ReduceKind,
    axis: usize,
    variant: &'static Variant<Fold<T>>,
    pool: Arc<Pool>,
}

/// How an array is cut.
struct Cut {
    outer: usize,
    n: usize,
    inner: usize,
    /// Columns of a band.
    band: usize,
    /// Elements of the axis in a segment.
    segment: usize,
}

impl Cut {
    fn new(shape: &Shape, axis: usize) -> Cut {
        let (outer, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
        let band = BAND.min(inner).max(1);
        Cut { outer, n: shape[axis], inner, band, segment: TASK / band }
    }

    /// Of which each column has a partial result.
    fn segments(&self) -> usize {
        self.n.div_ceil(self.segment).max(1)
    }

    fn bands(&self) -> usize {
        self.inner.div_ceil(self.band)
    }

    fn partials(&self) -> usize {
        self.outer * self.segments() * self.inner
    }
}

impl<T: Accumulate> Kernel for ReduceKernel<T> {
    fn name(&self) -> String {
        let op = graph::Op::from(graph::ops::Reduce { kind: self.kind, axis: self.axis });
        format!("{}[{}].{}", op.name(), T::DTYPE, self.variant.name)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        Cut::new(&inputs[0], self.axis).partials() * size_of::<T::Sum>()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let cut = Cut::new(x.shape, self.axis);
        let needed = cut.partials() * size_of::<T::Sum>();
        let partials = elements_mut::<T::Sum>(&mut call.scratch[..needed]);
        self.accumulate(&cut, &elements::<T>(x.bytes), partials);
        self.combine(&cut, partials, elements_mut::<T>(call.outputs[0].bytes));
        Ok(())
    }
}

impl<T: Accumulate> ReduceKernel<T> {
    /// Fills `partials` [outer, segments, inner].
    fn accumulate(&self, cut: &Cut, x: &[T], partials: &mut [T::Sum]) {
        let per_row = cut.segments() * cut.bands();
        // Short axes: several folds make a task.
        let per_task = (TASK / (cut.segment.min(cut.n).max(1) * cut.band)).max(1);
        let folds = cut.outer * per_row;
        let partials = Disjoint::new(partials);
        self.pool.run(folds.div_ceil(per_task), &|task| {
            for fold in task * per_task..folds.min((task + 1) * per_task) {
                let (row, within) = (fold / per_row, fold % per_row);
                let (segment, first) = (within / cut.bands(), within % cut.bands() * cut.band);
                let width = cut.band.min(cut.inner - first);
                let (start, end) = (segment * cut.segment, cut.n.min((segment + 1) * cut.segment));
                let at = (row * cut.segments() + segment) * cut.inner + first;
                // SAFETY: each fold has a segment and a band of its own.
                let sums = unsafe { partials.part(at..at + width) };
                sums.fill(T::neutral(self.kind));
                if start < end {
                    let from = (row * cut.n + start) * cut.inner + first;
                    let rows = &x[from..from + (end - start - 1) * cut.inner + width];
                    // SAFETY: the variant was chosen because this machine has it.
                    unsafe { (self.variant.run)(self.kind, rows, cut.inner, sums) };
                }
            }
        });
    }

    /// Combines the segments of each column, in order.
    fn combine(&self, cut: &Cut, partials: &[T::Sum], result: &mut [T]) {
        self.pool.run_on_pieces(result, TASK, &|index, piece| {
            for (i, slot) in piece.iter_mut().enumerate() {
                let (row, column) = ((index * TASK + i) / cut.inner, (index * TASK + i) % cut.inner);
                let first = row * cut.segments() * cut.inner + column;
                let rest = (1..cut.segments()).map(|segment| partials[first + segment * cut.inner]);
                let sum = rest.fold(partials[first], |a, b| T::combine(self.kind, a, b));
                *slot = T::finish(self.kind, sum, cut.n);
            }
        });
    }
}

#[inline(always)]
fn fold_f32<S: Simd>(_s: S, kind: ReduceKind, x: &[f32], stride: usize, sums: &mut [f64]) {
    fold(kind, x, stride, sums);
}

/// One loop for each kind, which the compiler then vectorizes.
#[inline(always)]
fn fold<T: Accumulate>(kind: ReduceKind, x: &[T], stride: usize, sums: &mut [T::Sum]) {
    match kind {
        ReduceKind::Sum | ReduceKind::Mean => fold_as::<T>(ReduceKind::Sum, x, stride, sums),
        ReduceKind::Prod => fold_as::<T>(ReduceKind::Prod, x, stride, sums),
        ReduceKind::Max => fold_as::<T>(ReduceKind::Max, x, stride, sums),
        ReduceKind::Min => fold_as::<T>(ReduceKind::Min, x, stride, sums),
    }
}

#[inline(always)]
fn fold_as<T: Accumulate>(kind: ReduceKind, x: &[T], stride: usize, sums: &mut [T::Sum]) {
    if stride == 1 {
        sums[0] = fold_run::<T>(kind, x);
        return;
    }
    let width = sums.len();
    for row in x.chunks(stride) {
        for (sum, &value) in sums.iter_mut().zip(&row[..width]) {
            *sum = T::combine(kind, *sum, value.widen());
        }
    }
}

/// A run in sixteen lanes, which are combined in halves.
#[inline(always)]
fn fold_run<T: Accumulate>(kind: ReduceKind, x: &[T]) -> T::Sum {
    let mut lanes = [T::neutral(kind); LANES];
    let (groups, tail) = x.as_chunks::<LANES>();
    for group in groups {
        for (lane, &value) in lanes.iter_mut().zip(group) {
            *lane = T::combine(kind, *lane, value.widen());
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(tail) {
        *lane = T::combine(kind, *lane, value.widen());
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] = T::combine(kind, lanes[i], lanes[i + half]);
        }
    }
    lanes[0]
}
