//! Where the extreme along an axis is.
//!
//! Along the last axis, blocks without a better element are passed over by a loop that the compiler vectorizes;
//! only the others are searched. Other axes go column by column. The first NaN ends the search. Bound by memory.

use std::cmp::Ordering;
use std::sync::Arc;

use engine::{Kernel, KernelCall, View};
use graph::ops::ArgReduceKind;
use tensor::{DType, Element};

use super::operands::{elements, elements_mut, rows_per_chunk, view, with_type};
use crate::variant::{Variant, variants};
use crate::vec::Simd;
use crate::{Cpu, Pool};

/// Elements looked at before it is decided whether to search them.
const BLOCK: usize = 64;

/// Finds the largest (or else the smallest) of a row.
pub type Find<T> = unsafe fn(bool, &[T], &mut i64);

variants! {
    /// Finds among f32.
    pub static F32 = find_f32, (largest: bool, row: &[f32], index: &mut i64)
}

/// A kernel that finds the extreme along an axis.
pub(crate) fn kernel(cpu: &Cpu, kind: ArgReduceKind, axis: usize, dtype: DType) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(&cpu.pool);
    with_type!(dtype, T => {
        Some(Arc::new(ArgReduceKernel::<T> { kind, axis, variant: T::variant(cpu), pool }))
    }, _ => None)
}

/// An element type with a way to search rows.
trait Ordered: Element {
    fn variant(cpu: &Cpu) -> &'static Variant<Find<Self>>;
}

macro_rules! portable {
    ($($T:ty),*) => { $(
        impl Ordered for $T {
            fn variant(_cpu: &Cpu) -> &'static Variant<Find<$T>> {
                static VARIANT: Variant<Find<$T>> = Variant { name: "portable", available: || true, run: find::<$T> };
                &VARIANT
            }
        }
    )* };
}

portable!(tensor::f16, tensor::bf16, f64, u8, i8, u16, i16, u32, i32, u64, i64);

impl Ordered for f32 {
    fn variant(cpu: &Cpu) -> &'static Variant<Find<f32>> {
        cpu.pick(F32)
    }
}

struct ArgReduceKernel<T: 'static> {
    kind: ArgReduceKind,
    axis: usize,
    variant: &'static Variant<Find<T>>,
    pool: Arc<Pool>,
}

impl<T: Element> Kernel for ArgReduceKernel<T> {
    fn name(&self) -> String {
        let op = graph::Op::from(graph::ops::ArgReduce { kind: self.kind, axis: self.axis });
        format!("{}[{}].{}", op.name(), T::DTYPE, self.variant.name)
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        let (View { dtype, shape, .. }, axis) = (inputs[0], self.axis);
        match shape[axis] {
            0 => Err(format!("operand 0 is {dtype}{shape}, whose axis {axis} is empty")),
            _ => Ok(()),
        }
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        self.check(&[x])?;
        let (n, inner) = (x.shape[self.axis], x.shape[self.axis + 1..].iter().product::<usize>());
        let largest = self.kind == ArgReduceKind::Max;
        let (x, result) = (elements::<T>(x.bytes), elements_mut::<i64>(call.outputs[0].bytes));
        let per_chunk = rows_per_chunk(n);
        self.pool.run_on_pieces(result, per_chunk, &|index, piece| {
            for (i, slot) in piece.iter_mut().enumerate() {
                let (row, column) = ((index * per_chunk + i) / inner, (index * per_chunk + i) % inner);
                let lane = &x[row * n * inner..][..n * inner];
                match inner {
                    // SAFETY: the variant was chosen because this machine has it.
                    1 => unsafe { (self.variant.run)(largest, lane, slot) },
                    _ => *slot = first_best(largest, lane[column..].iter().step_by(inner).copied()) as i64,
                }
            }
        });
        Ok(())
    }
}

#[inline(always)]
fn find_f32<S: Simd>(_s: S, largest: bool, row: &[f32], index: &mut i64) {
    find(largest, row, index);
}

#[inline(always)]
fn find<T: Element>(largest: bool, row: &[T], index: &mut i64) {
    // Not `>`, so that NaN is better than any number.
    #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "true of NaN")]
    let found = if largest { find_by(row, |a, b| !(a <= b)) } else { find_by(row, |a, b| !(a >= b)) };
    *index = found as i64;
}

#[inline(always)]
fn find_by<T: Element>(row: &[T], better: impl Fn(T, T) -> bool) -> usize {
    let mut best = 0;
    if is_nan(row[best]) {
        return best;
    }
    for (block_index, block) in row.chunks(BLOCK).enumerate() {
        let limit = row[best];
        if !block.iter().fold(false, |any, &x| any | better(x, limit)) {
            continue;
        }
        for (i, &x) in block.iter().enumerate() {
            if better(x, row[best]) {
                best = block_index * BLOCK + i;
                if is_nan(x) {
                    return best;
                }
            }
        }
    }
    best
}

fn is_nan<T: PartialOrd>(x: T) -> bool {
    x.partial_cmp(&x).is_none()
}

/// The position of the first of the best of a column, or of the first NaN.
fn first_best<T: Element>(largest: bool, column: impl Iterator<Item = T>) -> usize {
    let wanted = if largest { Ordering::Greater } else { Ordering::Less };
    let mut best: Option<(usize, T)> = None;
    for (i, x) in column.enumerate() {
        if is_nan(x) {
            return i;
        }
        if best.is_none_or(|(_, limit)| x.partial_cmp(&limit) == Some(wanted)) {
            best = Some((i, x));
        }
    }
    best.map_or(0, |(i, _)| i)
}
