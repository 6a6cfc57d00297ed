//! Attention that sharpens as texts grow longer.

use graph::{Builder, Value};
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
    pub(crate) fn build(&self, graph: &mut Builder, positions: Value) -> Result<Value, Error> {
        let mut number = |number: f32| graph.constant(Tensor::scalar(number));
        let [context, growth, one, offset] =
            [self.context as f32, self.growth, 1.0, self.offset as f32].map(&mut number);
        let x = graph.cast(positions, DType::F32)?;
        let x = graph.add(x, offset)?;
        let x = graph.div(x, context)?;
        let x = graph.floor(x)?;
        let x = graph.log1p(x)?;
        let x = graph.mul(x, growth)?;
        let x = graph.add(x, one)?;
        Ok(graph.reshape(x, ["tokens".into(), 1.into(), 1.into()])?)
    }
}
