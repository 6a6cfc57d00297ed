//! Attention as two products with a softmax between them, a tile of rows at a time: scores never leave the caches.
//!
//! Bound by arithmetic. A chunk of work is some rows of one head, for which it packs the head's keys and values itself.
//! Each row is computed alone, in the order that [`super`] gives products and [`softmax`](crate::kernels::softmax) rows:
//! its bits depend on shapes alone.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use engine::{Kernel, KernelCall, View};
use tensor::Shape;

use super::pack::LaneSlice;
use super::tile::{LeftRows, OperandLayout, Product, TileKernel, tile_size};
use crate::kernels::disjoint::Disjoint;
use crate::kernels::operands::{elements, elements_mut, view};
use crate::kernels::ragged::check_offsets;
use crate::kernels::softmax;
use crate::kernels::strided::Strided;
use crate::variant::Variant;
use crate::vec::with_scratch;
use crate::{Cpu, Pool};

/// Tiles of rows that are worth packing keys and values for.
const LEAST_TILES: usize = 4;

/// The sizes of attention: `q [.., heads, dim]`, `k [.., heads, dim]`, `v [.., heads, width]` → `[.., heads, width]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionShape {
    pub(crate) heads: usize,
    pub(crate) dim: usize,
    pub(crate) width: usize,
}

/// Which rows attend to which: `tokens` rows of `q` from `first_token` on to `keys` rows of `k` and `v` from `first_key`
/// on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) first_token: usize,
    pub(crate) tokens: usize,
    pub(crate) first_key: usize,
    pub(crate) keys: usize,
}

/// What attention reads.
pub(crate) struct AttentionInputs<'a> {
    pub(crate) scale: f32,
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
    pub(crate) bias: Bias<'a>,
}

/// What is added to the scores.
pub(crate) enum Bias<'a> {
    /// Nothing.
    None,
    /// Elements, and the walk over them as `[items, heads, tokens, keys]`: items of one size.
    Mask(&'a [f32], &'a Strided),
    /// `[heads, 2 · reach + 1]`, by how far a key is behind the query.
    Distance(&'a [f32]),
}

/// `softmax(scale · q · kᵀ + bias) · v`, head by head. Every row of `out` belongs to one item.
///
/// # Panics
/// When lengths disagree, or this machine cannot run a variant.
pub(crate) fn attention(
    (variant, softmax): (&Variant<TileKernel>, &Variant<softmax::RowKernel>),
    pool: &Pool,
    shape: AttentionShape,
    items: &[Item],
    inputs: &AttentionInputs,
    out: &mut [f32],
) {
    assert!(
        (variant.available)() && (softmax.available)(),
        "attention: this machine cannot run {}",
        variant.name
    );
    check(shape, items, inputs, out);
    if out.is_empty() {
        return;
    }
    let (tile_rows, tile_columns) = tile_size(variant.name);
    let tasks = tasks(shape.heads, items, tile_rows, pool.threads());
    let job = AttentionCall {
        kernel: variant.run,
        softmax: softmax.run,
        tile_rows,
        tile_columns,
        shape,
        items,
        inputs,
        out: Disjoint::new(out),
    };
    pool.run(tasks.len(), &|task| {
        let Task { item, head, rows } = &tasks[task];
        match items[*item].keys == 0 || shape.dim == 0 {
            true => job.trivial(*item, *head, rows.clone()),
            false => job.head(*item, *head, rows.clone()),
        }
    });
}

fn check(shape: AttentionShape, items: &[Item], inputs: &AttentionInputs, out: &[f32]) {
    let AttentionShape { heads, dim, width } = shape;
    let tokens = items.iter().map(|item| item.first_token + item.tokens).max().unwrap_or(0);
    let keys = items.iter().map(|item| item.first_key + item.keys).max().unwrap_or(0);
    assert_eq!(inputs.q.len(), tokens * heads * dim, "attention: length of q");
    assert_eq!(inputs.k.len(), keys * heads * dim, "attention: length of k");
    assert_eq!(inputs.v.len(), keys * heads * width, "attention: length of v");
    assert_eq!(out.len(), tokens * heads * width, "attention: length of out");
}

/// Some rows of one head of an item.
struct Task {
    item: usize,
    head: usize,
    /// Counted from the item's first token.
    rows: Range<usize>,
}

