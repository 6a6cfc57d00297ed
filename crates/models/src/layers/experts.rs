//! A mixture of experts: a router gives each token to a few of many feed-forward blocks.

use graph::Value;
use graph::ops::{ExpertLinear, Gather, Reduce, ReduceKind};
use tensor::Tensor;

use super::{Activation, Context, ExpertGroups, GateLimit, Gated, Plain, Routing};
use crate::Error;
use crate::key::{self, Key, Keyed, MAX_EXPERTS, MAX_SIZE};

/// A mixture of experts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ExpertConfig {
    /// How many there are.
    pub count: usize,
    /// How many more there are, after these, that give what they read.
    pub identities: usize,
    /// How many of them each token gets.
    pub per_token: usize,
    /// The width inside each.
    pub width: usize,
    /// The width inside an expert that every token gets as well.
    pub shared_width: Option<usize>,
    /// The width of what they read and compute, if it is not that of the model.
    pub latent: Option<usize>,
    /// What gates are at most, and how far from 0 what they multiply may be, if there is a limit.
    pub gate_limit: Option<f32>,
    /// Whether the result is the average of that of these and that of the expert that every token gets, and not the sum.
    pub averaged: bool,
    /// How they are chosen; the weights say whether there is a correction.
    pub routing: Routing,
}

impl Keyed for ExpertConfig {
    const KEYS: &'static [Key<ExpertConfig>] = &[
        Key::size("number of experts", ["num_experts", "expert_count"], MAX_EXPERTS, |experts| {
            &mut experts.count
        }),
        Key::any(["zero_expert_num", ""], |experts| &mut experts.identities),
        Key::size(
            "number of experts per token",
            ["num_experts_per_tok", "expert_used_count"],
            MAX_EXPERTS,
            |experts| &mut experts.per_token,
        ),
        Key::size(
            "feed-forward size of experts",
            ["moe_intermediate_size", "expert_feed_forward_length"],
            MAX_SIZE,
            |experts| &mut experts.width,
        ),
        Key::size(
            "feed-forward size of the shared expert",
            ["shared_expert_intermediate_size", "expert_shared_feed_forward_length"],
            MAX_SIZE,
            |experts| &mut experts.shared_width,
        ),
        Key::size("latent size of experts", ["moe_latent_size", "moe_latent_size"], MAX_SIZE, |experts| {
            &mut experts.latent
        }),
        Key::positive("limit of gates", ["swiglu_limit", ""], |experts| &mut experts.gate_limit),
        Key::any(["average_experts", ""], |experts| &mut experts.averaged),
        Key::any(["expert_distance", ""], |experts| &mut experts.routing.distance),
        Key::positive("softcap of routers", ["router_logit_softcapping", ""], |experts| {
            &mut experts.routing.softcap
        }),
        Key::any(["norm_topk_prob", "expert_weights_norm"], |experts| &mut experts.routing.normalized),
        Key::factor(
            "factor on shares of experts",
            ["routed_scaling_factor", "expert_weights_scale"],
            |experts| &mut experts.routing.scale,
        ),
    ];
}

impl ExpertConfig {
    /// Checks that the numbers of the routing fit each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        key::check(self)?;
        key::check_size("number of experts per token", self.per_token, self.count)?;
        if self.identities > MAX_EXPERTS {
            let (count, limit) = (self.identities, MAX_EXPERTS);
            return Err(format!("{count} experts give what they read, expected at most {limit}"));
        }
        let Some(ExpertGroups { count, chosen, best }) = self.routing.groups else { return Ok(()) };
        if count == 0 || !self.count.is_multiple_of(count) {
            return Err(format!("{} experts cannot form {count} groups evenly", self.count));
        }
        let size = self.count / count;
        if best > size {
            return Err(format!("{best} experts score each group, but it has {size}"));
        }
        if chosen == 0 || chosen > count || self.per_token > chosen * size {
            let expected = self.per_token.div_ceil(size);
            return Err(format!(
                "{chosen} groups of {size} experts are chosen, expected {expected} to {count}"
            ));
        }
        Ok(())
    }
}

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
    /// How many more there are, after these, that give what they read.
    pub identities: usize,
    /// How many of them each token gets.
    pub per_token: usize,
    /// How they are chosen, and how much each counts.
    pub routing: Routing,
    /// An expert that every token gets as well.
    pub shared: Option<SharedExpert>,
    /// Whether the result is the average of both, and not the sum.
    pub averaged: bool,
    /// Whether the projections of experts have biases.
    pub bias: bool,
    /// The bounds of gates, if they have some.
    pub limit: Option<GateLimit>,
    /// Added to what gates multiply.
    pub offset: f32,
    /// Whether what each expert computes is multiplied with a number of its own.
    pub scaled: bool,
    /// Whether shares multiply what experts read, and not what they compute.
    pub scales_input: bool,
}

/// A block for every token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedExpert {
    /// The inner width.
    pub width: usize,
    /// The bounds of its gates, if they have some.
    pub limit: Option<GateLimit>,
    /// Whether its result is multiplied with `sigmoid(x · gᵀ)`.
    pub gated: bool,
}

