//! Ragged batches and their pages as shaders see them: bindings, numbers and functions.

use tensor::DType;

use crate::shader::Access;

/// Functions of the rows of a batch. They need the first binding of [`LISTS`], the parameters `tokens`, `batch` and `group`,
/// and the constant `UNIT`.
pub(super) const UNITS: &str = include_str!("units.wgsl");
/// Functions of its rows and positions. They need the first two bindings of [`LISTS`], the parameters of [`PARAMS`], and the constant `UNIT`.
pub(super) const RAGGED: &str = concat!(include_str!("units.wgsl"), include_str!("first_position.wgsl"));
/// Functions of its pages. They need the last binding too.
pub(super) const PAGES: &str = include_str!("pages.wgsl");

/// The operands that describe a batch.
pub(super) const LISTS: [(&str, DType, Access); 3] = [
    ("row_offsets", DType::U32, Access::Memory),
    ("cache_lengths", DType::U32, Access::Memory),
    ("page_table", DType::U32, Access::Memory),
];

/// Names of what [`Batch::params`] gives.
pub(super) const PARAMS: [&str; 11] = [
    "tokens",
    "batch",
    "max_pages",
    "page_shift",
    "pages",
    "page_len",
    "kv_heads",
    "group",
    "dims",
    "layer_start",
    "values_start",
];

/// The sizes of a batch, and of a layer of the cache it uses.
pub(super) struct Batch {
    pub(super) tokens: usize,
    pub(super) sequences: usize,
    pub(super) max_pages: usize,
    pub(super) page_size: usize,
    pub(super) pages: usize,
    pub(super) layers: usize,
    /// 2 with keys and values apart, 1 with rows that are both.
    pub(super) parts: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
}

impl Batch {
    /// The batch of so many tokens, from the shapes of a cache and of a table of its pages.
    pub(super) fn new(tokens: usize, head_dim: usize, cache: &[usize], page_table: &[usize]) -> Batch {
        let (sequences, max_pages) = (page_table[0], page_table[1]);
        let (page_size, pages, layers) = (cache[4] / head_dim.max(1), cache[0], cache[1]);
        let (parts, kv_heads) = (cache[2], cache[3]);
        Batch { tokens, sequences, max_pages, page_size, pages, layers, parts, kv_heads, head_dim }
    }

    /// Whether there is nothing to compute.
    pub(super) fn is_empty(&self) -> bool {
        [self.tokens, self.sequences, self.max_pages, self.pages, self.head_dim].contains(&0)
    }

    /// The most positions that a sequence has.
    pub(super) fn capacity(&self) -> usize {
        self.max_pages * self.page_size
    }

    /// How many numbers of units of `unit` rows there are, with `group` rows a token.
    pub(super) fn units(&self, group: usize, unit: usize) -> usize {
        self.tokens * group / unit + self.sequences
    }

    /// The parameters of a shader that uses a layer of the cache, with `group` rows a token.
    pub(super) fn params(&self, layer: usize, group: usize) -> [u32; PARAMS.len()] {
        let head_len = self.page_size * self.head_dim;
        let part_len = self.kv_heads * head_len;
        [
            self.tokens,
            self.sequences,
            self.max_pages,
            self.page_size.ilog2() as usize,
            self.pages,
            self.layers * self.parts * part_len,
            self.kv_heads,
            group,
            self.head_dim,
            layer * self.parts * part_len,
            (self.parts - 1) * part_len,
        ]
        .map(|size| size as u32)
    }
}
