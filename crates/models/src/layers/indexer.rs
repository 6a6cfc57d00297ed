//! The choice of the positions that a token attends to, by small heads with a cache of their own (DeepSeek-AI,
//! "DeepSeek-V3.2", 2025).

use graph::Value;
use graph::ops::{LatentStore, Reshape, Rope, TopPositions};

use super::{Cached, Context, Norm, linear, scale};
use crate::Error;
use crate::state::LayerState;

/// `eps` of the norm of keys.
const EPS: f32 = 1e-6;

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
        state: &LayerState,
        prefix: &str,
        x: Value,
        (latent, rank): (Value, usize),
    ) -> Result<Value, Error> {
        let (hidden, width) = (context.hidden, self.heads * self.dims);
        let query = linear(context, &format!("{prefix}.indexer.attn_q_b"), [width, rank], false, latent)?;
        let query = self.place(context, self.heads, query)?;
        let key = linear(context, &format!("{prefix}.indexer.attn_k"), [self.dims, hidden], false, x)?;
        let key = Norm::layer(EPS).build(context, &format!("{prefix}.indexer.k_norm"), self.dims, key)?;
        let key = self.place(context, 1, key)?;
        let weights = linear(context, &format!("{prefix}.indexer.proj"), [self.heads, hidden], false, x)?;
        let weights = scale(context, weights, 1.0 / (self.heads as f32).sqrt())?;
        let Cached { ref caches, ragged: [row_offsets, cache_lengths, page_table], .. } = context.shared;
        let location = state.index.expect("an indexer keeps keys");
        let (cache, layer) = (caches[location.input], location.layer);
        let stored = [cache, key, row_offsets, cache_lengths, page_table];
        context.graph.push(LatentStore { layer }.into(), &stored)?;
        let top = TopPositions { layer, k: self.positions, scale: 1.0 / (self.dims as f32).sqrt() };
        let scored = [query, weights, cache, row_offsets, cache_lengths, page_table];
        Ok(context.graph.push_one(top.into(), &scored)?)
    }

    /// The number of weights, for latents of queries of a rank.
    pub(super) fn parameters(&self, hidden: usize, rank: usize) -> usize {
        rank * self.heads * self.dims + hidden * (self.dims + self.heads) + 2 * self.dims
    }

    /// Rotated heads: f32[tokens, heads · dims] → f32[tokens, heads, dims]
    fn place(&self, context: &mut Context<'_>, heads: usize, x: Value) -> Result<Value, Error> {
        let shape = vec!["tokens".into(), heads.into(), self.dims.into()];
        let x = context.graph.push_one(Reshape { shape }.into(), &[x])?;
        let (style, table) = context.shared.ropes[self.rope];
        Ok(context.graph.push_one(Rope { style }.into(), &[x, table])?)
    }
}