impl Experts {
    /// f32[tokens, hidden] → f32[tokens, hidden], of what experts and router read.
    pub(crate) fn build<V>(
        &self,
        context: &mut Context<'_, V>,
        x: Value,
        routed: Value,
    ) -> Result<Value, Error> {
        let hidden = context.hidden;
        let all = self.count + self.identities;
        let (shares, chosen) = self.routing.build(context, all, self.per_token, routed)?; // [tokens, per_token]
        let (mut shares, chosen, kept) = self.without_identities(context, shares, chosen)?;
        if self.scaled {
            let factors = context.vector("ffn_down_exps.scale", self.count)?;
            let factors = context.graph.op(Gather { axis: 0 }, &[factors, chosen])?;
            shares = context.graph.mul(shares, factors)?;
        }
        let shares = context.reshape(&[self.per_token, 1], shares)?;
        let mut read = x;
        if let Some(latent) = self.latent {
            read = context.linear("ffn_latent_down", [latent, hidden], false, read)?;
        }
        let outer = self.latent.unwrap_or(hidden);
        if self.scales_input {
            read = context.reshape(&[1, outer], read)?;
            read = context.graph.mul(read, shares)?;
        }
        let inner = self.inner(context, read, chosen)?;
        let shape = [self.count, outer, self.width];
        let y = self.project(context, "ffn_down_exps", shape, inner, chosen)?;
        // [tokens, per_token, outer]
        let y = match self.scales_input {
            true => y,
            false => context.graph.mul(y, shares)?,
        };
        let sum = Reduce { kind: ReduceKind::Sum, axis: 1 };
        let y = context.graph.op(sum, &[y])?;
        let mut y = context.reshape(&[outer], y)?;
        if let Some(latent) = self.latent {
            y = context.linear("ffn_latent_up", [hidden, latent], false, y)?;
        }
        if let Some(kept) = kept {
            let kept = context.graph.mul(x, kept)?;
            y = context.graph.add(y, kept)?;
        }
        match self.shared {
            None => Ok(y),
            Some(shared) => {
                let shared = shared.build(context, self, x)?;
                let sum = context.graph.add(y, shared)?;
                context.scale(sum, if self.averaged { 0.5 } else { 1.0 })
            }
        }
    }

    /// Shares and numbers of experts with weights, and the sum of the shares of the others, [tokens, 1]: a token that has some of
    /// these gets the first expert in their place, with a share of 0.
    fn without_identities<V>(
        &self,
        context: &mut Context<'_, V>,
        shares: Value,
        chosen: Value,
    ) -> Result<(Value, Value, Option<Value>), Error> {
        if self.identities == 0 {
            return Ok((shares, chosen, None));
        }
        let last = context.graph.constant(Tensor::scalar(self.count as i64 - 1));
        let is_other = context.graph.greater(chosen, last)?;
        let none = context.graph.constant(Tensor::scalar(0.0f32));
        let first = context.graph.constant(Tensor::scalar(0i64));
        let others = context.graph.select(is_other, shares, none)?;
        let sum = Reduce { kind: ReduceKind::Sum, axis: 1 };
        let others = context.graph.op(sum, &[others])?;
        let shares = context.graph.select(is_other, none, shares)?;
        let chosen = context.graph.select(is_other, first, chosen)?;
        Ok((shares, chosen, Some(others)))
    }

    /// What the last projections of each token's experts take: f32[tokens, per_token, width]
    fn inner<V>(&self, context: &mut Context<'_, V>, x: Value, chosen: Value) -> Result<Value, Error> {
        let shape = [self.count, self.width, self.latent.unwrap_or(context.hidden)];
        let [gate, up] = ["gate", "up"].map(|stem| format!("ffn_{stem}_exps"));
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
            return Ok(context.graph.op(gated, &[x, chosen, gate, up])?);
        }
        let gate = self.project(context, &gate, shape, x, chosen)?;
        let gate = self.activation.gate(context, gate, self.limit)?;
        let up = self.project(context, &up, shape, x, chosen)?;
        let up = context.clip(up, self.limit.map(|limit| limit.size))?;
        let offset = context.graph.constant(Tensor::scalar(self.offset));
        let up = context.graph.add(up, offset)?;
        Ok(context.graph.mul(gate, up)?)
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
        let y = context.graph.op(ExpertLinear::default(), &[x, chosen, weight])?;
        if !self.bias {
            return Ok(y);
        }
        let biases = context.weight(&format!("{name}.bias"), [shape[0], shape[1]])?;
        let biases = context.graph.embedding(biases, chosen)?;
        Ok(context.graph.add(y, biases)?)
    }
}

impl SharedExpert {
    fn build<V>(&self, context: &mut Context<'_, V>, experts: &Experts, x: Value) -> Result<Value, Error> {
        let (width, activation, limit) = (self.width, experts.activation, self.limit);
        let plain = Plain { width, activation, bias: false };
        let gated =
            Gated { width, activation, bias: false, cutoff: None, limit, gate_scale: 1.0, output_scale: 1.0 };
        let y = match experts.plain {
            true => plain.build(context, "_shexp", x)?,
            false => gated.build(context, "_shexp", x)?,
        };
        if !self.gated {
            return Ok(y);
        }
        let gate = context.vector("ffn_gate_inp_shexp.weight", context.hidden)?;
        let products = context.graph.mul(x, gate)?;
        let sum = Reduce { kind: ReduceKind::Sum, axis: 1 };
        let gate = context.graph.op(sum, &[products])?; // [tokens, 1]
        let gate = context.graph.sigmoid(gate)?;
        Ok(context.graph.mul(y, gate)?)
    }
}
