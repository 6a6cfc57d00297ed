//! The head of a classifier: a score for each label, from the hidden states of a text.

use graph::ops::{Binary, Broadcast, Constant, Gather, RaggedAttention, Reshape, Slice, Unary};
use graph::{Dim, Value};
use tensor::Tensor;

use super::{Context, Norm, Texts, linear};
use crate::Error;

/// `norm(activation(x · Dᵀ + d)) · Oᵀ + o`, for the hidden state x of a text's first token or the mean of all; of a
/// decoder, its last token.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassificationHead {
    /// The names of the labels, in the order of the scores.
    pub labels: Vec<String>,
    /// The function of the first layer; `None` if the head is its second layer alone.
    pub activation: Option<Unary>,
    /// Whether the first layer has a bias.
    pub bias: bool,
    /// The norm behind the first layer, if there is one.
    pub norm: Option<Norm>,
    /// Whether it reads the mean of all hidden states, and not the first.
    pub mean: bool,
    /// Whether the second layer has a bias.
    pub output_bias: bool,
    /// Whether the second layer has two rows for one label, whose score is the first product less the second: the
    /// logarithm of the odds of two tokens.
    pub log_odds: bool,
}

impl ClassificationHead {
    /// A head of one layer without bias, as decoders have it.
    pub(crate) fn of_one_layer(labels: Vec<String>, log_odds: bool) -> ClassificationHead {
        ClassificationHead {
            labels,
            activation: None,
            bias: false,
            norm: None,
            mean: false,
            output_bias: false,
            log_odds,
        }
    }

    /// f32[tokens, hidden] → f32[batch, labels], of a batch of whole texts.
    pub(crate) fn build(&self, context: &mut Context<'_, Texts>, x: Value) -> Result<Value, Error> {
        let x = if self.mean { mean(context, x)? } else { x };
        let all_but_end = Slice { axis: 0, start: 0, stop: Some(-1), step: 1 };
        let firsts = context.graph.push_one(all_but_end.into(), &[context.shared.row_offsets])?; // [batch]
        let x = context.graph.push_one(Gather { axis: 0 }.into(), &[x, firsts])?; // [batch, hidden]
        self.scores(context, x)
    }

    /// f32[batch, hidden] → f32[batch, labels], of the row that stands for each text.
    pub(crate) fn scores<V>(&self, context: &mut Context<'_, V>, mut x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        if let Some(activation) = self.activation {
            x = linear(context, "cls", [hidden, hidden], self.bias, x)?;
            x = context.graph.push_one(activation.into(), &[x])?;
        }
        if let Some(norm) = self.norm {
            x = norm.build(context, "cls.norm", hidden, x)?;
        }
        let products = linear(context, "cls.output", [self.rows(), hidden], self.output_bias, x)?;
        if !self.log_odds {
            return Ok(products);
        }
        let mut column = |start: i64| {
            let column = Slice { axis: 1, start, stop: Some(start + 1), step: 1 };
            context.graph.push_one(column.into(), &[products])
        };
        let (first, second) = (column(0)?, column(1)?);
        Ok(context.graph.push_one(Binary::Sub.into(), &[first, second])?)
    }

    /// Rows of the second layer.
    fn rows(&self) -> usize {
        if self.log_odds { 2 } else { self.labels.len() }
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let layer = |rows: usize, bias: bool| rows * hidden + if bias { rows } else { 0 };
        layer(self.rows(), self.output_bias)
            + self.activation.map_or(0, |_| layer(hidden, self.bias))
            + self.norm.map_or(0, |norm| norm.parameters(hidden))
    }
}

/// The mean of the hidden states of a text, in the place of each: attention with scores that are all the same.
fn mean(context: &mut Context<'_, Texts>, x: Value) -> Result<Value, Error> {
    let tokens = || Dim::symbol("tokens");
    let zero = context.graph.push_one(Constant::new(Tensor::scalar(0.0f32)).into(), &[])?;
    let alike = Broadcast { shape: vec![tokens(), 1.into(), 1.into()] };
    let alike = context.graph.push_one(alike.into(), &[zero])?;
    let values = Reshape { shape: vec![tokens(), 1.into(), context.hidden.into()] };
    let values = context.graph.push_one(values.into(), &[x])?;
    let operands = [alike, alike, values, context.shared.row_offsets];
    let means = context.graph.push_one(RaggedAttention { scale: 1.0 }.into(), &operands)?;
    let means_of = Reshape { shape: vec![tokens(), context.hidden.into()] };
    Ok(context.graph.push_one(means_of.into(), &[means])?)
}
