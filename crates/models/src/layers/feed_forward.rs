//! Feed-forward blocks: gated and plain.

use graph::Value;
use graph::ops::{Reduce, ReduceKind};

use super::{Activation, Context, GateLimit};
use crate::Error;

/// `(activation(x · Gᵀ) · (x · Uᵀ)) · Dᵀ`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gated {
    /// The inner width.
    pub width: usize,
    /// The function of the gate.
    pub activation: Activation,
    /// Whether the three projections have biases.
    pub bias: bool,
    /// Of the gates of a token, those that are not more than this many standard deviations above their mean become 0, and
    /// others count from there.
    pub cutoff: Option<f32>,
    /// The bounds of gates, if they have some.
    pub limit: Option<GateLimit>,
    /// The factor on the gate, before its function.
    pub gate_scale: f32,
    /// The factor on the result.
    pub output_scale: f32,
}

/// `activation(x · Uᵀ) · Dᵀ`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plain {
    /// The inner width.
    pub width: usize,
    /// The function between the projections.
    pub activation: Activation,
    /// Whether both projections have biases.
    pub bias: bool,
}

impl Gated {
    /// f32[tokens, hidden] → f32[tokens, hidden], with the weights `ffn_gate{suffix}` and so on.
    pub(crate) fn build<V>(
        &self,
        context: &mut Context<'_, V>,
        suffix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let (hidden, width) = (context.hidden, self.width);
        let mut project = |name: &str, shape: [usize; 2], x: Value| {
            context.linear(&format!("ffn_{name}{suffix}"), shape, self.bias, x)
        };
        let gate = project("gate", [width, hidden], x)?;
        let up = project("up", [width, hidden], x)?;
        let gate = context.scale(gate, self.gate_scale)?;
        let gate = match self.cutoff {
            None => gate,
            Some(cutoff) => cut_off(context, gate, cutoff)?,
        };
        let gate = self.activation.gate(context, gate, self.limit)?;
        let up = context.clip(up, self.limit.map(|limit| limit.size))?;
        let inner = context.graph.mul(gate, up)?;
        let y = context.linear(&format!("ffn_down{suffix}"), [hidden, width], self.bias, inner)?;
        context.scale(y, self.output_scale)
    }
}

/// Gates less a threshold, or 0 below it: the mean of the token's gates plus so many standard deviations.
fn cut_off<V>(context: &mut Context<'_, V>, gate: Value, deviations: f32) -> Result<Value, Error> {
    let mean_of = Reduce { kind: ReduceKind::Mean, axis: 1 };
    let mean = context.graph.op(mean_of, &[gate])?;
    let off = context.graph.sub(gate, mean)?;
    let squares = context.graph.mul(off, off)?;
    let variance = context.graph.op(mean_of, &[squares])?;
    let deviation = context.graph.sqrt(variance)?;
    let cutoff = context.scale(deviation, deviations)?;
    let cutoff = context.graph.add(mean, cutoff)?;
    let rest = context.graph.sub(gate, cutoff)?;
    Ok(context.graph.relu(rest)?)
}

impl Plain {
    /// f32[tokens, hidden] → f32[tokens, hidden], with the weights `ffn_up{suffix}` and `ffn_down{suffix}`.
    pub(crate) fn build<V>(
        &self,
        context: &mut Context<'_, V>,
        suffix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let (hidden, width) = (context.hidden, self.width);
        let inner = context.linear(&format!("ffn_up{suffix}"), [width, hidden], self.bias, x)?;
        let inner = self.activation.build(context, inner)?;
        context.linear(&format!("ffn_down{suffix}"), [hidden, width], self.bias, inner)
    }
}
