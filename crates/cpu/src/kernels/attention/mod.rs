//! Causal attention over the paged KV cache: prefill and decode, one algorithm.
//!
//! A query row (one head of one token) sees the positions up to its own. They are taken in ranges of [`RANGE`] positions
//! that begin at multiples of [`RANGE`]: scores of the range, their maximum `m`, weights `exp(score - m)`, their sum, and
//! the weighted values. The ranges' results are then folded from the first to the last, rescaled to the common
//! maximum. Each score sums over the dims in order, each value sum over the positions in order, and every boundary
//! is fixed by position alone. A sink comes before the first range. So a row's bits do not depend on pages, batch, chunks of the prefill, threads, or which
//! rows share its registers.
//!
//! Prefill is bound by arithmetic: up to [`TILE_ROWS`] rows (the heads of a group, then the next token) share each load
//! of keys and values. Decode is bound by reading the cache once; long contexts are divided by ranges, so that one
//! sequence with few heads occupies every thread.

mod plan;
mod tile;

use std::sync::Arc;

use bytemuck::Pod;
use engine::{Kernel, KernelCall};
use graph::ops::PagedAttention;
use tensor::{DType, bf16, f16};

use self::plan::Plan;
pub use self::plan::{Attention, RANGE, TILE_ROWS};
pub use self::tile::Job;
use super::disjoint::Disjoint;
use super::kv_cache::{BatchOperands, RaggedBatch, length};
use super::operands::{elements, elements_mut, view};
use super::variant::{Variant, fastest, variants};
use crate::vec::{Scalar, with_scratch};
use crate::{Cpu, Error, Pool};

