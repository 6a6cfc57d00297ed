//! The blocks that models are built of, and what they need while a graph is built.

mod activation;
mod alibi;
mod attention;
mod channel;
mod channel_state_space;
mod classification;
mod convolution;
mod experts;
mod feed_forward;
mod gated_delta;
mod indexer;
mod latent_attention;
mod layer_embedding;
mod mixer;
mod mixer_block;
mod norm;
mod routing;
mod self_attention;
mod short_convolution;
mod state_space;
mod streams;
mod temperature;

use graph::ops::{Gather, Linear, RopeStyle, Weight};
use graph::{Builder, Op, Type, Value};
use tensor::{DType, Tensor};

pub(crate) use activation::XIELU;
pub use activation::{Activation, GateLimit};
pub use alibi::Alibi;
pub use attention::{Attention, AttentionConfig, AttentionGate, GlobalHeads, QkNorm};
pub use channel::{Channel, GatedAndExperts, GatedAndShortcut};
pub use channel_state_space::ChannelStateSpace;
pub use classification::ClassificationHead;
pub use experts::{ExpertConfig, Experts, SharedExpert};
pub use feed_forward::{Gated, Plain};
pub use gated_delta::{DeltaConfig, GatedDelta};
pub use indexer::{Indexer, IndexerConfig, Reach};
pub use latent_attention::{LatentAttention, LatentConfig};
pub use layer_embedding::LayerEmbedding;
pub use mixer::{Mixer, SideBySide};
pub use norm::{CenteredNorms, Norm, Norms};
pub use routing::{ExpertGroups, Routing, Scores};
pub use self_attention::SelfAttention;
pub(crate) use self_attention::Texts;
pub use short_convolution::ShortConvolution;
pub use state_space::{GatedNorm, StateSpace, StateSpaceConfig, StateSpaceHeads};
pub use streams::{StreamConfig, Streams};
pub use temperature::Temperature;

use crate::Error;
use crate::state::LayerState;

/// The dtype of each stored weight, by canonical name.
pub trait WeightTypes {
    /// The dtype of a weight, if the checkpoint has it.
    fn dtype(&self, name: &str) -> Option<DType>;

    /// The weight `i32[columns]` that holds the order of a matrix's columns, if it is not that of the input they are
    /// multiplied with.
    fn order(&self, _name: &str) -> Option<&str> {
        None
    }

    /// The number of rows of a matrix, if the checkpoint has it.
    fn rows(&self, _name: &str) -> Option<usize> {
        None
    }
}

/// The graph in the making and the values that all layers share.
pub(crate) struct Context<'a, V = Cached> {
    /// The graph in the making.
    pub(crate) graph: Builder,
    /// What the checkpoint holds.
    pub(crate) weights: &'a dyn WeightTypes,
    /// The width of the residual stream.
    pub(crate) hidden: usize,
    /// What the names of weights start with: `blk.3.` in a layer, else nothing.
    pub(crate) prefix: String,
    /// The values.
    pub(crate) shared: V,
}

/// The values that all layers of a decoder share, and where the layer in the making keeps its state.
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
    /// What experts of the layer before add to the residual stream after this one.
    pub(crate) shortcut: Option<Value>,
    /// The states per sequence, one for each shape that layers have.
    pub(crate) states: Vec<Value>,
    /// The slots of the states, u32[batch, 3], if there are any.
    pub(crate) state_table: Option<Value>,
    /// Where the layer keeps its state.
    pub(crate) layer: LayerState,
}

impl Context<'_> {
    /// The result of an op that goes through the tokens of each sequence, and changes the layer's state `index`. The op is
    /// made for a layer of that state.
    fn recur(
        &mut self,
        index: usize,
        op: impl FnOnce(usize) -> Op,
        operands: &[Value],
    ) -> Result<Value, Error> {
        let location = self.shared.layer.states[index];
        let states = self.shared.states[location.input];
        let [row_offsets, cache_lengths, _] = self.shared.ragged;
        let table = self.shared.state_table.expect("decoders with states have a table of their slots");
        let lists = [states, row_offsets, cache_lengths, table];
        Ok(self.graph.op(op(location.layer), &[operands, &lists].concat())?)
    }
}

