//! The gated feed-forward block: one for all tokens, or a mixture of experts.

use graph::Value;
use graph::ops::{Binary, Unary};

use super::{Context, Experts, linear};
use crate::Error;

/// `(activation(x · Gᵀ) · (x · Uᵀ)) · Dᵀ`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FeedForward {
    /// The inner width, of each expert if there are some.
    pub width: usize,
    /// The function of the gate.
    pub activation: Unary,
    /// Whether the three projections have biases; those of experts have none.
    pub bias: bool,
    /// Which of many such blocks a token gets; `None` is one block for all tokens.
    pub experts: Option<Experts>,
}

impl FeedForward {
    /// f32[tokens, hidden] → f32[tokens, hidden]
    pub(crate) fn build(&self, context: &mut Context<'_>, prefix: &str, x: Value) -> Result<Value, Error> {
        match self.experts {
            Some(experts) => experts.build(context, prefix, self, x),
            None => {
                let names = ["gate", "up", "down"].map(|name| format!("{prefix}.ffn_{name}"));
                dense(context, self, &names, x)
            }
        }
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        self.counts(hidden)[0]
    }

    /// The number of weights that compute each token: those of a token's experts alone.
    pub fn active_parameters(&self, hidden: usize) -> usize {
        self.counts(hidden)[1]
    }

    fn counts(&self, hidden: usize) -> [usize; 2] {
        match self.experts {
            Some(experts) => experts.parameters(hidden, self.width),
            None => [3 * hidden * self.width + if self.bias { 2 * self.width + hidden } else { 0 }; 2],
        }
    }
}

/// A block for all tokens, with the names of gate, up and down.
pub(super) fn dense(
    context: &mut Context<'_>,
    block: &FeedForward,
    names: &[String; 3],
    x: Value,
) -> Result<Value, Error> {
    let (hidden, width) = (context.hidden, block.width);
    let project = |context: &mut Context<'_>, name: &str, shape: [usize; 2], x: Value| {
        let bias = block.bias.then(|| format!("{name}.bias"));
        linear(context, &format!("{name}.weight"), shape, bias.as_deref(), x)
    };
    let [gate, up, down] = names;
    let gate = project(context, gate, [width, hidden], x)?;
    let up = project(context, up, [width, hidden], x)?;
    let gate = context.graph.push_one(block.activation.into(), &[gate])?;
    let inner = context.graph.push_one(Binary::Mul.into(), &[gate, up])?;
    project(context, down, [hidden, width], inner)
}