/// Runs one task of the plan, given working memory.
pub type TaskKernel<T> = unsafe fn(&Job<'_, T>, usize, &mut [f32]);

/// An element type that the cache can keep.
pub trait CacheElement: Scalar {
    /// The kernel's variants for a cache of this type, fastest first.
    const VARIANTS: &'static [Variant<TaskKernel<Self>>];
}

impl CacheElement for f32 {
    const VARIANTS: &'static [Variant<TaskKernel<f32>>] = VARIANTS_F32;
}

impl CacheElement for bf16 {
    const VARIANTS: &'static [Variant<TaskKernel<bf16>>] = VARIANTS_BF16;
}

impl CacheElement for f16 {
    const VARIANTS: &'static [Variant<TaskKernel<f16>>] = VARIANTS_F16;
}

variants!(static VARIANTS_F32 = tile::run, (call: &Job<'_, f32>, task: usize, scratch: &mut [f32]));
variants!(static VARIANTS_BF16 = tile::run, (call: &Job<'_, bf16>, task: usize, scratch: &mut [f32]));
variants!(static VARIANTS_F16 = tile::run, (call: &Job<'_, f16>, task: usize, scratch: &mut [f32]));

/// Attends from the batch's new tokens, `q[tokens, heads, head_dim]`, to their sequences' pasts and themselves.
///
/// The new tokens' keys and values are already in `layer` of the cache ([`super::kv_cache::store`]).
///
/// # Errors
/// When `heads` is no multiple of the cache's heads, window or chunk are 0, the sinks are not one per head, the cache is not the one the batch was checked
/// against, or `q` or `out` has another length.
pub fn attention<T: CacheElement>(
    pool: &Pool,
    attention: &Attention<'_>,
    batch: &RaggedBatch,
    layer: usize,
    cache: &[T],
    q: &[f32],
    out: &mut [f32],
) -> Result<(), Error> {
    attention_with(fastest(T::VARIANTS), pool, attention, batch, layer, cache, q, out)
}

/// [`attention`] by a variant of the caller's choice.
///
/// # Panics
/// When this machine cannot run the variant.
#[expect(clippy::too_many_arguments, reason = "the arguments of `attention`, and the variant")]
pub fn attention_with<T: CacheElement>(
    variant: &Variant<TaskKernel<T>>,
    pool: &Pool,
    attention: &Attention<'_>,
    batch: &RaggedBatch,
    layer: usize,
    cache: &[T],
    q: &[f32],
    out: &mut [f32],
) -> Result<(), Error> {
    assert!((variant.available)(), "attention: this machine cannot run {}", variant.name);
    check(attention, batch, layer, cache.len(), q.len(), out.len())?;
    let plan = Plan::new(attention, batch, pool.threads());
    let mut partials = vec![0f32; plan.partials_len];
    let (out, partials) = (Disjoint::new(out), Disjoint::new(&mut partials));
    let call = Job { attention, batch, layer, cache, q, out, plan: &plan, partials };
    let scratch_len = tile::scratch_len(batch.layout().head_dim());
    pool.run(plan.tasks.len(), &|task| {
        // SAFETY: the variant is available, and `check` made the cache and the slices fit the batch.
        with_scratch(scratch_len, |scratch| unsafe { (variant.run)(&call, task, scratch) });
    });
    Ok(())
}

fn check(
    attention: &Attention<'_>,
    batch: &RaggedBatch,
    layer: usize,
    cache: usize,
    q: usize,
    out: usize,
) -> Result<(), Error> {
    let layout = batch.layout();
    let size = |what, rule, found| Err(Error::Size { kernel: "attention", what, rule, found });
    if attention.heads == 0 || !attention.heads.is_multiple_of(layout.kv_heads()) {
        return size("heads", "a multiple of the cache's kv_heads", attention.heads);
    }
    for (what, found) in [("window", attention.window), ("chunk", attention.chunk)] {
        if found == Some(0) {
            return size(what, "at least 1", 0);
        }
    }
    if let Some(sinks) = attention.sinks {
        length("attention", "sinks", attention.heads, sinks.len())?;
    }
    batch.check_call("attention", layer, cache)?;
    let elements = (batch.tokens().checked_mul(attention.heads))
        .and_then(|rows| rows.checked_mul(layout.head_dim()))
        .unwrap_or(usize::MAX);
    length("attention", "q", elements, q)?;
    length("attention", "out", elements, out)
}

/// Attention to the pages of a cache.
pub(crate) fn kernel_for(cpu: &Cpu, op: &PagedAttention, cache: DType) -> Option<Arc<dyn Kernel>> {
    match cache {
        DType::F32 => attention_to::<f32>(cpu, op),
        DType::BF16 => attention_to::<bf16>(cpu, op),
        DType::F16 => attention_to::<f16>(cpu, op),
        _ => None,
    }
}

fn attention_to<T: CacheElement + Pod>(cpu: &Cpu, op: &PagedAttention) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(AttentionKernel { op: *op, variant: cpu.pick(T::VARIANTS), pool: Arc::clone(&cpu.pool) }))
}

struct AttentionKernel<T: 'static> {
    op: PagedAttention,
    variant: &'static Variant<TaskKernel<T>>,
    pool: Arc<Pool>,
}

impl<T: CacheElement + Pod> Kernel for AttentionKernel<T> {
    fn name(&self) -> String {
        format!("paged_attention.{}", self.variant.name)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (q, cache) = (view(&call, 0), view(&call, 1));
        if q.bytes.is_empty() {
            return Ok(());
        }
        let PagedAttention { layer, scale, window, chunk, softcap } = self.op;
        let [_, heads, head_dim] = [0, 1, 2].map(|axis| q.shape[axis]);
        let lists = BatchOperands::new(&call, 2);
        let batch = lists.batch(&cache.shape, head_dim)?;
        let sinks = (call.inputs.len() > 5).then(|| elements(view(&call, 5).bytes));
        let attention = Attention { heads, scale, window, chunk, softcap, sinks: sinks.as_deref() };
        let (q, cache) = (elements(q.bytes), elements::<T>(cache.bytes));
        let out = elements_mut(call.outputs[0].bytes);
        attention_with(self.variant, &self.pool, &attention, &batch, layer, &cache, &q, out)
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
