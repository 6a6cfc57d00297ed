//! The block of a layer that mixes the elements of each token: gated, plain, or a mixture of experts.

use graph::Value;
use graph::ops::{Reduce, ReduceKind, Unary};

use super::{Context, Experts, Norm};
use crate::Error;

/// The feed-forward block of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Channel {
    /// One gated block for all tokens.
    Gated(Gated),
    /// One plain block for all tokens.
    Plain(Plain),
    /// A few of many blocks for each token.
    Experts(Experts),
    /// Both, side by side.
    GatedAndExperts(GatedAndExperts),
    /// The layer does not mix the elements of a token.
    None,
}

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
    /// The factor on the gate, before its function.
    pub gate_scale: f32,
    /// The factor on the result.
    pub output_scale: f32,
}

/// `norm(gated(x)) + norm(experts(norm(r)))` for a block that reads `x`, the norm of the residual stream `r`. The router
/// reads `r / sqrt(mean(r²) + eps) · s / √hidden`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GatedAndExperts {
    /// The block for all tokens.
    pub gated: Gated,
    /// The experts.
    pub experts: Experts,
    /// The three norms.
    pub norm: Norm,
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

/// The function inside a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// A function of one element.
    Unary(Unary),
    /// `max(x, 0)²`
    ReluSquared,
}

impl Channel {
    /// f32[tokens, hidden] → f32[tokens, hidden], of the normalized residual stream and the stream itself.
    pub(crate) fn build(&self, context: &mut Context<'_>, x: Value, residual: Value) -> Result<Value, Error> {
        match self {
            Channel::Gated(gated) => gated.build(context, "", x),
            Channel::Plain(plain) => plain.build(context, "", x),
            Channel::Experts(experts) => experts.build(context, x, x),
            Channel::GatedAndExperts(both) => both.build(context, x, residual),
            Channel::None => Ok(x),
        }
    }

    /// The inner width, of each expert if there are some.
    pub fn width(&self) -> usize {
        match self {
            Channel::Gated(gated) => gated.width,
            Channel::Plain(plain) => plain.width,
            Channel::Experts(experts) => experts.width,
            Channel::GatedAndExperts(both) => both.experts.width,
            Channel::None => 0,
        }
    }
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
        let gate = self.activation.build(context, gate)?;
        let inner = context.graph.mul(gate, up)?;
        let y = context.linear(&format!("ffn_down{suffix}"), [hidden, width], self.bias, inner)?;
        context.scale(y, self.output_scale)
    }
}

impl GatedAndExperts {
    fn build(&self, context: &mut Context<'_>, x: Value, residual: Value) -> Result<Value, Error> {
        let (hidden, norm) = (context.hidden, self.norm);
        let y = self.gated.build(context, "", x)?;
        let y = norm.build(context, "post_ffw_norm_1", hidden, y)?;
        let own = norm.build(context, "pre_ffw_norm_2", hidden, residual)?;
        let routed = Norm::Unweighted { eps: norm.eps() }.build(context, "", hidden, residual)?;
        let factors = context.vector("ffn_gate_inp.scale", hidden)?;
        let routed = context.graph.mul(routed, factors)?;
        let routed = context.scale(routed, 1.0 / (hidden as f32).sqrt())?;
        let z = self.experts.build(context, own, routed)?;
        let z = norm.build(context, "post_ffw_norm_2", hidden, z)?;
        Ok(context.graph.add(y, z)?)
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

impl Activation {
    /// The function with the name that `config.json` has for it.
    ///
    /// # Errors
    /// If there is none, listing those there are.
    pub(crate) fn from_hugging_face(name: &str) -> Result<Activation, String> {
        Ok(match name {
            "silu" | "swish" => Activation::Unary(Unary::Silu),
            "gelu" => Activation::Unary(Unary::Gelu),
            "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Activation::Unary(Unary::GeluTanh),
            "quick_gelu" => Activation::Unary(Unary::GeluQuick),
            "relu" => Activation::Unary(Unary::Relu),
            "relu2" => Activation::ReluSquared,
            _ => {
                return Err(format!(
                    "the activation `{name}` is not supported; known: silu, gelu, gelu_pytorch_tanh, quick_gelu, \
                     relu, relu2"
                ));
            }
        })
    }

    /// The name in Hugging Face files, which a function of ours may lack.
    pub(crate) fn to_hugging_face(self) -> Option<&'static str> {
        match self {
            Activation::Unary(Unary::Silu) => Some("silu"),
            Activation::Unary(Unary::Gelu) => Some("gelu"),
            Activation::Unary(Unary::GeluTanh) => Some("gelu_pytorch_tanh"),
            Activation::Unary(Unary::GeluQuick) => Some("quick_gelu"),
            Activation::Unary(Unary::Relu) => Some("relu"),
            Activation::Unary(_) => None,
            Activation::ReluSquared => Some("relu2"),
        }
    }

    /// The value of the function for each element.
    pub(super) fn build<V>(self, context: &mut Context<'_, V>, x: Value) -> Result<Value, Error> {
        match self {
            Activation::Unary(unary) => Ok(context.graph.op(unary, &[x])?),
            Activation::ReluSquared => {
                let x = context.graph.relu(x)?;
                Ok(context.graph.mul(x, x)?)
            }
        }
    }
}
