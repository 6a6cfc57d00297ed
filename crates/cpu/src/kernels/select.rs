//! One of two operands for each element. Bound by memory.

use std::sync::Arc;

use bytemuck::Pod;
use engine::{Kernel, KernelCall};

use super::elementwise::{BLOCK, ElementKernel, Source, for_blocks};
use super::operands::{CHUNK, elements, elements_mut, with_width};
use crate::Pool;

/// Elements of operand 1 where operand 0 is true, else of operand 2.
pub(crate) struct SelectKernel {
    /// An operand (1 or 2) of the result's very shape, if there is one.
    pub(crate) in_place: Option<usize>,
    /// Bytes of an element of operands 1 and 2.
    pub(crate) width: usize,
    /// Computes.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for SelectKernel {
    fn name(&self) -> String {
        "select".to_string()
    }

    fn in_place(&self) -> Option<usize> {
        self.in_place
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        with_width!(self.width, T => select::<T>(&self.pool, call));
        Ok(())
    }
}

impl ElementKernel for SelectKernel {
    fn run_on_tile(&self, operands: &[&[u8]], result: &mut [u8]) {
        with_width!(self.width, T => {
            let (a, b) = (elements::<T>(operands[1]), elements::<T>(operands[2]));
            pick(operands[0], &a, &b, elements_mut(result));
        });
    }
}

fn select<T: Pod + Send + Sync>(pool: &Pool, call: KernelCall<'_, '_>) {
    let result = &mut call.outputs[0];
    let condition = Source::<u8>::new(&call.inputs[0], result.shape);
    let a = Source::<T>::new(&call.inputs[1], result.shape);
    let b = Source::<T>::new(&call.inputs[2], result.shape);
    pool.run_on_pieces(elements_mut::<T>(result.bytes), CHUNK, &|index, chunk| {
        let mut stages = ([0; BLOCK], [T::zeroed(); BLOCK], [T::zeroed(); BLOCK]);
        for_blocks(index * CHUNK, chunk, |start, block| {
            let condition = condition.outside(start, block.len(), &mut stages.0);
            let a = a.block(start, block, &mut stages.1);
            let b = b.block(start, block, &mut stages.2);
            pick(condition, a, b, block);
        });
    });
}

fn pick<T: Copy>(condition: &[u8], a: &[T], b: &[T], result: &mut [T]) {
    for (((slot, &condition), &a), &b) in result.iter_mut().zip(condition).zip(a).zip(b) {
        *slot = if condition != 0 { a } else { b };
    }
}
