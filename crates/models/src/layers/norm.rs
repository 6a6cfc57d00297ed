//! Normalization, and where a layer has it.

use graph::Value;
use graph::ops::{Constant, LayerNorm, RmsNorm};
use tensor::Tensor;

use super::Context;
use crate::Error;

/// How vectors are normalized.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Norm {
    /// `x / sqrt(mean(x²) + eps) · weight`
    Rms {
        /// Added to the mean square.
        eps: f32,
    },
    /// `x / sqrt(mean(x²) + eps)`
    Unweighted {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias`
    Layer {
        /// Added to the variance.
        eps: f32,
        /// Whether there is a weight; without, it is 1.
        weight: bool,
        /// Whether there is a bias.
        bias: bool,
    },
}

/// Where the two blocks of a layer have their norms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Norms {
    /// On what each block reads.
    Pre(Norm),
    /// One norm, whose result both blocks read.
    Shared(Norm),
    /// On what each block adds to the residual stream.
    Post(Norm),
    /// On both.
    Sandwich {
        /// On what each block reads.
        before: Norm,
        /// On what each block adds.
        after: Norm,
    },
}

/// The norms whose weights checkpoints hold less 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CenteredNorms {
    /// No norm.
    None,
    /// Those in layers.
    OfLayers,
    /// All that normalize the residual stream, queries or keys.
    All,
}

impl CenteredNorms {
    /// Whether a weight, by canonical name, is that of such a norm: those of results within a mixer are not.
    pub(crate) fn include(self, name: &str) -> bool {
        let is_norm = name.ends_with("norm.weight") && !name.ends_with(".ssm_norm.weight");
        match self {
            CenteredNorms::None => false,
            CenteredNorms::OfLayers => is_norm && name.starts_with("blk."),
            CenteredNorms::All => is_norm,
        }
    }
}

impl Norm {
    /// A layer norm with weight and bias.
    pub const fn layer(eps: f32) -> Norm {
        Norm::Layer { eps, weight: true, bias: true }
    }

    /// f32[.., len] → f32[.., len], with the weights `{name}.weight` and `{name}.bias`.
    pub(crate) fn build<V>(
        &self,
        context: &mut Context<'_, V>,
        name: &str,
        len: usize,
        x: Value,
    ) -> Result<Value, Error> {
        match *self {
            Norm::Rms { eps } => {
                let weight = context.vector(&format!("{name}.weight"), len)?;
                Ok(context.graph.op(RmsNorm { eps }, &[x, weight])?)
            }
            Norm::Unweighted { eps } => {
                let ones = Constant::new(Tensor::from_slice([len], &vec![1f32; len]));
                let ones = context.graph.op(ones, &[])?;
                Ok(context.graph.op(RmsNorm { eps }, &[x, ones])?)
            }
            Norm::Layer { eps, weight, bias } => {
                let mut vector = |given: bool, leaf: &str, otherwise: f32| {
                    if given {
                        return context.vector(&format!("{name}.{leaf}"), len);
                    }
                    let constant = Constant::new(Tensor::from_slice([len], &vec![otherwise; len]));
                    Ok(context.graph.op(constant, &[])?)
                };
                let (weight, bias) = (vector(weight, "weight", 1.0)?, vector(bias, "bias", 0.0)?);
                Ok(context.graph.op(LayerNorm { eps }, &[x, weight, bias])?)
            }
        }
    }

    /// What is added before the root is taken.
    pub(crate) fn eps(&self) -> f32 {
        match *self {
            Norm::Rms { eps } | Norm::Unweighted { eps } | Norm::Layer { eps, .. } => eps,
        }
    }
}

impl Norms {
    /// The same norm on what each block reads and on what it adds.
    pub const fn sandwich(norm: Norm) -> Norms {
        Norms::Sandwich { before: norm, after: norm }
    }

    /// The norm, wherever it is; of two, the first.
    pub(crate) fn norm(&self) -> Norm {
        match *self {
            Norms::Pre(norm) | Norms::Shared(norm) | Norms::Post(norm) => norm,
            Norms::Sandwich { before, .. } => before,
        }
    }

    /// What a block adds to the residual stream, normalized if it is.
    pub(crate) fn after(&self, context: &mut Context<'_>, name: &str, x: Value) -> Result<Value, Error> {
        match self {
            Norms::Pre(_) | Norms::Shared(_) => Ok(x),
            Norms::Post(norm) | Norms::Sandwich { after: norm, .. } => {
                norm.build(context, name, context.hidden, x)
            }
        }
    }
}
