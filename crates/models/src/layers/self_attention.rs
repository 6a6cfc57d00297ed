//! Attention within each text of a batch, in both directions.

use graph::Value;
use graph::ops::{RaggedAttention, Reshape};

use super::{Context, linear};
use crate::Error;

/// Self-attention of every token to every token of its text, with biases on all projections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfAttention {
    /// Heads of queries, keys and values.
    pub heads: usize,
    /// Dims of each head.
    pub head_dim: usize,
    /// The factor on scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
}

/// What all layers of an encoder attend by.
pub(crate) struct Texts {
    /// Where each text starts: u32[batch + 1]
    pub(crate) row_offsets: Value,
    /// What scores have added to them by relative position: f32[heads, distances]
    pub(crate) bias: Option<Value>,
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
            let y = linear(context, &format!("{prefix}.{name}"), [width, context.hidden], true, x)?;
            let heads = vec!["tokens".into(), self.heads.into(), self.head_dim.into()];
            operands.push(context.graph.push_one(Reshape { shape: heads }.into(), &[y])?);
        }
        operands.push(context.shared.row_offsets);
        operands.extend(context.shared.bias);
        let attended = context.graph.push_one(RaggedAttention { scale: self.scale }.into(), &operands)?;
        let merged = vec!["tokens".into(), width.into()];
        let merged = context.graph.push_one(Reshape { shape: merged }.into(), &[attended])?;
        linear(context, &format!("{prefix}.attn_output"), [context.hidden, width], true, merged)
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let width = self.heads * self.head_dim;
        4 * hidden * width + 3 * width + hidden
    }
}
