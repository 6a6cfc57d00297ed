//! The function inside a feed-forward block.

use graph::Value;
use graph::ops::Unary;

use super::Context;
use crate::Error;
use crate::key::Field;

/// The function inside a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// A function of one element.
    Unary(Unary),
    /// `max(x, 0)²`
    ReluSquared,
    /// `αp · x² + β · x` above 0, else `αn · (e^min(x, ε) - 1 - x) + β · x` (xIELU, Huang and Schlag 2024). Each block has
    /// numbers of its own, `XIELU`.
    Xielu,
}

/// The bounds of gates, and of what they multiply.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateLimit {
    /// What gates are at most, and how far from 0 what they multiply may be.
    pub size: f32,
    /// Whether gates are bounded after their function, and not before.
    pub after: bool,
}

/// The weights of an xIELU: αp and αn are `softplus(alpha_p)` and `β + softplus(alpha_n)`, ε is `eps`.
pub(crate) const XIELU: [&str; 4] = ["alpha_p", "alpha_n", "beta", "eps"];

/// The function of a feed-forward block, by the name that Hugging Face files have for it.
impl Field for Activation {
    fn kind(&self) -> &'static str {
        "silu, gelu, gelu_pytorch_tanh, quick_gelu, relu, relu2 or xielu"
    }

    fn read_json(&mut self, value: &serde_json::Value) -> Option<()> {
        *self = Activation::from_hugging_face(value.as_str()?).ok()?;
        Some(())
    }

    fn to_json(&self) -> serde_json::Value {
        self.to_hugging_face().into()
    }
}

impl Default for Activation {
    fn default() -> Activation {
        Activation::Unary(Unary::Silu)
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
            "xielu" => Activation::Xielu,
            _ => {
                return Err(format!(
                    "the activation `{name}` is not supported; known: silu, gelu, gelu_pytorch_tanh, quick_gelu, \
                     relu, relu2, xielu"
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
            Activation::Xielu => Some("xielu"),
        }
    }

    /// The value of the function for each element of gates that may be bounded.
    pub(super) fn gate<V>(
        self,
        context: &mut Context<'_, V>,
        x: Value,
        limit: Option<GateLimit>,
    ) -> Result<Value, Error> {
        match limit {
            None => self.build(context, x),
            Some(GateLimit { size, after: true }) => {
                let gate = self.build(context, x)?;
                context.at_most(gate, size)
            }
            Some(GateLimit { size, after: false }) => {
                let x = context.at_most(x, size)?;
                self.build(context, x)
            }
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
            Activation::Xielu => xielu(context, x),
        }
    }
}

/// As the formula of [`Activation::Xielu`] has it.
fn xielu<V>(context: &mut Context<'_, V>, x: Value) -> Result<Value, Error> {
    let mut numbers = Vec::new();
    for name in XIELU {
        numbers.push(context.vector(&format!("ffn_act_{name}.weight"), 1)?);
    }
    let [alpha_p, alpha_n, beta, eps] = numbers[..] else { unreachable!("one for each name") };
    let alpha_p = context.softplus(alpha_p)?;
    let alpha_n = context.softplus(alpha_n)?;
    let alpha_n = context.graph.add(beta, alpha_n)?;
    let square = context.graph.mul(x, x)?;
    let above = context.graph.mul(square, alpha_p)?;
    let negative = context.graph.min(x, eps)?;
    let power = context.graph.exp(negative)?;
    let power = context.graph.sub(power, 1.0f32)?;
    let below = context.graph.sub(power, x)?;
    let below = context.graph.mul(below, alpha_n)?;
    let is_above = context.graph.greater(x, 0.0f32)?;
    let bent = context.graph.select(is_above, above, below)?;
    let line = context.graph.mul(x, beta)?;
    Ok(context.graph.add(bent, line)?)
}
