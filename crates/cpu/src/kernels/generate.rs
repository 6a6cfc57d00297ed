//! Elements that follow from their position: ranges and random numbers. Bound by arithmetic, or by memory.

use std::sync::Arc;

use engine::{Kernel, KernelCall, View};
use graph::ops::{OutDim, Random, Range, ReduceKind};
use tensor::{DType, bf16, f16};

use super::operands::{CHUNK, elements, elements_mut, view, with_type};
use super::reduce::Accumulate;
use crate::Pool;

/// A kernel that counts.
pub(crate) fn range(op: &Range, dtype: DType, pool: &Arc<Pool>) -> Option<Arc<dyn Kernel>> {
    let (out_dim, pool) = (op.out_dim.clone(), Arc::clone(pool));
    with_type!(dtype, T => {
        let element = std::marker::PhantomData::<T>;
        Some(Arc::new(RangeKernel { out_dim, element, pool }))
    }, _ => None)
}

struct RangeKernel<T> {
    out_dim: OutDim,
    element: std::marker::PhantomData<T>,
    pool: Arc<Pool>,
}

impl<T: Sequence> Kernel for RangeKernel<T> {
    fn name(&self) -> String {
        format!("range[{}]", T::DTYPE)
    }

    fn sizes(&self, inputs: &[View<'_>]) -> Result<Option<Vec<usize>>, String> {
        let operand = |position: usize| elements::<T>(inputs[position].bytes)[0];
        Ok(Some(vec![T::count(operand(0), operand(1), operand(2))?]))
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let operand = |position| elements::<T>(view(&call, position).bytes)[0];
        let (start, step) = (operand(0), operand(call.inputs.len() - 1));
        if call.inputs.len() == 3 {
            self.out_dim.expect(T::count(start, operand(1), step)?, call.outputs[0].shape[0])?;
        }
        self.pool.run_on_pieces(elements_mut::<T>(call.outputs[0].bytes), CHUNK, &|index, piece| {
            piece.iter_mut().enumerate().for_each(|(i, slot)| *slot = T::at(start, step, index * CHUNK + i));
        });
        Ok(())
    }
}

/// An element that can be counted with.
trait Sequence: Accumulate {
    fn count(start: Self, stop: Self, step: Self) -> Result<usize, String>;

    /// `start + i · step`.
    fn at(start: Self, step: Self, i: usize) -> Self;
}

macro_rules! floats {
    ($($T:ty),*) => { $(
        impl Sequence for $T {
            fn count(start: $T, stop: $T, step: $T) -> Result<usize, String> {
                Range::count(start.widen(), stop.widen(), step.widen())
            }

            fn at(start: $T, step: $T, i: usize) -> $T {
                <$T>::finish(ReduceKind::Sum, start.widen() + i as f64 * step.widen(), 1)
            }
        }
    )* };
}

floats!(f16, bf16, f32, f64);

macro_rules! integers {
    ($($T:ty),*) => { $(
        impl Sequence for $T {
            fn count(start: $T, stop: $T, step: $T) -> Result<usize, String> {
                Range::count_integers(start.into(), stop.into(), step.into())
            }

            fn at(start: $T, step: $T, i: usize) -> $T {
                start.wrapping_add((i as $T).wrapping_mul(step))
            }
        }
    )* };
}

integers!(u8, i8, u16, i16, u32, i32, u64, i64);

/// Draws random numbers, by the op's own formula.
pub(crate) struct RandomKernel {
    /// Which.
    pub(crate) op: Random,
    /// Draws.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for RandomKernel {
    fn name(&self) -> String {
        format!("{}[{}]", graph::Op::from(self.op.clone()).name(), self.op.dtype)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let seed = (!call.inputs.is_empty()).then(|| elements::<i64>(view(&call, 0).bytes)[0]);
        let op = self.op.with_seed(seed.unwrap_or(0));
        let result = &mut *call.outputs[0].bytes;
        match op.dtype {
            DType::F16 => self.draw(&op, elements_mut::<f16>(result)),
            DType::BF16 => self.draw(&op, elements_mut::<bf16>(result)),
            DType::F32 => self.draw(&op, elements_mut::<f32>(result)),
            DType::F64 => self.draw(&op, elements_mut::<f64>(result)),
            other => panic!("random numbers of type {other}, which the type rule refuses"),
        }
        Ok(())
    }
}

impl RandomKernel {
    fn draw<T: Accumulate<Sum = f64>>(&self, op: &Random, result: &mut [T]) {
        self.pool.run_on_pieces(result, CHUNK, &|index, piece| {
            for (i, slot) in piece.iter_mut().enumerate() {
                *slot = T::finish(ReduceKind::Sum, op.element((index * CHUNK + i) as u64), 1);
            }
        });
    }
}
