//! State spaces whose heads decay as a whole, as those of Mamba 2 (Dao and Gu 2024).

use graph::Value;
use graph::ops::{Binary, Constant, RmsNorm, SelectiveScan, Split};
use tensor::Tensor;

use super::Context;
use super::convolution::Convolution;
use super::mixer_block::MixerBlock;
use crate::Error;
use crate::key::{self, Key, Keyed, MAX_HEAD, MAX_SIZE, MAX_WIDTH};

/// A state space.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateSpaceConfig {
    /// Its channels, of all heads together.
    pub channels: usize,
    /// The heads that channels are in, if those of a head share their steps.
    pub heads: Option<StateSpaceHeads>,
    /// What steps are projected from, if each channel has its own.
    pub step_rank: usize,
    /// Numbers that are kept of each channel.
    pub state_dim: usize,
    /// Tokens that each result of its convolution sees.
    pub conv_width: usize,
    /// The least and the largest step.
    pub step_limit: [f32; 2],
    /// Whether its gate comes behind its norm.
    pub gate_last: bool,
    /// `eps` of the norms without weights on what steps, inputs and outputs are made of, if there are such norms.
    pub norm_eps: Option<f32>,
}

/// The heads of a state space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSpaceHeads {
    /// How many there are.
    pub count: usize,
    /// How many different inputs and outputs there are; each serves `count / groups` heads.
    pub groups: usize,
}

impl Keyed for StateSpaceConfig {
    const KEYS: &'static [Key<StateSpaceConfig>] = &[
        Key::size("number of states", ["state_dim", "ssm.state_size"], MAX_HEAD, |space| {
            &mut space.state_dim
        }),
        Key::size("number of channels of state spaces", ["channels", "ssm.inner_size"], MAX_SIZE, |space| {
            &mut space.channels
        }),
        Key::size(
            "width of convolutions of state spaces",
            ["conv_width", "ssm.conv_kernel"],
            MAX_WIDTH,
            |space| &mut space.conv_width,
        ),
        Key::any(["gate_last", ""], |space| &mut space.gate_last),
        Key::positive("eps of norms in state spaces", ["norm_eps", ""], |space| &mut space.norm_eps),
    ];
}

impl StateSpaceConfig {
    /// Checks that the numbers fit each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        key::check(self)?;
        let StateSpaceHeads { count, groups } = self.heads.unwrap_or(StateSpaceHeads { count: 1, groups: 1 });
        key::check_size("number of heads of state spaces", count, self.channels)?;
        key::check_size("number of groups of state spaces", groups, count)?;
        key::check_size("rank of steps of state spaces", self.step_rank.max(1), MAX_SIZE)?;
        let states = groups.saturating_mul(self.state_dim);
        key::check_size("number of states of all groups", states, MAX_SIZE)?;
        if !self.channels.is_multiple_of(count) {
            return Err(format!(
                "{} channels of state spaces are no whole number for {count} heads",
                self.channels
            ));
        }
        key::check_shares(count, "heads of state spaces", groups, "groups")?;
        let [least, largest] = self.step_limit;
        if !(least >= 0.0 && least.is_finite() && largest >= least) {
            return Err(format!("the steps of state spaces are limited to {least} to {largest}"));
        }
        Ok(())
    }
}

/// `out(norm(y · silu(z)))`, where `y_t = s_t · c_t + D · x_t` and `s_t = e^(dt_t · A) · s_(t-1) + dt_t · x_t ⊗ b_t` for each
/// head. One projection gives `z`, `x`, `b`, `c` and `dt`; `x`, `b` and `c` go through a short convolution of each channel and
/// a SiLU, and `dt` is `softplus(dt + bias)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateSpace {
    /// How many heads there are.
    pub heads: usize,
    /// Dims of each.
    pub head_dim: usize,
    /// How many different `b` and `c` there are; each serves `heads / groups` heads.
    pub groups: usize,
    /// Numbers that are kept of each dim.
    pub state_dim: usize,
    /// Tokens that each result of the convolution sees.
    pub conv_width: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// Whether the projection that comes first has a bias.
    pub input_bias: bool,
    /// Whether the projection that comes last has a bias.
    pub output_bias: bool,
    /// The least and the largest step.
    pub step_limit: [f32; 2],
    /// The norm of the dims that share a `b` and a `c`, if there is one.
    pub norm: Option<GatedNorm>,
    /// The factors on `z`, `x`, `b`, `c` and `dt` as the projection gives them.
    pub input_scales: [f32; 5],
    /// The factor on the result.
    pub output_scale: f32,
}

/// An RMS norm, and a gate before or behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GatedNorm {
    /// Added to the mean square.
    pub eps: f32,
    /// Whether the gate comes behind the norm.
    pub gate_last: bool,
}

