//! The paged KV cache: where keys and values lie, which sequence owns which page, and storing new tokens.
//!
//! The cache is one buffer `[pages, layers, 2, kv_heads, page_size * head_dim]`, so a page with all its layers is
//! one run of memory and copying it is one `memcpy`. Within a page, layer and head, positions go in tiles of
//! [`TILE`]: keys as `[page_size / 16, head_dim, 16]`, so one vector load gives one dim of sixteen keys and a tile is
//! read from its first byte to its last whatever the page size; values as `[page_size, head_dim]`.
//!
//! A cache of rows that are keys and values at once is `[pages, layers, 1, kv_heads, page_size * head_dim]`, and its rows
//! lie as values do.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use engine::{Kernel, KernelCall, Operand, View};
use tensor::{DType, Shape, bf16, f16};

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, view};
use crate::vec::{LANES, Scalar};
use crate::{Cpu, Error, Pool};

/// Positions whose keys lie interleaved, one to a lane.
pub const TILE: usize = LANES;

/// The sizes that fix where everything lies in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    layers: usize,
    /// 2 with keys and values apart, 1 with rows that are both.
    parts: usize,
    kv_heads: usize,
    head_dim: usize,
    page_size: usize,
}

impl KvLayout {
    /// A layout for `layers` layers of `kv_heads` heads, in pages of `page_size` positions.
    ///
    /// # Errors
    /// When a size is 0, `page_size` is no power of two from 16 on, or a page would not fit in the address space.
    pub fn new(layers: usize, kv_heads: usize, head_dim: usize, page_size: usize) -> Result<KvLayout, Error> {
        KvLayout::checked(layers, 2, kv_heads, head_dim, page_size)
    }

    /// A layout for rows that are keys and values at once.
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn of_rows(
        layers: usize,
        kv_heads: usize,
        head_dim: usize,
        page_size: usize,
    ) -> Result<KvLayout, Error> {
        KvLayout::checked(layers, 1, kv_heads, head_dim, page_size)
    }

    fn checked(
        layers: usize,
        parts: usize,
        kv_heads: usize,
        head_dim: usize,
        page_size: usize,
    ) -> Result<KvLayout, Error> {
        let size = |what, rule, found| Error::Size { kernel: "kv_cache", what, rule, found };
        for (what, found) in [("layers", layers), ("kv_heads", kv_heads), ("head_dim", head_dim)] {
            if found == 0 {
                return Err(size(what, "at least 1", found));
            }
        }
        if !page_size.is_power_of_two() || page_size < TILE {
            return Err(size("page_size", "a power of two, at least 16", page_size));
        }
        // Room for four bytes an element, so that no product below overflows.
        let elements =
            [parts, layers, kv_heads, head_dim].into_iter().try_fold(page_size, usize::checked_mul);
        match elements.filter(|&elements| elements <= isize::MAX as usize / 4) {
            Some(_) => Ok(KvLayout { layers, parts, kv_heads, head_dim, page_size }),
            None => Err(size("head_dim", "small enough that a page fits in memory", head_dim)),
        }
    }

    /// Layers of the model.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Whether rows are keys and values at once.
    pub fn has_rows(&self) -> bool {
        self.parts == 1
    }

    /// Heads that keep keys and values.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Dims of one key or value.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Positions of a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Elements of a page, all layers together.
    pub fn page_len(&self) -> usize {
        self.parts * self.layers * self.kv_heads * self.head_len()
    }

    /// Elements that one head keeps in one page and layer: as many for keys as for values.
    pub fn head_len(&self) -> usize {
        self.page_size * self.head_dim
    }

    /// Where the keys of a head begin, `[page_size / 16, head_dim, 16]`, if it keeps keys.
    pub fn keys(&self, page: usize, layer: usize, kv_head: usize) -> usize {
        page * self.page_len() + (self.parts * layer * self.kv_heads + kv_head) * self.head_len()
    }