impl<V> Context<'_, V> {
    /// A matrix as the checkpoint stores it.
    ///
    /// # Errors
    /// If the checkpoint lacks it, or has its columns in an order of their own.
    pub(crate) fn weight(&mut self, name: &str, shape: [usize; 2]) -> Result<Value, Error> {
        let name = self.name_in_order(name)?;
        self.matrices(&name, &shape)
    }

    /// The matrices [experts, rows, columns] of experts as the checkpoint stores them.
    ///
    /// # Errors
    /// As [`Context::weight`].
    pub(crate) fn experts(&mut self, name: &str, shape: [usize; 3]) -> Result<Value, Error> {
        let name = self.name_in_order(name)?;
        self.matrices(&name, &shape)
    }

    /// A vector (a norm's weight, a bias); given to the graph in f32 whatever the checkpoint stores.
    ///
    /// # Errors
    /// If the checkpoint lacks it.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<Value, Error> {
        let name = self.name(name);
        if self.weights.dtype(&name).is_none() {
            return Err(Error::Weight {
                name,
                message: format!("missing from the checkpoint, expected [{len}]"),
            });
        }
        self.declare(name, Type::new(DType::F32, [len]))
    }

    /// `x · Wᵀ + b`, f32[.., columns] → f32[.., rows], for the weights `{name}.weight` of shape `[rows, columns]` and, if
    /// there is one, `{name}.bias`.
    ///
    /// # Errors
    /// If the checkpoint lacks one.
    pub(crate) fn linear(
        &mut self,
        name: &str,
        shape: [usize; 2],
        bias: bool,
        x: Value,
    ) -> Result<Value, Error> {
        let weight = self.name(&format!("{name}.weight"));
        let x = match self.weights.order(&weight) {
            None => x,
            Some(order) => {
                let order = self.declare(order.to_string(), Type::new(DType::I32, [shape[1]]))?;
                self.graph.op(Gather { axis: 1 }, &[x, order])?
            }
        };
        let weight = self.matrices(&weight, &shape)?;
        let y = self.graph.op(Linear::default(), &[x, weight])?;
        if !bias {
            return Ok(y);
        }
        let bias = self.vector(&format!("{name}.bias"), shape[0])?;
        Ok(self.graph.add(y, bias)?)
    }

    /// Each token's elements in another shape: [tokens, ..] → [tokens, ..sizes]
    pub(crate) fn reshape(&mut self, sizes: &[usize], x: Value) -> Result<Value, Error> {
        let sizes = sizes.iter().map(|&size| size.into());
        Ok(self.graph.reshape(x, std::iter::once("tokens".into()).chain(sizes))?)
    }

    /// A value times a number.
    pub(crate) fn scale(&mut self, x: Value, factor: f32) -> Result<Value, Error> {
        if factor == 1.0 {
            return Ok(x);
        }
        let factor = self.graph.constant(Tensor::scalar(factor));
        Ok(self.graph.mul(x, factor)?)
    }

    /// `ln(1 + e^x) = max(x, 0) + ln(1 + e^(-|x|))`, which is finite for every finite `x`.
    pub(crate) fn softplus(&mut self, x: Value) -> Result<Value, Error> {
        let positive = self.graph.relu(x)?;
        let size = self.graph.abs(x)?;
        let exponent = self.graph.negate(size)?;
        let power = self.graph.exp(exponent)?;
        let rest = self.graph.log1p(power)?;
        Ok(self.graph.add(positive, rest)?)
    }

    /// `cap · tanh(x / cap)`
    pub(crate) fn softcap(&mut self, x: Value, cap: Option<f32>) -> Result<Value, Error> {
        let Some(cap) = cap else { return Ok(x) };
        let bound = self.graph.constant(Tensor::scalar(cap));
        let ratio = self.graph.div(x, bound)?;
        let squashed = self.graph.tanh(ratio)?;
        self.scale(squashed, cap)
    }

    /// Each element, or `limit` if it is less.
    pub(crate) fn at_least(&mut self, x: Value, limit: f32) -> Result<Value, Error> {
        let limit = self.graph.constant(Tensor::scalar(limit));
        Ok(self.graph.max(x, limit)?)
    }

    /// Each element, or `limit` if it is more.
    pub(crate) fn at_most(&mut self, x: Value, limit: f32) -> Result<Value, Error> {
        let limit = self.graph.constant(Tensor::scalar(limit));
        Ok(self.graph.min(x, limit)?)
    }

    /// Each element no further from 0 than `limit`.
    pub(crate) fn clip(&mut self, x: Value, limit: Option<f32>) -> Result<Value, Error> {
        let Some(limit) = limit else { return Ok(x) };
        let x = self.at_least(x, -limit)?;
        self.at_most(x, limit)
    }

    /// The whole name of a weight.
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The whole name of a weight whose columns must be in the order of what they are multiplied with.
    fn name_in_order(&self, name: &str) -> Result<String, Error> {
        let name = self.name(name);
        if self.weights.order(&name).is_some() {
            let message = "has permuted columns (desc_act), which run in linear layers that all tokens share: take \
                           a checkpoint without, or a GGUF file";
            return Err(Error::Weight { name, message: message.to_string() });
        }
        Ok(name)
    }

    fn matrices(&mut self, name: &str, shape: &[usize]) -> Result<Value, Error> {
        let dtype = self.weights.dtype(name).ok_or_else(|| Error::Weight {
            name: name.to_string(),
            message: format!("missing from the checkpoint, expected {shape:?}"),
        })?;
        self.declare(name.to_string(), Type::new(dtype, shape.iter().copied()))
    }

    /// A weight. One that is read twice is declared twice, as each reader may want a layout of its own.
    fn declare(&mut self, name: String, ty: Type) -> Result<Value, Error> {
        Ok(self.graph.op(Weight { name, ty }, &[])?)
    }
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
        let mut graph = Builder::new("g");
        let x = graph.input("x", Type::new(DType::F32, ["n".into(), graph::Dim::from(3)]));
        let prefix = String::new();
        let mut context = Context { graph, weights: &Ordered, hidden: 3, prefix, shared: () };
        let y = context.linear("w", [2, 3], false, x).unwrap();
        let router = context.weight("router", [2, 3]).unwrap_err().to_string();
        assert!(router.contains("weight `router`: has permuted columns (desc_act)"), "{router}");
        assert!(context.experts("experts", [4, 2, 3]).is_err());
        let lines = context.graph.finish(&[y]).unwrap().to_string();
        let lines: Vec<&str> = lines.lines().map(str::trim).collect();
        assert!(lines[1].contains("weight \"order\" : i32[3]"), "{lines:?}");
        assert!(lines[2].contains("gather(%x, ") && lines[2].contains("axis = 1"), "{lines:?}");
        assert!(lines[4].contains("linear("), "{lines:?}");
    }
}
