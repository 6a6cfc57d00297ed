//! How a router chooses experts for a token, and how much each of them counts.

use graph::Value;
use graph::ops::{Concat, Gather, GatherNd, Linear, Reduce, ReduceKind, Softmax, TopK};
use tensor::Tensor;

use super::Context;
use crate::Error;

/// What becomes of the products of a token with the rows of a router.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    /// The function that makes scores of the products.
    pub scores: Scores,
    /// Whether a number of each expert is added to its product.
    pub bias: bool,
    /// Products `s` become `c · tanh(s / c)` for this `c`.
    pub softcap: Option<f32>,
    /// Whether a number of each expert is added to its scores for the choice. The shares do not have it
    /// (Wang et al. 2024, "Auxiliary-loss-free load balancing").
    pub correction: bool,
    /// The groups that experts are in, if those of a few groups alone can be chosen.
    pub groups: Option<ExpertGroups>,
    /// If experts are chosen one after the other (Liu et al. 2024, "GRIN"): the share of each is that of the softmax over the
    /// experts left whose products are no further than this from the best one, as a fraction of the larger of that and
    /// their size.
    pub distance: Option<f32>,
    /// Whether the shares of a token's experts are divided by their sum.
    pub normalized: bool,
    /// The factor on shares.
    pub scale: f32,
}

/// The function that makes scores of a router's products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scores {
    /// The softmax over all experts.
    Softmax,
    /// The sigmoid of each product.
    Sigmoid,
}

/// Groups of neighbouring experts (DeepSeek-AI 2024).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// How many groups there are.
    pub count: usize,
    /// How many of them a token's experts are in.
    pub chosen: usize,
    /// The score of a group is the sum of so many of its experts' best scores.
    pub best: usize,
}

impl Default for Routing {
    /// That of Mixtral: the softmax of the products of a token's experts.
    fn default() -> Routing {
        Routing {
            scores: Scores::Softmax,
            bias: false,
            softcap: None,
            correction: false,
            groups: None,
            distance: None,
            normalized: true,
            scale: 1.0,
        }
    }
}

impl Routing {
    /// The shares and numbers of each token's experts, [tokens, per_token] each; of equal scores the first ones count.
    pub(super) fn build<V>(
        &self,
        context: &mut Context<'_, V>,
        count: usize,
        per_token: usize,
        x: Value,
    ) -> Result<(Value, Value), Error> {
        let router = context.weight("ffn_gate_inp.weight", [count, context.hidden])?;
        let mut products = context.graph.op(Linear::default(), &[x, router])?; // [tokens, count]
        if self.bias {
            let bias = context.vector("ffn_gate_inp.bias", count)?;
            products = context.graph.add(products, bias)?;
        }
        let products = context.softcap(products, self.softcap)?;
        if let Some(distance) = self.distance {
            let (shares, chosen) = in_turn(context, count, per_token, products, distance)?;
            return Ok((context.scale(shares, self.scale)?, chosen));
        }
        let (shares, chosen) =
            if *self == (Routing { scale: self.scale, bias: self.bias, ..Routing::default() }) {
                // The softmax of all products, divided by the sum of those chosen, is the softmax of these.
                let (products, chosen) = top(context, products, per_token)?;
                (softmax(context, products)?, chosen)
            } else {
                let (shares, chosen) = self.choose(context, count, per_token, products)?;
                (if self.normalized { divided_by_sum(context, shares)? } else { shares }, chosen)
            };
        Ok((context.scale(shares, self.scale)?, chosen))
    }

    /// The scores of each token's experts, and their numbers.
    fn choose<V>(
        &self,
        context: &mut Context<'_, V>,
        count: usize,
        per_token: usize,
        products: Value,
    ) -> Result<(Value, Value), Error> {
        if self.scores == Scores::Sigmoid && !self.correction && self.groups.is_none() {
            // Sigmoids of large products are all 1, and would not tell them apart.
            let (best, chosen) = top(context, products, per_token)?;
            return Ok((context.graph.sigmoid(best)?, chosen));
        }
        let scores = match self.scores {
            Scores::Softmax => softmax(context, products)?,
            Scores::Sigmoid => context.graph.sigmoid(products)?,
        };
        let ranked = if self.correction {
            let correction = context.vector("exp_probs_b.bias", count)?;
            context.graph.add(scores, correction)?
        } else {
            scores
        };
        let (best, chosen) = match self.groups {
            None => top(context, ranked, per_token)?,
            Some(groups) => groups.top(context, ranked, count, per_token)?,
        };
        let shares = if self.correction { pick(context, scores, chosen, per_token)? } else { best };
        Ok((shares, chosen))
    }
}

