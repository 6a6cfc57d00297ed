//! The blocks that models are built of, and what they need while a graph is built.

mod alibi;
mod attention;
mod channel;
mod channel_state_space;
mod classification;
mod convolution;
mod experts;
mod gated_delta;
mod indexer;
mod latent_attention;
mod layer_embedding;
mod norm;
mod routing;
mod self_attention;
mod short_convolution;
mod state_space;
mod streams;
mod temperature;

use graph::ops::{Binary, Constant, Gather, Linear, RopeStyle, Unary, Weight};
use graph::{Graph, Op, Type, Value};
use tensor::{DType, Tensor};

pub use alibi::Alibi;
pub use attention::{Attention, QkNorm};
pub use channel::{Activation, Channel, Gated, GatedAndExperts, Plain};
pub use channel_state_space::ChannelStateSpace;
pub use classification::ClassificationHead;
pub use experts::{Experts, SharedExpert};
pub use gated_delta::GatedDelta;
pub use indexer::{Indexer, Reach};
pub use latent_attention::LatentAttention;
pub use layer_embedding::LayerEmbedding;
pub use norm::{Norm, Norms};
pub use routing::{ExpertGroups, Routing, Scores};
pub use self_attention::SelfAttention;
pub(crate) use self_attention::Texts;
pub use short_convolution::ShortConvolution;
pub use state_space::{GatedNorm, StateSpace};
pub use streams::Streams;
pub use temperature::Temperature;

use crate::{Error, WeightTypes};

/// The graph in the making and the values that all layers share.
pub(crate) struct Context<'a, V = Cached> {
    /// The graph in the making.
    pub(crate) graph: &'a mut Graph,
    /// What the checkpoint holds.
    pub(crate) weights: &'a dyn WeightTypes,
    /// The width of the residual stream.
    pub(crate) hidden: usize,
    /// The values.
    pub(crate) shared: V,
}

/// The values that all layers of a decoder share.
pub(crate) struct Cached {
    /// Which dims pair up, and the table of angles of this step, for each of the decoder's ropes.
    pub(crate) ropes: Vec<(RopeStyle, Value)>,
    /// The factor on queries, f32[tokens, 1, 1].
    pub(crate) temperature: Option<Value>,
    /// The biases of keys, f32[heads, positions].
    pub(crate) alibi: Option<Value>,
    /// The second embedding, and what layers take of it: f32[tokens, layers, width].
    pub(crate) layer_embedding: Option<(LayerEmbedding, Value)>,
    /// The residual streams, if there are several.
    pub(crate) streams: Option<Streams>,
    /// The caches, one for each shape that layers have.
    pub(crate) caches: Vec<Value>,
    /// Row offsets, cache lengths, page table.
    pub(crate) ragged: [Value; 3],
    /// The positions that the last indexer has chosen, u32[tokens, positions].
    pub(crate) chosen: Option<Value>,
    /// The states per sequence, one for each shape that layers have.
    pub(crate) states: Vec<Value>,
    /// The slots of the states, u32[batch, 3], if there are any.
    pub(crate) state_table: Option<Value>,
}

impl Context<'_> {
    /// The result of an op that goes through the tokens of each sequence, and changes their `states`.
    fn recur(&mut self, op: Op, operands: &[Value], states: Value) -> Result<Value, Error> {
        let Cached { ragged: [row_offsets, cache_lengths, _], state_table, .. } = self.shared;
        let table = state_table.expect("decoders with states have a table of their slots");
        let lists = [states, row_offsets, cache_lengths, table];
        Ok(self.graph.push_one(op, &[operands, &lists].concat())?)
    }
}

impl<V> Context<'_, V> {
    /// A matrix as the checkpoint stores it.
    ///
    /// # Errors
    /// If the checkpoint lacks it, or has its columns in an order of their own.
    pub(crate) fn weight(&mut self, name: &str, shape: [usize; 2]) -> Result<Value, Error> {
        self.expect_no_order(name)?;
        self.matrices(name, &shape)
    }

    /// The matrices [experts, rows, columns] of experts as the checkpoint stores them.
    ///
    /// # Errors
    /// As [`Context::weight`].
    pub(crate) fn experts(&mut self, name: &str, shape: [usize; 3]) -> Result<Value, Error> {
        self.expect_no_order(name)?;
        self.matrices(name, &shape)
    }

    /// The input of a matrix, and the matrix as the checkpoint stores it, with columns in one order.
    fn in_order(&mut self, name: &str, shape: [usize; 2], x: Value) -> Result<(Value, Value), Error> {
        let x = match self.weights.order(name) {
            None => x,
            Some(order) => {
                let order = self.declare(order, Type::new(DType::I32, [shape[1]]))?;
                self.graph.push_one(Gather { axis: 1 }.into(), &[x, order])?
            }
        };
        Ok((x, self.matrices(name, &shape)?))
    }

    fn expect_no_order(&self, name: &str) -> Result<(), Error> {
        match self.weights.order(name) {
            None => Ok(()),
            Some(_) => {
                let message = "has permuted columns (desc_act), which run in linear layers that all tokens share: \
                    take a checkpoint without, or a GGUF file";
                Err(Error::Weight { name: name.to_string(), message: message.to_string() })
            }
        }
    }

    fn matrices(&mut self, name: &str, shape: &[usize]) -> Result<Value, Error> {
        let dtype = self.weights.dtype(name).ok_or_else(|| Error::Weight {
            name: name.to_string(),
            message: format!("missing from the checkpoint, expected {shape:?}"),
        })?;
        self.declare(name, Type::new(dtype, shape.iter().copied()))
    }

    /// A vector (a norm's weight, a bias); given to the graph in f32 whatever the checkpoint stores.
    ///
    /// # Errors
    /// If the checkpoint lacks it.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<Value, Error> {
        if self.weights.dtype(name).is_none() {
            let message = format!("missing from the checkpoint, expected [{len}]");
            return Err(Error::Weight { name: name.to_string(), message });
        }
        self.declare(name, Type::new(DType::F32, [len]))
    }

    fn declare(&mut self, name: &str, ty: Type) -> Result<Value, Error> {
        Ok(self.graph.push_one(Weight { name: name.to_string(), ty }.into(), &[])?)
    }
}

