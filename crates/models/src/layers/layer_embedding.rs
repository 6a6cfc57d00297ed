//! A second embedding of tokens, of which each layer takes a part of its own.

use graph::ops::{Binary, Constant, Embedding, Reshape, Select, Slice};
use graph::{Dim, Value};
use tensor::Tensor;

use super::{Activation, Context, Norm, add, linear, scale};
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
        let apart = |context: &mut Context<'_>, x: Value| {
            let shape = vec!["tokens".into(), layers.into(), self.width.into()];
            context.graph.push_one(Reshape { shape }.into(), &[x])
        };
        let table = context.weight("per_layer_token_embd.weight", [self.rows, all])?;
        let tokens = self.within_table(context, tokens)?;
        let own = context.graph.push_one(Embedding.into(), &[table, tokens])?;
        let own = scale(context, own, (self.width as f32).sqrt())?;
        let own = apart(context, own)?;
        let projected = linear(context, "per_layer_model_proj", [all, hidden], false, x)?;
        let projected = scale(context, projected, 1.0 / (hidden as f32).sqrt())?;
        let projected = apart(context, projected)?;
        let projected = self.norm.build(context, "per_layer_proj_norm", self.width, projected)?;
        let sum = add(context, projected, own)?;
        scale(context, sum, std::f32::consts::FRAC_1_SQRT_2)
    }

    /// What is added to the result of layer `index`: f32[tokens, hidden] → f32[tokens, hidden]
    pub(crate) fn gated(
        &self,
        context: &mut Context<'_>,
        index: usize,
        parts: Value,
        x: Value,
    ) -> Result<Value, Error> {
        let (hidden, prefix) = (context.hidden, format!("blk.{index}"));
        let own = Slice { axis: 1, start: index as i64, stop: Some(index as i64 + 1), step: 1 };
        let part = context.graph.push_one(own.into(), &[parts])?;
        let shape: Vec<Dim> = vec!["tokens".into(), self.width.into()];
        let part = context.graph.push_one(Reshape { shape }.into(), &[part])?;
        let gate = linear(context, &format!("{prefix}.inp_gate"), [self.width, hidden], false, x)?;
        let gate = self.activation.build(context, gate)?;
        let y = context.graph.push_one(Binary::Mul.into(), &[gate, part])?;
        let y = linear(context, &format!("{prefix}.proj"), [hidden, self.width], false, y)?;
        self.norm.build(context, &format!("{prefix}.post_norm"), hidden, y)
    }

    /// The number of weights, of all layers together.
    pub fn parameters(&self, layers: usize, hidden: usize) -> usize {
        let of_layer = 2 * hidden * self.width + self.norm.parameters(hidden);
        layers * (self.width * (self.rows + hidden) + of_layer) + self.norm.parameters(self.width)
    }

    /// Tokens, and 0 for those that the table lacks.
    fn within_table(&self, context: &mut Context<'_>, tokens: Value) -> Result<Value, Error> {
        let rows = u32::try_from(self.rows).unwrap_or(u32::MAX);
        let [rows, zero] = [rows, 0].map(|number| Constant::new(Tensor::scalar(number)));
        let (rows, zero) =
            (context.graph.push_one(rows.into(), &[])?, context.graph.push_one(zero.into(), &[])?);
        let inside = context.graph.push_one(Binary::Less.into(), &[tokens, rows])?;
        Ok(context.graph.push_one(Select.into(), &[inside, tokens, zero])?)
    }
}
