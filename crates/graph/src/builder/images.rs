//! Building graphs by hand: ops on images, signals, quantized weights and groups of devices.

use tensor::DType;

use super::{Builder, resolve_axis};
use crate::ops::*;
use crate::{Dim, Error, Kind, Value};

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
    /// perhaps `bias: [results]`, or what the layouts of `conv` say → [batch, height, width, results] of the dtype of `x`.
    #[track_caller]
    pub fn conv2d(
        &mut self,
        conv: Conv,
        x: Value,
        filter: Value,
        bias: Option<Value>,
    ) -> Result<Value, Error> {
        self.conv("conv2d", 2, conv, (x, filter, bias))
    }

    /// As [`Builder::conv2d`], over depth, height and width.
    #[track_caller]
    pub fn conv3d(
        &mut self,
        conv: Conv,
        x: Value,
        filter: Value,
        bias: Option<Value>,
    ) -> Result<Value, Error> {
        self.conv("conv3d", 3, conv, (x, filter, bias))
    }

    /// What a convolution does to gradients: `x` [batch, height, width, channels], `filter` [height, width, results of a
    /// group, channels] and perhaps `bias: [results]`, or what the layouts say → [batch, height, width, results].
    #[track_caller]
    pub fn conv2d_transpose(
        &mut self,
        conv: ConvTranspose,
        x: Value,
        filter: Value,
        bias: Option<Value>,
    ) -> Result<Value, Error> {
        self.op(conv, &[&[x, filter], bias.as_slice()].concat())
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
            return Err(self.refuse("irfft", format!("{ty} has no axis {axis}")));
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

    /// The parts of `parts` on all devices one after another, on each device.
    #[track_caller]
    pub fn allgather(
        &mut self,
        parts: &[Value],
        signals: &[Value],
        axis: isize,
    ) -> Result<Vec<Value>, Error> {
        self.expect_participants("allgather", parts, signals)?;
        if let [part] = parts {
            self.axis("allgather", *part, axis)?;
        }
        Ok(parts.to_vec())
    }

    /// The sum of tensors of one type, on each of their devices.
    #[track_caller]
    pub fn allreduce_sum(&mut self, parts: &[Value], signals: &[Value]) -> Result<Vec<Value>, Error> {
        self.expect_participants("allreduce_sum", parts, signals)?;
        Ok(parts.to_vec())
    }

    /// The sum of tensors of one type, a share of it along an axis on each of their devices.
    #[track_caller]
    pub fn reducescatter_sum(
        &mut self,
        parts: &[Value],
        signals: &[Value],
        axis: isize,
    ) -> Result<Vec<Value>, Error> {
        self.expect_participants("reducescatter_sum", parts, signals)?;
        if let [part] = parts {
            self.axis("reducescatter_sum", *part, axis)?;
        }
        Ok(parts.to_vec())
    }

    /// `x` on the device of each signal buffer.
    #[track_caller]
    pub fn distributed_broadcast(&mut self, x: Value, signals: &[Value]) -> Result<Vec<Value>, Error> {
        self.expect_participants("distributed_broadcast", &[x], signals)?;
        Ok(vec![x])
    }

    /// Each of `parts`, which lie on one device, on the device of its signal buffer.
    #[track_caller]
    pub fn distributed_scatter(&mut self, parts: &[Value], signals: &[Value]) -> Result<Vec<Value>, Error> {
        self.expect_participants("distributed_scatter", parts, signals)?;
        Ok(parts.to_vec())
    }

    /// Refuses operands of a collective that are not on devices of their own, each with a signal buffer, or on more than
    /// one device: there is one.
    #[track_caller]
    fn expect_participants(&self, op: &'static str, parts: &[Value], signals: &[Value]) -> Result<(), Error> {
        let mut types = Vec::with_capacity(parts.len());
        for &part in parts {
            types.push(self.operand(op, part)?);
        }
        self.expect(op, !types.is_empty(), || "takes at least 1 operand, got none".to_string())?;
        for (i, &ty) in types.iter().enumerate() {
            self.expect(op, ty.kind == Kind::Tensor, || format!("operand {i} is {ty}, expected a tensor"))?;
            let earlier = types[..i].iter().position(|other| other.device == ty.device);
            self.expect(op, earlier.is_none(), || {
                format!("operands {} and {i} are both on {}", earlier.unwrap_or(0), ty.device)
            })?;
        }
        self.expect(op, signals.len() == types.len(), || {
            format!("takes a signal buffer for each of {} devices, got {}", types.len(), signals.len())
        })?;
        for (i, (&signal, ty)) in signals.iter().zip(&types).enumerate() {
            let signal = self.operand(op, signal)?;
            let fits = signal.kind == Kind::Buffer && signal.dtype == DType::U8 && signal.device == ty.device;
            self.expect(op, fits, || {
                format!("signal buffer {i} is {signal}, expected a buffer of u8 on {}", ty.device)
            })?;
        }
        self.expect(op, types.len() == 1, || {
            let devices: Vec<String> = types.iter().map(|ty| ty.device.to_string()).collect();
            format!("asks for {} devices ({}), of which one takes part", types.len(), devices.join(", "))
        })
    }

    #[track_caller]
    fn expect(&self, op: &'static str, holds: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(self.refuse(op, message())) }
    }

    /// A convolution over so many axes.
    #[track_caller]
    fn conv(
        &mut self,
        op: &'static str,
        axes: usize,
        conv: Conv,
        (x, filter, bias): (Value, Value, Option<Value>),
    ) -> Result<Value, Error> {
        self.expect(op, conv.windows.strides.len() == axes, || {
            format!("strides is {:?}, expected {axes} numbers", conv.windows.strides)
        })?;
        self.op(conv, &[&[x, filter], bias.as_slice()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceRef, Graph, Type, dims};

    #[test]
    fn a_small_network_prints_and_parses() {
        let build = || -> Result<Graph, Error> {
            let mut b = Builder::new("net");
            let x = b.input("x", Type::new(DType::F32, dims!["n", "h", "w", 3]));
            let filter = b.weight("filter", Type::new(DType::F32, [3, 3, 3, 8]))?;
            let bias = b.weight("bias", Type::new(DType::F32, [8]))?;
            let windows = Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]);
            let y = b.conv2d(Conv { windows, ..Conv::new(2) }, x, filter, Some(bias))?;
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

    #[test]
    fn collectives_of_one_device_are_the_identity() {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, dims!["n", 4]));
        let s = b.input("s", Type::buffer(DType::U8, [64]));
        assert_eq!(b.allreduce_sum(&[x], &[s]).unwrap(), [x]);
        assert_eq!(b.allgather(&[x], &[s], -1).unwrap(), [x]);
        assert_eq!(b.reducescatter_sum(&[x], &[s], 0).unwrap(), [x]);
        assert_eq!(b.distributed_broadcast(x, &[s]).unwrap(), [x]);
        assert_eq!(b.distributed_scatter(&[x], &[s]).unwrap(), [x]);
        let gpu = DeviceRef::Gpu(0);
        let y = b.input("y", Type { device: gpu, ..Type::new(DType::F32, dims!["n", 4]) });
        let t = b.input("t", Type { device: gpu, ..Type::buffer(DType::U8, [64]) });
        let mut reduce = |parts: &[Value], signals: &[Value]| {
            b.allreduce_sum(parts, signals).unwrap_err().without_location().to_string()
        };
        let table: [(String, &str); 6] = [
            (reduce(&[], &[]), "takes at least 1 operand, got none"),
            (reduce(&[x, x], &[s, s]), "operands 0 and 1 are both on cpu"),
            (reduce(&[x], &[]), "takes a signal buffer for each of 1 devices, got 0"),
            (reduce(&[x], &[t]), "signal buffer 0 is mut u8[64] @gpu:0, expected a buffer of u8 on cpu"),
            (reduce(&[s], &[s]), "operand 0 is mut u8[64], expected a tensor"),
            (reduce(&[x, y], &[s, t]), "asks for 2 devices (cpu, gpu:0), of which one takes part"),
        ];
        for (message, expected) in table {
            assert_eq!(message, format!("allreduce_sum: {expected}"));
        }
        let error = b.allgather(&[x], &[s], 2).unwrap_err();
        assert_eq!(error.without_location().to_string(), "allgather: f32[n, 4] has no axis 2");
    }
}
