//! What a model takes in a step, and what it keeps between steps.

use graph::{Dim, Type};
use tensor::DType;

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
/// The input `u32[batch, 3]` of decoders with a state per sequence: for each sequence the slot that its state is read
/// from, the slot that it is written to, and how many of its new tokens count; those after them are padding. A sequence
/// whose cache length is 0 starts from zeros instead.
pub const STATE_TABLE: &str = "state_table";
/// The dim of states per sequence that their owner chooses.
pub const SLOTS: &str = "slots";

/// The input `u32[tokens]` of models that score pairs: which of the two texts each token is of.
pub const TOKEN_TYPES: &str = "token_types";

/// What a model keeps of each sequence between steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// What is kept of each token: a paged cache for each shape of keys and values that layers have.
    pub per_token: Vec<KeyValueCache>,
    /// What is kept of all earlier tokens together, for each shape that layers have.
    pub per_sequence: Vec<SequenceState>,
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
    /// Whether values are kept in addition to keys. If not, they are part of the keys.
    pub has_values: bool,
}

/// What a layer keeps of each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheShape {
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) has_values: bool,
}

/// The states of layers that are alike: f32, of one size however long the sequence is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceState {
    /// The input of the graph that holds them.
    pub name: String,
    /// How many layers there are.
    pub layers: usize,
    /// The shape of the state of one layer.
    pub shape: Vec<usize>,
}

/// Where the parts of the state are that a layer reads and writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LayerState {
    /// Its keys and values.
    pub(crate) cache: Option<Location>,
    /// The keys of its indexer.
    pub(crate) index: Option<Location>,
    /// Its states per sequence, in the order of `MixerBlock::sequence_shapes`.
    pub(crate) states: Vec<Location>,
}

/// Where a part of a layer's state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// Which of the caches, or of the states per sequence.
    pub(crate) input: usize,
    /// Which of its layers.
    pub(crate) layer: usize,
}

impl State {
    /// Bytes that each token takes in caches of a dtype.
    pub fn bytes_per_token(&self, cache_dtype: DType) -> usize {
        self.per_token.iter().map(|cache| cache.bytes_per_token(cache_dtype)).sum()
    }

    /// Bytes that a slot takes: what is kept of one sequence in addition to its tokens.
    pub fn bytes_per_slot(&self) -> usize {
        let elements = |state: &SequenceState| state.layers * state.shape.iter().product::<usize>();
        self.per_sequence.iter().map(elements).sum::<usize>() * DType::F32.block().bytes
    }
}

impl SequenceState {
    /// `mut f32[slots, layers, ..shape]`
    pub(crate) fn ty(&self) -> Type {
        let sizes = std::iter::once(self.layers).chain(self.shape.iter().copied()).map(Dim::from);
        Type::buffer(DType::F32, std::iter::once(Dim::symbol(SLOTS)).chain(sizes))
    }
}

impl KeyValueCache {
    /// Bytes that each token takes in caches of a dtype.
    pub fn bytes_per_token(&self, cache_dtype: DType) -> usize {
        self.parts() * self.layers * self.kv_heads * self.head_dim * cache_dtype.block().bytes
    }

    fn parts(&self) -> usize {
        if self.has_values { 2 } else { 1 }
    }

    /// `mut dtype[pages, layers, parts, kv_heads, page_size · head_dim]`, with a symbol for the number of pages; keys and
    /// values are two parts.
    pub(crate) fn ty(&self, page_size: usize, dtype: DType) -> Type {
        let sizes = [self.layers, self.parts(), self.kv_heads, page_size * self.head_dim].map(Dim::from);
        Type::buffer(dtype, std::iter::once(Dim::symbol(PAGES)).chain(sizes))
    }
}

impl State {
    /// Makes room for a layer that keeps so much of each token.
    pub(crate) fn add_to_token(&mut self, shape: CacheShape) -> Location {
        let CacheShape { kv_heads, head_dim, has_values } = shape;
        let alike = |cache: &KeyValueCache| {
            (cache.kv_heads, cache.head_dim, cache.has_values) == (kv_heads, head_dim, has_values)
        };
        let input = self.per_token.iter().position(alike).unwrap_or_else(|| {
            let name = numbered("cache", self.per_token.len());
            self.per_token.push(KeyValueCache { name, layers: 0, kv_heads, head_dim, has_values });
            self.per_token.len() - 1
        });
        let layer = self.per_token[input].layers;
        self.per_token[input].layers += 1;
        Location { input, layer }
    }

    /// Makes room for a layer that keeps a state of a shape.
    pub(crate) fn add_to_sequence(&mut self, shape: Vec<usize>) -> Location {
        let input = self.per_sequence.iter().position(|state| state.shape == shape).unwrap_or_else(|| {
            let name = numbered("state", self.per_sequence.len());
            self.per_sequence.push(SequenceState { name, layers: 0, shape });
            self.per_sequence.len() - 1
        });
        let layer = self.per_sequence[input].layers;
        self.per_sequence[input].layers += 1;
        Location { input, layer }
    }
}

/// The name of an input of which there are several.
fn numbered(name: &str, index: usize) -> String {
    if index == 0 { name.to_string() } else { format!("{name}.{index}") }
}
