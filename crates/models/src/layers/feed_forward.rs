//! The gated feed-forward block.

use graph::Value;
use graph::ops::{Binary, Unary};

use super::{Context, linear};
use crate::Error;

/// `(activation(x · Gᵀ) · (x · Uᵀ)) · Dᵀ`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FeedForward {
    /// The inner width.
    pub width: usize,
    /// The function of the gate.
    pub activation: Unary,
    /// Whether the three projections have biases.
    pub bias: bool,
}

impl FeedForward {
    /// f32[tokens, hidden] → f32[tokens, hidden]
    pub(crate) fn build(&self, context: &mut Context<'_>, prefix: &str, x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        let gate = self.project(context, prefix, "ffn_gate", [self.width, hidden], x)?;
        let up = self.project(context, prefix, "ffn_up", [self.width, hidden], x)?;
        let gate = context.graph.push_one(self.activation.into(), &[gate])?;
        let inner = context.graph.push_one(Binary::Mul.into(), &[gate, up])?;
        self.project(context, prefix, "ffn_down", [hidden, self.width], inner)
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        3 * hidden * self.width + if self.bias { 2 * self.width + hidden } else { 0 }
    }

    fn project(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        name: &str,
        shape: [usize; 2],
        x: Value,
    ) -> Result<Value, Error> {
        let bias = self.bias.then(|| format!("{prefix}.{name}.bias"));
        linear(context, &format!("{prefix}.{name}.weight"), shape, bias.as_deref(), x)
    }
}
