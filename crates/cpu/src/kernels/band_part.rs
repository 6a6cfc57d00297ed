//! The band around the diagonal of matrices: a copy, and zeros. Bound by memory.

use std::sync::Arc;

use engine::{Kernel, KernelCall, Operand};
use graph::ops::BandPart;

use super::copy::CHUNK_BYTES;
use super::operands::view;
use crate::Pool;

/// Keeps a band.
pub(crate) struct BandPartKernel {
    /// Which.
    pub(crate) op: BandPart,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for BandPartKernel {
    fn name(&self) -> String {
        "band_part".to_string()
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = (!matches!(call.inputs[0], Operand::InResult)).then(|| view(&call, 0).bytes);
        let result = &mut call.outputs[0];
        if result.bytes.is_empty() {
            return Ok(());
        }
        let [.., rows, columns] = *result.shape.dims() else { panic!("the type rule asks for matrices") };
        let size = result.dtype.block().bytes;
        let per_chunk = (CHUNK_BYTES / (columns * size)).max(1);
        self.pool.run_on_pieces(result.bytes, per_chunk * columns * size, &|index, piece| {
            if let Some(x) = x {
                piece.copy_from_slice(&x[index * per_chunk * columns * size..][..piece.len()]);
            }
            for (i, row) in piece.chunks_exact_mut(columns * size).enumerate() {
                let band = self.op.band((index * per_chunk + i) % rows, columns);
                match self.op.exclude {
                    true => row[band.start * size..band.end * size].fill(0),
                    false => {
                        row[..band.start * size].fill(0);
                        row[band.end * size..].fill(0);
                    }
                }
            }
        });
        Ok(())
    }
}
