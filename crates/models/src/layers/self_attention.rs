//! Attention within each text of a batch, in both directions.

use graph::Value;
use graph::ops::{Broadcast, RaggedAttention, Rope, RopeStyle};

use super::{Context, Norm};
use crate::Error;

/// Self-attention of every token to every token of its text, or to those near it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfAttention {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; each serves as many query heads.
    pub kv_heads: usize,
    /// Dims of each head.
    pub head_dim: usize,
    /// The factor on scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Whether the projections have biases.
    pub bias: bool,
    /// The norm of the queries and keys of each head, if they have one.
    pub qk_norm: Option<Norm>,
    /// Which of the encoder's rotary embeddings turns queries and keys, if one does.
    pub rope: Option<usize>,
    /// How far a key may be from its query, if that is limited.
    pub window: Option<usize>,
}

/// What all layers of an encoder attend by.
pub(crate) struct Texts {
    /// Where each text starts: u32[batch + 1]
    pub(crate) row_offsets: Value,
    /// What scores have added to them by relative position: f32[heads, distances]
    pub(crate) bias: Option<Value>,
    /// Which dims pair up, and the table of angles, for each of the encoder's ropes.
    pub(crate) ropes: Vec<(RopeStyle, Value)>,
    /// The bias that keeps keys beyond a window out, for each window.
    pub(crate) windows: Vec<(usize, Value)>,
}

impl SelfAttention {
    /// f32[tokens, hidden] → f32[tokens, hidden]
    pub(crate) fn build(&self, context: &mut Context<'_, Texts>, x: Value) -> Result<Value, Error> {
        let width = self.heads * self.head_dim;
        let mut operands = Vec::with_capacity(5);
        for (name, heads) in [("attn_q", self.heads), ("attn_k", self.kv_heads), ("attn_v", self.kv_heads)] {
            let y = self.project(context, name, heads, x)?;
            let y = if name == "attn_v" { y } else { self.turn(context, &format!("{name}_norm"), y)? };
            operands.push(self.repeat(context, heads, y)?);
        }
        operands.push(context.shared.row_offsets);
        let window = |&(window, bias): &(usize, Value)| (Some(window) == self.window).then_some(bias);
        operands.extend(context.shared.windows.iter().find_map(window).or(context.shared.bias));
        let attended = context.graph.op(RaggedAttention { scale: self.scale }, &operands)?;
        let merged = context.reshape(&[width], attended)?;
        context.linear("attn_output", [context.hidden, width], self.bias, merged)
    }

    /// f32[tokens, hidden] → f32[tokens, heads, head_dim]
    fn project(
        &self,
        context: &mut Context<'_, Texts>,
        name: &str,
        heads: usize,
        x: Value,
    ) -> Result<Value, Error> {
        let y = context.linear(name, [heads * self.head_dim, context.hidden], self.bias, x)?;
        context.reshape(&[heads, self.head_dim], y)
    }

    /// Queries or keys, normalized and turned.
    fn turn(&self, context: &mut Context<'_, Texts>, norm: &str, x: Value) -> Result<Value, Error> {
        let x = match self.qk_norm {
            Some(own) => own.build(context, norm, self.head_dim, x)?,
            None => x,
        };
        let Some(rope) = self.rope else { return Ok(x) };
        let (style, table) = context.shared.ropes[rope];
        Ok(context.graph.op(Rope { style }, &[x, table])?)
    }

    /// The head that each query head attends to: f32[tokens, heads, head_dim] → f32[tokens, query heads, head_dim]
    fn repeat(&self, context: &mut Context<'_, Texts>, heads: usize, x: Value) -> Result<Value, Error> {
        if heads == self.heads {
            return Ok(x);
        }
        let each = context.reshape(&[heads, 1, self.head_dim], x)?;
        let group = self.heads / heads;
        let shape = vec!["tokens".into(), heads.into(), group.into(), self.head_dim.into()];
        let groups = context.graph.op(Broadcast { shape }, &[each])?;
        context.reshape(&[self.heads, self.head_dim], groups)
    }
}