    /// Where the values of a head begin, or its rows: `[page_size, head_dim]`.
    pub fn values(&self, page: usize, layer: usize, kv_head: usize) -> usize {
        let part = self.parts * layer + self.parts - 1;
        page * self.page_len() + (part * self.kv_heads + kv_head) * self.head_len()
    }

    /// Where dim `dim` of the key in slot `slot` of a page lies, from [`KvLayout::keys`] on.
    pub fn key_element(&self, slot: usize, dim: usize) -> usize {
        (slot / TILE * self.head_dim + dim) * TILE + slot % TILE
    }

    /// How many whole pages a cache of `len` elements has.
    ///
    /// # Errors
    /// When `len` is no multiple of [`KvLayout::page_len`].
    fn pages(&self, kernel: &'static str, len: usize) -> Result<usize, Error> {
        let pages = len / self.page_len();
        let expected = pages * self.page_len();
        if expected != len {
            return Err(Error::Length { kernel, what: "cache", expected, found: len });
        }
        Ok(pages)
    }
}

/// New tokens of several sequences, one after the other, and where each sequence keeps its past: checked.
///
/// New token `i` of sequence `b` is at position `cache_lengths[b] + i`, in slot `position % page_size` of page
/// `page_table[b, position / page_size]`.
#[derive(Clone, Copy, Debug)]
pub struct RaggedBatch<'a> {
    layout: KvLayout,
    /// `[batch + 1]`: the tokens of sequence `b` are `row_offsets[b]..row_offsets[b + 1]`.
    row_offsets: &'a [u32],
    /// `[batch]`: tokens in the cache before this call.
    cache_lengths: &'a [u32],
    /// `[batch, max_pages]`.
    page_table: &'a [u32],
    max_pages: usize,
    /// Every page that a position of the batch uses is below this.
    pages: usize,
}

