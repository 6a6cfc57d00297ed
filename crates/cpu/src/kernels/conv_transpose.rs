//! Transposed convolutions: a product of each pixel with the filter gives its window, and the windows are summed.
//!
//! Bound by arithmetic where the windows have many channels, by memory where few. Each element is the sum over taps, in
//! order, of sums over channels, in order.

use std::sync::Arc;

use engine::{Kernel, KernelCall};
use graph::ops::{ConvTranspose, FilterLayout, ImageLayout};
use tensor::{DType, Shape};

use super::floats::{self, is_float};
use super::fold::{self, Columns, Windows};
use super::matmul::{self, MatmulShape, Matrix};
use super::operands::{elements_mut, view};
use crate::variant::Variant;
use crate::{Cpu, Pool};

/// The kernel of the op, for a dtype.
pub(crate) fn kernel(cpu: &Cpu, op: &ConvTranspose, dtype: DType) -> Option<Arc<dyn Kernel>> {
    let (op, variant, pool) = (op.clone(), cpu.pick(matmul::VARIANTS), Arc::clone(&cpu.pool));
    if is_float(dtype) { Some(Arc::new(ConvTransposeKernel { op, dtype, variant, pool })) } else { None }
}

struct ConvTransposeKernel {
    op: ConvTranspose,
    dtype: DType,
    variant: &'static Variant<matmul::TileKernel>,
    pool: Arc<Pool>,
}

/// The operands of a call.
struct Operands<'a> {
    x: &'a [f32],
    filter: &'a [f32],
    bias: Option<&'a [f32]>,
}

/// The sizes of a call.
struct Sizes {
    images: usize,
    groups: usize,
    /// Of one group of `x`.
    channels: usize,
    /// Of one group of the result.
    results: usize,
    taps: usize,
    windows: Windows,
}

impl Sizes {
    /// Elements of the product of one group of one image.
    fn columns(&self) -> usize {
        let [rows, columns] = self.windows.positions;
        self.taps.saturating_mul(self.results).saturating_mul(rows).saturating_mul(columns)
    }
}

impl Kernel for ConvTransposeKernel {
    fn name(&self) -> String {
        format!("conv2d_transpose[{}].{}", self.dtype, self.variant.name)
    }

    fn scratch(&self, inputs: &[Shape], outputs: &[Shape]) -> usize {
        let sizes = self.sizes(&inputs[0], &inputs[1], &outputs[0]);
        if outputs[0].contains(&0) { 0 } else { sizes.columns().saturating_mul(size_of::<f32>()) }
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, filter) = (view(&call, 0), view(&call, 1));
        let bias = (call.inputs.len() > 2).then(|| floats::read(view(&call, 2))).transpose()?;
        let sizes = self.sizes(x.shape, filter.shape, call.outputs[0].shape);
        let (x, filter) = (floats::read(x)?, floats::read(filter)?);
        let operands = Operands { x: &x, filter: &filter, bias: bias.as_deref() };
        let scratch = call.scratch;
        floats::write(&mut call.outputs[0], |out| {
            if out.is_empty() {
                return;
            }
            let columns = &mut elements_mut::<f32>(scratch)[..sizes.columns()];
            let image_len = out.len() / sizes.images;
            for (image, out) in out.chunks_exact_mut(image_len).enumerate() {
                (0..sizes.groups)
                    .for_each(|group| self.group(&sizes, &operands, (image, group), columns, out));
            }
        })?;
        Ok(())
    }
}

impl ConvTransposeKernel {
    fn sizes(&self, x: &Shape, filter: &Shape, result: &Shape) -> Sizes {
        let (first, channel_axis) = (self.op.layout.first_spatial_axis(), self.op.layout.channel_axis(4));
        let window = self.op.filter_layout.spatial(filter);
        Sizes {
            images: x[0],
            groups: self.op.groups,
            channels: x[channel_axis] / self.op.groups,
            results: result[channel_axis] / self.op.groups,
            taps: window[0] * window[1],
            windows: Windows {
                positions: [x[first], x[first + 1]],
                size: [result[first], result[first + 1]],
                window: [window[0], window[1]],
                ..Windows::of(&self.op.windows)
            },
        }
    }

    /// Computes one group of channels of one image, by way of the product with its pixels, `columns`.
    fn group(
        &self,
        sizes: &Sizes,
        operands: &Operands<'_>,
        (image, group): (usize, usize),
        columns: &mut [f32],
        out: &mut [f32],
    ) {
        let Sizes { groups, channels, results, taps, windows, .. } = *sizes;
        let (pixels, all) = (windows.positions[0] * windows.positions[1], groups * channels);
        let bias = operands.bias.map(|bias| &bias[group * results..][..results]);
        let (terms, channels_last) = (taps * results, self.op.layout == ImageLayout::ChannelsLast);
        // The filter seen as [elements of a window and channels of the result, channels of x].
        let (filter, row, column) = match self.op.filter_layout {
            FilterLayout::Rscf => (&operands.filter[(group * channels).min(operands.filter.len())..], all, 1),
            FilterLayout::Fcrs => (&operands.filter[group * channels * terms..], 1, terms),
        };
        let (tap_rows, result_rows) = match self.op.filter_layout {
            FilterLayout::Rscf => (results, 1),
            FilterLayout::Fcrs => (1, taps),
        };
        let x = &operands.x[image * pixels * all..][..pixels * all];
        let product = |m, n, a, b, out: &mut [f32]| {
            let shape = MatmulShape { batch: &[], m, k: channels, n };
            matmul::matmul_with(self.variant, &self.pool, shape, a, b, out);
        };
        if channels_last {
            let x = Matrix { data: &x[(group * channels).min(x.len())..], strides: &[all, 1] };
            product(pixels, terms, x, Matrix { data: filter, strides: &[column, row] }, columns);
            let columns = Columns { data: columns, channel: result_rows, tap: tap_rows, position: terms };
            let part = [group * results, results, groups * results];
            fold::channels_last(&self.pool, &windows, columns, bias, part, out);
        } else {
            let x = Matrix { data: &x[group * channels * pixels..], strides: &[pixels, 1] };
            product(terms, pixels, Matrix { data: filter, strides: &[row, column] }, x, columns);
            let (channel, tap) = (result_rows * pixels, tap_rows * pixels);
            let columns = Columns { data: columns, channel, tap, position: 1 };
            let plane = windows.size[0] * windows.size[1];
            let out = &mut out[group * results * plane..][..results * plane];
            fold::channels_first(&self.pool, &windows, columns, bias, out);
        }
    }
}
