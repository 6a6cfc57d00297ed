//! State spaces whose channels decay each on its own, as those of Mamba (Gu and Dao 2023).

use graph::Value;
use graph::ops::{SelectiveScan, Split, Transpose};

use super::convolution::Convolution;
use super::mixer_block::MixerBlock;
use super::{Context, Norm};
use crate::Error;

/// `out(y · silu(z))`, where `y_t = s_t · c_t + D · x_t` and `s_t = e^(dt_t · A) · s_(t-1) + dt_t · x_t ⊗ b_t` for each channel.
/// One projection gives `x` and `z`; `x` goes through a short convolution of each channel and a SiLU, and gives `b`, `c` and, by
/// two more projections and a softplus, `dt`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChannelStateSpace {
    /// How many channels there are.
    pub channels: usize,
    /// Numbers that are kept of each channel.
    pub state_dim: usize,
    /// What steps are projected from.
    pub step_rank: usize,
    /// Tokens that each result of the convolution sees.
    pub conv_width: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// Whether the projections that come first and last have biases.
    pub bias: bool,
    /// The norm of `b`, of `c` and of what steps are projected from, if they have one.
    pub norm: Option<Norm>,
}

impl MixerBlock for ChannelStateSpace {
    fn build(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let channels = self.channels;
        let shape = [2 * channels, context.hidden];
        let both = context.linear("ssm_in", shape, self.bias, x)?;
        let split = Split { axis: 1, sizes: vec![channels; 2] };
        let [x, gate] = context.graph.ops(split, &[both])?[..] else { unreachable!("two parts") };
        let x = self.convolution().build(context, "ssm_conv1d", x)?;
        let x = context.graph.silu(x)?;
        let [step, b, c] = self.select(context, x)?;
        // One head, whose dims have steps and rates of their own.
        let values = context.reshape(&[1, channels], x)?;
        let step = context.reshape(&[1, channels], step)?;
        let rate = self.rates(context)?;
        let scan = |layer| SelectiveScan { layer }.into();
        let y = context.recur(1, scan, &[values, step, rate, b, c])?;
        let y = context.reshape(&[channels], y)?;
        let skip = context.vector("ssm_d.weight", channels)?;
        let skipped = context.graph.mul(x, skip)?;
        let y = context.graph.add(y, skipped)?;
        let gate = context.graph.silu(gate)?;
        let y = context.graph.mul(y, gate)?;
        context.linear("ssm_out", [context.hidden, channels], self.bias, y)
    }

    fn summary(&self) -> String {
        format!("{} channels of {} states", self.channels, self.state_dim)
    }

    /// The shapes of what it keeps of a sequence: the last inputs of the convolution, and the states.
    fn sequence_shapes(&self, _: usize) -> Vec<Vec<usize>> {
        vec![self.convolution().sequence_shape(), vec![1, self.state_dim, self.channels]]
    }
}

impl ChannelStateSpace {
    fn convolution(&self) -> Convolution {
        Convolution { channels: self.channels, width: self.conv_width, bias: self.conv_bias }
    }

    /// Steps, f32[tokens, channels], and `b` and `c`, f32[tokens, 1, state_dim].
    fn select(&self, context: &mut Context<'_>, x: Value) -> Result<[Value; 3], Error> {
        let ChannelStateSpace { channels, state_dim, step_rank, .. } = *self;
        let selected = [step_rank + 2 * state_dim, channels];
        let selected = context.linear("ssm_x", selected, false, x)?;
        let split = Split { axis: 1, sizes: vec![step_rank, state_dim, state_dim] };
        let [step, b, c] = context.graph.ops(split, &[selected])?[..] else { unreachable!("three parts") };
        let mut normalized = |name: &str, len: usize, x: Value| match self.norm {
            None => Ok(x),
            Some(norm) => norm.build(context, name, len, x),
        };
        let step = normalized("ssm_dt_norm", step_rank, step)?;
        let b = normalized("ssm_b_norm", state_dim, b)?;
        let c = normalized("ssm_c_norm", state_dim, c)?;
        let step = context.linear("ssm_dt", [channels, step_rank], true, step)?;
        let b = context.reshape(&[1, state_dim], b)?;
        let c = context.reshape(&[1, state_dim], c)?;
        Ok([context.softplus(step)?, b, c])
    }

    /// f32[1, state_dim, channels], of a weight that has the states of each channel one after the other.
    fn rates(&self, context: &mut Context<'_>) -> Result<Value, Error> {
        let rate = context.vector("ssm_a.weight", self.channels * self.state_dim)?;
        let shape = vec![1.into(), self.channels.into(), self.state_dim.into()];
        let rate = context.graph.reshape(rate, shape)?;
        Ok(context.graph.op(Transpose { order: vec![0, 2, 1] }, &[rate])?)
    }
}
