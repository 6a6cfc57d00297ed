//! A gated convolution over the last few tokens.

use graph::Value;
use graph::ops::{Binary, Split};

use super::convolution::Convolution;
use super::{Context, linear};
use crate::Error;
use crate::state::LayerState;

/// `out(c · conv(b · x))`, where one projection gives `b`, `c` and `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortConvolution {
    /// Tokens that each result sees.
    pub width: usize,
    /// Whether the projections and the convolution have biases.
    pub bias: bool,
}

impl ShortConvolution {
    /// f32[tokens, hidden] → f32[tokens, hidden]; changes the states of the sequences.
    pub(crate) fn build(
        &self,
        context: &mut Context<'_>,
        state: &LayerState,
        prefix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let hidden = context.hidden;
        let name = |stem: &str| format!("{prefix}.shortconv.{stem}");
        let parts = linear(context, &name("in_proj"), [3 * hidden, hidden], self.bias, x)?;
        let split = Split { axis: 1, sizes: vec![hidden; 3] };
        let [b, c, x] = context.graph.push(split.into(), &[parts])?[..] else { unreachable!("three parts") };
        let x = context.graph.push_one(Binary::Mul.into(), &[b, x])?;
        let y = self.convolution(hidden).build(context, &name("conv"), state.states[0], x)?;
        let y = context.graph.push_one(Binary::Mul.into(), &[c, y])?;
        linear(context, &name("out_proj"), [hidden, hidden], self.bias, y)
    }

    /// The shapes of what it keeps of a sequence.
    pub(crate) fn sequence_shapes(&self, hidden: usize) -> Vec<Vec<usize>> {
        vec![self.convolution(hidden).sequence_shape()]
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let biases = if self.bias { 4 * hidden } else { 0 };
        4 * hidden * hidden + biases + self.convolution(hidden).parameters()
    }

    fn convolution(&self, hidden: usize) -> Convolution {
        Convolution { channels: hidden, width: self.width, bias: self.bias }
    }
}
