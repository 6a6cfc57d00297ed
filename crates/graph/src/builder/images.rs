//! Building graphs by hand: ops on images, signals and quantized weights.

use tensor::DType;

use super::{Builder, Operand, resolve_axis, widened};
use crate::ops::*;
use crate::{Dim, Error, Value};

/// The numbers of a non-maximum suppression, each a value without axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suppression {
    /// `i64`: boxes kept of each class of an image at most.
    pub most: Value,
    /// `f32`: the intersection over union above which the lesser box goes.
    pub overlap: Value,
    /// `f32`: the score that a box must be above.
    pub least: Value,
}

impl Builder {
    /// A convolution: `x` [batch, height, width, channels], `filter` [height, width, channels of a group, results] and
    /// perhaps `bias: [results]`, or what the layouts of `conv` say → [batch, height, width, results] of the dtype that
    /// they have in common. Integers and truth values are computed in f64, floats of 8 bits and fewer in f32.
    #[track_caller]
    pub fn conv2d(
        &mut self,
        conv: Conv,
        x: impl Into<Operand>,
        filter: impl Into<Operand>,
        bias: Option<Operand>,
    ) -> Result<Value, Error> {
        self.conv("conv2d", 2, conv, [Some(x.into()), Some(filter.into()), bias])
    }

    /// As [`Builder::conv2d`], over depth, height and width.
    #[track_caller]
    pub fn conv3d(
        &mut self,
        conv: Conv,
        x: impl Into<Operand>,
        filter: impl Into<Operand>,
        bias: Option<Operand>,
    ) -> Result<Value, Error> {
        self.conv("conv3d", 3, conv, [Some(x.into()), Some(filter.into()), bias])
    }

    /// What a convolution does to gradients: `x` [batch, height, width, channels], `filter` [height, width, results of a
    /// group, channels] and perhaps `bias: [results]`, or what the layouts say → [batch, height, width, results].
    #[track_caller]
    pub fn conv2d_transpose(
        &mut self,
        conv: ConvTranspose,
        x: impl Into<Operand>,
        filter: impl Into<Operand>,
        bias: Option<Operand>,
    ) -> Result<Value, Error> {
        self.in_floats("conv2d_transpose", conv.into(), [Some(x.into()), Some(filter.into()), bias])
    }

    /// Windows summed into images: `x` [batch, channels · window, positions] → [batch, channels, size..].
    #[track_caller]
    pub fn fold(
        &mut self,
        x: Value,
        size: [Dim; 2],
        window: [usize; 2],
        windows: Windows,
    ) -> Result<Value, Error> {
        self.op(Fold { size: size.to_vec(), window: window.to_vec(), windows }, &[x])
    }

    /// The mean or the largest element of each window: [batch, height, width, channels] → the same with fewer rows and
    /// columns.
    #[track_caller]
    pub fn pool2d(&mut self, pool: Pool2d, x: Value) -> Result<Value, Error> {
        self.op(pool, &[x])
    }

    /// The mean of each window, channels last; padding counts as zeros. [`Builder::pool2d`] has more settings.
    #[track_caller]
    pub fn avg_pool2d(&mut self, x: Value, window: [usize; 2], windows: Windows) -> Result<Value, Error> {
        let kind = PoolKind::Average { count_padding: true };
        self.pool2d(Pool2d { windows, ..Pool2d::new(kind, window) }, x)
    }

    /// The largest element of each window, channels last. [`Builder::pool2d`] has more settings.
    #[track_caller]
    pub fn max_pool2d(&mut self, x: Value, window: [usize; 2], windows: Windows) -> Result<Value, Error> {
        self.pool2d(Pool2d { windows, ..Pool2d::new(PoolKind::Max, window) }, x)
    }

    /// `x` at another size of as many axes.
    #[track_caller]
    pub fn resize(&mut self, resize: Resize, x: Value) -> Result<Value, Error> {
        self.op(resize, &[x])
    }

    /// `x` at another size by the nearest elements.
    #[track_caller]
    pub fn resize_nearest(
        &mut self,
        x: Value,
        size: impl IntoIterator<Item = Dim>,
        coordinates: Coordinates,
        rounding: Rounding,
    ) -> Result<Value, Error> {
        let (size, interpolation) = (size.into_iter().collect(), Interpolation::Nearest(rounding));
        self.op(Resize { size, interpolation, coordinates, antialias: false }, &[x])
    }

    /// `x` at another size on lines between elements.
    #[track_caller]
    pub fn resize_linear(
        &mut self,
        x: Value,
        size: impl IntoIterator<Item = Dim>,
        coordinates: Coordinates,
    ) -> Result<Value, Error> {
        let (size, interpolation) = (size.into_iter().collect(), Interpolation::Linear);
        self.op(Resize { size, interpolation, coordinates, antialias: false }, &[x])
    }

