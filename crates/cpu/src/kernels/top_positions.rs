//! The positions of the past that score highest for each token: `Σ_h weight_h · max(scale · q_h · key, 0)`.
//!
//! 1. **Scores** of ranges of 256 positions, each of one token: dot products of a few heads at a time, which share each load
//!    of keys, then their weighted sum, head by head. Bound by arithmetic for many heads.
//! 2. **Choice** of the best k of each token by partial selection, in the order of positions.
//!
//! Tokens are taken so many at a time that their scores fit in a few megabytes. A score depends on its token and position
//! alone.

use std::borrow::Cow;
use std::sync::Arc;

use bytemuck::Pod;
use engine::{Kernel, KernelCall, View};
use graph::ops::TopPositions;
use tensor::{DType, bf16, f16};

use super::attention::dots::Dots;
use super::attention::{RANGE, SCORES_STRIDE, TILE_ROWS, TILES};
use super::disjoint::Disjoint;
use super::kv_cache::{BatchOperands, RaggedBatch, TILE};
use super::operands::{elements, elements_mut, view};
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Scalar, Simd, with_scratch};
use crate::{Cpu, Pool};

/// Scores that are kept at a time.
const AT_A_TIME: usize = 1 << 20;

/// Everything that scores are made of.
struct ScoreOperands<'a, T> {
    batch: &'a RaggedBatch<'a>,
    op: TopPositions,
    heads: usize,
    /// Checked: every page of the batch lies within.
    cache: &'a [T],
    /// `[tokens, heads, dims]`
    q: &'a [f32],
    /// `[tokens, heads]`
    weights: &'a [f32],
}

/// A token of the batch.
#[derive(Clone, Copy)]
struct Token {
    sequence: usize,
    row: usize,
    position: usize,
}

