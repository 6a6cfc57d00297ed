//! The head of a classifier: a score for each label, from the hidden states of a text.

use graph::ops::{Broadcast, Gather, RaggedAttention, Reshape, Slice, Unary};
use graph::{Dim, Value};
use tensor::Tensor;

use super::{Context, Norm, Texts};
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
    pub(crate) fn from_labels(labels: Vec<String>, log_odds: bool) -> ClassificationHead {
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
        let firsts = context.graph.op(all_but_end, &[context.shared.row_offsets])?; // [batch]
        let x = context.graph.op(Gather { axis: 0 }, &[x, firsts])?; // [batch, hidden]
        self.scores(context, x)
    }

    /// f32[batch, hidden] → f32[batch, labels], of the row that stands for each text.
    pub(crate) fn scores<V>(&self, context: &mut Context<'_, V>, mut x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        if let Some(activation) = self.activation {
            x = context.linear("cls", [hidden, hidden], self.bias, x)?;
            x = context.graph.op(activation, &[x])?;
        }
        if let Some(norm) = self.norm {
            x = norm.build(context, "cls.norm", hidden, x)?;
        }
        let products = context.linear("cls.output", [self.rows(), hidden], self.output_bias, x)?;
        if !self.log_odds {
            return Ok(products);
        }
        let mut column = |start: i64| {
            let column = Slice { axis: 1, start, stop: Some(start + 1), step: 1 };
            context.graph.op(column, &[products])
        };
        let (first, second) = (column(0)?, column(1)?);
        Ok(context.graph.sub(first, second)?)
    }

    /// Rows of the second layer.
    fn rows(&self) -> usize {
        if self.log_odds { 2 } else { self.labels.len() }
    }
}

/// The mean of the hidden states of a text, in the place of each: attention with scores that are all the same.
fn mean(context: &mut Context<'_, Texts>, x: Value) -> Result<Value, Error> {
    let tokens = || Dim::symbol("tokens");
    let zero = context.graph.constant(Tensor::scalar(0.0f32));
    let alike = Broadcast { shape: vec![tokens(), 1.into(), 1.into()] };
    let alike = context.graph.op(alike, &[zero])?;
    let values = Reshape { shape: vec![tokens(), 1.into(), context.hidden.into()] };
    let values = context.graph.op(values, &[x])?;
    let operands = [alike, alike, values, context.shared.row_offsets];
    let means = context.graph.op(RaggedAttention { scale: 1.0 }, &operands)?;
    let means_of = Reshape { shape: vec![tokens(), context.hidden.into()] };
    Ok(context.graph.op(means_of, &[means])?)
}
