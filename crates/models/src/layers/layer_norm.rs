//! Normalization by mean and variance.

use graph::Value;

use super::Context;
use crate::Error;

/// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f32,
}

impl LayerNorm {
    /// f32[.., hidden] → f32[.., hidden], with the weights `{name}.weight` and `{name}.bias`.
    pub(crate) fn build<V>(
        &self,
        context: &mut Context<'_, V>,
        name: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let weight = context.vector(&format!("{name}.weight"), context.hidden)?;
        let bias = context.vector(&format!("{name}.bias"), context.hidden)?;
        Ok(context.graph.push_one(graph::ops::LayerNorm { eps: self.eps }.into(), &[x, weight, bias])?)
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        2 * hidden
    }
}
