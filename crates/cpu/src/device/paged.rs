//! Rotary embedding and the paged KV cache as kernels of the device.

use std::borrow::Cow;
use std::sync::Arc;

use bytemuck::Pod;
use engine::{Call, Kernel, Operand};
use graph::ops::{PagedAttention, RopeStyle};
use tensor::{DType, Shape, bf16, f16};

use super::{Cpu, kernel};
use crate::Pool;
use crate::kernels::attention::{self, Attention, CacheElement};
use crate::kernels::kv_cache::{self, KvLayout, RaggedBatch};
use crate::kernels::operands::{elements, elements_mut, view};
use crate::kernels::rope::{self, RopeShape};
use crate::kernels::variant::Variant;
use crate::vec::Scalar;

/// The cosines and sines of positions.
pub(super) fn rope_table(cpu: &Cpu, scale: f32) -> Option<Arc<dyn Kernel>> {
    kernel(RopeTableKernel { scale, pool: Arc::clone(&cpu.pool) })
}

/// Turns pairs by the angles of a table.
pub(super) fn rope(cpu: &Cpu, style: RopeStyle) -> Option<Arc<dyn Kernel>> {
    let style = match style {
        RopeStyle::Interleaved => rope::RopeStyle::Interleaved,
        RopeStyle::HalfSplit => rope::RopeStyle::HalfSplit,
    };
    kernel(RopeKernel { style, pool: Arc::clone(&cpu.pool) })
}

/// Writes new keys and values to their pages.
pub(super) fn kv_store(cpu: &Cpu, layer: usize) -> Option<Arc<dyn Kernel>> {
    kernel(KvStoreKernel { layer, pool: Arc::clone(&cpu.pool) })
}

/// Attention to the pages of a cache.
pub(super) fn attention(cpu: &Cpu, op: &PagedAttention, cache: DType) -> Option<Arc<dyn Kernel>> {
    match cache {
        DType::F32 => attention_to::<f32>(cpu, op),
        DType::BF16 => attention_to::<bf16>(cpu, op),
        DType::F16 => attention_to::<f16>(cpu, op),
        _ => None,
    }
}

fn attention_to<T: CacheElement + Pod>(cpu: &Cpu, op: &PagedAttention) -> Option<Arc<dyn Kernel>> {
    kernel(AttentionKernel { op: *op, variant: cpu.pick(T::VARIANTS), pool: Arc::clone(&cpu.pool) })
}

struct RopeTableKernel {
    scale: f32,
    pool: Arc<Pool>,
}

impl Kernel for RopeTableKernel {
    fn name(&self) -> String {
        "rope_table".to_string()
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        /// Positions that one thread takes at a time.
        const POSITIONS: usize = 16;
        let (positions, frequencies) =
            (elements(view(&call, 0).bytes), elements::<f32>(view(&call, 1).bytes));
        let table = elements_mut::<f32>(call.outputs[0].bytes);
        if !table.is_empty() {
            self.pool.run_on_pieces(table, POSITIONS * 2 * frequencies.len(), &|index, rows| {
                let count = rows.len() / (2 * frequencies.len());
                let positions = &positions[index * POSITIONS..][..count];
                rows.copy_from_slice(&rope::rope_table(positions, &frequencies, self.scale));
            });
        }
        Ok(())
    }
}

struct RopeKernel {
    style: rope::RopeStyle,
    pool: Arc<Pool>,
}

impl Kernel for RopeKernel {
    fn name(&self) -> String {
        "rope".to_string()
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (x, table) = (view(&call, 0), view(&call, 1));
        let [tokens, heads, head_dim] = [0, 1, 2].map(|axis| x.shape[axis]);
        let shape = RopeShape { tokens, heads, head_dim, pairs: table.shape[2] };
        let out = elements_mut(call.outputs[0].bytes);
        rope::rope(&self.pool, shape, self.style, &elements(table.bytes), &elements(x.bytes), out);
        Ok(())
    }
}

struct KvStoreKernel {
    layer: usize,
    pool: Arc<Pool>,
}

impl Kernel for KvStoreKernel {
    fn name(&self) -> String {
        "kv_store".to_string()
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (k, v) = (view(&call, 1), view(&call, 2));
        let lists = Lists::new(&call, 3);
        let Operand::Buffer(cache) = &mut call.inputs[0] else {
            panic!("operand 0 of kv_store is no buffer")
        };
        if k.bytes.is_empty() {
            return Ok(());
        }
        let batch = lists.batch(&cache.shape, k.shape[2])?;
        let (k, v) = (elements(k.bytes), elements(v.bytes));
        let store = match cache.dtype {
            DType::F32 => store_in::<f32>,
            DType::BF16 => store_in::<bf16>,
            DType::F16 => store_in::<f16>,
            other => unreachable!("a cache of {other}"),
        };
        store(&self.pool, &batch, self.layer, cache.bytes, &k, &v)
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
    kv_cache::store(pool, batch, layer, elements_mut::<T>(cache), k, v).map_err(|error| error.to_string())
}

struct AttentionKernel<T: 'static> {
    op: PagedAttention,
    variant: &'static Variant<attention::Kernel<T>>,
    pool: Arc<Pool>,
}

impl<T: CacheElement + Pod> Kernel for AttentionKernel<T> {
    fn name(&self) -> String {
        format!("paged_attention.{}", self.variant.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (q, cache) = (view(&call, 0), view(&call, 1));
        if q.bytes.is_empty() {
            return Ok(());
        }
        let PagedAttention { layer, scale, window, softcap } = self.op;
        let [_, heads, head_dim] = [0, 1, 2].map(|axis| q.shape[axis]);
        let lists = Lists::new(&call, 2);
        let batch = lists.batch(&cache.shape, head_dim)?;
        let attention = Attention { heads, scale, window, softcap };
        let (q, cache) = (elements(q.bytes), elements::<T>(cache.bytes));
        let out = elements_mut(call.outputs[0].bytes);
        attention::attention_with(self.variant, &self.pool, &attention, &batch, layer, &cache, &q, out)
            .map_err(|error| error.to_string())
    }
}

/// The operands that describe a ragged batch.
struct Lists<'m> {
    row_offsets: Cow<'m, [u32]>,
    cache_lengths: Cow<'m, [u32]>,
    page_table: Cow<'m, [u32]>,
}

impl<'m> Lists<'m> {
    /// The three operands from `first` on.
    fn new(call: &Call<'_, 'm>, first: usize) -> Lists<'m> {
        let [row_offsets, cache_lengths, page_table] =
            [0, 1, 2].map(|i| elements(view(call, first + i).bytes));
        Lists { row_offsets, cache_lengths, page_table }
    }

    /// The batch they describe, checked against a cache [pages, layers, 2, kv_heads, page_size · head_dim].
    fn batch(&self, cache: &Shape, head_dim: usize) -> Result<RaggedBatch<'_>, String> {
        let layout = KvLayout::new(cache[1], cache[3], head_dim, cache[4] / head_dim);
        layout
            .and_then(|layout| {
                RaggedBatch::new(layout, cache[0], &self.row_offsets, &self.cache_lengths, &self.page_table)
            })
            .map_err(|error| error.to_string())
    }
}
