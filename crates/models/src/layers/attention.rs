//! Causal self-attention over a paged cache, with heads that share keys and values.

use graph::Value;
use graph::ops::{Binary, KvStore, PagedAttention, Reshape, Rope, Split, Unary};

use super::{Cached, Context, Norm, clip, linear, scale};
use crate::Error;
use crate::state::LayerState;

/// Self-attention, with rotary positions, the decoder's biases or none.
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
    /// Queries, keys and values are no further from 0 than this; queries and keys after their norm.
    pub clip: Option<f32>,
    /// The norm of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// The norm of values.
    pub value_norm: Option<Norm>,
    /// Whether keys, before their norm and rotation, are values too.
    pub keys_as_values: bool,
    /// The earlier layer whose keys and values it reads; `None` if it has its own.
    pub keys_of: Option<usize>,
    /// Which of the decoder's rotary embeddings turns queries and keys; `None` leaves them as they are.
    pub rope: Option<usize>,
    /// How far back a token sees, itself included; `None` is all the way.
    pub window: Option<usize>,
    /// Positions are counted off in chunks of so many, and a token sees none before its own chunk; `None` is one chunk.
    pub chunk: Option<usize>,
    /// Whether queries have the decoder's factor on them, if it has one.
    pub is_tempered: bool,
    /// Scores `s` become `c · tanh(s / c)` for this `c`, after scaling.
    pub softcap: Option<f32>,
    /// Whether each head has a sink: the score of one more position, which has no value.
    pub sinks: bool,
    /// Whether what heads read is multiplied with the sigmoid of gates, which the query projection gives after the queries
    /// of each head.
    pub gated: bool,
    /// The factor on the result.
    pub output_scale: f32,
}

/// Which elements of queries and keys are normalized together, before they are rotated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QkNorm {
    /// Those of a head, with one weight for all heads.
    PerHead(Norm),
    /// As [`QkNorm::PerHead`], but after they are rotated.
    PerRotatedHead(Norm),
    /// Those of a head, by a layer norm without bias and with weights of each head's own.
    EachHead {
        /// Added to the variance.
        eps: f32,
    },
    /// Those of all heads.
    Whole(Norm),
}

impl Attention {
    /// f32[tokens, hidden] → f32[tokens, hidden]; stores the tokens' keys and values in the cache, if it has its own.
    pub(crate) fn build(
        &self,
        context: &mut Context<'_>,
        state: &LayerState,
        prefix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let (query, gate) = self.queries(context, prefix, x)?;
        let query = self.place(context, &format!("{prefix}.attn_q_norm"), self.heads, query)?;
        let query = match context.shared.temperature.filter(|_| self.is_tempered) {
            None => query,
            Some(factor) => context.graph.push_one(Binary::Mul.into(), &[query, factor])?,
        };
        let Cached { ref caches, ragged: [row_offsets, cache_lengths, page_table], .. } = context.shared;
        let location = state.cache.expect("attention has keys and values");
        let (cache, layer) = (caches[location.input], location.layer);
        if self.keys_of.is_none() {
            let [key, value] = self.keys_and_values(context, prefix, x)?;
            let stored = [cache, key, value, row_offsets, cache_lengths, page_table];
            context.graph.push(KvStore { layer }.into(), &stored)?;
        }
        let attention = PagedAttention {
            layer,
            scale: self.scale,
            window: self.window,
            chunk: self.chunk,
            softcap: self.softcap,
            values: None,
        };
        let mut operands = vec![query, cache, row_offsets, cache_lengths, page_table];
        if self.sinks {
            operands.push(context.vector(&format!("{prefix}.attn_sinks.weight"), self.heads)?);
        }
        operands.extend(context.shared.alibi);
        let attended = context.graph.push_one(attention.into(), &operands)?;
        let width = self.heads * self.head_dim;
        let merged = context
            .graph
            .push_one(Reshape { shape: vec!["tokens".into(), width.into()] }.into(), &[attended])?;
        let merged = match gate {
            None => merged,
            Some(gate) => context.graph.push_one(Binary::Mul.into(), &[merged, gate])?,
        };
        let shape = [context.hidden, width];
        let y = linear(context, &format!("{prefix}.attn_output"), shape, self.output_bias, merged)?;
        scale(context, y, self.output_scale)
    }

