//! What a decoder takes in a step, and what it keeps between steps.

use graph::{Dim, Type};
use tensor::DType;

use crate::{Decoder, Mixer};

/// The input `u32[tokens]`: the new tokens of all sequences of a ragged batch, end to end.
pub const TOKENS: &str = "tokens";
/// The input `u32[batch + 1]`: where the new tokens of each sequence start, and the end.
pub const ROW_OFFSETS: &str = "row_offsets";
/// The input `u32[batch]`: the tokens of each sequence that are in the caches already.
pub const CACHE_LENGTHS: &str = "cache_lengths";
/// The input `u32[batch, max_pages]`: in which pages they are; all caches share it.
pub const PAGE_TABLE: &str = "page_table";
/// The input `u32[outputs]`: the rows whose logits, or hidden states, are wanted.
pub const OUTPUT_ROWS: &str = "output_rows";
/// The dim of caches that their owner chooses.
pub const PAGES: &str = "pages";

/// What a decoder keeps of each sequence between steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// What is kept of each token: a paged cache for each shape of keys and values that layers have.
    pub per_token: Vec<KeyValueCache>,
}

/// The keys and values of layers that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValueCache {
    /// The input of the graph that holds them.
    pub name: String,
    /// How many layers there are.
    pub layers: usize,
    /// Their key and value heads.
    pub kv_heads: usize,
    /// Dims of each head.
    pub head_dim: usize,
}

/// Where the keys and values of a layer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Which of the caches.
    pub(crate) cache: usize,
    /// Which of its layers.
    pub(crate) layer: usize,
}

impl State {
    /// Bytes that each token takes in caches of a dtype.
    pub fn bytes_per_token(&self, cache_dtype: DType) -> usize {
        let elements: usize = self.per_token.iter().map(KeyValueCache::elements_per_token).sum();
        elements * cache_dtype.block().bytes
    }
}

impl KeyValueCache {
    fn elements_per_token(&self) -> usize {
        2 * self.layers * self.kv_heads * self.head_dim
    }

    /// `mut dtype[pages, layers, 2, kv_heads, page_size · head_dim]`, with a symbol for the number of pages.
    fn ty(&self, page_size: usize, dtype: DType) -> Type {
        let sizes = [self.layers, 2, self.kv_heads, page_size * self.head_dim].map(Dim::from);
        Type::buffer(dtype, std::iter::once(Dim::symbol(PAGES)).chain(sizes))
    }
}

impl Decoder {
    /// What is kept between steps.
    pub fn state(&self) -> State {
        self.state_and_slots().0
    }

    /// What a step takes, by name: the ragged batch, and the state, which the step changes.
    ///
    /// All but the state is u32; caches keep `cache_dtype` in pages of `page_size` tokens.
    pub fn inputs(&self, page_size: usize, cache_dtype: DType) -> Vec<(String, Type)> {
        let batch = Dim::symbol("batch");
        let mut inputs = vec![
            (TOKENS.to_string(), Type::new(DType::U32, ["tokens"])),
            (ROW_OFFSETS.to_string(), Type::new(DType::U32, [&batch + &Dim::from(1)])),
            (CACHE_LENGTHS.to_string(), Type::new(DType::U32, [batch.clone()])),
            (PAGE_TABLE.to_string(), Type::new(DType::U32, [batch, Dim::symbol("max_pages")])),
            (OUTPUT_ROWS.to_string(), Type::new(DType::U32, ["outputs"])),
        ];
        let caches = self.state().per_token;
        inputs.extend(caches.into_iter().map(|cache| (cache.name.clone(), cache.ty(page_size, cache_dtype))));
        inputs
    }

    /// The state, and where in it each layer has its part.
    pub(crate) fn state_and_slots(&self) -> (State, Vec<Slot>) {
        let mut per_token: Vec<KeyValueCache> = Vec::new();
        let slots = self.layers.iter().map(|layer| {
            let Mixer::Attention(attention) = layer.mixer;
            let (kv_heads, head_dim) = (attention.kv_heads, attention.head_dim);
            let alike = |cache: &KeyValueCache| (cache.kv_heads, cache.head_dim) == (kv_heads, head_dim);
            let cache = per_token.iter().position(alike).unwrap_or_else(|| {
                let name = match per_token.len() {
                    0 => "cache".to_string(),
                    count => format!("cache.{count}"),
                };
                per_token.push(KeyValueCache { name, layers: 0, kv_heads, head_dim });
                per_token.len() - 1
            });
            let layer = per_token[cache].layers;
            per_token[cache].layers += 1;
            Slot { cache, layer }
        });
        let slots = slots.collect();
        (State { per_token }, slots)
    }
}
