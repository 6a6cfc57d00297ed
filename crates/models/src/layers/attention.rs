//! Causal self-attention over a paged cache, with heads that share keys and values.

use graph::Value;
use graph::ops::{KvStore, PagedAttention, Reshape, Rope};

use super::{Context, linear};
use crate::Error;

/// Self-attention with rotary positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Dims of each head.
    pub head_dim: usize,
    /// The factor on scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Whether query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// How far back a token sees, itself included; `None` is all the way.
    pub window: Option<usize>,
}

impl Attention {
    /// f32[tokens, hidden] → f32[tokens, hidden]; stores the tokens' keys and values in the cache.
    pub(crate) fn build(
        &self,
        context: &mut Context<'_>,
        layer: usize,
        prefix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let query = self.project(context, prefix, "attn_q", self.heads, x)?;
        let key = self.project(context, prefix, "attn_k", self.kv_heads, x)?;
        let value = self.project(context, prefix, "attn_v", self.kv_heads, x)?;
        let (style, table) = context.rope;
        let query = context.graph.push_one(Rope { style }.into(), &[query, table])?;
        let key = context.graph.push_one(Rope { style }.into(), &[key, table])?;
        let (cache, [row_offsets, cache_lengths, page_table]) = (context.cache, context.ragged);
        let stored = [cache, key, value, row_offsets, cache_lengths, page_table];
        context.graph.push(KvStore { layer }.into(), &stored)?;
        let attention = PagedAttention { layer, scale: self.scale, window: self.window, softcap: None };
        let attended = context
            .graph
            .push_one(attention.into(), &[query, cache, row_offsets, cache_lengths, page_table])?;
        let width = self.heads * self.head_dim;
        let merged = context
            .graph
            .push_one(Reshape { shape: vec!["tokens".into(), width.into()] }.into(), &[attended])?;
        let bias = self.output_bias.then(|| format!("{prefix}.attn_output.bias"));
        linear(
            context,
            &format!("{prefix}.attn_output.weight"),
            [context.hidden, width],
            bias.as_deref(),
            merged,
        )
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let (query, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let biases =
            if self.qkv_bias { query + 2 * keys } else { 0 } + if self.output_bias { hidden } else { 0 };
        2 * hidden * (query + keys) + biases
    }

    /// f32[tokens, hidden] → f32[tokens, heads, head_dim]
    fn project(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        name: &str,
        heads: usize,
        x: Value,
    ) -> Result<Value, Error> {
        let bias = self.qkv_bias.then(|| format!("{prefix}.{name}.bias"));
        let shape = [heads * self.head_dim, context.hidden];
        let projected = linear(context, &format!("{prefix}.{name}.weight"), shape, bias.as_deref(), x)?;
        let shape = vec!["tokens".into(), heads.into(), self.head_dim.into()];
        Ok(context.graph.push_one(Reshape { shape }.into(), &[projected])?)
    }
}