    /// `x` at another size on cubics through elements, as PyTorch's.
    #[track_caller]
    pub fn resize_bicubic(
        &mut self,
        x: Value,
        size: impl IntoIterator<Item = Dim>,
        coordinates: Coordinates,
    ) -> Result<Value, Error> {
        let (size, interpolation) = (size.into_iter().collect(), Interpolation::Cubic { a: -0.75 });
        self.op(Resize { size, interpolation, coordinates, antialias: false }, &[x])
    }

    /// Regions of images: `x` [batch, height, width, channels], `regions` [count, 5] → [count, size.., channels].
    #[track_caller]
    pub fn roi_align(&mut self, align: RoiAlign, x: Value, regions: Value) -> Result<Value, Error> {
        self.op(align, &[x, regions])
    }

    /// The best of overlapping boxes: `boxes: f32[batch, n, 4]` (y and x of two corners), `scores: f32[batch, classes, n]`
    /// → `i64[count, 3]`, image, class and box. `count` names the size, which the data gives.
    #[track_caller]
    pub fn non_maximum_suppression(
        &mut self,
        boxes: Value,
        scores: Value,
        limits: Suppression,
        count: impl Into<String>,
    ) -> Result<Value, Error> {
        let Suppression { most, overlap, least } = limits;
        let op = NonMaximumSuppression { count: count.into(), centered: false };
        self.op(op, &[boxes, scores, most, overlap, least])
    }

    /// `x: f32[batch, channels, ..]`, `weight: f32[channels]`, `bias: f32[channels]` → the type of `x`.
    #[track_caller]
    pub fn group_norm(
        &mut self,
        x: Value,
        weight: Value,
        bias: Value,
        groups: usize,
        eps: f32,
    ) -> Result<Value, Error> {
        self.norm(GroupNorm { groups, eps }.into(), &[x, weight, bias])
    }

    /// The real signal of half a spectrum: `x: f32[.., bins, .., 2]` → `f32[.., length, ..]`; without a length,
    /// `2 · (bins - 1)`. The axis counts without that of the two parts.
    #[track_caller]
    pub fn irfft(
        &mut self,
        x: Value,
        length: Option<Dim>,
        axis: isize,
        norm: FftNorm,
    ) -> Result<Value, Error> {
        let ty = self.operand("irfft", x)?;
        // The last axis holds the two parts of each number.
        let Some(axis) = resolve_axis(ty.rank().saturating_sub(1), axis) else {
            return Err(self.no_axis("irfft", format!("{ty} has no axis {axis}")));
        };
        let bins = &ty.shape[axis];
        let length = length.unwrap_or_else(|| &Dim::from(2) * &(bins - &Dim::from(1)));
        self.op(Irfft { axis, length, norm }, &[x])
    }

    /// The elements of quantized blocks: `u8[.., bytes]`, or a block dtype → f32.
    #[track_caller]
    pub fn dequantize(&mut self, encoding: DType, x: Value) -> Result<Value, Error> {
        if self.operand("dequantize", x)?.dtype == encoding && encoding.is_block() {
            self.cast(x, DType::F32)
        } else {
            self.op(Dequantize { encoding }, &[x])
        }
    }

    /// `x · weightᵀ` with quantized weights: `x: f32[.., columns]`, `weight: u8[rows, bytes]` or of the block dtype
    /// [rows, columns] → `f32[.., rows]`.
    #[track_caller]
    pub fn qmatmul(&mut self, encoding: DType, x: Value, weight: Value) -> Result<Value, Error> {
        if self.operand("qmatmul", weight)?.dtype == encoding && encoding.is_block() {
            self.linear(x, weight)
        } else {
            self.op(QMatMul { encoding }, &[x, weight])
        }
    }

    /// `x · Wᵀ` with weights that GPTQ quantized: `x: f32[.., columns]` (or f16, bf16) → `[.., rows]` of its dtype.
    /// `weights` are the operands after `x`, as [`GptqMatMul`] lists them.
    #[track_caller]
    pub fn gptq_matmul(&mut self, op: GptqMatMul, x: Value, weights: &[Value]) -> Result<Value, Error> {
        self.op(op, &[&[x], weights].concat())
    }

