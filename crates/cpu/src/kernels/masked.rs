//! Where elements are not zero, and elements put where a mask is true.
//!
//! Chunks are counted first, so that each knows where its part of the list begins; then they are gone through again.
//! Bound by memory.

use std::sync::Arc;

use engine::{Kernel, KernelCall, Operand, View};
use graph::ops::{MaskedScatter, NonZero};
use tensor::{DType, Shape};

use super::copy::CHUNK_BYTES;
use super::disjoint::Disjoint;
use super::operands::{CHUNK, elements, elements_mut, view, with_width};
use super::strided::Strided;
use crate::Pool;

/// A kernel that lists the indices of elements.
pub(crate) fn nonzero(op: &NonZero, dtype: DType, pool: &Arc<Pool>) -> Option<Arc<dyn Kernel>> {
    let (op, pool) = (op.clone(), Arc::clone(pool));
    let (dtype, width) = (if dtype == DType::Bool { DType::U8 } else { dtype }, dtype.block().bytes);
    // The sign of a zero does not count.
    let bits = if dtype.is_float() { !(1 << (8 * width - 1)) } else { u64::MAX };
    let is_plain = !dtype.is_block() && !dtype.is_float8() && !dtype.is_sub_byte();
    is_plain.then(|| Arc::new(NonZeroKernel { op, dtype, bits, pool }) as Arc<dyn Kernel>)
}

struct NonZeroKernel {
    op: NonZero,
    dtype: DType,
    /// Those of an element that make it other than zero.
    bits: u64,
    pool: Arc<Pool>,
}

impl Kernel for NonZeroKernel {
    fn name(&self) -> String {
        format!("nonzero[{}]", self.dtype)
    }

    fn sizes(&self, inputs: &[View<'_>]) -> Result<Option<Vec<usize>>, String> {
        let starts = self.starts(inputs[0].bytes);
        Ok(Some(vec![starts[starts.len() - 1]]))
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (shape, rank) = (x.shape, x.shape.rank());
        let starts = self.starts(x.bytes);
        let found = starts[starts.len() - 1];
        self.op.out_dim.expect(found, call.outputs[0].shape[0])?;
        let result = Disjoint::new(elements_mut::<i64>(call.outputs[0].bytes));
        let strides = shape.row_major_strides();
        self.pool.run(starts.len() - 1, &|chunk| {
            // SAFETY: each chunk has a part of the list of its own.
            let mut list = unsafe { result.part(starts[chunk] * rank..starts[chunk + 1] * rank) };
            let marks = self.marks(x.bytes, chunk).into_iter().enumerate();
            for position in marks.filter(|(_, mark)| *mark).map(|(i, _)| chunk * CHUNK + i) {
                let (indices, rest) = list.split_at_mut(rank);
                for (axis, index) in indices.iter_mut().enumerate() {
                    *index = (position / strides[axis] as usize % shape[axis]) as i64;
                }
                list = rest;
            }
        });
        Ok(())
    }
}

impl NonZeroKernel {
    fn starts(&self, x: &[u8]) -> Vec<usize> {
        let chunks = x.len().div_ceil(CHUNK * self.dtype.block().bytes);
        starts(&self.pool, chunks, &|chunk| self.marks(x, chunk).into_iter().filter(|mark| *mark).count())
    }

    /// Which elements of a chunk are not zero.
    fn marks(&self, x: &[u8], chunk: usize) -> Vec<bool> {
        let width = self.dtype.block().bytes;
        let x = &x[chunk * CHUNK * width..x.len().min((chunk + 1) * CHUNK * width)];
        with_width!(width, T => marks::<T>(x, self.bits))
    }
}

/// Which elements have one of some bits.
fn marks<T: bytemuck::Pod + Into<u64>>(x: &[u8], bits: u64) -> Vec<bool> {
    elements::<T>(x).iter().map(|&x| x.into() & bits != 0).collect()
}

/// Puts elements where a mask is true.
pub(crate) struct MaskedScatterKernel {
    /// What is an error.
    pub(crate) op: MaskedScatter,
    /// Counts and copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for MaskedScatterKernel {
    fn name(&self) -> String {
        "masked_scatter".to_string()
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn sizes(&self, inputs: &[View<'_>]) -> Result<Option<Vec<usize>>, String> {
        let starts = Mask::new(inputs[1], inputs[0].shape).starts(&self.pool);
        Ok(Some(vec![starts[starts.len() - 1]]))
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (mask, updates) = (view(&call, 1), view(&call, 2));
        let x = (!matches!(call.inputs[0], Operand::InResult)).then(|| view(&call, 0).bytes);
        let result = &mut call.outputs[0];
        let mask = Mask::new(mask, result.shape);
        let starts = mask.starts(&self.pool);
        self.op.check(starts[starts.len() - 1], updates.shape.elements())?;
        if let Some(x) = x {
            self.pool.run_on_pieces(result.bytes, CHUNK_BYTES, &|index, piece| {
                piece.copy_from_slice(&x[index * CHUNK_BYTES..][..piece.len()]);
            });
        }
        with_width!(result.dtype.block().bytes, T => {
            let updates = elements::<T>(updates.bytes);
            self.pool.run_on_pieces(elements_mut::<T>(result.bytes), CHUNK, &|chunk, piece| {
                let stage = mask.chunk(chunk);
                let places = piece.iter_mut().zip(&stage).filter(|&(_, &mask)| mask != 0);
                let updates = &updates[starts[chunk]..];
                places.zip(updates).for_each(|((slot, _), &update)| *slot = update);
            });
        });
        Ok(())
    }
}

/// A mask, as the shape of the result sees it.
struct Mask<'m> {
    bytes: &'m [u8],
    walk: Strided,
    count: usize,
}

impl<'m> Mask<'m> {
    fn new(mask: View<'m>, shape: &Shape) -> Mask<'m> {
        Mask { bytes: mask.bytes, walk: Strided::broadcast(mask.shape, shape), count: shape.elements() }
    }

    fn chunk(&self, chunk: usize) -> Vec<u8> {
        let mut stage = vec![0; CHUNK.min(self.count - chunk * CHUNK)];
        self.walk.copy(self.bytes, chunk * CHUNK, &mut stage);
        stage
    }

    fn starts(&self, pool: &Pool) -> Vec<usize> {
        let count = |chunk| self.chunk(chunk).into_iter().filter(|&mask| mask != 0).count();
        starts(pool, self.count.div_ceil(CHUNK), &count)
    }
}

/// Where the part of each chunk begins in a list, and where the list ends.
fn starts(pool: &Pool, chunks: usize, count: &(dyn Fn(usize) -> usize + Sync)) -> Vec<usize> {
    let mut starts = vec![0; chunks + 1];
    pool.run_on_pieces(&mut starts[1..], 1, &|chunk, slot| slot[0] = count(chunk));
    for chunk in 0..chunks {
        starts[chunk + 1] += starts[chunk];
    }
    starts
}
