//! A mixture of experts: a router gives each token to a few of many feed-forward blocks.

use graph::Value;
use graph::ops::{Binary, ExpertLinear, Reduce, ReduceKind, Reshape, Unary};

use super::{Activation, Context, Gated, Routing, add};
use crate::Error;

/// Which experts a token gets: `Σ_i share_i · expert_i(x)` over the `per_token` experts of the highest scores, which are a
/// function of `x · Rᵀ` (Shazeer et al. 2017).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// The inner width of each.
    pub width: usize,
    /// The function of their gates.
    pub activation: Unary,
    /// How many there are.
    pub count: usize,
    /// How many of them each token gets.
    pub per_token: usize,
    /// How they are chosen, and how much each counts.
    pub routing: Routing,
    /// An expert that every token gets beside.
    pub shared: Option<SharedExpert>,
}

/// A gated block for every token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedExpert {
    /// The inner width.
    pub width: usize,
    /// Whether its result is multiplied with `sigmoid(x · gᵀ)`.
    pub gated: bool,
}

impl Experts {
    /// f32[tokens, hidden] → f32[tokens, hidden]
    pub(super) fn build(&self, context: &mut Context<'_>, prefix: &str, x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        let (shares, chosen) = self.routing.build(context, prefix, self.count, self.per_token, x)?; // [tokens, per_token]
        let inner = [self.count, self.width, hidden];
        let gate = context.experts(&format!("{prefix}.ffn_gate_exps.weight"), inner)?;
        let up = context.experts(&format!("{prefix}.ffn_up_exps.weight"), inner)?;
        let outer = [self.count, hidden, self.width];
        let down = context.experts(&format!("{prefix}.ffn_down_exps.weight"), outer)?;
        let gated = ExpertLinear { gate: Some(self.activation) };
        let inner = context.graph.push_one(gated.into(), &[x, chosen, gate, up])?;
        let y = context.graph.push_one(ExpertLinear::default().into(), &[inner, chosen, down])?;
        let shares = reshape(context, vec!["tokens".into(), self.per_token.into(), 1.into()], shares)?;
        let y = context.graph.push_one(Binary::Mul.into(), &[y, shares])?; // [tokens, per_token, hidden]
        let sum = Reduce { kind: ReduceKind::Sum, axis: 1 };
        let y = context.graph.push_one(sum.into(), &[y])?;
        let y = reshape(context, vec!["tokens".into(), hidden.into()], y)?;
        match self.shared {
            None => Ok(y),
            Some(shared) => {
                let shared = shared.build(context, prefix, self.activation, x)?;
                add(context, y, shared)
            }
        }
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        self.count_with(self.count, hidden)
    }

    /// The number of weights that compute each token.
    pub fn active_parameters(&self, hidden: usize) -> usize {
        self.count_with(self.per_token, hidden)
    }

    fn count_with(&self, experts: usize, hidden: usize) -> usize {
        let shared =
            self.shared.map_or(0, |shared| 3 * hidden * shared.width + if shared.gated { hidden } else { 0 });
        let correction = if self.routing.correction { self.count } else { 0 };
        hidden * self.count + correction + shared + experts * 3 * hidden * self.width
    }
}

impl SharedExpert {
    fn build(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        activation: Unary,
        x: Value,
    ) -> Result<Value, Error> {
        let block = Gated { width: self.width, activation: Activation::Unary(activation), bias: false };
        let y = block.build(context, prefix, "_shexp", x)?;
        if !self.gated {
            return Ok(y);
        }
        let gate = context.vector(&format!("{prefix}.ffn_gate_inp_shexp.weight"), context.hidden)?;
        let products = context.graph.push_one(Binary::Mul.into(), &[x, gate])?;
        let sum = Reduce { kind: ReduceKind::Sum, axis: 1 };
        let gate = context.graph.push_one(sum.into(), &[products])?; // [tokens, 1]
        let gate = context.graph.push_one(Unary::Sigmoid.into(), &[gate])?;
        Ok(context.graph.push_one(Binary::Mul.into(), &[y, gate])?)
    }
}

fn reshape(context: &mut Context<'_>, shape: Vec<graph::Dim>, x: Value) -> Result<Value, Error> {
    Ok(context.graph.push_one(Reshape { shape }.into(), &[x])?)
}