    #[track_caller]
    pub(super) fn expect(
        &self,
        op: &'static str,
        holds: bool,
        message: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(self.refuse(op, message())) }
    }

    /// A convolution over so many axes.
    #[track_caller]
    fn conv(
        &mut self,
        op: &'static str,
        axes: usize,
        conv: Conv,
        operands: [Option<Operand>; 3],
    ) -> Result<Value, Error> {
        self.expect(op, conv.windows.strides.len() == axes, || {
            format!("strides is {:?}, expected {axes} numbers", conv.windows.strides)
        })?;
        self.in_floats(op, conv.into(), operands)
    }

    /// An op of plain floats, of operands in the dtype that they have in common, in which the result is too.
    #[track_caller]
    fn in_floats(
        &mut self,
        name: &'static str,
        op: Op,
        operands: [Option<Operand>; 3],
    ) -> Result<Value, Error> {
        let operands: Vec<Operand> = operands.into_iter().flatten().collect();
        let dtype = self.common_dtype(name, &operands)?;
        let computed = if dtype.is_integer() || dtype == DType::Bool { DType::F64 } else { widened(dtype) };
        let operands = self.promote_to(name, &operands, computed)?;
        let y = self.op(op, &operands)?;
        self.cast(y, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Graph, Type, dims};

    #[test]
    fn a_small_network_prints_and_parses() {
        let build = || -> Result<Graph, Error> {
            let mut b = Builder::new("net");
            let x = b.input("x", Type::new(DType::F32, dims!["n", "h", "w", 3]));
            let filter = b.weight("filter", Type::new(DType::F32, [3, 3, 3, 8]))?;
            let bias = b.weight("bias", Type::new(DType::F32, [8]))?;
            let windows = Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]);
            let y = b.conv2d(Conv { windows, ..Conv::new(2) }, x, filter, Some(bias.into()))?;
            let y = b.pool2d(Pool2d::new(PoolKind::Max, [2, 2]), y)?;
            let filter = b.weight("up", Type::new(DType::F32, [4, 4, 5, 8]))?;
            let windows = Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]);
            let y = b.conv2d_transpose(ConvTranspose { windows, ..ConvTranspose::new() }, y, filter, None)?;
            let y = b.resize_linear(y, dims!["n", 32, 32, 5], Coordinates::AlignCorners)?;
            let y = b.logsoftmax(y, -1)?;
            b.finish(&[y])
        };
        let expected = r#"graph net(%x: f32[n, h, w, 3]) {
  %0 = weight "filter" : f32[3, 3, 3, 8]
  %1 = weight "bias" : f32[8]
  %2 = conv2d(%x, %0, %1) {strides = [2, 2], padding = [1, 1, 1, 1]} : f32[n, ((h + 1)//(2)), ((w + 1)//(2)), 8]
  %3 = max_pool2d(%2) {window = [2, 2], strides = [2, 2]} : f32[n, ((((h + 1)//(2)))//(2)), ((((w + 1)//(2)))//(2)), 8]
  %4 = weight "up" : f32[4, 4, 5, 8]
  %5 = conv2d_transpose(%3, %4) {strides = [2, 2], padding = [1, 1, 1, 1]} : f32[n, 2*((((h + 1)//(2)))//(2)), 2*((((w + 1)//(2)))//(2)), 5]
  %6 = resize_linear(%5) {size = [n, 32, 32, 5], coordinates = align_corners} : f32[n, 32, 32, 5]
  %7 = log_softmax(%6) {axis = 3} : f32[n, 32, 32, 5]
  return %7
}
"#;
        assert_eq!(build().unwrap().to_string(), expected);
        assert_eq!(Graph::parse(expected).unwrap().to_string(), expected);
    }

    #[test]
    fn defaults_and_axes() {
        let mut b = Builder::new("g");
        let spectrum = b.input("s", Type::new(DType::F32, dims!["n", "bins", 2]));
        let signal = b.irfft(spectrum, None, -1, FftNorm::Backward).unwrap();
        assert_eq!(b.ty(signal).to_string(), "f32[n, 2*bins - 2]");
        let error = b.irfft(spectrum, None, 2, FftNorm::Backward).unwrap_err();
        assert_eq!(error.without_location().to_string(), "irfft: f32[n, bins, 2] has no axis 2");
        let bytes = b.input("w", Type::new(DType::U8, [4, 36]));
        let blocks = b.input("v", Type::new(DType::Q4_0, [4, 64]));
        let x = b.input("x", Type::new(DType::F32, dims!["n", 64]));
        for weight in [bytes, blocks] {
            let y = b.qmatmul(DType::Q4_0, x, weight).unwrap();
            assert_eq!(b.ty(y).to_string(), "f32[n, 4]");
            let y = b.dequantize(DType::Q4_0, weight).unwrap();
            assert_eq!(b.ty(y).to_string(), "f32[4, 64]");
        }
        let error = b.qmatmul(DType::BF16, x, bytes).unwrap_err();
        assert_eq!(
            error.without_location().to_string(),
            "qmatmul: encoding is bf16, expected a dtype of quantized blocks"
        );
        let image = b.input("image", Type::new(DType::F32, dims!["n", 8, 9, 3]));
        let windows = || Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]);
        let mean = b.avg_pool2d(image, [3, 3], windows()).unwrap();
        let largest = b.max_pool2d(image, [3, 3], windows()).unwrap();
        for pooled in [mean, largest] {
            assert_eq!(b.ty(pooled).to_string(), "f32[n, 4, 5, 3]");
        }
        let deep = b.conv2d(Conv::new(3), x, x, None).unwrap_err();
        assert_eq!(deep.without_location().to_string(), "conv2d: strides is [1, 1, 1], expected 2 numbers");
    }
}
