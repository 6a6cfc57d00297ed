//! Which kernel computes a node.

mod dense_attention;
mod kv_store;
mod paged_attention;
mod ragged;
mod rope;

use std::sync::Arc;

use engine::{FarArray, FarCall, FarKernel, FarOperand, NodeTypes};
use graph::Op;

use crate::gpu::Gpu;

/// The kernel of a node, or `None` if the host computes it.
pub(crate) fn kernel(_gpu: &Arc<Gpu>, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    match node.op {
        Op::Attention(op) => dense_attention::attention(op.scale, node),
        Op::RaggedAttention(op) => dense_attention::ragged_attention(op.scale, node),
        Op::KvStore(op) => kv_store::kv_store(op.layer, node.inputs[0].dtype),
        Op::LatentStore(op) => kv_store::latent_store(op.layer, node.inputs[0].dtype),
        Op::PagedAttention(op) => paged_attention::paged_attention(*op, node),
        Op::Rope(op) => rope::rope(op.style),
        Op::Rebind(_) => None,
        _ => None,
    }
}

/// The array of an operand; one that is computed in place is the first result.
pub(crate) fn operand<'c>(call: &'c FarCall<'_>, index: usize) -> Result<&'c FarArray<'c>, String> {
    match &call.inputs[index] {
        FarOperand::View(array) | FarOperand::Buffer(array) => Ok(array),
        FarOperand::InResult => Ok(&call.outputs[0]),
        FarOperand::Packed(weight) => Err(format!("operand {index} is packed as {}", weight.layout)),
    }
}