/// `x · Wᵀ + b`, f32[.., columns] → f32[.., rows], for the weights `{name}.weight` of shape `[rows, columns]` and, if
/// there is one, `{name}.bias`.
pub(crate) fn linear<V>(
    context: &mut Context<'_, V>,
    name: &str,
    shape: [usize; 2],
    bias: bool,
    x: Value,
) -> Result<Value, Error> {
    let (x, weight) = context.in_order(&format!("{name}.weight"), shape, x)?;
    let y = context.graph.push_one(Linear::default().into(), &[x, weight])?;
    if !bias {
        return Ok(y);
    }
    let bias = context.vector(&format!("{name}.bias"), shape[0])?;
    add(context, y, bias)
}

/// The sum of two values.
pub(crate) fn add<V>(context: &mut Context<'_, V>, x: Value, y: Value) -> Result<Value, Error> {
    Ok(context.graph.push_one(Binary::Add.into(), &[x, y])?)
}

/// A value times a number.
pub(crate) fn scale<V>(context: &mut Context<'_, V>, x: Value, factor: f32) -> Result<Value, Error> {
    if factor == 1.0 {
        return Ok(x);
    }
    let factor = context.graph.push_one(Constant::new(Tensor::scalar(factor)).into(), &[])?;
    Ok(context.graph.push_one(Binary::Mul.into(), &[x, factor])?)
}

/// `ln(1 + e^x) = max(x, 0) + ln(1 + e^(-|x|))`, which is finite for every finite `x`.
pub(crate) fn softplus(context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
    let mut of = |op: Unary, x: Value| context.graph.push_one(op.into(), &[x]);
    let (positive, size) = (of(Unary::Relu, x)?, of(Unary::Abs, x)?);
    let power = of(Unary::Neg, size).and_then(|x| of(Unary::Exp, x))?;
    let rest = of(Unary::Log1p, power)?;
    add(context, positive, rest)
}

/// `cap · tanh(x / cap)`
pub(crate) fn softcap(context: &mut Context<'_>, x: Value, cap: Option<f32>) -> Result<Value, Error> {
    let Some(cap) = cap else { return Ok(x) };
    let bound = context.graph.push_one(Constant::new(Tensor::scalar(cap)).into(), &[])?;
    let ratio = context.graph.push_one(Binary::Div.into(), &[x, bound])?;
    let squashed = context.graph.push_one(Unary::Tanh.into(), &[ratio])?;
    scale(context, squashed, cap)
}

/// Each element, or `limit` if it is less.
pub(crate) fn at_least<V>(context: &mut Context<'_, V>, x: Value, limit: f32) -> Result<Value, Error> {
    let limit = context.graph.push_one(Constant::new(Tensor::scalar(limit)).into(), &[])?;
    Ok(context.graph.push_one(Binary::Max.into(), &[x, limit])?)
}

/// Each element, or `limit` if it is more.
pub(crate) fn at_most<V>(context: &mut Context<'_, V>, x: Value, limit: f32) -> Result<Value, Error> {
    let limit = context.graph.push_one(Constant::new(Tensor::scalar(limit)).into(), &[])?;
    Ok(context.graph.push_one(Binary::Min.into(), &[x, limit])?)
}

/// Each element no further from 0 than `limit`.
pub(crate) fn clip<V>(context: &mut Context<'_, V>, x: Value, limit: Option<f32>) -> Result<Value, Error> {
    let Some(limit) = limit else { return Ok(x) };
    let x = at_least(context, x, -limit)?;
    at_most(context, x, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every matrix has its columns in one order.
    struct Ordered;

    impl WeightTypes for Ordered {
        fn dtype(&self, _: &str) -> Option<DType> {
            Some(DType::F32)
        }

        fn order(&self, _: &str) -> Option<&str> {
            Some("order")
        }
    }

    #[test]
    fn inputs_are_brought_into_the_order_of_columns() {
        let mut graph = Graph::new("g");
        let x = graph.input("x", Type::new(DType::F32, ["n".into(), graph::Dim::from(3)]));
        let mut context = Context { graph: &mut graph, weights: &Ordered, hidden: 3, shared: () };
        let y = linear(&mut context, "w", [2, 3], false, x).unwrap();
        let router = context.weight("router", [2, 3]).unwrap_err().to_string();
        assert!(router.contains("weight `router`: has permuted columns (desc_act)"), "{router}");
        assert!(context.experts("experts", [4, 2, 3]).is_err());
        graph.set_outputs(&[y]);
        let lines = graph.to_string();
        let lines: Vec<&str> = lines.lines().map(str::trim).collect();
        assert!(lines[1].contains("weight \"order\" : i32[3]"), "{lines:?}");
        assert!(lines[2].contains("gather(%x, ") && lines[2].contains("axis = 1"), "{lines:?}");
        assert!(lines[4].contains("linear("), "{lines:?}");
    }
}
