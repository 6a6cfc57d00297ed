//! Root-mean-square normalization, and where a layer has it.

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

/// Where the two blocks of a layer have their norms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Norms {
    /// On what a block reads.
    Pre(Norm),
    /// On what a block adds to the residual stream.
    Post(Norm),
    /// On both.
    Sandwich(Norm),
}

impl Norm {
    /// f32[.., len] → f32[.., len], with the weight `{name}.weight`.
    pub(crate) fn build(
        &self,
        context: &mut Context<'_>,
        name: &str,
        len: usize,
        x: Value,
    ) -> Result<Value, Error> {
        let weight = context.vector(&format!("{name}.weight"), len)?;
        Ok(context.graph.push_one(RmsNorm { eps: self.eps }.into(), &[x, weight])?)
    }
}

impl Norms {
    /// What a block reads of the residual stream.
    pub(crate) fn before(&self, context: &mut Context<'_>, name: &str, x: Value) -> Result<Value, Error> {
        match self {
            Norms::Pre(norm) | Norms::Sandwich(norm) => norm.build(context, name, context.hidden, x),
            Norms::Post(_) => Ok(x),
        }
    }

    /// What of a block's result the residual stream takes.
    pub(crate) fn after(&self, context: &mut Context<'_>, name: &str, x: Value) -> Result<Value, Error> {
        match self {
            Norms::Pre(_) => Ok(x),
            Norms::Post(norm) | Norms::Sandwich(norm) => norm.build(context, name, context.hidden, x),
        }
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        match self {
            Norms::Pre(_) | Norms::Post(_) => 2 * hidden,
            Norms::Sandwich(_) => 4 * hidden,
        }
    }
}
