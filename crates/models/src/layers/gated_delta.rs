//! A gated delta net (Yang et al. 2024): linear attention, whose state has one size however long the sequence is.

use graph::Value;
use graph::ops::{Binary, CausalConv, Constant, GatedDeltaRule, Reshape, RmsNorm, Split, Unary};
use tensor::Tensor;

use super::{Context, Norm, add, linear, softplus};
use crate::Error;
use crate::state::LayerState;

/// Added to the squared length that queries and keys are divided by the root of.
const LENGTH_EPS: f32 = 1e-6;

/// `out(norm(rule(q, k, v, α, β)) · silu(z))`, where queries, keys and values have been through a short convolution of each
/// channel and a SiLU, queries and keys are of length 1, `α = e^(A · softplus(a + bias))` and `β = sigmoid(b)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GatedDelta {
    /// Query and key heads; each serves `value_heads / key_heads` value heads.
    pub key_heads: usize,
    /// Dims of queries and keys.
    pub key_dim: usize,
    /// Value heads.
    pub value_heads: usize,
    /// Dims of values.
    pub value_dim: usize,
    /// Whether value heads that follow each other have different key heads, and not the same.
    pub tiled: bool,
    /// Tokens that each result of the convolution sees.
    pub conv_width: usize,
    /// The norm of each head's results.
    pub norm: Norm,
}

impl GatedDelta {
    /// f32[tokens, hidden] → f32[tokens, hidden]; changes the states of the sequences.
    pub(crate) fn build(
        &self,
        context: &mut Context<'_>,
        state: &LayerState,
        prefix: &str,
        x: Value,
    ) -> Result<Value, Error> {
        let (hidden, values) = (context.hidden, self.values());
        let [query, key, value] = self.project(context, state, prefix, x)?;
        let [decay, beta] = self.gates(context, prefix, x)?;
        let location = state.states[1];
        let rule = GatedDeltaRule { layer: location.layer, tiled: self.tiled };
        let states = context.shared.states[location.input];
        let y = context.recur(rule.into(), &[query, key, value, decay, beta], states)?;
        let y = self.norm.build(context, &format!("{prefix}.ssm_norm"), self.value_dim, y)?;
        let gate = linear(context, &format!("{prefix}.attn_gate"), [values, hidden], false, x)?;
        let gate = context.graph.push_one(Unary::Silu.into(), &[gate])?;
        let y = reshape(context, &[values], y)?;
        let y = context.graph.push_one(Binary::Mul.into(), &[y, gate])?;
        linear(context, &format!("{prefix}.ssm_out"), [hidden, values], false, y)
    }

    /// The shapes of what it keeps of a sequence: the last inputs of the convolution, and for each value head the values
    /// that it holds for keys.
    pub(crate) fn sequence_shapes(&self) -> Vec<Vec<usize>> {
        let rule = vec![self.value_heads, self.key_dim, self.value_dim];
        vec![vec![self.channels(), self.conv_width - 1], rule]
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let projections = self.channels() + 2 * self.values() + 2 * self.value_heads;
        let gates = 2 * self.value_heads;
        hidden * projections
            + self.channels() * self.conv_width
            + gates
            + self.norm.parameters(self.value_dim)
    }

    fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }

    fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Of queries, keys and values together.
    fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Queries and keys, f32[tokens, key_heads, key_dim], and values, f32[tokens, value_heads, value_dim].
    fn project(
        &self,
        context: &mut Context<'_>,
        state: &LayerState,
        prefix: &str,
        x: Value,
    ) -> Result<[Value; 3], Error> {
        let (channels, width) = (self.channels(), self.conv_width);
        let x = linear(context, &format!("{prefix}.attn_qkv"), [channels, context.hidden], false, x)?;
        let weight = context.vector(&format!("{prefix}.ssm_conv1d.weight"), channels * width)?;
        let shape = vec![channels.into(), width.into()];
        let weight = context.graph.push_one(Reshape { shape }.into(), &[weight])?;
        let location = state.states[0];
        let states = context.shared.states[location.input];
        let x = context.recur(CausalConv { layer: location.layer }.into(), &[x, weight], states)?;
        let x = context.graph.push_one(Unary::Silu.into(), &[x])?;
        let sizes = vec![self.keys(), self.keys(), self.values()];
        let [query, key, value] = context.graph.push(Split { axis: 1, sizes }.into(), &[x])?[..] else {
            unreachable!("three parts")
        };
        let scale = 1.0 / (self.key_dim as f32).sqrt();
        let query = self.with_length(context, scale, query)?;
        let key = self.with_length(context, 1.0, key)?;
        Ok([query, key, reshape(context, &[self.value_heads, self.value_dim], value)?])
    }

    /// Each head's vector, of this length: `x / sqrt(Σ x² + eps)` is an RMS norm of a constant weight.
    fn with_length(&self, context: &mut Context<'_>, length: f32, x: Value) -> Result<Value, Error> {
        let x = reshape(context, &[self.key_heads, self.key_dim], x)?;
        let count = self.key_dim as f32;
        let weight = Tensor::from_slice([self.key_dim], &vec![length / count.sqrt(); self.key_dim]);
        let weight = context.graph.push_one(Constant::new(weight).into(), &[])?;
        Ok(context.graph.push_one(RmsNorm { eps: LENGTH_EPS / count }.into(), &[x, weight])?)
    }

    /// The decay α and β, f32[tokens, value_heads] each.
    fn gates(&self, context: &mut Context<'_>, prefix: &str, x: Value) -> Result<[Value; 2], Error> {
        let shape = [self.value_heads, context.hidden];
        let beta = linear(context, &format!("{prefix}.ssm_beta"), shape, false, x)?;
        let beta = context.graph.push_one(Unary::Sigmoid.into(), &[beta])?;
        let step = linear(context, &format!("{prefix}.ssm_alpha"), shape, false, x)?;
        let bias = context.vector(&format!("{prefix}.ssm_dt.bias"), self.value_heads)?;
        let step = add(context, step, bias)?;
        let step = softplus(context, step)?;
        let rate = context.vector(&format!("{prefix}.ssm_a.weight"), self.value_heads)?;
        let exponent = context.graph.push_one(Binary::Mul.into(), &[step, rate])?;
        Ok([context.graph.push_one(Unary::Exp.into(), &[exponent])?, beta])
    }
}

/// Each token's elements in another shape.
fn reshape(context: &mut Context<'_>, sizes: &[usize], x: Value) -> Result<Value, Error> {
    let shape = std::iter::once("tokens".into()).chain(sizes.iter().map(|&size| size.into())).collect();
    Ok(context.graph.push_one(Reshape { shape }.into(), &[x])?)
}
