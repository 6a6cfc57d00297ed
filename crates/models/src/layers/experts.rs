//! A mixture of experts: a router gives each token to a few of many feed-forward blocks.

use graph::Value;
use graph::ops::{Binary, Constant, Embedding, ExpertLinear, Gather, Reduce, ReduceKind, Reshape, Unary};
use tensor::Tensor;

use super::{Activation, Context, Gated, Plain, Routing, add, at_most, clip, linear};
use crate::Error;

/// Which experts a token gets: `Σ_i share_i · expert_i(x)` over the `per_token` experts of the highest scores, which are a
/// function of `x · Rᵀ` (Shazeer et al. 2017).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// The inner width of each.
    pub width: usize,
    /// The function of their gates; of plain ones, that between their projections.
    pub activation: Activation,
    /// Whether they are plain blocks, without gates, and so is the one that every token gets.
    pub plain: bool,
    /// The width of what they read and compute, if it is not that of the model: projections that all of them share lead there
    /// and back.
    pub latent: Option<usize>,
    /// How many there are.
    pub count: usize,
    /// How many of them each token gets.
    pub per_token: usize,
    /// How they are chosen, and how much each counts.
    pub routing: Routing,
    /// An expert that every token gets as well.
    pub shared: Option<SharedExpert>,
    /// Whether the projections of experts have biases.
    pub bias: bool,
    /// What gates are at most, and how far from 0 what they multiply may be.
    pub limit: Option<f32>,
    /// Added to what gates multiply.
    pub offset: f32,
    /// Whether what each expert computes is multiplied with a number of its own.
    pub scaled: bool,
    /// Whether shares multiply what experts read, and not what they compute.
    pub scales_input: bool,
}

/// A block for every token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedExpert {
    /// The inner width.
    pub width: usize,
    /// Whether its result is multiplied with `sigmoid(x · gᵀ)`.
    pub gated: bool,
}

