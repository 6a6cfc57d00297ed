//! Products of matrices, over batches that broadcast: `linear`'s products of floats, with nothing around them.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel, FarOperand, NodeTypes};
use tensor::{DType, Shape};

use super::linear::{AXES, Batch, Layout, Product, layout};
use super::operand;
use crate::recorder::Recorder;

/// The kernel of products of floats that are summed as f32.
pub(super) fn kernel(node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    let dtype = node.inputs[0].dtype;
    let fits = matches!(dtype, DType::F32 | DType::F16 | DType::BF16) && node.outputs[0].rank() <= AXES + 2;
    let layout = layout(DType::F32).filter(|_| fits)?;
    Some(Arc::new(MatMulKernel { dtype, layout }))
}

struct MatMulKernel {
    dtype: DType,
    /// Of a packed right side: panels of its columns.
    layout: Layout,
}

impl FarKernel for MatMulKernel {
    fn name(&self) -> String {
        format!("matmul[{}].webgpu", self.dtype)
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let (a, right, result) = (operand(call, 0)?, &call.inputs[1], &call.outputs[0]);
        let &[ref batch @ .., m, n] = &result.shape[..] else { panic!("a product has two axes") };
        let &k = a.shape.last().expect("a product has two axes");
        let product =
            |tokens| Product::new(right, self.layout, (&a.bytes, self.dtype), [tokens, k, n], &result.bytes);
        let product = match right {
            FarOperand::View(b) => product(m).batched(Batch {
                sizes: aligned(batch, 1),
                x: strides(a.shape, batch),
                weight: strides(b.shape, batch),
                is_transposed: true,
            }),
            _ => product(m * batch.iter().product::<usize>()),
        };
        product.record(Recorder::of(recorder)?)
    }
}

/// The last numbers of as many as a batch has axes, after others.
fn aligned(numbers: &[usize], other: usize) -> [usize; AXES] {
    let missing = AXES - numbers.len();
    std::array::from_fn(|axis| axis.checked_sub(missing).map_or(other, |axis| numbers[axis]))
}

/// Elements from one matrix to the next, by axis of the batch: none where an operand is repeated.
fn strides(shape: &Shape, batch: &[usize]) -> [usize; AXES] {
    let own = shape.row_major_strides();
    let missing = batch.len() + 2 - shape.rank();
    let stride = |axis: usize| match axis.checked_sub(missing) {
        Some(axis) if shape[axis] != 1 => own[axis] as usize,
        _ => 0,
    };
    aligned(&(0..batch.len()).map(stride).collect::<Vec<_>>(), 0)
}
