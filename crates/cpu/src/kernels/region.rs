//! Boxes of buffers read and written, and ranges of an axis that data determines. Bound by memory.

use std::sync::Arc;

use engine::{Kernel, KernelCall, Operand, View};
use graph::ops::{DynamicSlice, box_starts};
use tensor::{MAX_RANK, Shape};

use super::copy::CHUNK_BYTES;
use super::disjoint::Disjoint;
use super::gather::Ids;
use super::operands::{CHUNK, elements, elements_mut, view, with_width};
use super::slice::copy_part;
use super::strided::Strided;
use crate::Pool;

/// Reads a box.
pub(crate) struct LoadSliceKernel {
    /// The distance between its elements along each axis.
    pub(crate) steps: Vec<usize>,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for LoadSliceKernel {
    fn name(&self) -> String {
        "load_slice".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (buffer, starts) = (view(&call, 0), integers(&call, 1));
        let result = &mut call.outputs[0];
        let starts = box_starts(buffer.shape, result.shape, &starts, &self.steps)?;
        if result.bytes.is_empty() {
            return Ok(());
        }
        let own = buffer.shape.row_major_strides();
        let mut strides = [0; MAX_RANK];
        let mut offset = 0;
        for (axis, (start, &step)) in starts.into_iter().zip(&self.steps).enumerate() {
            // A step that is never taken may be larger than any stride.
            strides[axis] = if result.shape[axis] > 1 { own[axis] * step as isize } else { 0 };
            offset += start * own[axis] as usize;
        }
        let walk = Strided::new(result.shape.dims(), &strides[..result.shape.rank()], offset);
        with_width!(buffer.dtype.block().bytes, T => {
            let x = elements::<T>(buffer.bytes);
            let copy = |index, piece: &mut [T]| walk.copy(&x, index * CHUNK, piece);
            self.pool.run_on_pieces(elements_mut::<T>(result.bytes), CHUNK, &copy);
        });
        Ok(())
    }
}

/// Overwrites a box.
pub(crate) struct StoreSliceKernel {
    /// The distance between its elements along each axis.
    pub(crate) steps: Vec<usize>,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for StoreSliceKernel {
    fn name(&self) -> String {
        "store_slice".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, starts) = (view(&call, 1), integers(&call, 2));
        let Operand::Buffer(buffer) = &mut call.inputs[0] else {
            panic!("operand 0 of a store is no buffer");
        };
        let starts = box_starts(buffer.shape, x.shape, &starts, &self.steps)?;
        if x.bytes.is_empty() {
            return Ok(());
        }
        let size = x.dtype.block().bytes;
        let run = run_length(x.shape, buffer.shape, &self.steps) * size;
        let place = |run_index: usize| -> usize {
            let (mut rest, mut place) = (run_index * run / size, 0);
            let strides = buffer.shape.row_major_strides();
            for axis in (0..x.shape.rank()).rev() {
                place += (starts[axis] + rest % x.shape[axis] * self.steps[axis]) * strides[axis] as usize;
                rest /= x.shape[axis];
            }
            place * size
        };
        let (per_task, slices) = ((CHUNK_BYTES / run).max(1), run.div_ceil(CHUNK_BYTES));
        let runs = x.bytes.len() / run;
        let target = Disjoint::new(&mut *buffer.bytes);
        self.pool.run(runs.div_ceil(per_task) * slices, &|task| {
            let (first, slice) = (task / slices * per_task, task % slices * CHUNK_BYTES);
            for index in first..runs.min(first + per_task) {
                let length = if slices == 1 { run } else { CHUNK_BYTES.min(run - slice) };
                let place = place(index) + slice;
                // SAFETY: runs are disjoint, and so are the slices of one.
                let part = unsafe { target.part(place..place + length) };
                part.copy_from_slice(&x.bytes[index * run + slice..][..length]);
            }
        });
        Ok(())
    }
}

/// The elements of a box that lie side by side in the whole.
fn run_length(part: &Shape, whole: &Shape, steps: &[usize]) -> usize {
    let mut run = 1;
    for axis in (0..part.rank()).rev() {
        if steps[axis] != 1 && part[axis] != 1 {
            break;
        }
        run *= part[axis];
        if part[axis] != whole[axis] {
            break;
        }
    }
    run
}

/// Picks a range that data determines.
pub(crate) struct DynamicSliceKernel {
    /// Of which axis.
    pub(crate) op: DynamicSlice,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for DynamicSliceKernel {
    fn name(&self) -> String {
        "dynamic_slice".to_string()
    }

    fn sizes(&self, inputs: &[View<'_>]) -> Result<Option<Vec<usize>>, String> {
        let [start, stop, step] = [1, 2, 3].map(|position| Ids::of(inputs[position]).get(0));
        let (_, count) = DynamicSlice::range(inputs[0].shape[self.op.axis], start, stop, step)?;
        Ok(Some(vec![count]))
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, axis) = (view(&call, 0), self.op.axis);
        let ends: Vec<i64> = (1..call.inputs.len()).map(|position| integers(&call, position)[0]).collect();
        let result = &mut call.outputs[0];
        let first = self.op.first(x.shape[axis], &ends, result.shape[axis])?;
        // A step that is never taken may be larger than the axis.
        let step = if result.shape[axis] > 1 { ends[ends.len() - 1] as usize } else { 1 };
        copy_part(&self.pool, x, axis, first, step, result);
        Ok(())
    }
}

fn integers(call: &KernelCall<'_, '_>, position: usize) -> Vec<i64> {
    let ids = Ids::of(view(call, position));
    (0..ids.len()).map(|i| ids.get(i)).collect()
}
