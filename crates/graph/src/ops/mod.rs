//! The ops: one file each, with its formula, attributes, type rule and reference.
//!
//! To add one, write the file and add a row to `ops!` below.

mod arg_sort;
mod attention;
mod attributes;
mod band_part;
mod binary;
mod broadcast;
mod cast;
mod check;
mod concat;
mod control;
mod conv;
mod conv_transpose;
mod cumsum;
mod custom;
mod dynamic_slice;
mod elements;
mod elementwise;
mod expert_linear;
mod flip;
mod fold;
mod fp8_product;
mod gather;
mod gather_nd;
mod gptq;
mod group_norm;
mod indexing;
mod irfft;
mod kv_store;
mod layer_norm;
mod leaf;
mod linear;
mod log_softmax;
mod masked;
mod matmul;
mod memory;
mod non_maximum_suppression;
mod out_dim;
mod pad;
mod paged_attention;
mod pool;
mod print;
mod quantized;
mod ragged;
mod ragged_attention;
mod random;
mod range;
mod rebind;
mod reduce;
mod region;
mod repeat;
mod reshape;
mod resize;
mod rms_norm;
mod roi_align;
mod rope;
mod scatter;
mod select;
mod shape_to_tensor;
mod slice;
mod softmax;
mod special;
mod split;
mod split_matmul;
#[cfg(test)]
mod testing;
mod top_k;
mod transpose;
mod unary;
mod window;

use std::fmt::Debug;
use std::sync::Arc;

use tensor::{Shape, Tensor};

pub use arg_sort::ArgSort;
pub use attention::Attention;
pub use attributes::{Attribute, Attributes, TensorData};
pub use band_part::BandPart;
pub use binary::Binary;
pub use broadcast::Broadcast;
pub use cast::Cast;
pub use concat::Concat;
pub use control::{Call, Cond, While};
pub use conv::{Conv, FilterLayout};
pub use conv_transpose::ConvTranspose;
pub use cumsum::CumSum;
pub use custom::{Custom, CustomOps, CustomParameter, CustomSignature, ParameterKind};
pub use dynamic_slice::DynamicSlice;
pub use elementwise::{ElementFunction, ElementSource, ElementStep, Elementwise};
pub use expert_linear::ExpertLinear;
pub use flip::Flip;
pub use fold::Fold;
pub use fp8_product::Fp8Product;
pub use gather::{Embedding, Gather};
pub use gather_nd::GatherNd;
pub use gptq::{GptqMatMul, GptqOperands};
pub use group_norm::GroupNorm;
pub use irfft::{FftNorm, Irfft};
pub use kv_store::KvStore;
pub use layer_norm::LayerNorm;
pub use leaf::{Constant, Weight};
pub use linear::{Linear, LinearOperands};
pub use log_softmax::LogSoftmax;
pub use masked::{MaskedScatter, NonZero};
pub use matmul::MatMul;
pub use memory::{Load, Store};
pub use non_maximum_suppression::NonMaximumSuppression;
pub use out_dim::OutDim;
pub use pad::{Pad, PadMode};
pub use paged_attention::PagedAttention;
pub use pool::{Pool2d, PoolKind};
pub use print::Print;
pub use quantized::{Dequantize, QMatMul};
pub use ragged::RaggedPositions;
pub use ragged_attention::RaggedAttention;
pub use random::{Distribution, Random};
pub use range::Range;
pub use rebind::Rebind;
pub use reduce::{ArgReduce, ArgReduceKind, Reduce, ReduceKind};
pub use region::{LoadSlice, StoreSlice, box_starts};
pub use repeat::{RepeatInterleave, Repeats, Tile};
pub use reshape::Reshape;
pub use resize::{Coordinates, Interpolation, Neighbors, Resize, Rounding};
pub use rms_norm::RmsNorm;
pub use roi_align::{Region, RoiAlign, RoiMode};
pub use rope::{Rope, RopeStyle, RopeTable};
pub use scatter::{Scatter, ScatterKind, ScatterNd};
pub use select::Select;
pub use shape_to_tensor::ShapeToTensor;
pub use slice::Slice;
pub use softmax::Softmax;
pub use split::Split;
pub use split_matmul::SplitMatMul;
pub use top_k::TopK;
pub use transpose::Transpose;
pub use unary::Unary;
pub use window::{ImageLayout, Windows};

