//! The block of a layer that mixes the elements of each token: gated, plain, or a mixture of experts.

use graph::Value;

use super::{Context, Experts, Gated, Norm, Plain};
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
    /// Both, and the result of the experts joins the residual stream after the next layer.
    GatedAndShortcut(GatedAndShortcut),
    /// The layer does not mix the elements of a token.
    None,
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

/// A gated block, and experts that read the same as it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GatedAndShortcut {
    /// The block for all tokens.
    pub gated: Gated,
    /// The experts.
    pub experts: Experts,
}

impl Channel {
    /// f32[tokens, hidden] → f32[tokens, hidden], of the normalized residual stream and the stream itself.
    pub(crate) fn build(&self, context: &mut Context<'_>, x: Value, residual: Value) -> Result<Value, Error> {
        match self {
            Channel::Gated(gated) => gated.build(context, "", x),
            Channel::Plain(plain) => plain.build(context, "", x),
            Channel::Experts(experts) => experts.build(context, x, x),
            Channel::GatedAndExperts(both) => both.build(context, x, residual),
            Channel::GatedAndShortcut(both) => {
                let shortcut = both.experts.build(context, x, x)?;
                context.shared.shortcut = Some(shortcut);
                both.gated.build(context, "", x)
            }
            Channel::None => Ok(x),
        }
    }

    /// The inner width, or how many experts there are and how wide they are.
    pub(crate) fn summary(&self) -> String {
        let Some(experts) = self.experts() else { return self.width().to_string() };
        let shared = experts.shared.map_or(String::new(), |shared| format!(", and one of {}", shared.width));
        format!("{} of {} experts of {}{shared}", experts.per_token, experts.count, experts.width)
    }

    /// The experts, if there are some.
    pub fn experts(&self) -> Option<&Experts> {
        match self {
            Channel::Experts(experts) => Some(experts),
            Channel::GatedAndExperts(both) => Some(&both.experts),
            Channel::GatedAndShortcut(both) => Some(&both.experts),
            Channel::Gated(_) | Channel::Plain(_) | Channel::None => None,
        }
    }

    /// The inner width, of each expert if there are some.
    pub fn width(&self) -> usize {
        match self {
            Channel::Gated(gated) => gated.width,
            Channel::Plain(plain) => plain.width,
            Channel::Experts(experts) => experts.width,
            Channel::GatedAndExperts(both) => both.experts.width,
            Channel::GatedAndShortcut(both) => both.experts.width,
            Channel::None => 0,
        }
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