impl<'a> RaggedBatch<'a> {
    /// Checks a batch against a cache of `pages` pages. Entries of the page table past a sequence's end are not read.
    ///
    /// # Errors
    /// When the lengths of the slices disagree, the offsets do not rise from 0, a sequence does not fit in its
    /// `max_pages` pages, or one of its pages is not in the cache.
    pub fn new(
        layout: KvLayout,
        pages: usize,
        row_offsets: &'a [u32],
        cache_lengths: &'a [u32],
        page_table: &'a [u32],
    ) -> Result<RaggedBatch<'a>, Error> {
        let batch = cache_lengths.len();
        let max_pages = page_table.len().checked_div(batch).unwrap_or(0);
        length("ragged batch", "row_offsets", batch + 1, row_offsets.len())?;
        length("ragged batch", "page_table", batch * max_pages, page_table.len())?;
        let checked = RaggedBatch { layout, row_offsets, cache_lengths, page_table, max_pages, pages };
        checked.check_offsets()?;
        (0..batch).try_for_each(|sequence| checked.check_sequence(sequence))?;
        Ok(checked)
    }

    /// The layout it was checked against.
    pub fn layout(&self) -> KvLayout {
        self.layout
    }

    /// Sequences.
    pub fn sequences(&self) -> usize {
        self.cache_lengths.len()
    }

    /// New tokens, of all sequences together.
    pub fn tokens(&self) -> usize {
        self.row_offsets[self.sequences()] as usize
    }

    /// The rows of the new tokens of a sequence.
    pub fn rows(&self, sequence: usize) -> Range<usize> {
        self.row_offsets[sequence] as usize..self.row_offsets[sequence + 1] as usize
    }

    /// The position of the first new token of a sequence.
    pub fn first_position(&self, sequence: usize) -> usize {
        self.cache_lengths[sequence] as usize
    }

    /// The page that keeps a position of a sequence.
    pub fn page(&self, sequence: usize, position: usize) -> usize {
        self.page_table[sequence * self.max_pages + position / self.layout.page_size] as usize
    }

    /// Checks the arguments that come with every call on a layer of a cache.
    pub(super) fn check_call(
        &self,
        kernel: &'static str,
        layer: usize,
        cache_len: usize,
    ) -> Result<(), Error> {
        let pages = self.layout.pages(kernel, cache_len)?;
        if pages < self.pages {
            let expected = self.pages * self.layout.page_len();
            return Err(Error::Length { kernel, what: "cache", expected, found: cache_len });
        }
        if layer >= self.layout.layers {
            return Err(Error::Size {
                kernel,
                what: "layer",
                rule: "below the number of layers",
                found: layer,
            });
        }
        Ok(())
    }

    /// Checks what is to be stored, lists of so many elements, and gives how many each has.
    fn check_store(
        &self,
        kernel: &'static str,
        layer: usize,
        cache_len: usize,
        stored: &[(&'static str, usize)],
    ) -> Result<usize, Error> {
        self.check_call(kernel, layer, cache_len)?;
        let elements = self.tokens() * self.layout.kv_heads * self.layout.head_dim;
        stored.iter().try_for_each(|&(what, found)| length(kernel, what, elements, found))?;
        Ok(elements)
    }

    fn check_offsets(&self) -> Result<(), Error> {
        let mut low = 0;
        for (index, &found) in self.row_offsets.iter().enumerate() {
            let high = if index == 0 { 0 } else { u32::MAX };
            if !(low..=high).contains(&found) {
                let [found, low, high] = [found, low, high].map(|x| x as usize);
                return Err(Error::RowOffset { index, found, low, high });
            }
            low = found;
        }
        Ok(())
    }

    fn check_sequence(&self, sequence: usize) -> Result<(), Error> {
        let page_size = self.layout.page_size;
        let (cached, added) = (self.first_position(sequence), self.rows(sequence).len());
        let capacity = self.max_pages.saturating_mul(page_size);
        if cached + added > capacity {
            let pages = self.max_pages;
            return Err(Error::SequenceTooLong { sequence, cached, added, pages, page_size, capacity });
        }
        for position in 0..(cached + added).div_ceil(page_size) {
            let page = self.page_table[sequence * self.max_pages + position] as usize;
            if page >= self.pages {
                return Err(Error::PageOutOfRange { sequence, position, page, pages: self.pages });
            }
        }
        Ok(())
    }
}

/// Checks one length.
pub(super) fn length(
    kernel: &'static str,
    what: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Length { kernel, what, expected, found }) }
}

/// Writes the keys and values of the batch's new tokens, `[tokens, kv_heads, head_dim]` each, to their slots in `layer`.
///
/// Where two positions share a slot (which a sound page table never says), the later token's value stays.
///
/// # Errors
/// When the cache is not the one the batch was checked against, or `k` or `v` has another length.
pub fn store<T: Scalar>(
    pool: &Pool,
    batch: &RaggedBatch,
    layer: usize,
    cache: &mut [T],
    k: &[f32],
    v: &[f32],
) -> Result<(), Error> {
    let layout = batch.layout;
    let elements =
        batch.check_store("kv_cache::store", layer, cache.len(), &[("k", k.len()), ("v", v.len())])?;
    let cache = Disjoint::new(cache);
    // One head to a chunk: whatever the page table says, no two chunks write the same element.
    let store_head = |chunk: usize| {
        let (kv_head, is_value) = (chunk / 2, chunk % 2 == 1);
        for run in runs(batch) {
            let page = batch.page(run.sequence, run.position);
            let start = if is_value {
                layout.values(page, layer, kv_head)
            } else {
                layout.keys(page, layer, kv_head)
            };
            // SAFETY: only this chunk touches this head's keys (or values), and it holds one part at a time.
            let head = unsafe { cache.part(start..start + layout.head_len()) };
            let slot = run.position % layout.page_size;
            if is_value {
                store_values(&layout, head, slot, v, kv_head, run.rows);
            } else {
                store_keys(&layout, head, slot, k, kv_head, run.rows);
            }
        }
    };
    // A few tokens are written sooner than other threads are called.
    if elements < 16_384 {
        (0..layout.kv_heads * 2).for_each(store_head);
    } else {
        pool.run(layout.kv_heads * 2, &store_head);
    }
    Ok(())
}

