//! Parts of an array along an axis: slices with a step, and splits. Bound by memory.

use std::sync::Arc;

use engine::{Kernel, KernelCall, View, ViewMut};
use graph::ops::Slice;

use super::operands::{CHUNK, elements, elements_mut, view, with_width};
use super::strided::Strided;
use crate::Pool;

/// A range of an axis.
pub(crate) struct SliceKernel {
    /// Which.
    pub(crate) slice: Slice,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for SliceKernel {
    fn name(&self) -> String {
        "slice".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (start, _stop) = self.slice.range(x.shape[self.slice.axis])?;
        copy_part(&self.pool, x, self.slice.axis, start, self.slice.step, &mut call.outputs[0]);
        Ok(())
    }
}

/// Consecutive parts of an axis, one for each result.
pub(crate) struct SplitKernel {
    /// The axis.
    pub(crate) axis: usize,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for SplitKernel {
    fn name(&self) -> String {
        "split".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let mut start = 0;
        for result in call.outputs.iter_mut() {
            let size = result.shape[self.axis];
            copy_part(&self.pool, x, self.axis, start, 1, result);
            start += size;
        }
        Ok(())
    }
}

/// Copies the indices `start`, `start + step`, … of an axis, as many as the result has.
pub(crate) fn copy_part(
    pool: &Pool,
    x: View<'_>,
    axis: usize,
    start: usize,
    step: usize,
    result: &mut ViewMut<'_>,
) {
    if result.bytes.is_empty() {
        return;
    }
    let outer: usize = x.shape[..axis].iter().product();
    // Bytes under one index of the axis; never part of a block, which lies along the last axis.
    let inner = result.bytes.len() / (outer * result.shape[axis]);
    let width =
        if inner.is_multiple_of(8) { 8 } else { x.dtype.block().bytes.min(inner & inner.wrapping_neg()) };
    with_width!(width, T => {
        let elements = elements::<T>(x.bytes);
        let inner = inner / width;
        let dims = [outer, result.shape[axis], inner];
        let strides = [(x.shape[axis] * inner) as isize, (step * inner) as isize, 1];
        let walk = Strided::new(&dims, &strides, start * inner);
        let result = elements_mut::<T>(result.bytes);
        pool.run_on_pieces(result, CHUNK, &|index, piece| walk.copy(&elements, index * CHUNK, piece));
    });
}
