//! Operands one after another along an axis. Copies runs of bytes; bound by memory.

use std::sync::Arc;

use engine::{Kernel, KernelCall};
use tensor::Shape;

use super::copy::CHUNK_BYTES;
use super::operands::view;
use crate::Pool;

/// Joins operands along an axis.
pub(crate) struct ConcatKernel {
    /// The axis.
    pub(crate) axis: usize,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

/// What an operand adds to each row of the result, a row being all that lies under one index of the axes
/// outside the axis of the concatenation.
struct ConcatPart<'m> {
    /// In the row.
    start: usize,
    len: usize,
    bytes: &'m [u8],
}

impl Kernel for ConcatKernel {
    fn name(&self) -> String {
        "concat".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (parts, row) = self.parts(&call);
        let result = &mut *call.outputs[0].bytes;
        self.pool.run_on_pieces(result, CHUNK_BYTES, &|index, piece| {
            fill(&parts, row, index * CHUNK_BYTES, piece)
        });
        Ok(())
    }
}

impl ConcatKernel {
    /// The parts that are not empty, and the bytes of a row.
    fn parts<'m>(&self, call: &KernelCall<'_, 'm>) -> (Vec<ConcatPart<'m>>, usize) {
        let mut parts = Vec::with_capacity(call.inputs.len());
        let mut row = 0;
        for position in 0..call.inputs.len() {
            let operand = view(call, position);
            let len = row_bytes(operand.shape, self.axis, operand.bytes.len());
            if len > 0 {
                parts.push(ConcatPart { start: row, len, bytes: operand.bytes });
            }
            row += len;
        }
        (parts, row)
    }
}

/// The bytes under one index of the axes outside `axis`.
pub(crate) fn row_bytes(shape: &Shape, axis: usize, bytes: usize) -> usize {
    let rows: usize = shape[..axis].iter().product();
    bytes / rows.max(1)
}

/// Fills a piece of the result that starts at byte `start`.
fn fill(parts: &[ConcatPart<'_>], row: usize, start: usize, piece: &mut [u8]) {
    let mut done = 0;
    while done < piece.len() {
        let (row_index, within) = ((start + done) / row, (start + done) % row);
        let part = &parts[parts.partition_point(|part| part.start <= within) - 1];
        let skip = within - part.start;
        let run = (part.len - skip).min(piece.len() - done);
        piece[done..done + run].copy_from_slice(&part.bytes[row_index * part.len + skip..][..run]);
        done += run;
    }
}