/// Writes the rows of the batch's new tokens, `[tokens, kv_heads, head_dim]`, to their slots in `layer`.
///
/// # Errors
/// As [`store`].
pub fn store_rows<T: Scalar>(
    pool: &Pool,
    batch: &RaggedBatch,
    layer: usize,
    cache: &mut [T],
    rows: &[f32],
) -> Result<(), Error> {
    let layout = batch.layout;
    let elements = batch.check_store("kv_cache::store_rows", layer, cache.len(), &[("rows", rows.len())])?;
    let cache = Disjoint::new(cache);
    let store_head = |kv_head: usize| {
        for run in runs(batch) {
            let start = layout.values(batch.page(run.sequence, run.position), layer, kv_head);
            // SAFETY: only this chunk touches this head's rows, and it holds one part at a time.
            let head = unsafe { cache.part(start..start + layout.head_len()) };
            store_values(&layout, head, run.position % layout.page_size, rows, kv_head, run.rows);
        }
    };
    // Most caches have one head: its rows are written sooner than other threads are called.
    if layout.kv_heads == 1 || elements < 16_384 {
        (0..layout.kv_heads).for_each(store_head);
    } else {
        pool.run(layout.kv_heads, &store_head);
    }
    Ok(())
}

/// New tokens of one sequence whose slots follow each other in one tile.
struct Run {
    sequence: usize,
    position: usize,
    rows: Range<usize>,
}

fn runs(batch: &RaggedBatch) -> impl Iterator<Item = Run> {
    (0..batch.sequences()).flat_map(move |sequence| {
        let rows = batch.rows(sequence);
        let first = batch.first_position(sequence);
        let mut row = rows.start;
        std::iter::from_fn(move || {
            let position = first + (row - rows.start);
            let end = rows.end.min(row + TILE - position % TILE);
            let run = Run { sequence, position, rows: row..end };
            row = end;
            (!run.rows.is_empty()).then_some(run)
        })
    })
}

fn store_values<T: Scalar>(
    layout: &KvLayout,
    head: &mut [T],
    slot: usize,
    v: &[f32],
    kv_head: usize,
    rows: Range<usize>,
) {
    let dims = layout.head_dim;
    for (row, to) in rows.zip(head[slot * dims..].chunks_exact_mut(dims)) {
        let from = &v[(row * layout.kv_heads + kv_head) * dims..][..dims];
        T::narrow(from, to);
    }
}

/// Dims of keys that are rounded row by row before they are interleaved.
const KEY_DIMS: usize = 64;

fn store_keys<T: Scalar>(
    layout: &KvLayout,
    head: &mut [T],
    slot: usize,
    k: &[f32],
    kv_head: usize,
    rows: Range<usize>,
) {
    let dims = layout.head_dim;
    let (first, count) = (slot % TILE, rows.len());
    let tile = &mut head[slot / TILE * dims * TILE..][..dims * TILE];
    let mut rounded = [[T::from_f32(0.0); KEY_DIMS]; TILE];
    for (block, to) in tile.chunks_mut(KEY_DIMS * TILE).enumerate() {
        let block_dims = to.len() / TILE;
        for (row, rounded) in rows.clone().zip(&mut rounded) {
            let from = (row * layout.kv_heads + kv_head) * dims + block * KEY_DIMS;
            T::narrow(&k[from..][..block_dims], &mut rounded[..block_dims]);
        }
        for (dim, to) in to.chunks_exact_mut(TILE).enumerate() {
            for (to, rounded) in to[first..][..count].iter_mut().zip(&rounded) {
                *to = rounded[dim];
            }
        }
    }
}

