//! Several residual streams, of which each layer computes one and predicts the others.

use graph::ops::{Binary, Concat, Constant, MatMul, Reduce, ReduceKind, Reshape, Slice, Unary};
use graph::{Dim, Value};
use tensor::Tensor;

use super::{Context, Norm, add, at_least, linear, scale};
use crate::Error;

/// Alternating updates (AltUp, Baykal et al. 2023). A layer predicts all streams as sums of them, computes one of its own,
/// and corrects all by how far that prediction was off. Coefficients of both depend on the token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Streams {
    /// How many there are.
    pub count: usize,
    /// Which of them layers compute.
    pub active: usize,
    /// Whether what layer embeddings read of the active one is multiplied with a vector.
    pub scaled: bool,
    /// The norm of what coefficients are computed from.
    pub norm: Norm,
}

/// The least mean square that a stream is divided by the root of.
const LEAST: f32 = 1e-5;

impl Streams {
    /// f32[tokens, hidden] → f32[tokens, count, hidden]: the first stream, and projections of it of the same size.
    pub(crate) fn split(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        let size = root_mean_square(context, x, None)?;
        let mut streams = vec![x];
        for index in 0..self.count - 1 {
            let y = linear(context, &format!("altup_proj.{index}"), [hidden; 2], false, x)?;
            streams.push(resized(context, y, size)?);
        }
        let shape = [Dim::from("tokens"), 1.into(), hidden.into()];
        for stream in &mut streams {
            *stream = context.graph.push_one(Reshape { shape: shape.to_vec() }.into(), &[*stream])?;
        }
        Ok(context.graph.push_one(Concat { axis: 1 }.into(), &streams)?)
    }

    /// f32[rows, count, hidden] → f32[rows, hidden]: the mean of the first stream and of projections of the others of the
    /// same size.
    pub(crate) fn merge(&self, context: &mut Context<'_>, rows: Dim, streams: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        let mut sum = stream(context, &rows, streams, 0)?;
        let size = root_mean_square(context, sum, None)?;
        for index in 1..self.count {
            let y = stream(context, &rows, streams, index)?;
            let name = format!("altup_unembd_proj.{}", index - 1);
            let y = linear(context, &name, [hidden; 2], false, y)?;
            let y = resized(context, y, size)?;
            sum = add(context, sum, y)?;
        }
        scale(context, sum, 1.0 / self.count as f32)
    }

    /// What a layer predicts before it computes: f32[tokens, count, hidden] → the same.
    pub(crate) fn predict(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        streams: Value,
    ) -> Result<Value, Error> {
        let active = self.active(context, streams)?;
        let modes = self.modes(context, prefix, active)?;
        let name = format!("{prefix}.altup_predict_coef");
        let sums = linear(context, &name, [self.count * self.count, self.count], false, modes)?;
        let shape = vec!["tokens".into(), self.count.into(), self.count.into()];
        let sums = context.graph.push_one(Reshape { shape }.into(), &[sums])?;
        let change = context.graph.push_one(MatMul.into(), &[sums, streams])?;
        add(context, change, streams)
    }

    /// The stream that layers compute: f32[tokens, count, hidden] → f32[tokens, hidden]
    pub(crate) fn active(&self, context: &mut Context<'_>, streams: Value) -> Result<Value, Error> {
        stream(context, &"tokens".into(), streams, self.active)
    }

    /// All streams, once one was computed.
    pub(crate) fn correct(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        predicted: Value,
        computed: Value,
    ) -> Result<Value, Error> {
        let active = self.active(context, predicted)?;
        let off = context.graph.push_one(Binary::Sub.into(), &[computed, active])?;
        let modes = self.modes(context, prefix, computed)?;
        let name = format!("{prefix}.altup_correct_coef");
        let shares = linear(context, &name, [self.count; 2], false, modes)?;
        let one = context.graph.push_one(Constant::new(Tensor::scalar(1f32)).into(), &[])?;
        let shares = add(context, shares, one)?;
        let change = self.spread(context, off, shares)?;
        add(context, change, predicted)
    }

