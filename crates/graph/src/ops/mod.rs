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
mod causal_conv;
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
mod gated_delta_rule;
mod gather;
mod gather_nd;
mod gptq;
mod group_norm;
mod indexing;
mod irfft;
mod kv_store;
mod latent_store;
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
mod prelude;
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
mod selective_scan;
mod sequence_state;
mod shape_to_tensor;
mod slice;
mod softmax;
mod special;
mod split;
mod split_matmul;
#[cfg(test)]
mod testing;
mod top_k;
mod top_positions;
mod transfer;
mod transpose;
mod unary;
mod window;

use std::sync::Arc;

use tensor::{Shape, Tensor};

use self::op::ops;
use crate::{Error, Graph, Type, TypeError};

pub use attributes::{Attribute, Attributes, TensorData};
pub(crate) use control::run_regions;
pub use conv::FilterLayout;
pub use custom::{CustomOps, CustomParameter, CustomSignature, ParameterKind};
pub use define::{Define, Effect};
pub use elementwise::{ElementFunction, ElementSource, ElementStep};
pub use gptq::GptqOperands;
pub use irfft::FftNorm;
pub use linear::LinearOperands;
pub use out_dim::OutDim;
pub use pad::PadMode;
pub use pool::PoolKind;
pub use random::Distribution;
pub use reduce::{ArgReduceKind, ReduceKind};
pub use region::box_starts;
pub use repeat::Repeats;
pub use resize::{Coordinates, Interpolation, Neighbors, Rounding};
pub use roi_align::{Roi, RoiMode};
pub use rope::RopeStyle;
pub use scatter::ScatterKind;
pub use window::{ImageLayout, Windows};

ops! {
    /// A value known when the graph is built.
    leaf::Constant,
    /// A value bound by name when the model is initialized.
    leaf::Weight,
    /// A function of each element.
    unary::Unary,
    /// A function of each pair of elements, with broadcasting.
    binary::Binary,
    /// Elements of one tensor or another, as a condition says.
    select::Select,
    /// Another dtype.
    cast::Cast,
    /// Functions of elements one after another.
    elementwise::Elementwise,
    /// Sum, mean, extreme or product along an axis.
    reduce::Reduce,
    /// The index of an extreme along an axis.
    reduce::ArgReduce,
    /// `e^(x_i) / Σ_j e^(x_j)` along an axis.
    softmax::Softmax,
    /// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias`.
    layer_norm::LayerNorm,
    /// `x / sqrt(mean(x²) + eps) · weight`.
    rms_norm::RmsNorm,
    /// Matrix products over batches.
    matmul::MatMul,
    /// The fused linear layer `epilogue(norm(x) · Wᵀ + b)`.
    linear::Linear,
    /// The linear layer of a mixture of experts.
    expert_linear::ExpertLinear,
    /// Attention of every token to every key.
    attention::Attention,
    /// Slices along an axis, by index.
    gather::Gather,
    /// Rows of a table of weights, by id.
    gather::Embedding,
    /// Tensors one after another.
    concat::Concat,
    /// A tensor taken apart.
    split::Split,
    /// A range of an axis.
    slice::Slice,
    /// The same elements under another shape.
    reshape::Reshape,
    /// The axes in another order.
    transpose::Transpose,
    /// Repetition along axes of size 1.
    broadcast::Broadcast,
    /// The largest or smallest elements and where they were.
    top_k::TopK,
    /// The indices that put elements in order.
    arg_sort::ArgSort,
    /// Running sums along an axis.
    cumsum::CumSum,
    /// Elements before and after those of each axis.
    pad::Pad,
    /// The whole again and again.
    repeat::Tile,
    /// Each element of an axis several times.
    repeat::RepeatInterleave,
    /// Axes turned around.
    flip::Flip,
    /// A band of diagonals of matrices.
    band_part::BandPart,
    /// Slices at tuples of indices.
    gather_nd::GatherNd,
    /// Elements replaced, or combined with updates, by an index along an axis.
    scatter::Scatter,
    /// Slices replaced, or combined with updates, by tuples of indices.
    scatter::ScatterNd,
    /// Elements replaced where a mask is true.
    masked::MaskedScatter,
    /// Where elements are not 0.
    masked::NonZero,
    /// An arithmetic sequence.
    range::Range,
    /// Random numbers.
    random::Random,
    /// A range of an axis that data determines.
    dynamic_slice::DynamicSlice,
    /// A new buffer.
    memory::CreateBuffer,
    /// The contents of a buffer.
    memory::Load,
    /// New contents for a buffer.
    memory::Store,
    /// A box of the contents of a buffer.
    region::LoadSlice,
    /// New contents for a box of a buffer.
    region::StoreSlice,
    /// The position of each token of a ragged batch.
    ragged::RaggedPositions,
    /// The cosines and sines of rotary position embedding.
    rope::RopeTable,
    /// Rotary position embedding.
    rope::Rope,
    /// Keys and values into the pages of a cache.
    kv_store::KvStore,
    /// Rows that are keys and values at once into the pages of a cache.
    latent_store::LatentStore,
    /// Attention to the pages of a cache.
    paged_attention::PagedAttention,
    /// The positions of the past that score highest for each token.
    top_positions::TopPositions,
    /// Attention within the sequences of a ragged batch, in both directions.
    ragged_attention::RaggedAttention,
    /// A causal convolution of each channel over the tokens of sequences.
    causal_conv::CausalConv,
    /// The state space of Mamba, token by token.
    selective_scan::SelectiveScan,
    /// Linear attention whose state forgets, and replaces what it holds for a key.
    gated_delta_rule::GatedDeltaRule,
    /// Products of operands rounded to 8-bit floats.
    fp8_product::Fp8Product,
    /// Matrix products whose partial sums are kept in halves.
    split_matmul::SplitMatMul,
    /// A value or a text shown.
    print::Print,
    /// The same values, of a shape that is asserted.
    rebind::Rebind,
    /// The same values on another device.
    transfer::Transfer,
    /// The sizes of a tensor's axes.
    shape_to_tensor::ShapeToTensor,
    /// One graph or another, as a condition says.
    control::Cond,
    /// A graph again and again, as long as a condition holds.
    control::While,
    /// A graph of its own.
    control::Call,
    /// Convolutions over two or three spatial axes.
    conv::Conv,
    /// Transposed convolutions.
    conv_transpose::ConvTranspose,
    /// Windows laid over each other and summed.
    fold::Fold,
    /// The mean or the largest element of each window.
    pool::Pool2d,
    /// Tensors at other sizes.
    resize::Resize,
    /// Regions of images at one size.
    roi_align::RoiAlign,
    /// The best of overlapping boxes.
    non_maximum_suppression::NonMaximumSuppression,
    /// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias` over groups of channels.
    group_norm::GroupNorm,
    /// `x_i - ln Σ_j e^(x_j)` along an axis.
    log_softmax::LogSoftmax,
    /// The real signal of half a spectrum.
    irfft::Irfft,
    /// The elements of quantized blocks that come as bytes.
    quantized::Dequantize,
    /// The product with quantized weights that come as bytes.
    quantized::QMatMul,
    /// The product with weights of 4 bits as GPTQ quantizes them.
    gptq::GptqMatMul,
    /// What a library computes.
    custom::Custom,
}
