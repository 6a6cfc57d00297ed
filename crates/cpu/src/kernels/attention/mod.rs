//! Causal attention over the paged KV cache: prefill and decode, one algorithm.
//!
//! A query row (one head of one token) sees the positions up to its own. They are taken in ranges of [`RANGE`] positions
//! that begin at multiples of [`RANGE`]: scores of the range, their maximum `m`, weights `exp(score - m)`, their sum, and
//! the weighted values. The ranges' results are then folded from the first to the last, rescaled to the common
//! maximum. Each score sums over the dims in order, each value sum over the positions in order, and every boundary
//! is fixed by position alone. A sink comes before the first range. Biases are added to finished scores. So a row's bits do not depend on pages, batch, chunks of the prefill, threads, or which
//! rows share its registers.
//!
//! Prefill is bound by arithmetic: up to [`TILE_ROWS`] rows (the heads of a group, then the next token) share each load
//! of keys and values, and if loading halves takes long, the tiles of a task share a copy of each range in f32. Decode is
//! bound by reading the cache once; long contexts are divided by ranges, so that one sequence with few heads occupies every
//! thread.
//!
//! Where rows of the cache are keys and values at once (`dots`), each score is the sum of sixteen sums over every sixteenth
//! dim, and values are the first dims of the same rows. The tiles of a task share a transposed copy of sixteen keys.

pub(super) mod dots;
mod plan;
mod tile;

use std::sync::Arc;

use bytemuck::Pod;
use engine::{Kernel, KernelCall, View};
use graph::ops::PagedAttention;
use tensor::{DType, bf16, f16};

use self::plan::Plan;
pub use self::plan::{Attention, Chosen, RANGE, TILE_ROWS};
pub(super) use self::plan::{SCORES_STRIDE, TILES};
pub use self::tile::AttentionCall;
use super::disjoint::Disjoint;
use super::kv_cache::{BatchOperands, RaggedBatch, length};
use super::operands::{elements, elements_mut, view};
use crate::variant::{Variant, fastest, variants};
use crate::vec::{Scalar, with_scratch};
use crate::{Cpu, Error, Pool};

