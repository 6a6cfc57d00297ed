//! Causal self-attention over a paged cache, with heads that share keys and values.

use graph::Value;
use graph::ops::{KvStore, PagedAttention, Rope, Split};
use tensor::Tensor;

use super::mixer_block::MixerBlock;
use super::{Cached, Context, Norm};
use crate::Error;
use crate::key::{self, Key, Keyed, MAX_HEAD, MAX_SIZE};
use crate::state::CacheShape;

/// The heads of attention, and what bounds their scores.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dims of each head.
    pub head_dim: usize,
    /// Dims of values, if they have fewer than keys.
    pub value_dim: Option<usize>,
    /// The heads of layers without window, if they may be others.
    pub global_heads: Option<GlobalHeads>,
    /// Whether layers without window take their keys for values, if the configuration says it.
    pub keys_as_values: Option<bool>,
    /// How many of the last layers read the keys and values of earlier ones.
    pub shared_layers: usize,
    /// How far back a token sees, itself included; `None` is all the way.
    pub window: Option<usize>,
    /// How far from 0 queries, keys and values may be, if there is a limit.
    pub clip_qkv: Option<f32>,
    /// Whether queries and keys that are rotated are normalized, without weights.
    pub unit_queries: bool,
    /// Scores `s` become `c · tanh(s / c)` for this `c`.
    pub softcap: Option<f32>,
    /// Whether scores are divided by the number of the layer, which counts from 1.
    pub scores_fall: bool,
    /// Whether scores have biases by the positions of keys (ALiBi).
    pub alibi: bool,
}

/// Key and value heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalHeads {
    /// How many there are.
    pub kv_heads: usize,
    /// Dims of each; those of query heads are the same.
    pub head_dim: usize,
}

impl Keyed for AttentionConfig {
    const KEYS: &'static [Key<AttentionConfig>] = &[
        Key::size("number of heads", ["num_attention_heads", ""], MAX_SIZE, |attention| &mut attention.heads),
        Key::size("number of key-value heads", ["num_key_value_heads", ""], MAX_SIZE, |attention| {
            &mut attention.kv_heads
        }),
        Key::size("head size", ["head_dim", ""], MAX_HEAD, |attention| &mut attention.head_dim),
        Key::size("value size of heads", ["value_head_dim", ""], MAX_HEAD, |attention| {
            &mut attention.value_dim
        }),
        Key::any(["attention_k_eq_v", ""], |attention| &mut attention.keys_as_values),
        Key::any(["num_kv_shared_layers", ""], |attention| &mut attention.shared_layers),
        Key::positive("limit of queries, keys and values", ["clip_qkv", ""], |attention| {
            &mut attention.clip_qkv
        }),
        Key::any(["unit_queries", ""], |attention| &mut attention.unit_queries),
        Key::positive(
            "attention softcap",
            ["attn_logit_softcapping", "attn_logit_softcapping"],
            |attention| &mut attention.softcap,
        ),
        Key::any(["scale_attn_by_inverse_layer_idx", ""], |attention| &mut attention.scores_fall),
        Key::any(["alibi", ""], |attention| &mut attention.alibi),
    ];
}

impl AttentionConfig {
    /// Checks that the numbers fit each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        key::check(self)?;
        key::check_shares(self.heads, "heads", self.kv_heads, "key-value heads")?;
        let least = self.head_dim.min(self.global_head_dim());
        self.value_dim.map_or(Ok(()), |dims| key::check_size("value size of heads", dims, least))?;
        let Some(GlobalHeads { kv_heads, head_dim }) = self.global_heads else { return Ok(()) };
        key::check_size("head size of layers without window", head_dim, MAX_HEAD)?;
        key::check_shares(self.heads, "heads", kv_heads, "key-value heads of layers without window")
    }

    /// Dims of the heads of layers without window.
    pub(crate) fn global_head_dim(&self) -> usize {
        self.global_heads.map_or(self.head_dim, |heads| heads.head_dim)
    }
}

