//! A gated convolution over the last few tokens.

use graph::Value;
use graph::ops::Split;

use super::Context;
use super::convolution::Convolution;
use super::mixer_block::MixerBlock;
use crate::Error;

/// `out(c · conv(b · x))`, where one projection gives `b`, `c` and `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortConvolution {
    /// Tokens that each result sees.
    pub width: usize,
    /// Whether the projections and the convolution have biases.
    pub bias: bool,
}

impl MixerBlock for ShortConvolution {
    fn build(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        let parts = context.linear("shortconv.in_proj", [3 * hidden, hidden], self.bias, x)?;
        let split = Split { axis: 1, sizes: vec![hidden; 3] };
        let [b, c, x] = context.graph.ops(split, &[parts])?[..] else { unreachable!("three parts") };
        let x = context.graph.mul(b, x)?;
        let y = self.convolution(hidden).build(context, "shortconv.conv", x)?;
        let y = context.graph.mul(c, y)?;
        context.linear("shortconv.out_proj", [hidden, hidden], self.bias, y)
    }

    fn summary(&self) -> String {
        format!("a convolution over {} tokens", self.width)
    }

    /// The shapes of what it keeps of a sequence.
    fn sequence_shapes(&self, hidden: usize) -> Vec<Vec<usize>> {
        vec![self.convolution(hidden).sequence_shape()]
    }
}

impl ShortConvolution {
    fn convolution(&self, hidden: usize) -> Convolution {
        Convolution { channels: hidden, width: self.width, bias: self.bias }
    }
}