/// Runs one task of the plan, given working memory.
pub type TaskKernel<T> = unsafe fn(&AttentionCall<'_, T>, usize, &mut [f32]);

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

variants!(static VARIANTS_F32 = tile::run, (call: &AttentionCall<'_, f32>, task: usize, scratch: &mut [f32]));
variants!(static VARIANTS_BF16 = tile::run, (call: &AttentionCall<'_, bf16>, task: usize, scratch: &mut [f32]));
variants!(static VARIANTS_F16 = tile::run, (call: &AttentionCall<'_, f16>, task: usize, scratch: &mut [f32]));

/// Attends from the batch's new tokens, `q[tokens, heads, head_dim]`, to their sequences' pasts and themselves.
///
/// The new tokens' keys and values are already in `layer` of the cache ([`super::kv_cache::store`]).
///
/// # Errors
/// When `heads` is no multiple of the cache's heads, window or chunk are 0, the sinks are not one per head, positions have no
/// biases, the cache is not the one the batch was checked against, `q` or `out` has another length, or chosen positions do not ascend to a token's
/// own.
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
    check_chosen(attention, batch)?;
    let plan = Plan::new(attention, batch, pool.threads());
    let scratch_len = tile::scratch_len::<T>(attention, batch.layout().head_dim());
    with_scratch(plan.partials_len, |partials| {
        let (out, partials) = (Disjoint::new(out), Disjoint::new(partials));
        let call = AttentionCall { attention, batch, layer, cache, q, out, plan: &plan, partials };
        pool.run(plan.tasks.len(), &|task| {
            // SAFETY: the variant is available, and `check` made the cache and the slices fit the batch.
            with_scratch(scratch_len, |scratch| unsafe { (variant.run)(&call, task, scratch) });
        });
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
    if let Some(biases) = attention.biases {
        check_biases(biases.len() / attention.heads, batch)?;
    }
    if attention.values.is_some() != layout.has_rows() {
        return size("values", "given for a cache of rows, and for no other", attention.values.unwrap_or(0));
    }
    if attention.width(layout.head_dim()) > layout.head_dim() {
        return size("values", "at most the dims of a row", attention.values.unwrap_or(0));
    }
    batch.check_call("attention", layer, cache)?;
    let elements = |dims: usize| {
        let rows = batch.tokens().checked_mul(attention.heads);
        rows.and_then(|rows| rows.checked_mul(dims)).unwrap_or(usize::MAX)
    };
    length("attention", "q", elements(layout.head_dim()), q)?;
    length("attention", "out", elements(attention.width(layout.head_dim())), out)
}

/// Refuses a batch with positions that have no biases.
fn check_biases(biases: usize, batch: &RaggedBatch) -> Result<(), Error> {
    let reach = |sequence| batch.first_position(sequence) + batch.rows(sequence).len();
    let found = (0..batch.sequences()).map(reach).max().unwrap_or(0);
    let rule = "at most those that have biases";
    let error = Error::Size { kernel: "attention", what: "positions", rule, found };
    if biases < found { Err(error) } else { Ok(()) }
}

fn check_chosen(attention: &Attention<'_>, batch: &RaggedBatch) -> Result<(), Error> {
    let Some(Chosen { count, positions }) = attention.chosen else { return Ok(()) };
    length("attention", "chosen", batch.tokens().saturating_mul(count), positions.len())?;
    let size = |what, rule, found| Err(Error::Size { kernel: "attention", what, rule, found });
    let all_seen = attention.window.is_none() && attention.chunk.is_none();
    if count == 0 || !all_seen || !batch.layout().has_rows() {
        return size("chosen", "at least 1, without a window or chunks, of a cache of rows", count);
    }
    for sequence in 0..batch.sequences() {
        for (row, position) in batch.rows(sequence).zip(batch.first_position(sequence)..) {
            let chosen = &positions[row * count..][..count.min(position + 1)];
            let last = chosen[chosen.len() - 1] as usize;
            if last > position || !chosen.is_sorted_by(|a, b| a < b) {
                return size(
                    "the last position chosen",
                    "the end of a list that ascends to a token's own",
                    last,
                );
            }
        }
    }
    Ok(())
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

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[2, 3, 4])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        let (q, cache) = (inputs[0].shape, inputs[1].shape);
        if q.elements() == 0 {
            return Ok(());
        }
        let lists = BatchOperands::from_views([2, 3, 4].map(|i| inputs[i]));
        let batch = lists.batch(cache, q[2])?;
        let biases = inputs.get(5).filter(|more| self.op.values.is_none() && more.shape.rank() == 2);
        let checked = biases
            .map_or(Ok(()), |biases| check_biases(biases.shape[1], &batch))
            .and_then(|()| batch.check_call("attention", self.op.layer, cache.elements()))
            .and_then(|()| length("attention", "q", batch.tokens() * q[1] * q[2], q.elements()));
        checked.map_err(|error| error.to_string())
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (q, cache) = (view(&call, 0), view(&call, 1));
        if q.bytes.is_empty() {
            return Ok(());
        }
        let PagedAttention { layer, scale, window, chunk, softcap, values } = self.op;
        let [_, heads, head_dim] = [0, 1, 2].map(|axis| q.shape[axis]);
        let lists = BatchOperands::new(&call, 2);
        let batch = lists.batch(cache.shape, head_dim)?;
        let more = (call.inputs.len() > 5).then(|| view(&call, 5));
        let (more, chosen) = if values.is_some() { (None, more) } else { (more, None) };
        let (biases, sinks) = more.map_or((None, None), |more| match more.shape.rank() {
            2 => (Some(elements(more.bytes)), None),
            _ => (None, Some(elements(more.bytes))),
        });
        let chosen = chosen.map(|chosen| (chosen.shape[1], elements(chosen.bytes)));
        let chosen = chosen.as_ref().map(|(count, positions)| Chosen { count: *count, positions });
        let (biases, sinks) = (biases.as_deref(), sinks.as_deref());
        let attention = Attention { heads, scale, window, chunk, softcap, sinks, biases, values, chosen };
        let (q, cache) = (elements(q.bytes), elements::<T>(cache.bytes));
        let out = elements_mut(call.outputs[0].bytes);
        attention_with(self.variant, &self.pool, &attention, &batch, layer, &cache, &q, out)
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
