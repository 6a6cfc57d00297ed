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
mod define;
mod dynamic_slice;
mod elements;
mod elementwise;
mod expert_linear;
mod field;
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
mod op;
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

use std::sync::Arc;

use tensor::{Shape, Tensor};

use self::op::ops;
use crate::{Error, Graph, Type, TypeError};

pub use arg_sort::ArgSort;
pub use attention::Attention;
#[cfg(test)]
pub(crate) use attributes::asked;
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
pub use define::{Define, Effect};
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