/// Writes the scores of one token at the positions of a range, of which those up to the token's own are written.
type RangeKernel<T> = unsafe fn(&ScoreOperands<'_, T>, Token, usize, &mut [f32], &mut [f32]);

trait Keys: Scalar + Pod {
    const VARIANTS: &'static [Variant<RangeKernel<Self>>];
}

impl Keys for f32 {
    const VARIANTS: &'static [Variant<RangeKernel<f32>>] = VARIANTS_F32;
}

impl Keys for bf16 {
    const VARIANTS: &'static [Variant<RangeKernel<bf16>>] = VARIANTS_BF16;
}

impl Keys for f16 {
    const VARIANTS: &'static [Variant<RangeKernel<f16>>] = VARIANTS_F16;
}

variants! {
    static VARIANTS_F32 = score,
    (job: &ScoreOperands<'_, f32>, token: Token, range: usize, scratch: &mut [f32], out: &mut [f32])
}
variants! {
    static VARIANTS_BF16 = score,
    (job: &ScoreOperands<'_, bf16>, token: Token, range: usize, scratch: &mut [f32], out: &mut [f32])
}
variants! {
    static VARIANTS_F16 = score,
    (job: &ScoreOperands<'_, f16>, token: Token, range: usize, scratch: &mut [f32], out: &mut [f32])
}

/// Elements of working memory: queries and their scores.
fn scratch_len(dims: usize) -> usize {
    TILE_ROWS * (dims.next_multiple_of(LANES) + SCORES_STRIDE)
}

#[inline(always)]
fn score<S: Simd, T: Scalar>(
    s: S,
    job: &ScoreOperands<'_, T>,
    token: Token,
    range: usize,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let layout = job.batch.layout();
    let dims = layout.head_dim();
    let stride = dims.next_multiple_of(LANES);
    assert!(scratch.len() == scratch_len(dims) && out.len() <= RANGE);
    let (queries, scores) = scratch.split_at_mut(TILE_ROWS * stride);
    let mut keys = [std::ptr::null(); TILES];
    for (tile, key) in keys.iter_mut().enumerate().take(out.len().div_ceil(TILE)) {
        let position = range * RANGE + tile * TILE;
        let page = job.batch.page(token.sequence, position);
        let start = layout.values(page, job.op.layer, 0) + position % layout.page_size() * dims;
        *key = job.cache[start..start + TILE * dims].as_ptr();
    }
    out.fill(0.0);
    for first in (0..job.heads).step_by(TILE_ROWS) {
        let rows = TILE_ROWS.min(job.heads - first);
        queries.fill(0.0);
        for row in 0..rows {
            let q = &job.q[(token.row * job.heads + first + row) * dims..][..dims];
            for (packed, q) in queries[row * stride..].iter_mut().zip(q) {
                *packed = q * job.op.scale;
            }
        }
        let (queries, raw) = (queries.as_ptr(), scores.as_mut_ptr());
        // SAFETY: both hold TILE_ROWS rows, and the keys of all tiles with positions of `out` are set.
        unsafe { Dots { queries, keys: &keys, dims, scores: raw }.score(s, rows, 0..out.len()) };
        for row in 0..rows {
            let weight = job.weights[token.row * job.heads + first + row];
            for (out, score) in out.iter_mut().zip(&scores[row * SCORES_STRIDE..]) {
                *out += weight * score.max(0.0);
            }
        }
    }
}

/// A kernel for a cache of a dtype.
pub(crate) fn kernel_for(cpu: &Cpu, op: &TopPositions, cache: DType) -> Option<Arc<dyn Kernel>> {
    match cache {
        DType::F32 => kernel_of::<f32>(cpu, op),
        DType::BF16 => kernel_of::<bf16>(cpu, op),
        DType::F16 => kernel_of::<f16>(cpu, op),
        _ => None,
    }
}

fn kernel_of<T: Keys>(cpu: &Cpu, op: &TopPositions) -> Option<Arc<dyn Kernel>> {
    let (variant, pool) = (cpu.pick(T::VARIANTS), Arc::clone(&cpu.pool));
    Some(Arc::new(TopPositionsKernel { op: *op, variant, pool }))
}

struct TopPositionsKernel<T: 'static> {
    op: TopPositions,
    variant: &'static Variant<RangeKernel<T>>,
    pool: Arc<Pool>,
}

impl<T: Keys> Kernel for TopPositionsKernel<T> {
    fn name(&self) -> String {
        format!("top_positions.{}", self.variant.name)
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[3, 4, 5])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        let (q, cache) = (inputs[0].shape, inputs[2].shape);
        let lists = BatchOperands::from_views([3, 4, 5].map(|i| inputs[i]));
        match q[0] {
            0 => Ok(()),
            rows => self.check_batch(&lists.batch(cache, q[2])?, cache.elements(), rows),
        }
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (q, weights, cache) = (view(&call, 0), view(&call, 1), view(&call, 2));
        if q.shape[0] == 0 {
            return Ok(());
        }
        let [_, heads, dims] = [0, 1, 2].map(|axis| q.shape[axis]);
        let lists = BatchOperands::new(&call, 3);
        let batch = lists.batch(cache.shape, dims)?;
        let cache: Cow<'_, [T]> = elements(cache.bytes);
        self.check_batch(&batch, cache.len(), q.shape[0])?;
        let (q, weights) = (elements(q.bytes), elements(weights.bytes));
        let job =
            ScoreOperands { batch: &batch, op: self.op, heads, cache: &cache, q: &q, weights: &weights };
        self.choose(&job, elements_mut(call.outputs[0].bytes));
        Ok(())
    }
}

impl<T: Keys> TopPositionsKernel<T> {
    fn check_batch(&self, batch: &RaggedBatch<'_>, cache: usize, rows: usize) -> Result<(), String> {
        batch.check_call("top_positions", self.op.layer, cache).map_err(|error| error.to_string())?;
        match batch.tokens() {
            tokens if tokens == rows => Ok(()),
            tokens => Err(format!("row_offsets end at {tokens}, but q has {rows} rows")),
        }
    }

    fn choose(&self, job: &ScoreOperands<'_, T>, out: &mut [u32]) {
        let tokens: Vec<Token> = (0..job.batch.sequences())
            .flat_map(|sequence| {
                let positions = job.batch.first_position(sequence)..;
                job.batch.rows(sequence).zip(positions).map(move |(row, position)| Token {
                    sequence,
                    row,
                    position,
                })
            })
            .collect();
        let longest = tokens.iter().map(|token| token.position + 1).max().unwrap_or(0);
        let stride = longest.next_multiple_of(RANGE);
        let at_once = (AT_A_TIME / stride).clamp(1, tokens.len().max(1));
        let mut scores = vec![0f32; at_once * stride];
        for (tokens, out) in tokens.chunks(at_once).zip(out.chunks_mut(at_once * self.op.k)) {
            self.score(job, tokens, stride, Disjoint::new(&mut scores));
            let out = Disjoint::new(out);
            self.pool.run(tokens.len(), &|index| {
                // SAFETY: each row belongs to one task.
                let row = unsafe { out.part(index * self.op.k..(index + 1) * self.op.k) };
                best(&scores[index * stride..], tokens[index].position, row);
            });
        }
    }

    /// The scores of tokens that do not see more positions than are chosen are left out.
    fn score(&self, job: &ScoreOperands<'_, T>, tokens: &[Token], stride: usize, scores: Disjoint<'_, f32>) {
        let ranges = stride / RANGE;
        let scratch_len = scratch_len(job.batch.layout().head_dim());
        self.pool.run(tokens.len() * ranges, &|task| {
            let (index, range) = (task / ranges, task % ranges);
            let token = tokens[index];
            let seen = (token.position + 1).saturating_sub(range * RANGE).min(RANGE);
            if seen == 0 || token.position < self.op.k {
                return;
            }
            let start = index * stride + range * RANGE;
            // SAFETY: each range of a token belongs to one task.
            let out = unsafe { scores.part(start..start + seen) };
            // SAFETY: the variant is available, and the call was checked.
            with_scratch(scratch_len, |scratch| unsafe {
                (self.variant.run)(job, token, range, scratch, out);
            });
        });
    }
}

/// Writes the best positions of a token in ascending order: all, and then its own, if there are not so many.
fn best(scores: &[f32], position: usize, row: &mut [u32]) {
    let k = row.len();
    let mut order: Vec<u32> = (0..=position as u32).collect();
    if k <= position {
        let score = |index: u32| scores[index as usize];
        order.select_nth_unstable_by(k - 1, |&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        order.truncate(k);
        order.sort_unstable();
    }
    let (first, rest) = row.split_at_mut(order.len());
    first.copy_from_slice(&order);
    rest.fill(position as u32);
}
