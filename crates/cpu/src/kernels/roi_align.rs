//! Regions of images at one size: each bin the mean or the largest of samples between elements.
//!
//! Bound by memory. Threads share regions. The four elements of each sample and their shares are found once for all
//! channels.

use std::sync::Arc;

use engine::{Kernel, KernelCall};
use graph::ops::{ImageLayout, Roi, RoiAlign, RoiMode};
use tensor::{DType, Shape};

use super::floats::{self, is_float};
use super::operands::view;
use crate::{Cpu, Pool};

/// The elements of a sample, by pixel, and their shares.
type Sample = ([usize; 4], [f32; 4]);

/// The kernel of the op, for a dtype.
pub(crate) fn kernel(cpu: &Cpu, op: &RoiAlign, dtype: DType) -> Option<Arc<dyn Kernel>> {
    let (op, pool) = (op.clone(), Arc::clone(&cpu.pool));
    if is_float(dtype) { Some(Arc::new(RoiAlignKernel { op, dtype, pool })) } else { None }
}

struct RoiAlignKernel {
    op: RoiAlign,
    dtype: DType,
    pool: Arc<Pool>,
}

impl Kernel for RoiAlignKernel {
    fn name(&self) -> String {
        format!("roi_align[{}]", self.dtype)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, rows) = (view(&call, 0), floats::read(view(&call, 1))?);
        let from = (&*floats::read(x)?, x.shape);
        floats::write(&mut call.outputs[0], |out| roi_align(&self.pool, &self.op, from, &rows, out))?
    }
}

/// Writes the regions, rows of five numbers, of the images `x` to `out`.
///
/// # Errors
/// If a row is no region of an image.
fn roi_align(
    pool: &Pool,
    op: &RoiAlign,
    (x, shape): (&[f32], &Shape),
    rows: &[f32],
    out: &mut [f32],
) -> Result<(), String> {
    let region = |(i, row): (usize, &[f32; 5])| {
        let region = op.region(row.map(f64::from), shape[0]);
        region.map_err(|message| format!("row {i} of operand 1: {message}"))
    };
    let regions = rows.as_chunks().0.iter().enumerate().map(region).collect::<Result<Vec<_>, _>>()?;
    if out.is_empty() {
        return Ok(());
    }
    let first = op.layout.first_spatial_axis();
    let size = [shape[first], shape[first + 1]];
    let channels = shape[op.layout.channel_axis(4)];
    let image_len = channels * size[0] * size[1];
    pool.run_on_pieces(out, out_len(op, channels), &|index, out| {
        let x = &x[regions[index].image * image_len..][..image_len];
        align(op, &regions[index], x, size, channels, out);
    });
    Ok(())
}

/// Elements of the result for one region.
fn out_len(op: &RoiAlign, channels: usize) -> usize {
    op.size[0] * op.size[1] * channels
}

fn align(op: &RoiAlign, region: &Roi, x: &[f32], size: [usize; 2], channels: usize, out: &mut [f32]) {
    let (bins, plane) = (op.size[0] * op.size[1], size[0] * size[1]);
    let mut samples: Vec<Option<Sample>> = Vec::new();
    for bin in 0..bins {
        samples.clear();
        samples.extend(samples_of(region, [bin / op.size[1], bin % op.size[1]], size));
        for channel in 0..channels {
            let (to, pixel, start) = match op.layout {
                ImageLayout::ChannelsLast => (bin * channels + channel, channels, channel),
                ImageLayout::ChannelsFirst => (channel * bins + bin, 1, channel * plane),
            };
            let values = samples.iter().map(|sample| match sample {
                None => 0.0,
                Some((at, shares)) => {
                    at.iter().zip(shares).fold(0.0, |sum, (at, share)| sum + x[start + at * pixel] * share)
                }
            });
            out[to] = match op.mode {
                _ if samples.is_empty() => 0.0,
                RoiMode::Average => values.fold(0.0, |sum, value| sum + value) / samples.len() as f32,
                RoiMode::Max => values.fold(f32::NEG_INFINITY, f32::max),
            };
        }
    }
}

fn samples_of(region: &Roi, bin: [usize; 2], size: [usize; 2]) -> impl Iterator<Item = Option<Sample>> {
    let (region, [down, across]) = (*region, region.samples);
    (0..down * across).map(move |sample| {
        let (top, bottom, low) = region.neighbors(0, bin[0], sample / across, size[0])?;
        let (left, right, far) = region.neighbors(1, bin[1], sample % across, size[1])?;
        let at = [(top, left), (top, right), (bottom, left), (bottom, right)].map(|(y, x)| y * size[1] + x);
        let (high, near) = (1.0 - low, 1.0 - far);
        Some((at, [high * near, high * far, low * near, low * far].map(|share| share as f32)))
    })
}
