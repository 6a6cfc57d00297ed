//! The elements of quantized blocks that come as bytes. Bound by memory.

use std::sync::Arc;

use engine::{Kernel, KernelCall};
use tensor::DType;

use super::convert::to_f32;
use super::operands::{elements_mut, rows_per_chunk, view};
use crate::Pool;

/// Unpacks blocks.
pub(crate) struct DequantizeKernel {
    /// The dtype of the blocks.
    pub(crate) encoding: DType,
    /// Unpacks.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for DequantizeKernel {
    fn name(&self) -> String {
        format!("dequantize[{}]", self.encoding)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (bytes, block) = (view(&call, 0).bytes, self.encoding.block());
        let result = &mut call.outputs[0];
        if bytes.len() / block.bytes * block.elements != result.shape.elements()
            || bytes.len() % block.bytes > 0
        {
            return Err(format!(
                "operand 0 has {} bytes, no whole number of {} blocks of {}",
                bytes.len(),
                self.encoding,
                block.bytes
            ));
        }
        let blocks = rows_per_chunk(block.elements);
        self.pool.run_on_pieces(elements_mut(result.bytes), blocks * block.elements, &|index, values| {
            let count = values.len() / block.elements;
            to_f32(self.encoding, &bytes[index * blocks * block.bytes..][..count * block.bytes], values);
        });
        Ok(())
    }
}
