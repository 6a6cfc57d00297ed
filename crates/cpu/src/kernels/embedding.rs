//! Rows of a table as f32: stored blocks are dequantized row by row, on the way.

use std::sync::Arc;

use engine::{Kernel, KernelCall};
use tensor::DType;

use super::convert::to_f32;
use super::gather::Rows;
use super::operands::{elements_mut, rows_per_chunk, view};
use crate::Pool;

/// Looks rows up by id.
pub(crate) struct EmbeddingKernel {
    /// The type the table is stored in.
    pub(crate) dtype: DType,
    /// Looks up.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for EmbeddingKernel {
    fn name(&self) -> String {
        format!("embedding[{}]", self.dtype)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (table, ids) = (view(&call, 0), view(&call, 1));
        let rows = Rows::new(ids, table.shape[0], false)?;
        let columns = table.shape[1];
        let stored = table.dtype.bytes_for(columns).expect("rows of whole blocks");
        let result = elements_mut::<f32>(call.outputs[0].bytes);
        if result.is_empty() {
            return Ok(());
        }
        let per_chunk = rows_per_chunk(columns);
        self.pool.run_on_pieces(result, per_chunk * columns, &|index, piece| {
            for (i, row) in piece.chunks_exact_mut(columns).enumerate() {
                let id = rows.get(index * per_chunk + i);
                to_f32(table.dtype, &table.bytes[id * stored..][..stored], row);
            }
        });
        Ok(())
    }
}
