//! State spaces whose heads decay as a whole, as those of Mamba 2 (Dao and Gu 2024).

use graph::Value;
use graph::ops::{Binary, Constant, Reshape, RmsNorm, SelectiveScan, Split, Unary};
use tensor::Tensor;

use super::convolution::Convolution;
use super::{Context, add, linear, scale, softplus};
use crate::Error;
use crate::state::LayerState;

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

impl StateSpace {
    /// f32[tokens, hidden] → f32[tokens, hidden]; changes the states of the sequences.
    pub(crate) fn build(
        &self,
        context: &mut Context<'_>,
        state: &LayerState,
        prefix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let [gate, convolved, step] = self.project(context, prefix, x)?;
        let name = format!("{prefix}.ssm_conv1d");
        let convolved = self.convolution().build(context, &name, state.states[0], convolved)?;
        let convolved = context.graph.push_one(Unary::Silu.into(), &[convolved])?;
        let inner = self.heads * self.head_dim;
        let shared = self.groups * self.state_dim;
        let split = Split { axis: 1, sizes: vec![inner, shared, shared] };
        let [x, b, c] = context.graph.push(split.into(), &[convolved])?[..] else {
            unreachable!("three parts")
        };
        let x = reshape(context, &[self.heads, self.head_dim], x)?;
        let b = reshape(context, &[self.groups, self.state_dim], b)?;
        let c = reshape(context, &[self.groups, self.state_dim], c)?;
        let bias = context.vector(&format!("{prefix}.ssm_dt.bias"), self.heads)?;
        let step = add(context, step, bias)?;
        let step = softplus(context, step)?;
        let step = self.limited(context, step)?;
        let rate = context.vector(&format!("{prefix}.ssm_a.weight"), self.heads)?;
        let location = state.states[1];
        let states = context.shared.states[location.input];
        let scan = SelectiveScan { layer: location.layer };
        let y = context.recur(scan.into(), &[x, step, rate, b, c], states)?;
        let skip = context.vector(&format!("{prefix}.ssm_d.weight"), self.heads)?;
        let shape = vec![self.heads.into(), 1.into()];
        let skip = context.graph.push_one(Reshape { shape }.into(), &[skip])?;
        let skipped = context.graph.push_one(Binary::Mul.into(), &[x, skip])?;
        let y = add(context, y, skipped)?;
        let y = reshape(context, &[inner], y)?;
        let y = self.gated(context, prefix, y, gate)?;
        let shape = [context.hidden, inner];
        let y = linear(context, &format!("{prefix}.ssm_out"), shape, self.output_bias, y)?;
        scale(context, y, self.output_scale)
    }

    /// The shapes of what it keeps of a sequence: the last inputs of the convolution, and the states.
    pub(crate) fn sequence_shapes(&self) -> Vec<Vec<usize>> {
        let states = vec![self.heads, self.state_dim, self.head_dim];
        vec![self.convolution().sequence_shape(), states]
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let inner = self.heads * self.head_dim;
        let projected = self.part_sizes().iter().sum::<usize>();
        let biases = if self.input_bias { projected } else { 0 } + if self.output_bias { hidden } else { 0 };
        let norm = if self.norm.is_some() { inner } else { 0 };
        hidden * (projected + inner) + biases + self.convolution().parameters() + 3 * self.heads + norm
    }

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
    fn project(&self, context: &mut Context<'_>, prefix: &str, x: Value) -> Result<[Value; 3], Error> {
        let sizes = self.part_sizes();
        let [inner, _, _, _, heads] = sizes;
        let rows = sizes.iter().sum();
        let shape = [rows, context.hidden];
        let parts = linear(context, &format!("{prefix}.ssm_in"), shape, self.input_bias, x)?;
        let parts = if self.input_scales == [1.0; 5] {
            parts
        } else {
            let scales = self.input_scales.iter().zip(sizes);
            let scales: Vec<f32> = scales.flat_map(|(&scale, size)| vec![scale; size]).collect();
            let scales = Constant::new(Tensor::from_slice([rows], &scales));
            let scales = context.graph.push_one(scales.into(), &[])?;
            context.graph.push_one(Binary::Mul.into(), &[parts, scales])?
        };
        let split = Split { axis: 1, sizes: vec![inner, self.convolution().channels, heads] };
        let [gate, convolved, step] = context.graph.push(split.into(), &[parts])?[..] else {
            unreachable!("three parts")
        };
        Ok([gate, convolved, step])
    }

    /// Steps within their limits; those that are above 0 and finite have none.
    fn limited(&self, context: &mut Context<'_>, mut step: Value) -> Result<Value, Error> {
        let [least, largest] = self.step_limit;
        let limits = [(least > 0.0, least, Binary::Max), (largest < f32::INFINITY, largest, Binary::Min)];
        for (_, limit, op) in limits.into_iter().filter(|&(matters, ..)| matters) {
            let limit = context.graph.push_one(Constant::new(Tensor::scalar(limit)).into(), &[])?;
            step = context.graph.push_one(op.into(), &[step, limit])?;
        }
        Ok(step)
    }

    /// f32[tokens, heads · head_dim], gated and normalized.
    fn gated(&self, context: &mut Context<'_>, prefix: &str, y: Value, gate: Value) -> Result<Value, Error> {
        let gate = context.graph.push_one(Unary::Silu.into(), &[gate])?;
        let mul =
            |context: &mut Context<'_>, y: Value| context.graph.push_one(Binary::Mul.into(), &[y, gate]);
        match self.norm {
            None => Ok(mul(context, y)?),
            Some(GatedNorm { eps, gate_last: true }) => {
                let y = self.normalized(context, prefix, eps, y)?;
                Ok(mul(context, y)?)
            }
            Some(GatedNorm { eps, gate_last: false }) => {
                let y = mul(context, y)?;
                self.normalized(context, prefix, eps, y)
            }
        }
    }

    /// The norm of the dims of each group.
    fn normalized(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        eps: f32,
        y: Value,
    ) -> Result<Value, Error> {
        let inner = self.heads * self.head_dim;
        let weight = context.vector(&format!("{prefix}.ssm_norm.weight"), inner)?;
        if self.groups == 1 {
            return Ok(context.graph.push_one(RmsNorm { eps }.into(), &[y, weight])?);
        }
        let of_group = inner / self.groups;
        let ones = Constant::new(Tensor::from_slice([of_group], &vec![1f32; of_group]));
        let ones = context.graph.push_one(ones.into(), &[])?;
        let y = reshape(context, &[self.groups, of_group], y)?;
        let y = context.graph.push_one(RmsNorm { eps }.into(), &[y, ones])?;
        let y = reshape(context, &[inner], y)?;
        Ok(context.graph.push_one(Binary::Mul.into(), &[y, weight])?)
    }
}

/// Each token's elements in another shape.
fn reshape(context: &mut Context<'_>, sizes: &[usize], x: Value) -> Result<Value, Error> {
    let shape = std::iter::once("tokens".into()).chain(sizes.iter().map(|&size| size.into())).collect();
    Ok(context.graph.push_one(Reshape { shape }.into(), &[x])?)
}