/// A few tasks for each thread, those with the most keys first.
fn tasks(heads: usize, items: &[Item], tile_rows: usize, threads: usize) -> Vec<Task> {
    let tokens: usize = items.iter().map(|item| item.tokens).sum();
    let share = (tokens * heads).div_ceil(4 * threads).max(LEAST_TILES * tile_rows);
    let mut tasks = Vec::new();
    for (index, item) in items.iter().enumerate().filter(|(_, item)| item.tokens > 0) {
        let parts = item.tokens.div_ceil(share);
        let rows = item.tokens.div_ceil(parts).next_multiple_of(tile_rows);
        for head in 0..heads {
            let starts = (0..item.tokens).step_by(rows);
            let part = |start: usize| start..item.tokens.min(start + rows);
            tasks.extend(starts.map(|start| Task { item: index, head, rows: part(start) }));
        }
    }
    tasks.sort_by_key(|task| Reverse(items[task.item].keys));
    tasks
}

struct AttentionCall<'a> {
    kernel: TileKernel,
    softmax: softmax::RowKernel,
    tile_rows: usize,
    tile_columns: usize,
    shape: AttentionShape,
    items: &'a [Item],
    inputs: &'a AttentionInputs<'a>,
    out: Disjoint<'a, f32>,
}

impl AttentionCall<'_> {
    /// Some rows of one head.
    fn head(&self, index: usize, head: usize, rows: Range<usize>) {
        let AttentionShape { heads, dim, width } = self.shape;
        let Item { first_token, first_key, keys, .. } = self.items[index];
        let columns = |n: usize| n.next_multiple_of(self.tile_columns);
        let sizes = [
            columns(keys) * dim,
            columns(width) * keys,
            self.tile_rows * dim,
            self.tile_rows * keys,
            self.tile_rows * keys,
        ];
        let sizes = sizes.map(|size| size.next_multiple_of(16));
        with_scratch(sizes.iter().sum(), |scratch| {
            let mut rest = scratch;
            let [k, v, left, scores, shares] = sizes.map(|size| {
                let (piece, later) = std::mem::take(&mut rest).split_at_mut(size);
                rest = later;
                piece
            });
            let (row, lane) = (heads * dim, heads * width);
            let start = (first_key * heads + head) * dim;
            LaneSlice { data: self.inputs.k, start, lanes: keys, k: dim, lane_stride: row, k_stride: 1 }
                .pack(self.tile_columns, k);
            let start = (first_key * heads + head) * width;
            LaneSlice { data: self.inputs.v, start, lanes: width, k: keys, lane_stride: 1, k_stride: lane }
                .pack(self.tile_columns, v);
            for first in rows.clone().step_by(self.tile_rows) {
                let count = self.tile_rows.min(rows.end - first);
                let start = ((first_token + first) * heads + head) * dim;
                LaneSlice { data: self.inputs.q, start, lanes: count, k: dim, lane_stride: row, k_stride: 1 }
                    .pack(self.tile_rows, left);
                left.iter_mut().for_each(|q| *q *= self.inputs.scale);
                let (scores, shares) = (&mut scores[..count * keys], &mut shares[..count * keys]);
                // SAFETY: the variant is available; the panels are packed in whole, and the scores are `count` rows.
                unsafe {
                    let out = scores.as_mut_ptr();
                    let form = OperandLayout::Packed;
                    (self.kernel)(&Product::new(left, k, form, dim, count, keys, out, keys, false));
                }
                self.add_bias(index, head, first, scores, shares);
                // SAFETY: the variant is available.
                unsafe { (self.softmax)(keys, scores, shares) };
                let start = ((first_token + first) * heads + head) * width;
                // SAFETY: as above; no one else writes these rows of this head.
                unsafe {
                    let out = self.out.pointer(start..start + (count - 1) * lane + width);
                    let form = OperandLayout::Rows(LeftRows { apart: keys, run: keys, jump: 0 });
                    (self.kernel)(&Product::new(shares, v, form, keys, count, width, out, lane, false));
                }
            }
        });
    }

    /// Adds the bias to the scores of whole rows from `first` on; `stage` holds as many elements as there are scores.
    fn add_bias(&self, index: usize, head: usize, first: usize, scores: &mut [f32], stage: &mut [f32]) {
        let Item { tokens, keys, .. } = self.items[index];
        match self.inputs.bias {
            Bias::None => {}
            Bias::Mask(mask, walk) => {
                walk.copy(mask, ((index * self.shape.heads + head) * tokens + first) * keys, stage);
                add(scores, stage);
            }
            Bias::Distance(bias) => {
                let len = bias.len() / self.shape.heads;
                let bias = &bias[head * len..][..len];
                for (row, scores) in (first..).zip(scores.chunks_exact_mut(keys)) {
                    add_by_distance(scores, bias, row);
                }
            }
        }
    }

    /// Some rows whose scores are the bias alone, or that have no keys.
    fn trivial(&self, index: usize, head: usize, rows: Range<usize>) {
        let AttentionShape { heads, width, .. } = self.shape;
        let Item { first_token, first_key, keys, .. } = self.items[index];
        for row in rows {
            let (mut scores, mut stage) = (vec![0.0; keys], vec![0.0; keys]);
            if keys > 0 {
                self.add_bias(index, head, row, &mut scores, &mut stage);
            }
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f32 = weights.iter().sum();
            let start = ((first_token + row) * heads + head) * width;
            // SAFETY: no one else writes these rows of this head.
            let out = unsafe { self.out.part(start..start + width) };
            for (column, y) in out.iter_mut().enumerate() {
                let value = |key: usize| self.inputs.v[((first_key + key) * heads + head) * width + column];
                *y = weights.iter().enumerate().map(|(key, weight)| weight / sum * value(key)).sum();
            }
        }
    }
}