/// Self-attention, with rotary positions, the decoder's biases or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Dims of each head.
    pub head_dim: usize,
    /// Dims of values, if they have fewer than keys.
    pub value_dim: Option<usize>,
    /// The factor on values.
    pub value_scale: f32,
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
    /// What is multiplied with what heads read, if something is.
    pub gate: Option<AttentionGate>,
    /// The factor on the result.
    pub output_scale: f32,
}

/// What is multiplied with what the heads of attention read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionGate {
    /// The sigmoid of what the query projection gives after the queries of each head.
    WithQueries,
    /// A function of a projection of its own.
    Projected {
        /// Whether the function is a softplus, and not a sigmoid.
        softplus: bool,
        /// Whether a head has one number, and not one for each element.
        per_head: bool,
    },
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

impl MixerBlock for Attention {
    fn build(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let (query, gate) = self.queries(context, x)?;
        let query = self.place(context, "attn_q_norm", self.heads, query)?;
        let query = match context.shared.temperature.filter(|_| self.is_tempered) {
            None => query,
            Some(factor) => context.graph.mul(query, factor)?,
        };
        let Cached { ref caches, ragged: [row_offsets, cache_lengths, page_table], .. } = context.shared;
        let location = context.shared.layer.cache.expect("attention has keys and values");
        let (cache, layer) = (caches[location.input], location.layer);
        if self.keys_of.is_none() {
            let [key, value] = self.keys_and_values(context, x)?;
            let stored = [cache, key, value, row_offsets, cache_lengths, page_table];
            context.graph.ops(KvStore { layer }, &stored)?;
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
            operands.push(context.vector("attn_sinks.weight", self.heads)?);
        }
        operands.extend(context.shared.alibi);
        let attended = context.graph.op(attention, &operands)?;
        let attended = self.without_padding(context, attended)?;
        let merged = self.gated(context, x, attended, gate)?;
        let shape = [context.hidden, self.heads * self.value_dims()];
        let y = context.linear("attn_output", shape, self.output_bias, merged)?;
        context.scale(y, self.output_scale)
    }

    fn summary(&self) -> String {
        let Attention { heads, kv_heads, head_dim, .. } = self;
        format!("{heads} query, {kv_heads} key-value, {head_dim} dims each")
    }

    fn cached(&self) -> Option<CacheShape> {
        Some(CacheShape { kv_heads: self.kv_heads, head_dim: self.head_dim, has_values: true })
    }

    fn keys_of(&self) -> Option<usize> {
        self.keys_of
    }
}

impl Attention {
    /// Those of the tokens, placed in the sequence and normalized: f32[tokens, kv_heads, head_dim] each.
    fn keys_and_values(&self, context: &mut Context<'_>, x: Value) -> Result<[Value; 2], Error> {
        let key = self.project(context, "attn_k", self.kv_heads, x)?;
        let value = match self.keys_as_values {
            true => key,
            false => {
                let shape = [self.kv_heads * self.value_dims(), context.hidden];
                context.linear("attn_v", shape, self.qkv_bias, x)?
            }
        };
        let key = self.place(context, "attn_k_norm", self.kv_heads, key)?;
        let value = context.clip(value, self.clip)?;
        let value = context.reshape(&[self.kv_heads, self.value_dims()], value)?;
        let value = match self.value_norm {
            None => value,
            Some(norm) => norm.build(context, "attn_v_norm", self.value_dims(), value)?,
        };
        let value = context.scale(value, self.value_scale)?;
        Ok([key, self.with_padding(context, value)?])
    }

    fn value_dims(&self) -> usize {
        self.value_dim.unwrap_or(self.head_dim)
    }

    /// Values with as many dims as keys, as caches keep them.
    fn with_padding(&self, context: &mut Context<'_>, value: Value) -> Result<Value, Error> {
        let Some(dims) = self.value_dim else { return Ok(value) };
        let zero = context.graph.constant(Tensor::scalar(0.0f32));
        Ok(context.graph.pad(value, &[(0, 0), (0, 0), (0, self.head_dim - dims)], zero)?)
    }

