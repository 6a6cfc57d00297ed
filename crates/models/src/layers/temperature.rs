//! Attention that sharpens as texts grow longer.

use graph::ops::{Binary, Cast, Constant, Reshape, Unary};
use graph::{Graph, Value};
use tensor::{DType, Tensor};

use crate::Error;

/// The factor on queries, `1 + growth · ln(1 + ⌊(position + offset) / context⌋)`, as in Llama 4: more keys to choose
/// from would otherwise flatten the choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature {
    /// How fast the factor grows.
    pub growth: f32,
    /// The positions that have the factor 1, and in whose number others are counted.
    pub context: usize,
    /// The number of the first position.
    pub offset: usize,
}

impl Temperature {
    /// u32[tokens] → f32[tokens, 1, 1]
    pub(crate) fn build(&self, graph: &mut Graph, positions: Value) -> Result<Value, Error> {
        let mut number = |number: f32| graph.push_one(Constant::new(Tensor::scalar(number)).into(), &[]);
        let (context, growth, one) = (number(self.context as f32)?, number(self.growth)?, number(1.0)?);
        let offset = number(self.offset as f32)?;
        let x = graph.push_one(Cast { to: DType::F32 }.into(), &[positions])?;
        let x = graph.push_one(Binary::Add.into(), &[x, offset])?;
        let x = graph.push_one(Binary::Div.into(), &[x, context])?;
        let x = graph.push_one(Unary::Floor.into(), &[x])?;
        let x = graph.push_one(Unary::Log1p.into(), &[x])?;
        let x = graph.push_one(Binary::Mul.into(), &[x, growth])?;
        let x = graph.push_one(Binary::Add.into(), &[x, one])?;
        Ok(graph.push_one(Reshape { shape: vec!["tokens".into(), 1.into(), 1.into()] }.into(), &[x])?)
    }
}
