//! State spaces whose channels decay each on its own, as those of Mamba (Gu and Dao 2023).

use graph::Value;
use graph::ops::{Binary, Reshape, RmsNorm, SelectiveScan, Split, Transpose, Unary};

use super::convolution::Convolution;
use super::{Context, add, linear, softplus};
use crate::Error;
use crate::state::LayerState;

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
    /// What the RMS norms of `b`, `c` and what steps are projected from add to the mean square, if there are such norms.
    pub norm_eps: Option<f32>,
}

impl ChannelStateSpace {
    /// f32[tokens, hidden] → f32[tokens, hidden]; changes the states of the sequences.
    pub(crate) fn build(
        &self,
        context: &mut Context<'_>,
        state: &LayerState,
        prefix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let channels = self.channels;
        let shape = [2 * channels, context.hidden];
        let both = linear(context, &format!("{prefix}.ssm_in"), shape, self.bias, x)?;
        let split = Split { axis: 1, sizes: vec![channels; 2] };
        let [x, gate] = context.graph.push(split.into(), &[both])?[..] else { unreachable!("two parts") };
        let x = self.convolution().build(context, &format!("{prefix}.ssm_conv1d"), state.states[0], x)?;
        let x = context.graph.push_one(Unary::Silu.into(), &[x])?;
        let [step, b, c] = self.select(context, prefix, x)?;
        // One head, whose dims have steps and rates of their own.
        let of_head = vec!["tokens".into(), 1.into(), channels.into()];
        let mut as_head = |x: Value| context.graph.push_one(Reshape { shape: of_head.clone() }.into(), &[x]);
        let (values, step) = (as_head(x)?, as_head(step)?);
        let rate = self.rates(context, prefix)?;
        let location = state.states[1];
        let states = context.shared.states[location.input];
        let scan = SelectiveScan { layer: location.layer };
        let y = context.recur(scan.into(), &[values, step, rate, b, c], states)?;
        let shape = vec!["tokens".into(), channels.into()];
        let y = context.graph.push_one(Reshape { shape }.into(), &[y])?;
        let skip = context.vector(&format!("{prefix}.ssm_d.weight"), channels)?;
        let skipped = context.graph.push_one(Binary::Mul.into(), &[x, skip])?;
        let y = add(context, y, skipped)?;
        let gate = context.graph.push_one(Unary::Silu.into(), &[gate])?;
        let y = context.graph.push_one(Binary::Mul.into(), &[y, gate])?;
        linear(context, &format!("{prefix}.ssm_out"), [context.hidden, channels], self.bias, y)
    }

    /// The shapes of what it keeps of a sequence: the last inputs of the convolution, and the states.
    pub(crate) fn sequence_shapes(&self) -> Vec<Vec<usize>> {
        vec![self.convolution().sequence_shape(), vec![1, self.state_dim, self.channels]]
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let ChannelStateSpace { channels, state_dim, step_rank, .. } = *self;
        let selected = step_rank + 2 * state_dim;
        let biases = if self.bias { 2 * channels + hidden } else { 0 };
        let norms = if self.norm_eps.is_some() { selected } else { 0 };
        let projections = 3 * hidden * channels + selected * channels + (step_rank + 1) * channels;
        projections + biases + self.convolution().parameters() + (state_dim + 1) * channels + norms
    }

    fn convolution(&self) -> Convolution {
        Convolution { channels: self.channels, width: self.conv_width, bias: self.conv_bias }
    }

    /// Steps, f32[tokens, channels], and `b` and `c`, f32[tokens, 1, state_dim].
    fn select(&self, context: &mut Context<'_>, prefix: &str, x: Value) -> Result<[Value; 3], Error> {
        let ChannelStateSpace { channels, state_dim, step_rank, .. } = *self;
        let selected = [step_rank + 2 * state_dim, channels];
        let selected = linear(context, &format!("{prefix}.ssm_x"), selected, false, x)?;
        let split = Split { axis: 1, sizes: vec![step_rank, state_dim, state_dim] };
        let [step, b, c] = context.graph.push(split.into(), &[selected])?[..] else {
            unreachable!("three parts")
        };
        let step = self.normalized(context, &format!("{prefix}.ssm_dt_norm"), step_rank, step)?;
        let b = self.normalized(context, &format!("{prefix}.ssm_b_norm"), state_dim, b)?;
        let c = self.normalized(context, &format!("{prefix}.ssm_c_norm"), state_dim, c)?;
        let step = linear(context, &format!("{prefix}.ssm_dt"), [channels, step_rank], true, step)?;
        let shape = vec!["tokens".into(), 1.into(), state_dim.into()];
        let mut as_group = |x: Value| context.graph.push_one(Reshape { shape: shape.clone() }.into(), &[x]);
        let (b, c) = (as_group(b)?, as_group(c)?);
        Ok([softplus(context, step)?, b, c])
    }

    fn normalized(
        &self,
        context: &mut Context<'_>,
        name: &str,
        len: usize,
        x: Value,
    ) -> Result<Value, Error> {
        let Some(eps) = self.norm_eps else { return Ok(x) };
        let weight = context.vector(&format!("{name}.weight"), len)?;
        Ok(context.graph.push_one(RmsNorm { eps }.into(), &[x, weight])?)
    }

    /// f32[1, state_dim, channels], of a weight that has the states of each channel one after the other.
    fn rates(&self, context: &mut Context<'_>, prefix: &str) -> Result<Value, Error> {
        let rate = context.vector(&format!("{prefix}.ssm_a.weight"), self.channels * self.state_dim)?;
        let shape = vec![1.into(), self.channels.into(), self.state_dim.into()];
        let rate = context.graph.push_one(Reshape { shape }.into(), &[rate])?;
        Ok(context.graph.push_one(Transpose { order: vec![0, 2, 1] }.into(), &[rate])?)
    }
}
