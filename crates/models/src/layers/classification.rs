//! The head of a classifier: a score for each label, from the hidden state of a text's first token.

use graph::Value;
use graph::ops::{Gather, Slice, Unary};

use super::{Context, Texts, linear};
use crate::Error;

/// `activation(x · Dᵀ + d) · Oᵀ + o`, for the hidden state x of a text's first token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassificationHead {
    /// The names of the labels, in the order of the scores.
    pub labels: Vec<String>,
    /// The function of the first layer; `None` if the head is its second layer alone.
    pub activation: Option<Unary>,
}

impl ClassificationHead {
    /// f32[tokens, hidden] → f32[batch, labels]
    pub(crate) fn build(&self, context: &mut Context<'_, Texts>, x: Value) -> Result<Value, Error> {
        let hidden = context.hidden;
        let all_but_end = Slice { axis: 0, start: 0, stop: Some(-1), step: 1 };
        let firsts = context.graph.push_one(all_but_end.into(), &[context.shared.row_offsets])?; // [batch]
        let mut x = context.graph.push_one(Gather { axis: 0 }.into(), &[x, firsts])?; // [batch, hidden]
        if let Some(activation) = self.activation {
            x = linear(context, "cls", [hidden, hidden], true, x)?;
            x = context.graph.push_one(activation.into(), &[x])?;
        }
        linear(context, "cls.output", [self.labels.len(), hidden], true, x)
    }

    /// The number of weights.
    pub fn parameters(&self, hidden: usize) -> usize {
        let layer = |rows: usize| rows * hidden + rows;
        layer(self.labels.len()) + self.activation.map_or(0, |_| layer(hidden))
    }
}
