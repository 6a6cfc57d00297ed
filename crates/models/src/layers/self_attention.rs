//! Attention within each text of a batch, in both directions.

use graph::Value;
use graph::ops::{RaggedAttention, Reshape, Rope, RopeStyle};

use super::{Context, linear};
use crate::Error;

/// Self-attention of every token to every token of its text, or to those near it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfAttention {
    /// Heads of queries, keys and values.
    pub heads: usize,
    /// Dims of each head.
    pub head_dim: usize,
    /// The factor on scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Whether the projections have biases.
    pub bias: bool,
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
    pub(crate) fn build(
        &self,
        context: &mut Context<'_, Texts>,
        prefix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let width = self.heads * self.head_dim;
        let mut operands = Vec::with_capacity(5);
        for name in ["attn_q", "attn_k", "attn_v"] {
            let y = linear(context, &format!("{prefix}.{name}"), [width, context.hidden], self.bias, x)?;
            let heads = vec!["tokens".into(), self.heads.into(), self.head_dim.into()];
            let mut y = context.graph.push_one(Reshape { shape: heads }.into(), &[y])?;
            if let Some(rope) = self.rope.filter(|_| name != "attn_v") {
                let (style, table) = context.shared.ropes[rope];
                y = context.graph.push_one(Rope { style }.into(), &[y, table])?;
            }
            operands.push(y);
        }
        operands.push(context.shared.row_offsets);
        let window = |&(window, bias): &(usize, Value)| (Some(window) == self.window).then_some(bias);
        operands.extend(context.shared.windows.iter().find_map(window).or(context.shared.bias));
        let attended = context.graph.push_one(RaggedAttention { scale: self.scale }.into(), &operands)?;
        let merged = vec!["tokens".into(), width.into()];
        let merged = context.graph.push_one(Reshape { shape: merged }.into(), &[attended])?;
        linear(context, &format!("{prefix}.attn_output"), [context.hidden, width], self.bias, merged)
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let width = self.heads * self.head_dim;
        4 * hidden * width + if self.bias { 3 * width + hidden } else { 0 }
    }
}
