//! The choice of the positions that a token attends to, by small heads with a cache of their own (DeepSeek-AI,
//! "DeepSeek-V3.2", 2025).

use graph::Value;
use graph::ops::{LatentStore, Rope, TopPositions};

use super::{Cached, Context, Norm};
use crate::Error;
use crate::key::{Key, Keyed, MAX_HEAD};

/// `eps` of the norm of keys.
const EPS: f32 = 1e-6;

/// More positions than this are no model but a damaged or hostile file.
const MAX_CHOSEN: usize = 1 << 16;

/// Heads that choose positions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexerConfig {
    /// How many there are.
    pub heads: usize,
    /// Dims of each.
    pub dims: usize,
    /// How many positions they choose.
    pub positions: usize,
}

impl Keyed for IndexerConfig {
    const KEYS: &'static [Key<IndexerConfig>] = &[
        Key::size(
            "number of heads that choose positions",
            ["index_n_heads", "attention.indexer.head_count"],
            MAX_HEAD,
            |indexer| &mut indexer.heads,
        ),
        Key::size(
            "size of heads that choose positions",
            ["index_head_dim", "attention.indexer.key_length"],
            MAX_HEAD,
            |indexer| &mut indexer.dims,
        ),
        Key::size(
            "number of chosen positions",
            ["index_topk", "attention.indexer.top_k"],
            MAX_CHOSEN,
            |indexer| &mut indexer.positions,
        ),
    ];
}

/// Heads that score earlier positions for each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexer {
    /// How many there are; they share one key of each token.
    pub heads: usize,
    /// Dims of each.
    pub dims: usize,
    /// How many positions are chosen.
    pub positions: usize,
    /// Which of the decoder's rotary embeddings turns the first dims of queries and keys.
    pub rope: usize,
}

/// The positions that a token attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All up to its own.
    All,
    /// Those that an indexer of the layer chooses.
    Indexed(Indexer),
    /// Those that the indexer of an earlier layer has chosen.
    Shared,
}

impl Indexer {
    /// The chosen positions, u32[tokens, positions]; stores the tokens' keys in the cache. `latent` is that of queries,
    /// f32[tokens, rank].
    pub(super) fn build(
        &self,
        context: &mut Context<'_>,
        x: Value,
        (latent, rank): (Value, usize),
    ) -> Result<Value, Error> {
        let (hidden, width) = (context.hidden, self.heads * self.dims);
        let query = context.linear("indexer.attn_q_b", [width, rank], false, latent)?;
        let query = self.place(context, self.heads, query)?;
        let key = context.linear("indexer.attn_k", [self.dims, hidden], false, x)?;
        let key = Norm::layer(EPS).build(context, "indexer.k_norm", self.dims, key)?;
        let key = self.place(context, 1, key)?;
        let weights = context.linear("indexer.proj", [self.heads, hidden], false, x)?;
        let weights = context.scale(weights, 1.0 / (self.heads as f32).sqrt())?;
        let Cached { ref caches, ragged: [row_offsets, cache_lengths, page_table], .. } = context.shared;
        let location = context.shared.layer.index.expect("an indexer keeps keys");
        let (cache, layer) = (caches[location.input], location.layer);
        let stored = [cache, key, row_offsets, cache_lengths, page_table];
        context.graph.ops(LatentStore { layer }, &stored)?;
        let top = TopPositions { layer, k: self.positions, scale: 1.0 / (self.dims as f32).sqrt() };
        let scored = [query, weights, cache, row_offsets, cache_lengths, page_table];
        Ok(context.graph.op(top, &scored)?)
    }

    /// Rotated heads: f32[tokens, heads · dims] → f32[tokens, heads, dims]
    fn place(&self, context: &mut Context<'_>, heads: usize, x: Value) -> Result<Value, Error> {
        let x = context.reshape(&[heads, self.dims], x)?;
        let (style, table) = context.shared.ropes[self.rope];
        Ok(context.graph.op(Rope { style }, &[x, table])?)
    }
}