/// Writes new keys and values to their pages.
pub(crate) fn store_kernel(cpu: &Cpu, layer: usize) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(KvStoreKernel { layer, pool: Arc::clone(&cpu.pool) }))
}

struct KvStoreKernel {
    layer: usize,
    pool: Arc<Pool>,
}

impl Kernel for KvStoreKernel {
    fn name(&self) -> String {
        "kv_store".to_string()
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[3, 4, 5])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        let [k, v] = [1, 2].map(|i| inputs[i].shape.elements());
        let lists = BatchOperands::from_views([3, 4, 5].map(|i| inputs[i]));
        let stored = [("k", k), ("v", v)];
        lists.check_store("kv_cache::store", self.layer, inputs[0].shape, inputs[1].shape[2], &stored)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (k, v) = (view(&call, 1), view(&call, 2));
        let lists = BatchOperands::new(&call, 3);
        let Operand::Buffer(cache) = &mut call.inputs[0] else {
            panic!("operand 0 of kv_store is no buffer")
        };
        if k.bytes.is_empty() {
            return Ok(());
        }
        let batch = lists.batch(cache.shape, k.shape[2])?;
        let (k, v) = (elements(k.bytes), elements(v.bytes));
        let store_as = match cache.dtype {
            DType::F32 => store_in::<f32>,
            DType::BF16 => store_in::<bf16>,
            DType::F16 => store_in::<f16>,
            other => unreachable!("a cache of {other}"),
        };
        store_as(&self.pool, &batch, self.layer, cache.bytes, &k, &v)
    }
}

fn store_in<T: Scalar + Pod>(
    pool: &Pool,
    batch: &RaggedBatch<'_>,
    layer: usize,
    cache: &mut [u8],
    k: &[f32],
    v: &[f32],
) -> Result<(), String> {
    store(pool, batch, layer, elements_mut::<T>(cache), k, v).map_err(|error| error.to_string())
}

/// Writes new rows to their pages.
pub(crate) fn store_rows_kernel(cpu: &Cpu, layer: usize) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(LatentStoreKernel { layer, pool: Arc::clone(&cpu.pool) }))
}

struct LatentStoreKernel {
    layer: usize,
    pool: Arc<Pool>,
}

impl Kernel for LatentStoreKernel {
    fn name(&self) -> String {
        "latent_store".to_string()
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[2, 3, 4])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        let rows = inputs[1].shape;
        let lists = BatchOperands::from_views([2, 3, 4].map(|i| inputs[i]));
        let stored = [("rows", rows.elements())];
        lists.check_store("kv_cache::store_rows", self.layer, inputs[0].shape, rows[2], &stored)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let rows = view(&call, 1);
        let lists = BatchOperands::new(&call, 2);
        let Operand::Buffer(cache) = &mut call.inputs[0] else {
            panic!("operand 0 of latent_store is no buffer")
        };
        if rows.bytes.is_empty() {
            return Ok(());
        }
        let batch = lists.batch(cache.shape, rows.shape[2])?;
        let rows = elements(rows.bytes);
        let stored = match cache.dtype {
            DType::F32 => store_rows(&self.pool, &batch, self.layer, elements_mut::<f32>(cache.bytes), &rows),
            DType::BF16 => {
                store_rows(&self.pool, &batch, self.layer, elements_mut::<bf16>(cache.bytes), &rows)
            }
            DType::F16 => store_rows(&self.pool, &batch, self.layer, elements_mut::<f16>(cache.bytes), &rows),
            other => unreachable!("a cache of {other}"),
        };
        stored.map_err(|error| error.to_string())
    }
}

/// The operands that describe a ragged batch.
pub(super) struct BatchOperands<'m> {
    row_offsets: Cow<'m, [u32]>,
    cache_lengths: Cow<'m, [u32]>,
    page_table: Cow<'m, [u32]>,
}

