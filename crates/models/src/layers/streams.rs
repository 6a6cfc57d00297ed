//! Several residual streams, of which each layer computes one and predicts the others.

use graph::ops::{Concat, Constant, MatMul, Reduce, ReduceKind, Slice};
use graph::{Dim, Value};
use tensor::Tensor;

use super::{Context, Norm};
use crate::Error;
use crate::key::{self, Key, Keyed};

/// More streams than this are no model but a damaged or hostile file.
const MAX_STREAMS: usize = 1 << 6;

/// Several residual streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamConfig {
    /// How many there are.
    pub count: usize,
    /// Which of them layers compute.
    pub active: usize,
    /// Whether what layer embeddings read of it is multiplied with a vector.
    pub scaled: bool,
}

impl Keyed for StreamConfig {
    const KEYS: &'static [Key<StreamConfig>] = &[
        Key::size(
            "number of residual streams",
            ["altup_num_inputs", "altup.num_inputs"],
            MAX_STREAMS,
            |streams| &mut streams.count,
        ),
        Key::any(["altup_active_idx", "altup.active_idx"], |streams| &mut streams.active),
        Key::any(["altup_correct_scale", ""], |streams| &mut streams.scaled),
    ];
}

impl StreamConfig {
    /// Checks that the numbers fit each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        key::check(self)?;
        let StreamConfig { count, active, .. } = self;
        if active >= count {
            return Err(format!("layers compute residual stream {active} of {count}"));
        }
        Ok(())
    }
}

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
            let y = context.linear(&format!("altup_proj.{index}"), [hidden; 2], false, x)?;
            streams.push(resized(context, y, size)?);
        }
        for stream in &mut streams {
            *stream = context.reshape(&[1, hidden], *stream)?;
        }
        Ok(context.graph.op(Concat { axis: 1 }, &streams)?)
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
            let y = context.linear(&name, [hidden; 2], false, y)?;
            let y = resized(context, y, size)?;
            sum = context.graph.add(sum, y)?;
        }
        context.scale(sum, 1.0 / self.count as f32)
    }

    /// What a layer predicts before it computes: f32[tokens, count, hidden] → the same.
    pub(crate) fn predict(&self, context: &mut Context<'_>, streams: Value) -> Result<Value, Error> {
        let active = self.active(context, streams)?;
        let modes = self.modes(context, active)?;
        let sums =
            context.linear("altup_predict_coef", [self.count * self.count, self.count], false, modes)?;
        let sums = context.reshape(&[self.count, self.count], sums)?;
        let change = context.graph.op(MatMul, &[sums, streams])?;
        Ok(context.graph.add(change, streams)?)
    }

    /// The stream that layers compute: f32[tokens, count, hidden] → f32[tokens, hidden]
    pub(crate) fn active(&self, context: &mut Context<'_>, streams: Value) -> Result<Value, Error> {
        stream(context, &"tokens".into(), streams, self.active)
    }

    /// All streams, once one was computed.
    pub(crate) fn correct(
        &self,
        context: &mut Context<'_>,
        predicted: Value,
        computed: Value,
    ) -> Result<Value, Error> {
        let active = self.active(context, predicted)?;
        let off = context.graph.sub(computed, active)?;
        let modes = self.modes(context, computed)?;
        let shares = context.linear("altup_correct_coef", [self.count; 2], false, modes)?;
        let one = context.graph.constant(Tensor::scalar(1f32));
        let shares = context.graph.add(shares, one)?;
        let change = self.spread(context, off, shares)?;
        Ok(context.graph.add(change, predicted)?)
    }

    /// What layer embeddings read: f32[tokens, count, hidden] → f32[tokens, hidden]
    pub(crate) fn read(&self, context: &mut Context<'_>, streams: Value) -> Result<Value, Error> {
        let x = self.active(context, streams)?;
        if !self.scaled {
            return Ok(x);
        }
        let factors = context.vector("altup_correct_scale.weight", context.hidden)?;
        Ok(context.graph.mul(x, factors)?)
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
        let shares = context.graph.op(shares, &[])?;
        let change = self.spread(context, x, shares)?;
        Ok(context.graph.add(streams, change)?)
    }

    /// The inputs of the coefficients: f32[tokens, hidden] → f32[tokens, count]
    fn modes(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        let x = self.norm.build(context, "altup_router_norm", hidden, x)?;
        let x = context.scale(x, 1.0 / hidden as f32)?;
        let x = context.linear("altup_router", [self.count, hidden], false, x)?;
        Ok(context.graph.tanh(x)?)
    }

    /// f32[tokens, hidden] times the share of each stream, f32[.., count] → f32[tokens, count, hidden]
    fn spread(&self, context: &mut Context<'_>, x: Value, shares: Value) -> Result<Value, Error> {
        let rows = context.graph.ty(shares).shape[0].clone();
        let shape = vec![rows, self.count.into(), 1.into()];
        let shares = context.graph.reshape(shares, shape)?;
        let x = context.reshape(&[1, context.hidden], x)?;
        Ok(context.graph.mul(x, shares)?)
    }
}

/// One of the streams: f32[rows, count, hidden] → f32[rows, hidden]
fn stream(context: &mut Context<'_>, rows: &Dim, streams: Value, index: usize) -> Result<Value, Error> {
    let one = Slice { axis: 1, start: index as i64, stop: Some(index as i64 + 1), step: 1 };
    let x = context.graph.op(one, &[streams])?;
    let shape = vec![rows.clone(), context.hidden.into()];
    Ok(context.graph.reshape(x, shape)?)
}

/// `x` with rows of another root mean square: f32[rows, hidden] and f32[rows, 1]
fn resized(context: &mut Context<'_>, x: Value, size: Value) -> Result<Value, Error> {
    let own = root_mean_square(context, x, Some(LEAST))?;
    let x = context.graph.mul(x, size)?;
    Ok(context.graph.div(x, own)?)
}

/// f32[rows, hidden] → f32[rows, 1], of mean squares of at least `least`.
fn root_mean_square(context: &mut Context<'_>, x: Value, least: Option<f32>) -> Result<Value, Error> {
    let squares = context.graph.mul(x, x)?;
    let mean = Reduce { kind: ReduceKind::Mean, axis: 1 };
    let mut mean = context.graph.op(mean, &[squares])?;
    if let Some(least) = least {
        mean = context.at_least(mean, least)?;
    }
    Ok(context.graph.sqrt(mean)?)
}
