//! Causal convolutions over the tokens of each sequence.

use graph::Value;
use graph::ops::CausalConv;

use super::Context;
use crate::Error;

/// A convolution of each channel over the last few tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Convolution {
    /// How many channels there are.
    pub(super) channels: usize,
    /// Tokens that each result sees.
    pub(super) width: usize,
    /// Whether there is a bias.
    pub(super) bias: bool,
}

impl Convolution {
    /// f32[tokens, channels] → f32[tokens, channels], with the weights `{name}.weight` and `{name}.bias`; changes the layer's
    /// first state of the sequences.
    pub(super) fn build(self, context: &mut Context<'_>, name: &str, x: Value) -> Result<Value, Error> {
        let Convolution { channels, width, bias } = self;
        let weight = context.vector(&format!("{name}.weight"), channels * width)?;
        let shape = vec![channels.into(), width.into()];
        let weight = context.graph.reshape(weight, shape)?;
        let y = context.recur(0, |layer| CausalConv { layer }.into(), &[x, weight])?;
        if !bias {
            return Ok(y);
        }
        let bias = context.vector(&format!("{name}.bias"), channels)?;
        Ok(context.graph.add(y, bias)?)
    }

    /// The shape of what it keeps of a sequence: the last inputs.
    pub(super) fn sequence_shape(self) -> Vec<usize> {
        vec![self.channels, self.width - 1]
    }
}