impl MixerBlock for StateSpace {
    fn build(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let [gate, convolved, step] = self.project(context, x)?;
        let convolved = self.convolution().build(context, "ssm_conv1d", convolved)?;
        let convolved = context.graph.silu(convolved)?;
        let inner = self.heads * self.head_dim;
        let shared = self.groups * self.state_dim;
        let split = Split { axis: 1, sizes: vec![inner, shared, shared] };
        let [x, b, c] = context.graph.ops(split, &[convolved])?[..] else { unreachable!("three parts") };
        let x = context.reshape(&[self.heads, self.head_dim], x)?;
        let b = context.reshape(&[self.groups, self.state_dim], b)?;
        let c = context.reshape(&[self.groups, self.state_dim], c)?;
        let bias = context.vector("ssm_dt.bias", self.heads)?;
        let step = context.graph.add(step, bias)?;
        let step = context.softplus(step)?;
        let step = self.limited(context, step)?;
        let rate = context.vector("ssm_a.weight", self.heads)?;
        let scan = |layer| SelectiveScan { layer }.into();
        let y = context.recur(1, scan, &[x, step, rate, b, c])?;
        let skip = context.vector("ssm_d.weight", self.heads)?;
        let shape = vec![self.heads.into(), 1.into()];
        let skip = context.graph.reshape(skip, shape)?;
        let skipped = context.graph.mul(x, skip)?;
        let y = context.graph.add(y, skipped)?;
        let y = context.reshape(&[inner], y)?;
        let y = self.gated(context, y, gate)?;
        let shape = [context.hidden, inner];
        let y = context.linear("ssm_out", shape, self.output_bias, y)?;
        context.scale(y, self.output_scale)
    }

    fn summary(&self) -> String {
        let StateSpace { heads, head_dim, state_dim, .. } = self;
        format!("{heads} of a state space, {head_dim} dims of {state_dim} states each")
    }

    /// The shapes of what it keeps of a sequence: the last inputs of the convolution, and the states.
    fn sequence_shapes(&self, _: usize) -> Vec<Vec<usize>> {
        let states = vec![self.heads, self.state_dim, self.head_dim];
        vec![self.convolution().sequence_shape(), states]
    }
}

impl StateSpace {
    /// Of `z`, `x`, `b`, `c` and `dt`.
    fn part_sizes(&self) -> [usize; 5] {
        let (inner, shared) = (self.heads * self.head_dim, self.groups * self.state_dim);
        [inner, inner, shared, shared, self.heads]
    }

    fn convolution(&self) -> Convolution {
        let [_, inner, b, c, _] = self.part_sizes();
        Convolution { channels: inner + b + c, width: self.conv_width, bias: self.conv_bias }
    }

    /// The gate, the inputs of the convolution, and the steps of heads.
    fn project(&self, context: &mut Context<'_>, x: Value) -> Result<[Value; 3], Error> {
        let sizes = self.part_sizes();
        let [inner, _, _, _, heads] = sizes;
        let rows = sizes.iter().sum();
        let shape = [rows, context.hidden];
        let parts = context.linear("ssm_in", shape, self.input_bias, x)?;
        let parts = if self.input_scales == [1.0; 5] {
            parts
        } else {
            let scales = self.input_scales.iter().zip(sizes);
            let scales: Vec<f32> = scales.flat_map(|(&scale, size)| vec![scale; size]).collect();
            let scales = Constant::new(Tensor::from_slice([rows], &scales));
            let scales = context.graph.op(scales, &[])?;
            context.graph.mul(parts, scales)?
        };
        let split = Split { axis: 1, sizes: vec![inner, self.convolution().channels, heads] };
        let [gate, convolved, step] = context.graph.ops(split, &[parts])?[..] else {
            unreachable!("three parts")
        };
        Ok([gate, convolved, step])
    }

    /// Steps within their limits; those that are above 0 and finite have none.
    fn limited(&self, context: &mut Context<'_>, mut step: Value) -> Result<Value, Error> {
        let [least, largest] = self.step_limit;
        let limits = [(least > 0.0, least, Binary::Max), (largest < f32::INFINITY, largest, Binary::Min)];
        for (_, limit, op) in limits.into_iter().filter(|&(matters, ..)| matters) {
            let limit = context.graph.constant(Tensor::scalar(limit));
            step = context.graph.op(op, &[step, limit])?;
        }
        Ok(step)
    }

    /// f32[tokens, heads · head_dim], gated and normalized.
    fn gated(&self, context: &mut Context<'_>, y: Value, gate: Value) -> Result<Value, Error> {
        let gate = context.graph.silu(gate)?;
        let mul = |context: &mut Context<'_>, y: Value| context.graph.mul(y, gate);
        match self.norm {
            None => Ok(mul(context, y)?),
            Some(GatedNorm { eps, gate_last: true }) => {
                let y = self.normalized(context, eps, y)?;
                Ok(mul(context, y)?)
            }
            Some(GatedNorm { eps, gate_last: false }) => {
                let y = mul(context, y)?;
                self.normalized(context, eps, y)
            }
        }
    }

    /// The norm of the dims of each group.
    fn normalized(&self, context: &mut Context<'_>, eps: f32, y: Value) -> Result<Value, Error> {
        let inner = self.heads * self.head_dim;
        let weight = context.vector("ssm_norm.weight", inner)?;
        if self.groups == 1 {
            return Ok(context.graph.op(RmsNorm { eps }, &[y, weight])?);
        }
        let of_group = inner / self.groups;
        let ones = Constant::new(Tensor::from_slice([of_group], &vec![1f32; of_group]));
        let ones = context.graph.op(ones, &[])?;
        let y = context.reshape(&[self.groups, of_group], y)?;
        let y = context.graph.op(RmsNorm { eps }, &[y, ones])?;
        let y = context.reshape(&[inner], y)?;
        Ok(context.graph.mul(y, weight)?)
    }
}