impl Experts {
    /// f32[tokens, hidden] → f32[tokens, hidden], of what experts and router read.
    pub(crate) fn build<V>(
        &self,
        context: &mut Context<'_, V>,
        prefix: &str,
        x: Value,
        routed: Value,
    ) -> Result<Value, Error> {
        let hidden = context.hidden;
        let (mut shares, chosen) = self.routing.build(context, prefix, self.count, self.per_token, routed)?; // [tokens, per_token]
        if self.scaled {
            let factors = context.vector(&format!("{prefix}.ffn_down_exps.scale"), self.count)?;
            let factors = context.graph.push_one(Gather { axis: 0 }.into(), &[factors, chosen])?;
            shares = context.graph.push_one(Binary::Mul.into(), &[shares, factors])?;
        }
        let shares = reshape(context, vec!["tokens".into(), self.per_token.into(), 1.into()], shares)?;
        let mut read = x;
        if let Some(latent) = self.latent {
            read = linear(context, &format!("{prefix}.ffn_latent_down"), [latent, hidden], false, read)?;
        }
        let outer = self.latent.unwrap_or(hidden);
        if self.scales_input {
            read = reshape(context, vec!["tokens".into(), 1.into(), outer.into()], read)?;
            read = context.graph.push_one(Binary::Mul.into(), &[read, shares])?;
        }
        let inner = self.inner(context, prefix, read, chosen)?;
        let shape = [self.count, outer, self.width];
        let y = self.project(context, &format!("{prefix}.ffn_down_exps"), shape, inner, chosen)?;
        // [tokens, per_token, outer]
        let y = match self.scales_input {
            true => y,
            false => context.graph.push_one(Binary::Mul.into(), &[y, shares])?,
        };
        let sum = Reduce { kind: ReduceKind::Sum, axis: 1 };
        let y = context.graph.push_one(sum.into(), &[y])?;
        let mut y = reshape(context, vec!["tokens".into(), outer.into()], y)?;
        if let Some(latent) = self.latent {
            y = linear(context, &format!("{prefix}.ffn_latent_up"), [hidden, latent], false, y)?;
        }
        match self.shared {
            None => Ok(y),
            Some(shared) => {
                let shared = shared.build(context, prefix, self, x)?;
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
        let matrices = if self.plain { 2 } else { 3 };
        let of_shared =
            |shared: SharedExpert| matrices * hidden * shared.width + if shared.gated { hidden } else { 0 };
        let shared = self.shared.map_or(0, of_shared) + self.latent.map_or(0, |latent| 2 * hidden * latent);
        let of_count = |given: bool| if given { self.count } else { 0 };
        let Routing { bias, correction, .. } = self.routing;
        let of_router = hidden * self.count + of_count(bias) + of_count(correction) + of_count(self.scaled);
        let outer = self.latent.unwrap_or(hidden);
        let biases = if self.bias { (matrices - 1) * self.width + outer } else { 0 };
        of_router + shared + experts * (matrices * outer * self.width + biases)
    }

    /// What the last projections of each token's experts take: f32[tokens, per_token, width]
    fn inner<V>(
        &self,
        context: &mut Context<'_, V>,
        prefix: &str,
        x: Value,
        chosen: Value,
    ) -> Result<Value, Error> {
        let shape = [self.count, self.width, self.latent.unwrap_or(context.hidden)];
        let [gate, up] = ["gate", "up"].map(|stem| format!("{prefix}.ffn_{stem}_exps"));
        if self.plain {
            let up = self.project(context, &up, shape, x, chosen)?;
            return self.activation.build(context, up);
        }
        if let Activation::Unary(activation) = self.activation
            && !self.bias
            && self.limit.is_none()
            && self.offset == 0.0
        {
            let gate = context.experts(&format!("{gate}.weight"), shape)?;
            let up = context.experts(&format!("{up}.weight"), shape)?;
            let gated = ExpertLinear { gate: Some(activation) };
            return Ok(context.graph.push_one(gated.into(), &[x, chosen, gate, up])?);
        }
        let mut gate = self.project(context, &gate, shape, x, chosen)?;
        if let Some(limit) = self.limit {
            gate = at_most(context, gate, limit)?;
        }
        let gate = self.activation.build(context, gate)?;
        let up = self.project(context, &up, shape, x, chosen)?;
        let up = clip(context, up, self.limit)?;
        let offset = context.graph.push_one(Constant::new(Tensor::scalar(self.offset)).into(), &[])?;
        let up = add(context, up, offset)?;
        Ok(context.graph.push_one(Binary::Mul.into(), &[gate, up])?)
    }

    /// The products with the matrices [experts, rows, columns] of each token's experts, and their biases:
    /// f32[tokens, (per_token,) columns] → f32[tokens, per_token, rows]
    fn project<V>(
        &self,
        context: &mut Context<'_, V>,
        name: &str,
        shape: [usize; 3],
        x: Value,
        chosen: Value,
    ) -> Result<Value, Error> {
        let weight = context.experts(&format!("{name}.weight"), shape)?;
        let y = context.graph.push_one(ExpertLinear::default().into(), &[x, chosen, weight])?;
        if !self.bias {
            return Ok(y);
        }
        let biases = context.weight(&format!("{name}.bias"), [shape[0], shape[1]])?;
        let biases = context.graph.push_one(Embedding.into(), &[biases, chosen])?;
        add(context, y, biases)
    }
}

impl SharedExpert {
    fn build<V>(
        &self,
        context: &mut Context<'_, V>,
        prefix: &str,
        experts: &Experts,
        x: Value,
    ) -> Result<Value, Error> {
        let (width, activation) = (self.width, experts.activation);
        let plain = Plain { width, activation, bias: false };
        let gated =
            Gated { width, activation, bias: false, cutoff: None, gate_scale: 1.0, output_scale: 1.0 };
        let y = match experts.plain {
            true => plain.build(context, prefix, "_shexp", x)?,
            false => gated.build(context, prefix, "_shexp", x)?,
        };
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

fn reshape<V>(context: &mut Context<'_, V>, shape: Vec<graph::Dim>, x: Value) -> Result<Value, Error> {
    Ok(context.graph.push_one(Reshape { shape }.into(), &[x])?)
}