    /// What heads have read, less the dims that [`Attention::with_padding`] adds.
    fn without_padding(&self, context: &mut Context<'_>, attended: Value) -> Result<Value, Error> {
        let Some(dims) = self.value_dim else { return Ok(attended) };
        let split = Split { axis: 2, sizes: vec![dims, self.head_dim - dims] };
        Ok(context.graph.ops(split, &[attended])?[0])
    }

    /// Queries, and the factors on what they read if there are some: f32[tokens, heads · head_dim] each.
    fn queries(&self, context: &mut Context<'_>, x: Value) -> Result<(Value, Option<Value>), Error> {
        if self.gate != Some(AttentionGate::WithQueries) {
            return Ok((self.project(context, "attn_q", self.heads, x)?, None));
        }
        let both = self.project(context, "attn_q", 2 * self.heads, x)?;
        let both = context.reshape(&[self.heads, 2 * self.head_dim], both)?;
        let split = Split { axis: 2, sizes: vec![self.head_dim; 2] };
        let [query, gate] = context.graph.ops(split, &[both])?[..] else { unreachable!("two parts") };
        let mut merge = |x: Value| {
            let shape = vec!["tokens".into(), (self.heads * self.head_dim).into()];
            context.graph.reshape(x, shape)
        };
        let (query, gate) = (merge(query)?, merge(gate)?);
        Ok((query, Some(context.graph.sigmoid(gate)?)))
    }

    /// What heads have read of a block's input `x`, times its gate: f32[tokens, heads, value_dim] → f32[tokens, heads · value_dim]
    fn gated(
        &self,
        context: &mut Context<'_>,
        x: Value,
        attended: Value,
        with_queries: Option<Value>,
    ) -> Result<Value, Error> {
        let width = self.heads * self.value_dims();
        let Some(AttentionGate::Projected { softplus, per_head }) = self.gate else {
            let merged = context.reshape(&[width], attended)?;
            return match with_queries {
                None => Ok(merged),
                Some(gate) => Ok(context.graph.mul(merged, gate)?),
            };
        };
        let shape = if per_head { [self.heads, 1] } else { [self.heads, self.value_dims()] };
        let gate = context.linear("attn_gate", [shape[0] * shape[1], context.hidden], false, x)?;
        let gate = if softplus { context.softplus(gate)? } else { context.graph.sigmoid(gate)? };
        let gate = context.reshape(&shape, gate)?;
        let attended = context.graph.mul(attended, gate)?;
        context.reshape(&[width], attended)
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
                let weight = context.graph.reshape(weight, shape)?;
                context.graph.mul(x, weight)?
            }
            Some(QkNorm::Whole(norm)) => {
                let x = norm.build(context, norm_name, heads * self.head_dim, x)?;
                self.split_heads(context, heads, x)?
            }
        };
        let x = context.clip(x, self.clip)?;
        let x = match self.rope {
            None => x,
            Some(rope) => {
                let (style, table) = context.shared.ropes[rope];
                context.graph.op(Rope { style }, &[x, table])?
            }
        };
        match self.qk_norm {
            Some(QkNorm::PerRotatedHead(norm)) => norm.build(context, norm_name, self.head_dim, x),
            _ => Ok(x),
        }
    }

    /// f32[tokens, heads · head_dim] → f32[tokens, heads, head_dim]
    fn split_heads(&self, context: &mut Context<'_>, heads: usize, x: Value) -> Result<Value, Error> {
        context.reshape(&[heads, self.head_dim], x)
    }

    /// f32[tokens, hidden] → f32[tokens, heads · head_dim]
    fn project(&self, context: &mut Context<'_>, name: &str, heads: usize, x: Value) -> Result<Value, Error> {
        let shape = [heads * self.head_dim, context.hidden];
        context.linear(name, shape, self.qkv_bias, x)
    }
}
