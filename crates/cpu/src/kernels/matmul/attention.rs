//! Attention as two products with a softmax between them, a tile of rows at a time: scores never leave the caches.
//!
//! Bound by arithmetic. A chunk of work is some rows of one head, for which it packs the head's keys and values itself.
//! Each row is computed alone, in the order that [`super`] gives products and [`softmax`](crate::kernels::softmax) rows:
//! its bits depend on shapes alone.

use super::pack::Lanes;
use super::tile::{Kernel, Product, RightForm, tile_size};
use crate::Pool;
use crate::kernels::disjoint::Disjoint;
use crate::kernels::softmax;
use crate::kernels::strided::Strided;
use crate::kernels::variant::Variant;
use crate::vec::with_scratch;

/// Tiles of rows that are worth packing keys and values for.
const LEAST_TILES: usize = 4;

/// The sizes of attention: `q [items, tokens, heads, dim]`, `k [items, keys, heads, dim]`, `v [items, keys, heads, width]`
/// → `[items, tokens, heads, width]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionShape {
    pub(crate) items: usize,
    pub(crate) tokens: usize,
    pub(crate) keys: usize,
    pub(crate) heads: usize,
    pub(crate) dim: usize,
    pub(crate) width: usize,
}

/// What attention reads.
pub(crate) struct AttentionInputs<'a> {
    pub(crate) scale: f32,
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
    /// Added to the scores: elements, and the walk over them as `[items, heads, tokens, keys]`.
    pub(crate) mask: Option<(&'a [f32], Strided)>,
}

/// `softmax(scale · q · kᵀ + mask) · v`, head by head.
///
/// # Panics
/// When lengths disagree, or this machine cannot run a variant.
pub(crate) fn attention(
    (variant, softmax): (&Variant<Kernel>, &Variant<softmax::Kernel>),
    pool: &Pool,
    shape: AttentionShape,
    inputs: &AttentionInputs,
    out: &mut [f32],
) {
    assert!(
        (variant.available)() && (softmax.available)(),
        "attention: this machine cannot run {}",
        variant.name
    );
    let AttentionShape { items, tokens, keys, heads, dim, width } = shape;
    assert_eq!(inputs.q.len(), items * tokens * heads * dim, "attention: length of q");
    assert_eq!(inputs.k.len(), items * keys * heads * dim, "attention: length of k");
    assert_eq!(inputs.v.len(), items * keys * heads * width, "attention: length of v");
    assert_eq!(out.len(), items * tokens * heads * width, "attention: length of out");
    if out.is_empty() || keys == 0 || dim == 0 {
        return trivial(shape, inputs, out);
    }
    let (tile_rows, tile_columns) = tile_size(variant.name);
    let wanted = (4 * pool.threads()).div_ceil(items * heads);
    let parts = wanted.clamp(1, tokens.div_ceil(LEAST_TILES * tile_rows));
    let rows = tokens.div_ceil(parts).next_multiple_of(tile_rows);
    let parts = tokens.div_ceil(rows);
    let call = Call {
        kernel: variant.run,
        softmax: softmax.run,
        tile_rows,
        tile_columns,
        shape,
        inputs,
        out: Disjoint::new(out),
    };
    pool.run(items * heads * parts, &|chunk| {
        let (head, part) = (chunk / parts, chunk % parts);
        call.head(head / heads, head % heads, part * rows..tokens.min((part + 1) * rows));
    });
}

struct Call<'a> {
    kernel: Kernel,
    softmax: softmax::Kernel,
    tile_rows: usize,
    tile_columns: usize,
    shape: AttentionShape,
    inputs: &'a AttentionInputs<'a>,
    out: Disjoint<'a, f32>,
}

impl Call<'_> {
    /// Some rows of one head.
    fn head(&self, item: usize, head: usize, rows: std::ops::Range<usize>) {
        let AttentionShape { tokens, keys, heads, dim, width, .. } = self.shape;
        let columns = |n: usize| n.next_multiple_of(self.tile_columns);
        let sizes = [
            columns(keys) * dim,
            columns(width) * keys,
            self.tile_rows * dim.max(keys),
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
            let start = (item * keys * heads + head) * dim;
            Lanes { data: self.inputs.k, start, lanes: keys, k: dim, lane_stride: row, k_stride: 1 }
                .pack(self.tile_columns, k);
            let start = (item * keys * heads + head) * width;
            Lanes { data: self.inputs.v, start, lanes: width, k: keys, lane_stride: 1, k_stride: lane }
                .pack(self.tile_columns, v);
            for first in rows.clone().step_by(self.tile_rows) {
                let count = self.tile_rows.min(rows.end - first);
                let start = ((item * tokens + first) * heads + head) * dim;
                Lanes { data: self.inputs.q, start, lanes: count, k: dim, lane_stride: row, k_stride: 1 }
                    .pack(self.tile_rows, left);
                left[..self.tile_rows * dim].iter_mut().for_each(|q| *q *= self.inputs.scale);
                let (scores, shares) = (&mut scores[..count * keys], &mut shares[..count * keys]);
                // SAFETY: the variant is available; the panels are packed in whole, and the scores are `count` rows.
                unsafe {
                    let out = scores.as_mut_ptr();
                    let form = RightForm::Packed;
                    (self.kernel)(&Product::new(left, k, form, dim, count, keys, out, keys, false));
                }
                self.add_mask(((item * heads + head) * tokens + first) * keys, scores, shares);
                // SAFETY: the variant is available.
                unsafe { (self.softmax)(keys, scores, shares) };
                Lanes { data: shares, start: 0, lanes: count, k: keys, lane_stride: keys, k_stride: 1 }
                    .pack(self.tile_rows, left);
                let start = ((item * tokens + first) * heads + head) * width;
                // SAFETY: as above; no one else writes these rows of this head.
                unsafe {
                    let out = self.out.pointer(start..start + (count - 1) * lane + width);
                    let form = RightForm::Packed;
                    (self.kernel)(&Product::new(left, v, form, keys, count, width, out, lane, false));
                }
            }
        });
    }

    /// Adds the mask from its element `start` on; `stage` holds as many elements as there are scores.
    fn add_mask(&self, start: usize, scores: &mut [f32], stage: &mut [f32]) {
        if let Some((mask, walk)) = &self.inputs.mask {
            walk.copy(mask, start, stage);
            scores.iter_mut().zip(stage).for_each(|(score, mask)| *score += *mask);
        }
    }
}

/// Sums of nothing, and of values weighed by the mask alone.
fn trivial(shape: AttentionShape, inputs: &AttentionInputs, out: &mut [f32]) {
    let AttentionShape { tokens, keys, heads, width, .. } = shape;
    for (i, y) in out.iter_mut().enumerate() {
        let (column, head, token, item) =
            (i % width, i / width % heads, i / (width * heads) % tokens, i / (width * heads * tokens));
        let mut scores = vec![0.0; keys];
        if let Some((mask, walk)) = &inputs.mask
            && keys > 0
        {
            walk.copy(mask, ((item * heads + head) * tokens + token) * keys, &mut scores);
        }
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f32 = weights.iter().sum();
        let value = |key: usize| inputs.v[((item * keys + key) * heads + head) * width + column];
        *y = weights.iter().enumerate().map(|(key, weight)| weight / sum * value(key)).sum();
    }
}
