//! Root-mean-square normalization of the residual stream.

use graph::Value;
use graph::ops::RmsNorm;

use super::Context;
use crate::Error;

/// `x / sqrt(mean(x²) + eps) · weight`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    /// Added to the mean square.
    pub eps: f32,
}

impl Norm {
    /// f32[.., hidden] → f32[.., hidden], with the weight `{name}.weight`.
    pub(crate) fn build(&self, context: &mut Context<'_>, name: &str, x: Value) -> Result<Value, Error> {
        let weight = context.vector(&format!("{name}.weight"), context.hidden)?;
        Ok(context.graph.push_one(RmsNorm { eps: self.eps }.into(), &[x, weight])?)
    }
}