impl ExpertGroups {
    /// Those of a configuration that says how many there are and how many are chosen, unless that leaves all experts.
    pub(crate) fn from_config(groups: (Option<usize>, Option<usize>), best: usize) -> Option<ExpertGroups> {
        let (Some(count), Some(chosen)) = groups else { return None };
        (count > 1 && chosen != count).then_some(ExpertGroups { count, chosen, best })
    }

    /// The best scores among those of the best groups, and the numbers of their experts.
    fn top<V>(
        &self,
        context: &mut Context<'_, V>,
        scores: Value,
        count: usize,
        per_token: usize,
    ) -> Result<(Value, Value), Error> {
        let size = count / self.count;
        let by_group = context.reshape(&[self.count, size], scores)?;
        let best = TopK { k: self.best, axis: 2, smallest: false };
        let best = context.graph.ops(best, &[by_group])?[0]; // [tokens, groups, best]
        let sum = Reduce { kind: ReduceKind::Sum, axis: 2 };
        let sums = context.graph.op(sum, &[best])?;
        let sums = context.reshape(&[self.count], sums)?;
        let (_, groups) = top(context, sums, self.chosen)?;
        let numbers: Vec<i64> = (0..count as i64).collect();
        let numbers = context.graph.constant(Tensor::from_slice([self.count, size], &numbers));
        let numbers = context.graph.op(Gather { axis: 0 }, &[numbers, groups])?;
        let candidates = [self.chosen * size];
        let numbers = context.reshape(&candidates, numbers)?;
        let groups = context.reshape(&[self.chosen, 1], groups)?;
        let scores = context.graph.op(GatherNd { batch_dims: 1 }, &[by_group, groups])?;
        let scores = context.reshape(&candidates, scores)?;
        let (best, places) = top(context, scores, per_token)?;
        Ok((best, pick(context, numbers, places, per_token)?))
    }
}

/// Chooses experts one after the other, as [`Routing::distance`] says: their shares and numbers, [tokens, per_token] each.
fn in_turn<V>(
    context: &mut Context<'_, V>,
    count: usize,
    per_token: usize,
    products: Value,
    distance: f32,
) -> Result<(Value, Value), Error> {
    let numbers: Vec<i64> = (0..count as i64).collect();
    let numbers = context.graph.constant(Tensor::from_slice([count], &numbers));
    let none = context.graph.constant(Tensor::scalar(f32::NEG_INFINITY));
    let sizes = context.graph.abs(products)?;
    let mut left = products;
    let (mut shares, mut chosen) = (Vec::new(), Vec::new());
    for _ in 0..per_token {
        let (best, place) = top(context, left, 1)?; // [tokens, 1]
        let off = context.graph.sub(best, products)?;
        let size = context.graph.max(sizes, best)?;
        let off = context.graph.div(off, size)?;
        let is_far = context.graph.greater(off, distance)?;
        let near = context.graph.select(is_far, none, left)?;
        let near = softmax(context, near)?;
        shares.push(top(context, near, 1)?.0);
        chosen.push(place);
        let is_chosen = context.graph.equal(numbers, place)?;
        left = context.graph.select(is_chosen, none, left)?;
    }
    let joined = Concat { axis: 1 };
    Ok((context.graph.op(joined, &shares)?, context.graph.op(joined, &chosen)?))
}

/// The largest elements of each row, and where they were.
fn top<V>(context: &mut Context<'_, V>, x: Value, k: usize) -> Result<(Value, Value), Error> {
    let results = context.graph.ops(TopK { k, axis: 1, smallest: false }, &[x])?;
    let [values, indices] = results[..] else { unreachable!("values and indices") };
    Ok((values, indices))
}

/// The elements of each row at `count` places of its own.
fn pick<V>(context: &mut Context<'_, V>, x: Value, places: Value, count: usize) -> Result<Value, Error> {
    let places = context.reshape(&[count, 1], places)?;
    Ok(context.graph.op(GatherNd { batch_dims: 1 }, &[x, places])?)
}

fn softmax<V>(context: &mut Context<'_, V>, x: Value) -> Result<Value, Error> {
    Ok(context.graph.op(Softmax { axis: 1 }, &[x])?)
}

/// Each row divided by its sum, which is never 0.
fn divided_by_sum<V>(context: &mut Context<'_, V>, x: Value) -> Result<Value, Error> {
    let sum = Reduce { kind: ReduceKind::Sum, axis: 1 };
    let sum = context.graph.op(sum, &[x])?;
    let least = context.graph.constant(Tensor::scalar(1e-20f32));
    let sum = context.graph.add(sum, least)?;
    Ok(context.graph.div(x, sum)?)
}
