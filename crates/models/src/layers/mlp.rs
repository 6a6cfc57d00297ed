//! The plain feed-forward block.

use graph::Value;
use graph::ops::Unary;

use super::{Context, biased};
use crate::Error;

/// `activation(x · Uᵀ + u) · Dᵀ + d`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mlp {
    /// The inner width.
    pub width: usize,
    /// The function between the projections.
    pub activation: Unary,
}

impl Mlp {
    /// f32[tokens, hidden] → f32[tokens, hidden]
    pub(crate) fn build<V>(
        &self,
        context: &mut Context<'_, V>,
        prefix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let hidden = context.hidden;
        let inner = biased(context, &format!("{prefix}.ffn_up"), [self.width, hidden], x)?;
        let inner = context.graph.push_one(self.activation.into(), &[inner])?;
        biased(context, &format!("{prefix}.ffn_down"), [hidden, self.width], inner)
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        2 * hidden * self.width + self.width + hidden
    }
}
