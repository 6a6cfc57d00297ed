//! A second embedding of tokens, of which each layer takes a part of its own.

use graph::Value;
use graph::ops::{Constant, Select, Slice};
use tensor::Tensor;

use super::{Activation, Context, Norm};
use crate::Error;

/// The parts `p = (table[token] · √width + norm(x · Mᵀ / √hidden)) / √2` for the first residual stream `x`; of them a layer
/// makes `norm((activation(y · Gᵀ) · p) · Oᵀ)`, which is added to its result `y`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerEmbedding {
    /// Rows of the table. Tokens beyond have that of token 0.
    pub rows: usize,
    /// The width of the part of a layer.
    pub width: usize,
    /// The function of the gate.
    pub activation: Activation,
    /// Both norms.
    pub norm: Norm,
}

impl LayerEmbedding {
    /// The parts of all layers: u32[tokens] and f32[tokens, hidden] → f32[tokens, layers, width]
    pub(crate) fn build(
        &self,
        context: &mut Context<'_>,
        layers: usize,
        tokens: Value,
        x: Value,
    ) -> Result<Value, Error> {
        let hidden = context.hidden;
        let all = layers * self.width;
        let table = context.weight("per_layer_token_embd.weight", [self.rows, all])?;
        let tokens = self.within_table(context, tokens)?;
        let own = context.graph.embedding(table, tokens)?;
        let own = context.scale(own, (self.width as f32).sqrt())?;
        let own = context.reshape(&[layers, self.width], own)?;
        let projected = context.linear("per_layer_model_proj", [all, hidden], false, x)?;
        let projected = context.scale(projected, 1.0 / (hidden as f32).sqrt())?;
        let projected = context.reshape(&[layers, self.width], projected)?;
        let projected = self.norm.build(context, "per_layer_proj_norm", self.width, projected)?;
        let sum = context.graph.add(projected, own)?;
        context.scale(sum, std::f32::consts::FRAC_1_SQRT_2)
    }

    /// What is added to the result of layer `index`: f32[tokens, hidden] → f32[tokens, hidden]
    pub(crate) fn gated(
        &self,
        context: &mut Context<'_>,
        index: usize,
        parts: Value,
        x: Value,
    ) -> Result<Value, Error> {
        let hidden = context.hidden;
        let own = Slice { axis: 1, start: index as i64, stop: Some(index as i64 + 1), step: 1 };
        let part = context.graph.op(own, &[parts])?;
        let part = context.reshape(&[self.width], part)?;
        let gate = context.linear("inp_gate", [self.width, hidden], false, x)?;
        let gate = self.activation.build(context, gate)?;
        let y = context.graph.mul(gate, part)?;
        let y = context.linear("proj", [hidden, self.width], false, y)?;
        self.norm.build(context, "post_norm", hidden, y)
    }

    /// Tokens, and 0 for those that the table lacks.
    fn within_table(&self, context: &mut Context<'_>, tokens: Value) -> Result<Value, Error> {
        let rows = u32::try_from(self.rows).unwrap_or(u32::MAX);
        let [rows, zero] = [rows, 0].map(|number| Constant::new(Tensor::scalar(number)));
        let (rows, zero) = (context.graph.op(rows, &[])?, context.graph.op(zero, &[])?);
        let inside = context.graph.less(tokens, rows)?;
        Ok(context.graph.op(Select, &[inside, tokens, zero])?)
    }
}