impl<'m> BatchOperands<'m> {
    /// The three operands from `first` on.
    pub(super) fn new(call: &KernelCall<'_, 'm>, first: usize) -> BatchOperands<'m> {
        BatchOperands::from_views([0, 1, 2].map(|i| view(call, first + i)))
    }

    /// Reads the operands row offsets, cache lengths and page table.
    pub(super) fn from_views(views: [View<'m>; 3]) -> BatchOperands<'m> {
        let [row_offsets, cache_lengths, page_table] = views.map(|view| elements(view.bytes));
        BatchOperands { row_offsets, cache_lengths, page_table }
    }

    /// The batch they describe, checked against a cache [pages, layers, parts, kv_heads, page_size · head_dim].
    pub(super) fn batch(&self, cache: &Shape, head_dim: usize) -> Result<RaggedBatch<'_>, String> {
        let layout = KvLayout::checked(cache[1], cache[2], cache[3], head_dim, cache[4] / head_dim);
        layout
            .and_then(|layout| {
                RaggedBatch::new(layout, cache[0], &self.row_offsets, &self.cache_lengths, &self.page_table)
            })
            .map_err(|error| error.to_string())
    }

    /// Checks what an op is to store, lists of so many elements; those without elements need no batch.
    fn check_store(
        &self,
        kernel: &'static str,
        layer: usize,
        cache: &Shape,
        head_dim: usize,
        stored: &[(&'static str, usize)],
    ) -> Result<(), String> {
        if stored[0].1 == 0 {
            return Ok(());
        }
        let batch = self.batch(cache, head_dim)?;
        let checked = batch.check_store(kernel, layer, cache.elements(), stored);
        checked.map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    fn layout() -> KvLayout {
        KvLayout::new(2, 3, 5, 16).unwrap()
    }

    #[test]
    fn stored_tokens_lie_where_the_layout_says() {
        let layout = layout();
        let batch = RaggedBatch::new(layout, 4, &[0, 20, 20, 23], &[5, 0, 15], &[3, 1, 9, 9, 2, 0]).unwrap();
        let k: Vec<f32> = (0..23 * 15).map(|i| i as f32).collect();
        let v: Vec<f32> = k.iter().map(|x| -x).collect();
        let mut cache = vec![bf16::NAN; 4 * layout.page_len()];
        store(&Pool::new(3), &batch, 1, &mut cache, &k, &v).unwrap();
        let mut written = 0;
        for sequence in 0..3 {
            for (i, row) in batch.rows(sequence).enumerate() {
                let position = batch.first_position(sequence) + i;
                let page = batch.page(sequence, position);
                for head in 0..3 {
                    for dim in 0..5 {
                        let slot = position % 16;
                        let key = cache[layout.keys(page, 1, head) + layout.key_element(slot, dim)];
                        let value = cache[layout.values(page, 1, head) + slot * 5 + dim];
                        let want = k[(row * 3 + head) * 5 + dim];
                        assert_eq!((key, value), (bf16::from_f32(want), bf16::from_f32(-want)));
                        written += 2;
                    }
                }
            }
        }
        assert_eq!(cache.iter().filter(|x| !x.is_nan()).count(), written);
    }

    #[test]
    fn many_tokens_are_stored_by_all_threads_alike() {
        let layout = KvLayout::new(1, 4, 20, 32).unwrap();
        let batch = RaggedBatch::new(layout, 10, &[0, 300], &[7], &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]).unwrap();
        let k: Vec<f32> = (0..300 * 80).map(|i| i as f32).collect();
        let v: Vec<f32> = k.iter().map(|x| x + 0.5).collect();
        let mut cache = vec![f32::NAN; 10 * layout.page_len()];
        store(&Pool::new(4), &batch, 0, &mut cache, &k, &v).unwrap();
        for row in 0..300 {
            let (page, slot) = (batch.page(0, row + 7), (row + 7) % 32);
            for head in 0..4 {
                for dim in 0..20 {
                    let want = k[(row * 4 + head) * 20 + dim];
                    assert_eq!(cache[layout.keys(page, 0, head) + layout.key_element(slot, dim)], want);
                    assert_eq!(cache[layout.values(page, 0, head) + slot * 20 + dim], want + 0.5);
                }
            }
        }
    }

    #[test]
    fn a_hostile_batch_is_refused() {
        let layout = layout();
        let check = |pages, offsets: &[u32], lengths: &[u32], table: &[u32]| {
            RaggedBatch::new(layout, pages, offsets, lengths, table).unwrap_err().to_string()
        };
        assert_eq!(
            check(4, &[0, 3], &[0, 0], &[0, 1]),
            "ragged batch: row_offsets has 2 elements where 3 are needed"
        );
        assert_eq!(
            check(4, &[0, 3, 3], &[0, 0], &[0, 1, 2]),
            "ragged batch: page_table has 3 elements where 2 are needed"
        );
        assert_eq!(
            check(4, &[1, 3], &[0], &[0]),
            "ragged batch: row_offsets[0] is 1, outside 0..=0 (offsets rise from 0 to the number of tokens)"
        );
        assert!(check(4, &[0, 3, 2], &[0, 0], &[0, 1]).contains("row_offsets[2] is 2, outside 3..="));
        assert_eq!(
            check(4, &[0, 3], &[30], &[0, 1]),
            "ragged batch: sequence 0 holds 30 tokens and adds 3, but its 2 pages of 16 hold 32"
        );
        assert!(check(4, &[0, 3], &[u32::MAX], &[0]).contains("holds 4294967295 tokens"));
        assert_eq!(
            check(4, &[0, 3], &[15], &[0, 4]),
            "ragged batch: page 1 of sequence 0 is page 4 of a cache of 4 pages"
        );
        assert!(check(4, &[0, 1], &[0], &[]).contains("its 0 pages of 16 hold 0"));
        assert!(RaggedBatch::new(layout, 0, &[0], &[], &[]).is_ok());
    }

    #[test]
    fn a_call_on_another_cache_is_refused() {
        let batch = RaggedBatch::new(layout(), 2, &[0, 1], &[0], &[1]).unwrap();
        let pool = Pool::new(1);
        let (k, v) = ([0.0; 15], [0.0; 15]);
        let error = |cache: usize, layer, k: &[f32], v: &[f32]| {
            store(&pool, &batch, layer, &mut vec![0f32; cache], k, v).unwrap_err().to_string()
        };
        assert_eq!(error(960, 0, &k, &v), "kv_cache::store: cache has 960 elements where 1920 are needed");
        assert_eq!(error(1921, 0, &k, &v), "kv_cache::store: cache has 1921 elements where 1920 are needed");
        assert_eq!(
            error(1920, 2, &k, &v),
            "kv_cache::store: layer is 2, which must be below the number of layers"
        );
        assert_eq!(error(1920, 0, &k[1..], &v), "kv_cache::store: k has 14 elements where 15 are needed");
        assert_eq!(error(1920, 0, &k, &v[2..]), "kv_cache::store: v has 13 elements where 15 are needed");
    }

    #[test]
    fn a_layout_of_impossible_sizes_is_refused() {
        assert!(KvLayout::new(1, 1, 1, 8).is_err());
        assert!(KvLayout::new(1, 1, 1, 48).is_err());
        assert!(KvLayout::new(0, 1, 1, 16).is_err());
        assert!(KvLayout::new(usize::MAX / 2, 3, 1, 16).is_err());
        assert!(KvLayout::new(1 << 30, 1 << 28, 1, 16).is_err());
        assert!(KvLayout::of_rows(1, 1, 1, 8).is_err());
    }
}
