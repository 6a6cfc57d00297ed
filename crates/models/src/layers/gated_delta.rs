//! A gated delta net (Yang et al. 2024): linear attention, whose state has one size however long the sequence is.

use graph::Value;
use graph::ops::{GatedDeltaRule, RmsNorm, Split};
use tensor::Tensor;

use super::convolution::Convolution;
use super::mixer_block::MixerBlock;
use super::{Context, Norm};
use crate::Error;
use crate::key::{self, Key, Keyed, MAX_HEAD};

/// Added to the squared length that queries and keys are divided by the root of.
const LENGTH_EPS: f32 = 1e-6;

/// A gated delta net.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeltaConfig {
    /// Query and key heads.
    pub key_heads: usize,
    /// Dims of queries and keys.
    pub key_dim: usize,
    /// Value heads.
    pub value_heads: usize,
    /// Dims of values.
    pub value_dim: usize,
    /// Tokens that each result of its convolution sees.
    pub conv_width: usize,
    /// Whether value heads that follow each other have different key heads, and not the same.
    pub tiled: bool,
    /// Whether β is up to 2 and not 1, so that what a state holds of a key may change its sign.
    pub flips_signs: bool,
}

impl Keyed for DeltaConfig {
    const KEYS: &'static [Key<DeltaConfig>] = &[
        Key::size(
            "number of key heads of delta nets",
            ["linear_num_key_heads", "ssm.group_count"],
            MAX_HEAD,
            |delta| &mut delta.key_heads,
        ),
        Key::size("key size of delta nets", ["linear_key_head_dim", "ssm.state_size"], MAX_HEAD, |delta| {
            &mut delta.key_dim
        }),
        Key::size(
            "number of value heads of delta nets",
            ["linear_num_value_heads", "ssm.time_step_rank"],
            MAX_HEAD,
            |delta| &mut delta.value_heads,
        ),
        Key::size("value size of delta nets", ["linear_value_head_dim", ""], MAX_HEAD, |delta| {
            &mut delta.value_dim
        }),
        Key::size(
            "width of convolutions",
            ["linear_conv_kernel_dim", "ssm.conv_kernel"],
            MAX_HEAD,
            |delta| &mut delta.conv_width,
        ),
        Key::any(["linear_allow_neg_eigval", ""], |delta| &mut delta.flips_signs),
    ];
}

impl DeltaConfig {
    /// Checks that the numbers fit each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        key::check(self)?;
        key::check_shares(self.value_heads, "value heads of delta nets", self.key_heads, "key heads")
    }
}

/// `out(norm(rule(q, k, v, α, β)) · silu(z))`, where queries, keys and values have been through a short convolution of each
/// channel and a SiLU, queries and keys are of length 1, `α = e^(A · softplus(a + bias))` and `β = sigmoid(b) · scale`.
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
    /// The factor on β.
    pub beta_scale: f32,
    /// The norm of each head's results.
    pub norm: Norm,
}

impl MixerBlock for GatedDelta {
    fn build(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let (hidden, values) = (context.hidden, self.values());
        let [query, key, value] = self.project(context, x)?;
        let [decay, beta] = self.gates(context, x)?;
        let rule = |layer| GatedDeltaRule { layer, tiled: self.tiled }.into();
        let y = context.recur(1, rule, &[query, key, value, decay, beta])?;
        let y = self.norm.build(context, "ssm_norm", self.value_dim, y)?;
        let gate = context.linear("attn_gate", [values, hidden], false, x)?;
        let gate = context.graph.silu(gate)?;
        let y = context.reshape(&[values], y)?;
        let y = context.graph.mul(y, gate)?;
        context.linear("ssm_out", [hidden, values], false, y)
    }

    fn summary(&self) -> String {
        let GatedDelta { key_heads, key_dim, value_heads, value_dim, .. } = self;
        format!("{key_heads} key of {key_dim} dims, {value_heads} value of {value_dim} (delta net)")
    }

    /// The shapes of what it keeps of a sequence: the last inputs of the convolution, and for each value head the values
    /// that it holds for keys.
    fn sequence_shapes(&self, _: usize) -> Vec<Vec<usize>> {
        let rule = vec![self.value_heads, self.key_dim, self.value_dim];
        vec![self.convolution().sequence_shape(), rule]
    }
}

impl GatedDelta {
    fn convolution(&self) -> Convolution {
        Convolution { channels: self.channels(), width: self.conv_width, bias: false }
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
    fn project(&self, context: &mut Context<'_>, x: Value) -> Result<[Value; 3], Error> {
        let x = context.linear("attn_qkv", [self.channels(), context.hidden], false, x)?;
        let x = self.convolution().build(context, "ssm_conv1d", x)?;
        let x = context.graph.silu(x)?;
        let sizes = vec![self.keys(), self.keys(), self.values()];
        let [query, key, value] = context.graph.ops(Split { axis: 1, sizes }, &[x])?[..] else {
            unreachable!("three parts")
        };
        let scale = 1.0 / (self.key_dim as f32).sqrt();
        let query = self.with_length(context, scale, query)?;
        let key = self.with_length(context, 1.0, key)?;
        Ok([query, key, context.reshape(&[self.value_heads, self.value_dim], value)?])
    }

    /// Each head's vector, of this length: `x / sqrt(Σ x² + eps)` is an RMS norm of a constant weight.
    fn with_length(&self, context: &mut Context<'_>, length: f32, x: Value) -> Result<Value, Error> {
        let x = context.reshape(&[self.key_heads, self.key_dim], x)?;
        let count = self.key_dim as f32;
        let weight = Tensor::from_slice([self.key_dim], &vec![length / count.sqrt(); self.key_dim]);
        let weight = context.graph.constant(weight);
        Ok(context.graph.op(RmsNorm { eps: LENGTH_EPS / count }, &[x, weight])?)
    }

    /// The decay α and β, f32[tokens, value_heads] each.
    fn gates(&self, context: &mut Context<'_>, x: Value) -> Result<[Value; 2], Error> {
        let shape = [self.value_heads, context.hidden];
        let beta = context.linear("ssm_beta", shape, false, x)?;
        let beta = context.graph.sigmoid(beta)?;
        let beta = context.scale(beta, self.beta_scale)?;
        let step = context.linear("ssm_alpha", shape, false, x)?;
        let bias = context.vector("ssm_dt.bias", self.value_heads)?;
        let step = context.graph.add(step, bias)?;
        let step = context.softplus(step)?;
        let rate = context.vector("ssm_a.weight", self.value_heads)?;
        let exponent = context.graph.mul(step, rate)?;
        Ok([context.graph.exp(exponent)?, beta])
    }
}