use crate::{Error, Graph, Substitution, Type, TypeError};

/// What a node does to a buffer operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The operand is a tensor.
    None,
    /// Reads the buffer.
    Read,
    /// Changes the buffer, and may read it.
    Write,
}

/// What every op states about itself.
pub trait Define: Debug + Clone + PartialEq + Sized {
    /// The names this op prints and parses under: one, or one per member of a family such as `Unary`.
    const NAMES: &[&str];

    /// The name of this very op; one of [`Define::NAMES`].
    fn name(&self) -> &'static str;

    /// The attributes, in the order they print.
    fn attributes(&self) -> Attributes {
        Attributes::default()
    }

    /// The op with a name and attributes: the inverse of the two functions above.
    ///
    /// # Errors
    /// If an attribute is missing, of the wrong kind, or unknown.
    fn parse(name: &str, attributes: &mut Attributes) -> Result<Self, TypeError>;

    /// The types of the results. Operands that are buffers have been checked to be so already.
    ///
    /// # Errors
    /// If the operands do not fit, with the two facts that disagree.
    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError>;

    /// What happens to operand `position`, if it is a buffer.
    fn effect(&self, _position: usize) -> Effect {
        Effect::None
    }

    /// The graphs that this op runs. They take all they use as operands.
    fn regions(&self) -> Vec<&Arc<Graph>> {
        Vec::new()
    }

    /// Whether it does something beside giving results and writing buffers, so that it runs though nobody reads it,
    /// once for each time it is written, and in the order written.
    fn has_side_effect(&self) -> bool {
        false
    }

    /// The symbols whose sizes this op finds in its data, such as the number of nonzero elements. Each is new in the
    /// graph.
    fn defines(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The sizes of the symbols that [`Define::defines`] lists, in that order.
    ///
    /// # Errors
    /// If the data makes no sense.
    fn sizes(&self, _inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
        Ok(Vec::new())
    }

    /// The meaning: slow and obvious. `outputs` are the shapes of the results. Floating-point results are
    /// computed in f64 and rounded once. Gives the results, then the new contents of each buffer operand that
    /// the op writes, in operand order.
    ///
    /// # Errors
    /// If the data (an index, say) makes no sense.
    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error>;
}

macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident,)*) => {
        /// An op: what a node computes. Closed, so that passes match on it and a device's list of kernels is
        /// exhaustive.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Op { $($(#[$doc])* $op($op),)* }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op {
                Op::$op(op)
            }
        })*

        impl Op {
            /// The name it prints and parses under.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$op(op) => op.name(),)* }
            }

            /// The attributes, in the order they print.
            pub fn attributes(&self) -> Attributes {
                match self { $(Op::$op(op) => op.attributes(),)* }
            }

            /// The types of the results.
            ///
            /// # Errors
            /// If the operands do not fit, with the two facts that disagree.
            pub fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
                match self { $(Op::$op(op) => op.infer(inputs),)* }
            }

            /// What happens to operand `position`, if it is a buffer.
            pub fn effect(&self, position: usize) -> Effect {
                match self { $(Op::$op(op) => op.effect(position),)* }
            }

            /// The graphs that it runs.
            pub fn regions(&self) -> Vec<&Arc<Graph>> {
                match self { $(Op::$op(op) => op.regions(),)* }
            }

            /// Whether it, or a node of a graph that it runs, does something beside giving results and writing
            /// buffers; see [`Define::has_side_effect`].
            pub fn has_side_effect(&self) -> bool {
                let own = match self { $(Op::$op(op) => op.has_side_effect(),)* };
                own || self.regions().iter().any(|graph| graph.nodes().any(|(_, node)| node.op.has_side_effect()))
            }

            /// The symbols whose sizes it finds in its data.
            pub fn defines(&self) -> Vec<&str> {
                match self { $(Op::$op(op) => op.defines(),)* }
            }

            /// The sizes of those symbols; see [`Define::sizes`].
            ///
            /// # Errors
            /// If the data makes no sense.
            pub fn sizes(&self, inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
                match self { $(Op::$op(op) => op.sizes(inputs),)* }
            }

            /// The meaning, slow and obvious; see [`Define::reference`].
            ///
            /// # Errors
            /// If the data makes no sense.
            pub fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
                match self { $(Op::$op(op) => op.reference(inputs, outputs),)* }
            }

            /// The op with a name and attributes.
            ///
            /// # Errors
            /// If there is no such op, or an attribute is missing, of the wrong kind, or unknown.
            pub fn parse(name: &str, mut attributes: Attributes) -> Result<Op, TypeError> {
                let op = match name {
                    $(_ if $op::NAMES.contains(&name) => Op::$op($op::parse(name, &mut attributes)?),)*
                    _ => return Err(TypeError::new("there is no such op")),
                };
                attributes.expect_empty()?;
                Ok(op)
            }

            /// Every op name.
            pub fn names() -> impl Iterator<Item = &'static str> {
                [$($op::NAMES,)*].into_iter().flatten().copied()
            }
        }
    };
}

