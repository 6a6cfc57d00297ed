//! Convolutions over up to three spatial axes, as matrix products: positions of the window times channels of the
//! result, summed over the elements of the window.
//!
//! Each element is one sum in order, from its bias or 0: over the taps of the window and then channels where channels
//! lie last, over channels and then taps where they come first. Its bits depend on the sizes alone.
//!
//! Bound by arithmetic. A thread copies the elements under a block of positions into panels (`pixels`), `BLOCK_K` of
//! the sum at a time, and multiplies them with the panels of the filter (`filter`), which are packed once, when the
//! model is initialized. Filters of one channel each have a way of their own (`depthwise`).

mod depthwise;
mod filter;
mod geometry;
mod pixels;

use std::ops::Range;

pub use self::depthwise::{DEPTHWISE_VARIANTS, Depthwise, DepthwiseKernel, depthwise};
pub use self::filter::{FilterForm, PackedFilter, Side};
pub use self::geometry::Geometry;
use self::pixels::Pixels;
use super::disjoint::Disjoint;
use super::matmul::{Kernel, Product, RightForm, tile_size};
use super::variant::Variant;
use crate::Pool;
use crate::vec::with_scratch;

/// Terms of the sums at a time: what of a panel stays in the nearest caches.
const BLOCK_K: usize = 512;

/// The operands of a convolution.
pub struct Conv<'a> {
    /// The sizes.
    pub geometry: &'a Geometry,
    /// The images.
    pub x: &'a [f32],
    /// The filter, packed for the side that the layout of the images asks for.
    pub filter: &'a PackedFilter,
    /// One number for each channel of the result.
    pub bias: Option<&'a [f32]>,
}

/// Writes the convolution to `out`.
///
/// # Panics
/// If lengths disagree, or this machine cannot run the variant.
pub fn conv(variant: &Variant<Kernel>, pool: &Pool, conv: &Conv<'_>, out: &mut [f32]) {
    assert!((variant.available)(), "conv: this machine cannot run {}", variant.name);
    let Conv { geometry, x, filter, bias } = conv;
    assert_eq!(x.len(), geometry.operand_len(), "conv: length of x for {geometry:?}");
    assert_eq!(out.len(), geometry.result_len(), "conv: length of out for {geometry:?}");
    assert!(bias.is_none_or(|bias| bias.len() == geometry.groups * geometry.results), "conv: length of bias");
    let (rows, columns) = tile_size(variant.name);
    let (side, width) = if geometry.channels_last { (Side::Right, columns) } else { (Side::Left, rows) };
    filter.expect(side, width, geometry);
    if out.is_empty() {
        return;
    }
    let pixel_width = if geometry.channels_last { rows } else { columns };
    Call { kernel: variant.run, conv, pixel_width, out: Disjoint::new(out) }.run(pool);
}

struct Call<'a> {
    kernel: Kernel,
    conv: &'a Conv<'a>,
    /// Of a panel of positions.
    pixel_width: usize,
    out: Disjoint<'a, f32>,
}

/// A part of one group of one image's result.
struct Part {
    image: usize,
    group: usize,
    pixels: Range<usize>,
    /// Within the group; starts at a panel.
    channels: Range<usize>,
}