    /// What layer embeddings read: f32[tokens, count, hidden] → f32[tokens, hidden]
    pub(crate) fn read(
        &self,
        context: &mut Context<'_>,
        prefix: &str,
        streams: Value,
    ) -> Result<Value, Error> {
        let x = self.active(context, streams)?;
        if !self.scaled {
            return Ok(x);
        }
        let factors = context.vector(&format!("{prefix}.altup_correct_scale.weight"), context.hidden)?;
        Ok(context.graph.push_one(Binary::Mul.into(), &[x, factors])?)
    }

    /// Adds to all streams but the first: f32[tokens, count, hidden] and f32[tokens, hidden]
    pub(crate) fn add_to_others(
        &self,
        context: &mut Context<'_>,
        streams: Value,
        x: Value,
    ) -> Result<Value, Error> {
        let shares: Vec<f32> = (0..self.count).map(|index| if index == 0 { 0.0 } else { 1.0 }).collect();
        let shares = Constant::new(Tensor::from_slice([1, self.count], &shares));
        let shares = context.graph.push_one(shares.into(), &[])?;
        let change = self.spread(context, x, shares)?;
        add(context, streams, change)
    }

    /// The number of weights: those of a layer, and those of no layer.
    pub fn parameters(&self, layers: usize, hidden: usize) -> usize {
        let count = self.count;
        let of_layer = hidden * count + count * count * (count + 1) + self.norm.parameters(hidden);
        let factors = if self.scaled { hidden } else { 0 };
        layers * (of_layer + factors) + 2 * (count - 1) * hidden * hidden
    }

    /// The inputs of the coefficients: f32[tokens, hidden] → f32[tokens, count]
    fn modes(&self, context: &mut Context<'_>, prefix: &str, x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        let x = self.norm.build(context, &format!("{prefix}.altup_router_norm"), hidden, x)?;
        let x = scale(context, x, 1.0 / hidden as f32)?;
        let x = linear(context, &format!("{prefix}.altup_router"), [self.count, hidden], false, x)?;
        Ok(context.graph.push_one(Unary::Tanh.into(), &[x])?)
    }

    /// f32[tokens, hidden] times the share of each stream, f32[.., count] → f32[tokens, count, hidden]
    fn spread(&self, context: &mut Context<'_>, x: Value, shares: Value) -> Result<Value, Error> {
        let rows = context.graph.ty(shares).shape[0].clone();
        let shape = vec![rows, self.count.into(), 1.into()];
        let shares = context.graph.push_one(Reshape { shape }.into(), &[shares])?;
        let shape = vec!["tokens".into(), 1.into(), context.hidden.into()];
        let x = context.graph.push_one(Reshape { shape }.into(), &[x])?;
        Ok(context.graph.push_one(Binary::Mul.into(), &[x, shares])?)
    }
}

/// One of the streams: f32[rows, count, hidden] → f32[rows, hidden]
fn stream(context: &mut Context<'_>, rows: &Dim, streams: Value, index: usize) -> Result<Value, Error> {
    let one = Slice { axis: 1, start: index as i64, stop: Some(index as i64 + 1), step: 1 };
    let x = context.graph.push_one(one.into(), &[streams])?;
    let shape = vec![rows.clone(), context.hidden.into()];
    Ok(context.graph.push_one(Reshape { shape }.into(), &[x])?)
}

/// `x` with rows of another root mean square: f32[rows, hidden] and f32[rows, 1]
fn resized(context: &mut Context<'_>, x: Value, size: Value) -> Result<Value, Error> {
    let own = root_mean_square(context, x, Some(LEAST))?;
    let x = context.graph.push_one(Binary::Mul.into(), &[x, size])?;
    Ok(context.graph.push_one(Binary::Div.into(), &[x, own])?)
}

/// f32[rows, hidden] → f32[rows, 1], of mean squares of at least `least`.
fn root_mean_square(context: &mut Context<'_>, x: Value, least: Option<f32>) -> Result<Value, Error> {
    let squares = context.graph.push_one(Binary::Mul.into(), &[x, x])?;
    let mean = Reduce { kind: ReduceKind::Mean, axis: 1 };
    let mut mean = context.graph.push_one(mean.into(), &[squares])?;
    if let Some(least) = least {
        mean = at_least(context, mean, least)?;
    }
    Ok(context.graph.push_one(Unary::Sqrt.into(), &[mean])?)
}