impl Op {
    /// This op with other graphs in place of those it runs, in the order of [`Op::regions`].
    ///
    /// # Panics
    /// If the op does not take them.
    pub fn with_regions(&self, regions: impl IntoIterator<Item = Arc<Graph>>) -> Op {
        let mut regions = regions.into_iter();
        let replaced = self.map_attributes(|attribute| match attribute {
            Attribute::Graph(_) => regions.next().map(Attribute::Graph),
            other => Some(other),
        });
        replaced.expect("a graph in place of each")
    }

    /// This op with other dims in place of symbols. The graphs it holds have symbols of their own, and the symbols
    /// it defines stay. `None` if an expression gets too large, or divides by 0.
    pub fn substitute(&self, symbols: &Substitution) -> Option<Op> {
        self.map_attributes(|attribute| match attribute {
            Attribute::Dims(dims) => {
                Some(Attribute::Dims(dims.iter().map(|dim| dim.substitute(symbols)).collect::<Option<_>>()?))
            }
            Attribute::Type(ty) => Some(Attribute::Type(crate::apply::substitute(&ty, symbols)?)),
            Attribute::Types(types) => {
                let types = types.iter().map(|ty| crate::apply::substitute(ty, symbols));
                Some(Attribute::Types(types.collect::<Option<_>>()?))
            }
            other => Some(other),
        })
    }

    /// This op with a prefix before the names of all weights that it and the graphs in it name.
    pub fn with_prefix(&self, prefix: &str) -> Op {
        match self {
            _ if prefix.is_empty() => self.clone(),
            Op::Weight(weight) => {
                Weight { name: format!("{prefix}{}", weight.name), ..weight.clone() }.into()
            }
            Op::Call(call) => Call { prefix: format!("{prefix}{}", call.prefix), ..call.clone() }.into(),
            op if op.regions().is_empty() => op.clone(),
            op => {
                op.with_regions(op.regions().into_iter().map(|region| Arc::new(region.with_prefix(prefix))))
            }
        }
    }

    fn map_attributes(&self, map: impl FnMut(Attribute) -> Option<Attribute>) -> Option<Op> {
        let attributes = self.attributes();
        let mappable = |attribute: &Attribute| {
            matches!(
                attribute,
                Attribute::Dims(_) | Attribute::Type(_) | Attribute::Types(_) | Attribute::Graph(_)
            )
        };
        if !attributes.iter().any(|(_, attribute)| mappable(attribute)) {
            return Some(self.clone());
        }
        Some(Op::parse(self.name(), attributes.try_map(map)?).expect("an op parses from its attributes"))
    }
}