impl Call<'_> {
    fn run(&self, pool: &Pool) {
        let Geometry { batch, groups, results, .. } = *self.conv.geometry;
        let count = self.conv.geometry.positions();
        let (pixels, channels) = self.part_size(batch * groups, 4 * pool.threads());
        let (pixel_parts, channel_parts) = (count.div_ceil(pixels), results.div_ceil(channels));
        let terms = self.conv.geometry.terms().min(BLOCK_K);
        let part_of = |len: usize, size: usize, index: usize| index * size..len.min((index + 1) * size);
        pool.run(batch * groups * pixel_parts * channel_parts, &|chunk| {
            let (item, chunk) =
                (chunk / (pixel_parts * channel_parts), chunk % (pixel_parts * channel_parts));
            let part = Part {
                image: item / groups,
                group: item % groups,
                pixels: part_of(count, pixels, chunk / channel_parts),
                channels: part_of(results, channels, chunk % channel_parts),
            };
            let len = part.pixels.len().next_multiple_of(self.pixel_width) * terms;
            with_scratch(len, |panels| self.compute(&part, panels));
        });
    }

    /// Positions and channels of a part, in whole panels: halved until there are enough parts, if there can be.
    fn part_size(&self, items: usize, wanted: usize) -> (usize, usize) {
        let geometry = self.conv.geometry;
        let (filter_width, pixel_width) = (self.conv.filter.width(), self.pixel_width);
        let most = (256 / pixel_width).max(1) * pixel_width;
        let mut pixels = most.min(geometry.positions().next_multiple_of(pixel_width));
        let mut channels = geometry.results.next_multiple_of(filter_width);
        while items * geometry.positions().div_ceil(pixels) * geometry.results.div_ceil(channels) < wanted {
            let half = |lanes: usize, width: usize| (lanes / 2).next_multiple_of(width);
            if pixels > 64.max(pixel_width) {
                pixels = half(pixels, pixel_width);
            } else if channels > filter_width {
                channels = half(channels, filter_width);
            } else if pixels > pixel_width {
                pixels = half(pixels, pixel_width);
            } else {
                break;
            }
        }
        (pixels, channels)
    }

    fn compute(&self, part: &Part, panels: &mut [f32]) {
        let Conv { geometry, x, bias, .. } = self.conv;
        let pixels = Pixels::new(geometry, x, part.image, part.group, part.pixels.clone(), self.pixel_width);
        match bias {
            Some(bias) => self.fill(part, &bias[part.group * geometry.results..][..geometry.results]),
            None if geometry.terms() == 0 => self.fill(part, &vec![0.0; geometry.results]),
            None => {}
        }
        for start in (0..geometry.terms()).step_by(BLOCK_K) {
            let terms = start..geometry.terms().min(start + BLOCK_K);
            pixels.pack(terms.clone(), panels);
            self.multiply(part, terms, panels);
        }
    }

    /// Starts sums from the bias.
    fn fill(&self, part: &Part, bias: &[f32]) {
        let bias = &bias[part.channels.clone()];
        let (rows, columns) = self.sides(part);
        for row in 0..rows {
            let start = self.start(part, row);
            // SAFETY: the part is this chunk's alone.
            let out = unsafe { self.out.part(start..start + columns) };
            match self.conv.geometry.channels_last {
                true => out.copy_from_slice(bias),
                false => out.fill(bias[row]),
            }
        }
    }

    /// Multiplies packed positions by the filter.
    fn multiply(&self, part: &Part, terms: Range<usize>, pixels: &[f32]) {
        let filter = self.conv.filter.panels(part.group, &terms, &part.channels);
        let (left, right, tile_rows) = match self.conv.geometry.channels_last {
            true => (pixels, filter, self.pixel_width),
            false => (filter, pixels, self.conv.filter.width()),
        };
        let (rows, columns) = self.sides(part);
        let k = terms.len();
        let resume = terms.start > 0 || self.conv.bias.is_some();
        let stride = self.row_stride();
        for (panel, first) in (0..rows).step_by(tile_rows).enumerate() {
            let left = &left[panel * tile_rows * k..][..tile_rows * k];
            let count = tile_rows.min(rows - first);
            let start = self.start(part, first);
            // SAFETY: the left panel is as long as sliced; the right ones hold `columns`, as `Pixels::pack` and
            // `PackedFilter::panels` give them; the part lies within `out` and is this chunk's alone.
            unsafe {
                let out = self.out.pointer(start..start + (count - 1) * stride + columns);
                let form = RightForm::Packed;
                (self.kernel)(&Product::new(left, right, form, k, count, columns, out, stride, resume));
            }
        }
    }

    /// Rows and columns of a part as a matrix.
    fn sides(&self, part: &Part) -> (usize, usize) {
        match self.conv.geometry.channels_last {
            true => (part.pixels.len(), part.channels.len()),
            false => (part.channels.len(), part.pixels.len()),
        }
    }

    /// From one row of a part to the next.
    fn row_stride(&self) -> usize {
        let geometry = self.conv.geometry;
        if geometry.channels_last { geometry.groups * geometry.results } else { geometry.positions() }
    }

    /// Where a row of a part starts in the result.
    fn start(&self, part: &Part, row: usize) -> usize {
        let Geometry { groups, results, channels_last, .. } = *self.conv.geometry;
        let count = self.conv.geometry.positions();
        let channel = part.group * results + part.channels.start;
        match channels_last {
            true => (part.image * count + part.pixels.start + row) * groups * results + channel,
            false => (part.image * groups * results + channel + row) * count + part.pixels.start,
        }
    }
}
