//! Which kernel computes a node.

mod axes;
mod band_part;
mod concat;
mod create_buffer;
mod cumsum;
mod dense_attention;
mod elements;
mod elementwise;
mod functions;
mod gather;
mod group_norm;
mod kv_store;
mod linear;
mod matmul;
mod moves;
mod norm;
mod paged_attention;
mod ragged;
mod reduce;
mod rope;
mod rows;
mod softmax;
mod top_k;

use std::sync::Arc;

use engine::{FarArray, FarCall, FarKernel, FarOperand, NodeTypes};
use graph::Op;

use crate::gpu::Gpu;

/// The kernel of a node, or `None` if the host computes it.
pub(crate) fn kernel(_gpu: &Arc<Gpu>, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    let dtype = node.inputs.first().map(|ty| ty.dtype);
    match node.op {
        Op::RmsNorm(op) => norm::rms_norm(op.eps),
        Op::LayerNorm(op) => norm::layer_norm(op.eps),
        Op::GroupNorm(op) => group_norm::group_norm(*op),
        Op::Softmax(op) => softmax::softmax(op.axis, dtype?),
        Op::LogSoftmax(op) => softmax::log_softmax(op.axis, dtype?),
        Op::Reduce(_) | Op::ArgReduce(_) => reduce::reduce(node),
        Op::CumSum(op) => cumsum::cumsum(*op, dtype?),
        Op::TopK(op) => top_k::top_k(*op, dtype?),
        Op::Attention(op) => dense_attention::attention(op.scale, node),
        Op::RaggedAttention(op) => dense_attention::ragged_attention(op.scale, node),
        Op::KvStore(op) => kv_store::kv_store(op.layer, node.inputs[0].dtype),
        Op::LatentStore(op) => kv_store::latent_store(op.layer, node.inputs[0].dtype),
        Op::PagedAttention(op) => paged_attention::paged_attention(*op, node),
        Op::Rope(op) => rope::rope(op.style),
        Op::Linear(op) => linear::kernel(op, node),
        Op::MatMul(_) => matmul::kernel(node),
        Op::QMatMul(op) => linear::qmatmul(op, node),
        Op::Rebind(_) => None,
        Op::Unary(_) | Op::Binary(_) | Op::Select(_) | Op::Cast(_) | Op::Elementwise(_) => {
            elementwise::kernel(node)
        }
        Op::Slice(_)
        | Op::Split(_)
        | Op::Transpose(_)
        | Op::Broadcast(_)
        | Op::Reshape(_)
        | Op::Flip(_)
        | Op::Tile(_)
        | Op::Pad(_)
        | Op::Load(_)
        | Op::Store(_) => moves::kernel(node),
        Op::Concat(op) => concat::kernel(node, op.axis),
        Op::Gather(op) => gather::kernel(node, op.axis),
        Op::BandPart(op) => band_part::kernel(node, *op),
        Op::CreateBuffer(_) => create_buffer::kernel(),
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
