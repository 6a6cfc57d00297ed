//! What the kernels that compute each element by itself share: operands in blocks that stay in the L1 cache.
//!
//! An operand is read straight from memory where it has the shape of the result. Broadcast operands, and the
//! one computed in place, are copied block by block, so that the inner loops see plain slices only.

use std::borrow::Cow;

use bytemuck::Pod;
use engine::{Kernel, Operand};
use tensor::Shape;

use super::operands::elements;
use super::strided::Strided;

/// Elements of a block: three operands of 8 bytes each fit in the L1 cache.
pub(crate) const BLOCK: usize = 1024;

/// A kernel that computes each element by itself, and so can compute a few of them too.
pub(crate) trait ElementKernel: Kernel {
    /// Computes as many elements as `result` holds from as many of each operand. All start at multiples of their
    /// elements' sizes.
    fn run_on_tile(&self, operands: &[&[u8]], result: &mut [u8]);

    /// Whether it gives a result for all data.
    fn is_total(&self) -> bool {
        true
    }
}

/// An operand, as the result's shape sees it.
pub(crate) struct Source<'m, T: Pod> {
    /// `None` for an operand that is in the result itself.
    memory: Option<(Cow<'m, [T]>, Strided)>,
}

impl<'m, T: Pod> Source<'m, T> {
    /// The operand, broadcast to the shape of the result.
    pub(crate) fn new(operand: &'m Operand<'_>, result: &Shape) -> Source<'m, T> {
        let (shape, bytes): (&Shape, &'m [u8]) = match operand {
            Operand::InResult => return Source { memory: None },
            Operand::View(view) => (view.shape, view.bytes),
            Operand::Buffer(view) => (view.shape, view.bytes),
            Operand::Packed(packed) => panic!("an elementwise operand packed as {}", packed.layout),
        };
        Source { memory: Some((elements(bytes), Strided::broadcast(shape, result))) }
    }

    /// The elements that belong to `result`, which lies `start` elements into the whole result.
    pub(crate) fn block<'s>(&'s self, start: usize, result: &[T], stage: &'s mut [T; BLOCK]) -> &'s [T] {
        let stage = &mut stage[..result.len()];
        match &self.memory {
            None => stage.copy_from_slice(result),
            Some((elements, walk)) if walk.is_contiguous() => {
                return &elements[walk.offset() + start..][..result.len()];
            }
            Some((elements, walk)) => walk.copy(elements, start, stage),
        }
        stage
    }

    /// As [`Source::block`], for an operand that is not in the result.
    pub(crate) fn outside<'s>(&'s self, start: usize, len: usize, stage: &'s mut [T; BLOCK]) -> &'s [T] {
        match &self.memory {
            None => panic!("an operand of another type cannot be in the result"),
            Some((elements, walk)) if walk.is_contiguous() => &elements[walk.offset() + start..][..len],
            Some((elements, walk)) => {
                walk.copy(elements, start, &mut stage[..len]);
                &stage[..len]
            }
        }
    }
}

/// Calls `body(start, block)` for each block of a chunk that lies `start` elements into the whole.
pub(crate) fn for_blocks<T>(start: usize, chunk: &mut [T], mut body: impl FnMut(usize, &mut [T])) {
    for (index, block) in chunk.chunks_mut(BLOCK).enumerate() {
        body(start + index * BLOCK, block);
    }
}