    /// Those of the tokens, placed in the sequence and normalized: f32[tokens, kv_heads, head_dim] each.
    fn keys_and_values(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        x: Value,
    ) -> Result<[Value; 2], Error> {
        let key = self.project(context, prefix, "attn_k", self.kv_heads, x)?;
        let value = match self.keys_as_values {
            true => key,
            false => self.project(context, prefix, "attn_v", self.kv_heads, x)?,
        };
        let key = self.place(context, &format!("{prefix}.attn_k_norm"), self.kv_heads, key)?;
        let value = clip(context, value, self.clip)?;
        let value = self.split_heads(context, self.kv_heads, value)?;
        let value = match self.value_norm {
            None => value,
            Some(norm) => norm.build(context, &format!("{prefix}.attn_v_norm"), self.head_dim, value)?,
        };
        Ok([key, value])
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let query = self.heads * self.head_dim;
        let keys = if self.keys_of.is_some() { 0 } else { self.kv_heads * self.head_dim };
        let gates = if self.gated { query } else { 0 };
        let values = if self.keys_as_values { 0 } else { keys };
        let biases = if self.qkv_bias { query + gates + keys + values } else { 0 }
            + if self.output_bias { hidden } else { 0 };
        let value_norm = match self.value_norm {
            Some(norm) if keys > 0 => norm.parameters(self.head_dim),
            _ => 0,
        };
        let norms = match self.qk_norm {
            None => 0,
            Some(QkNorm::PerHead(norm) | QkNorm::PerRotatedHead(norm)) => {
                (1 + usize::from(keys > 0)) * norm.parameters(self.head_dim)
            }
            Some(QkNorm::EachHead { .. }) => query + keys,
            Some(QkNorm::Whole(norm)) => norm.parameters(query) + norm.parameters(keys),
        };
        let sinks = if self.sinks { self.heads } else { 0 };
        hidden * (2 * query + gates + keys + values) + biases + norms + value_norm + sinks
    }

    /// Queries, and the factors on what they read if there are some: f32[tokens, heads · head_dim] each.
    fn queries(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        x: Value,
    ) -> Result<(Value, Option<Value>), Error> {
        if !self.gated {
            return Ok((self.project(context, prefix, "attn_q", self.heads, x)?, None));
        }
        let both = self.project(context, prefix, "attn_q", 2 * self.heads, x)?;
        let shape = vec!["tokens".into(), self.heads.into(), (2 * self.head_dim).into()];
        let both = context.graph.push_one(Reshape { shape }.into(), &[both])?;
        let split = Split { axis: 2, sizes: vec![self.head_dim; 2] };
        let [query, gate] = context.graph.push(split.into(), &[both])?[..] else { unreachable!("two parts") };
        let mut merge = |x: Value| {
            let shape = vec!["tokens".into(), (self.heads * self.head_dim).into()];
            context.graph.push_one(Reshape { shape }.into(), &[x])
        };
        let (query, gate) = (merge(query)?, merge(gate)?);
        Ok((query, Some(context.graph.push_one(Unary::Sigmoid.into(), &[gate])?)))
    }

    /// Normalizes and rotates queries or keys: f32[tokens, heads · head_dim] → f32[tokens, heads, head_dim]
    fn place(
        &self,
        context: &mut Context<'_>,
        norm_name: &str,
        heads: usize,
        x: Value,
    ) -> Result<Value, Error> {
        let x = match self.qk_norm {
            None | Some(QkNorm::PerRotatedHead(_)) => self.split_heads(context, heads, x)?,
            Some(QkNorm::PerHead(norm)) => {
                let x = self.split_heads(context, heads, x)?;
                norm.build(context, norm_name, self.head_dim, x)?
            }
            Some(QkNorm::EachHead { eps }) => {
                let x = self.split_heads(context, heads, x)?;
                let norm = Norm::Layer { eps, weight: false, bias: false };
                let x = norm.build(context, norm_name, self.head_dim, x)?;
                let weight = context.vector(&format!("{norm_name}.weight"), heads * self.head_dim)?;
                let shape = vec![heads.into(), self.head_dim.into()];
                let weight = context.graph.push_one(Reshape { shape }.into(), &[weight])?;
                context.graph.push_one(Binary::Mul.into(), &[x, weight])?
            }
            Some(QkNorm::Whole(norm)) => {
                let x = norm.build(context, norm_name, heads * self.head_dim, x)?;
                self.split_heads(context, heads, x)?
            }
        };
        let x = clip(context, x, self.clip)?;
        let x = match self.rope {
            None => x,
            Some(rope) => {
                let (style, table) = context.shared.ropes[rope];
                context.graph.push_one(Rope { style }.into(), &[x, table])?
            }
        };
        match self.qk_norm {
            Some(QkNorm::PerRotatedHead(norm)) => norm.build(context, norm_name, self.head_dim, x),
            _ => Ok(x),
        }
    }

    /// f32[tokens, heads · head_dim] → f32[tokens, heads, head_dim]
    fn split_heads(&self, context: &mut Context<'_>, heads: usize, x: Value) -> Result<Value, Error> {
        let shape = vec!["tokens".into(), heads.into(), self.head_dim.into()];
        Ok(context.graph.push_one(Reshape { shape }.into(), &[x])?)
    }

    /// f32[tokens, hidden] → f32[tokens, heads · head_dim]
    fn project(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        name: &str,
        heads: usize,
        x: Value,
    ) -> Result<Value, Error> {
        let shape = [heads * self.head_dim, context.hidden];
        linear(context, &format!("{prefix}.{name}"), shape, self.qkv_bias, x)
    }
}
