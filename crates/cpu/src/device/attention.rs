//! Dense and ragged attention as kernels of the device.

use std::sync::Arc;

use engine::{Call, Kernel};
use tensor::Shape;

use super::{Cpu, kernel};
use crate::Pool;
use crate::kernels::matmul;
use crate::kernels::matmul::attention::{self, AttentionInputs, AttentionShape, Bias, Item};
use crate::kernels::operands::{elements, elements_mut, view};
use crate::kernels::ragged::check_offsets;
use crate::kernels::softmax;
use crate::kernels::strided::Strided;
use crate::kernels::variant::Variant;

/// Attention of every token to every key.
pub(super) fn attention(cpu: &Cpu, scale: f32) -> Option<Arc<dyn Kernel>> {
    let variants = (cpu.pick(matmul::VARIANTS), cpu.pick(softmax::VARIANTS));
    kernel(AttentionKernel { scale, variants, pool: Arc::clone(&cpu.pool) })
}

/// Attention of every token to every token of its sequence.
pub(super) fn ragged_attention(cpu: &Cpu, scale: f32) -> Option<Arc<dyn Kernel>> {
    let variants = (cpu.pick(matmul::VARIANTS), cpu.pick(softmax::VARIANTS));
    kernel(RaggedAttentionKernel { scale, variants, pool: Arc::clone(&cpu.pool) })
}

struct AttentionKernel {
    scale: f32,
    variants: (&'static Variant<matmul::Kernel>, &'static Variant<softmax::Kernel>),
    pool: Arc<Pool>,
}

impl Kernel for AttentionKernel {
    fn name(&self) -> String {
        format!("attention.{}", self.variants.0.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (q, k, v) = (view(&call, 0), view(&call, 1), view(&call, 2));
        let (batch, sizes) = q.shape.split_at(q.shape.rank() - 3);
        let (tokens, keys, width) = (sizes[0], k.shape[batch.len()], v.shape[batch.len() + 2]);
        let shape = AttentionShape { heads: sizes[1], dim: sizes[2], width };
        let item = |i: usize| Item { first_token: i * tokens, tokens, first_key: i * keys, keys };
        let items: Vec<Item> = (0..batch.iter().product()).map(item).collect();
        let scores = Shape::new(&[batch, &[sizes[1], tokens, keys]].concat());
        let mask = (call.inputs.len() > 3).then(|| view(&call, 3));
        let mask = mask.map(|mask| (elements(mask.bytes), Strided::broadcast(&mask.shape, &scores)));
        let bias = mask.as_ref().map_or(Bias::None, |(mask, walk)| Bias::Mask(mask, *walk));
        let (q, k, v) = (elements(q.bytes), elements(k.bytes), elements(v.bytes));
        let inputs = AttentionInputs { scale: self.scale, q: &q, k: &k, v: &v, bias };
        let out = elements_mut(call.outputs[0].bytes);
        attention::attention(self.variants, &self.pool, shape, &items, &inputs, out);
        Ok(())
    }
}

struct RaggedAttentionKernel {
    scale: f32,
    variants: (&'static Variant<matmul::Kernel>, &'static Variant<softmax::Kernel>),
    pool: Arc<Pool>,
}

impl Kernel for RaggedAttentionKernel {
    fn name(&self) -> String {
        format!("ragged_attention.{}", self.variants.0.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (q, v) = (view(&call, 0), view(&call, 2));
        let shape = AttentionShape { heads: q.shape[1], dim: q.shape[2], width: v.shape[2] };
        let offsets = elements::<u32>(view(&call, 3).bytes);
        check_offsets(3, &offsets, q.shape[0])?;
        let item = |rows: &[u32]| {
            let (first, tokens) = (rows[0] as usize, (rows[1] - rows[0]) as usize);
            Item { first_token: first, tokens, first_key: first, keys: tokens }
        };
        let items: Vec<Item> = offsets.windows(2).map(item).collect();
        let bias = (call.inputs.len() > 4).then(|| elements(view(&call, 4).bytes));
        let bias = bias.as_ref().map_or(Bias::None, |bias| Bias::Distance(bias));
        let [q, k, v] = [0, 1, 2].map(|position| elements(view(&call, position).bytes));
        let inputs = AttentionInputs { scale: self.scale, q: &q, k: &k, v: &v, bias };
        let out = elements_mut(call.outputs[0].bytes);
        attention::attention(self.variants, &self.pool, shape, &items, &inputs, out);
        Ok(())
    }
}