ops! {
    /// A value known when the graph is built.
    Constant,
    /// A value bound by name when the model is initialized.
    Weight,
    /// A function of each element.
    Unary,
    /// A function of each pair of elements, with broadcasting.
    Binary,
    /// Elements of one tensor or another, as a condition says.
    Select,
    /// Another dtype.
    Cast,
    /// Functions of elements one after another.
    Elementwise,
    /// Sum, mean, extreme or product along an axis.
    Reduce,
    /// The index of an extreme along an axis.
    ArgReduce,
    /// `e^(x_i) / Σ_j e^(x_j)` along an axis.
    Softmax,
    /// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias`.
    LayerNorm,
    /// `x / sqrt(mean(x²) + eps) · weight`.
    RmsNorm,
    /// Matrix products over batches.
    MatMul,
    /// The fused linear layer `epilogue(norm(x) · Wᵀ + b)`.
    Linear,
    /// The linear layer of a mixture of experts.
    ExpertLinear,
    /// Attention of every token to every key.
    Attention,
    /// Slices along an axis, by index.
    Gather,
    /// Rows of a table of weights, by id.
    Embedding,
    /// Tensors one after another.
    Concat,
    /// A tensor taken apart.
    Split,
    /// A range of an axis.
    Slice,
    /// The same elements under another shape.
    Reshape,
    /// The axes in another order.
    Transpose,
    /// Repetition along axes of size 1.
    Broadcast,
    /// The largest or smallest elements and where they were.
    TopK,
    /// The indices that put elements in order.
    ArgSort,
    /// Running sums along an axis.
    CumSum,
    /// Elements before and after those of each axis.
    Pad,
    /// The whole again and again.
    Tile,
    /// Each element of an axis several times.
    RepeatInterleave,
    /// Axes turned around.
    Flip,
    /// A band of diagonals of matrices.
    BandPart,
    /// Slices at tuples of indices.
    GatherNd,
    /// Elements replaced, or combined with updates, by an index along an axis.
    Scatter,
    /// Slices replaced, or combined with updates, by tuples of indices.
    ScatterNd,
    /// Elements replaced where a mask is true.
    MaskedScatter,
    /// Where elements are not 0.
    NonZero,
    /// An arithmetic sequence.
    Range,
    /// Random numbers.
    Random,
    /// A range of an axis that data determines.
    DynamicSlice,
    /// The contents of a buffer.
    Load,
    /// New contents for a buffer.
    Store,
    /// A box of the contents of a buffer.
    LoadSlice,
    /// New contents for a box of a buffer.
    StoreSlice,
    /// The position of each token of a ragged batch.
    RaggedPositions,
    /// The cosines and sines of rotary position embedding.
    RopeTable,
    /// Rotary position embedding.
    Rope,
    /// Keys and values into the pages of a cache.
    KvStore,
    /// Attention to the pages of a cache.
    PagedAttention,
    /// Attention within the sequences of a ragged batch, in both directions.
    RaggedAttention,
    /// Products of operands rounded to 8-bit floats.
    Fp8Product,
    /// Matrix products whose partial sums are kept in halves.
    SplitMatMul,
    /// A value or a text shown.
    Print,
    /// The same values, of a shape that is asserted.
    Rebind,
    /// The sizes of a tensor's axes.
    ShapeToTensor,
    /// One graph or another, as a condition says.
    Cond,
    /// A graph again and again, as long as a condition holds.
    While,
    /// A graph of its own.
    Call,
    /// Convolutions over two or three spatial axes.
    Conv,
    /// Transposed convolutions.
    ConvTranspose,
    /// Windows laid over each other and summed.
    Fold,
    /// The mean or the largest element of each window.
    Pool2d,
    /// Tensors at other sizes.
    Resize,
    /// Regions of images at one size.
    RoiAlign,
    /// The best of overlapping boxes.
    NonMaximumSuppression,
    /// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias` over groups of channels.
    GroupNorm,
    /// `x_i - ln Σ_j e^(x_j)` along an axis.
    LogSoftmax,
    /// The real signal of half a spectrum.
    Irfft,
    /// The elements of quantized blocks that come as bytes.
    Dequantize,
    /// The product with quantized weights that come as bytes.
    QMatMul,
    /// The product with weights of 4 bits as GPTQ quantizes them.
    GptqMatMul,
    /// What a library computes.
    Custom,
}