/// Adds to the scores of all keys for query `row` a bias for each distance, the outermost for all that are further.
fn add_by_distance(scores: &mut [f32], bias: &[f32], row: usize) {
    let (reach, last) = (bias.len() / 2, bias.len() - 1);
    let near = row.saturating_sub(reach)..scores.len().min(row + reach + 1);
    scores[..near.start].iter_mut().for_each(|score| *score += bias[0]);
    scores[near.end..].iter_mut().for_each(|score| *score += bias[last]);
    let first = reach + near.start - row;
    add(&mut scores[near], &bias[first..]);
}

fn add(scores: &mut [f32], bias: &[f32]) {
    scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
}

/// Attention of every token to every key, or of a `ragged` batch's to every token of its sequence.
pub(crate) fn attention_kernel(cpu: &Cpu, scale: f32, ragged: bool) -> Option<Arc<dyn Kernel>> {
    let variants = (cpu.pick(super::VARIANTS), cpu.pick(softmax::VARIANTS));
    Some(Arc::new(AttentionKernel { scale, ragged, variants, pool: Arc::clone(&cpu.pool) }))
}

struct AttentionKernel {
    scale: f32,
    ragged: bool,
    variants: (&'static Variant<TileKernel>, &'static Variant<softmax::RowKernel>),
    pool: Arc<Pool>,
}

impl Kernel for AttentionKernel {
    fn name(&self) -> String {
        format!("{}attention.{}", if self.ragged { "ragged_" } else { "" }, self.variants.0.name)
    }

    fn checked(&self) -> Option<&'static [usize]> {
        self.ragged.then_some(&[3])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        check_offsets(3, &elements(inputs[3].bytes), inputs[0].shape[0])
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let [q, k, v] = [0, 1, 2].map(|position| view(&call, position));
        let (batch, sizes) = q.shape.split_at(q.shape.rank() - 3);
        let shape = AttentionShape { heads: sizes[1], dim: sizes[2], width: v.shape[v.shape.rank() - 1] };
        let [q, keys_of, v] = [q, k, v].map(|operand| elements(operand.bytes));
        let inputs = AttentionInputs { scale: self.scale, q: &q, k: &keys_of, v: &v, bias: Bias::None };
        if self.ragged {
            let offsets = elements::<u32>(view(&call, 3).bytes);
            check_offsets(3, &offsets, sizes[0])?;
            let item = |rows: &[u32]| {
                let (first, tokens) = (rows[0] as usize, (rows[1] - rows[0]) as usize);
                Item { first_token: first, tokens, first_key: first, keys: tokens }
            };
            let items: Vec<Item> = offsets.windows(2).map(item).collect();
            let bias = (call.inputs.len() > 4).then(|| elements(view(&call, 4).bytes));
            let bias = bias.as_ref().map_or(Bias::None, |bias| Bias::Distance(bias));
            let (inputs, out) = (AttentionInputs { bias, ..inputs }, elements_mut(call.outputs[0].bytes));
            attention(self.variants, &self.pool, shape, &items, &inputs, out);
        } else {
            let (tokens, keys) = (sizes[0], k.shape[batch.len()]);
            let item = |i: usize| Item { first_token: i * tokens, tokens, first_key: i * keys, keys };
            let items: Vec<Item> = (0..batch.iter().product()).map(item).collect();
            let scores = Shape::new(&[batch, &[sizes[1], tokens, keys]].concat());
            let mask = (call.inputs.len() > 3).then(|| view(&call, 3));
            let mask = mask.map(|mask| (elements(mask.bytes), Strided::broadcast(mask.shape, &scores)));
            let bias = mask.as_ref().map_or(Bias::None, |(mask, walk)| Bias::Mask(mask, walk));
            let (inputs, out) = (AttentionInputs { bias, ..inputs }, elements_mut(call.outputs[0].bytes));
            attention(self.variants, &self.pool, shape, &items, &inputs, out);
        }
        Ok(())
    }
}
