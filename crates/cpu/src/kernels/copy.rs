//! Elements that keep their order: reshapes, and what is loaded from and stored to buffers; and zeros.

use std::sync::Arc;

use engine::{Kernel, KernelCall, Operand};

use super::operands::{elements_mut, view};
use crate::Pool;

/// Bytes one thread copies at a time.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// The bytes of operand 0 become those of result 0.
pub(crate) struct CopyKernel {
    /// The name of the op.
    pub(crate) op: &'static str,
    /// Whether the operand's memory may become the result's: not if it is a buffer's, which lives on.
    pub(crate) in_place: bool,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for CopyKernel {
    fn name(&self) -> String {
        format!("{}[copy]", self.op)
    }

    fn in_place(&self) -> Option<usize> {
        self.in_place.then_some(0)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        if !matches!(call.inputs[0], Operand::InResult) {
            copy(&self.pool, view(&call, 0).bytes, call.outputs[0].bytes);
        }
        Ok(())
    }
}

/// Zeros for result 0, a new buffer.
pub(crate) struct ZerosKernel {
    /// Writes.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for ZerosKernel {
    fn name(&self) -> String {
        "create_buffer[zeros]".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        self.pool.run_on_pieces(call.outputs[0].bytes, CHUNK_BYTES, &|_, piece| piece.fill(0));
        Ok(())
    }
}

/// The sizes of the axes of operand 0.
pub(crate) struct ShapeKernel;

impl Kernel for ShapeKernel {
    fn name(&self) -> String {
        "shape_to_tensor".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let shape = view(&call, 0).shape;
        for (result, &size) in elements_mut::<i64>(call.outputs[0].bytes).iter_mut().zip(shape.iter()) {
            *result = size as i64;
        }
        Ok(())
    }
}

/// The bytes of operand 1 become those of the buffer, operand 0.
pub(crate) struct StoreKernel {
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for StoreKernel {
    fn name(&self) -> String {
        "store[copy]".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let value = view(&call, 1);
        let Operand::Buffer(buffer) = &mut call.inputs[0] else {
            panic!("operand 0 of a store is no buffer");
        };
        if buffer.bytes.len() != value.bytes.len() {
            return Err(format!("operand 0 is {}, operand 1 is {}", buffer.shape, value.shape));
        }
        copy(&self.pool, value.bytes, buffer.bytes);
        Ok(())
    }
}

fn copy(pool: &Pool, from: &[u8], to: &mut [u8]) {
    pool.run_on_pieces(to, CHUNK_BYTES, &|index, piece| {
        piece.copy_from_slice(&from[index * CHUNK_BYTES..][..piece.len()]);
    });
}
