//! Convolutions over up to three spatial axes, as matrix products: positions of the window times channels of the
//! result, summed over the elements of the window.
//!
//! Each element is one sum in order, from its bias or 0: over the taps of the window and then channels where channels
//! lie last, over channels and then taps where they come first. Its bits depend on the sizes alone.
//!
//! Windows of 3 × 3 over many channels, which lie last, are computed by Winograd's algorithm (`winograd`), whose sums have
//! other bits.
//!
//! Bound by arithmetic. A thread copies the elements under a block of positions into panels (`pixels`), `STEP_K` of
//! the sum at a time, and multiplies them with the panels of the filter (`filter`), which are packed once, when the
//! model is initialized. The right panel of a product stays in the L1 cache while the left ones pass by. If channels lie
//! last, windows of one element are read from the image itself, and windows over few channels from a copy of its lines
//! (`lines`). Filters of one channel each have a way of their own (`depthwise`).

mod depthwise;
mod filter;
mod geometry;
mod lines;
mod operands;
mod pixels;
mod winograd;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use engine::{Kernel, KernelCall, NodeTypes, Operand, PackError, PackedWeight, View};
use graph::Type;
use graph::ops::{self, FilterLayout, ImageLayout, Unary};
use tensor::{AlignedBytes, Bytes, DType, Tensor};

pub use self::depthwise::{DEPTHWISE_VARIANTS, DepthwiseKernel, depthwise};
use self::filter::STEP_K;
pub use self::filter::{FilterForm, PackedFilter, Side};
pub use self::geometry::Geometry;
use self::lines::Lines;
pub use self::operands::{Activation, Conv, Depthwise};
use self::pixels::{PACK, Pack, Pixels};
use super::disjoint::Disjoint;
use super::floats::{self, is_float};
use super::matmul::{self, LeftRows, OperandLayout, Product, ROW, TileKernel, tile_size};
use super::operands::view;
use super::unary;
use crate::variant::Variant;
use crate::vec::{LANES, prefetch_line, with_scratch};
use crate::{Cpu, Pool};

/// Rows so many elements apart share a set of the L1 cache.
const SAME_SET: usize = 1024;

/// A tile of sums with fewer terms is computed faster than its results are written to memory, so these are prefetched.
const SHORT: usize = 64;

/// Writes the convolution to `out`.
///
/// # Panics
/// If lengths disagree, or this machine cannot run the variant.
pub fn conv(variant: &Variant<TileKernel>, pool: &Pool, conv: &Conv<'_>, out: &mut [f32]) {
    assert!((variant.available)(), "conv: this machine cannot run {}", variant.name);
    let Conv { geometry, x, filter, bias, .. } = conv;
    assert_eq!(x.len(), geometry.operand_len(), "conv: length of x for {geometry:?}");
    assert_eq!(out.len(), geometry.result_len(), "conv: length of out for {geometry:?}");
    assert!(bias.is_none_or(|bias| bias.len() == geometry.groups * geometry.results), "conv: length of bias");
    let (rows, columns) = tile_size(variant.name);
    let (side, width) = match filter.side() {
        Side::Winograd => (Side::Winograd, columns),
        _ if geometry.channels_last => (Side::Right, columns),
        _ => (Side::Left, rows),
    };
    filter.expect(side, width, geometry);
    if out.is_empty() {
        return;
    }
    if side == Side::Winograd {
        return winograd::conv(variant, pool, conv, out);
    }
    let pixel_width = if geometry.channels_last { rows } else { columns };
    let source = Source::new(geometry, variant.name);
    ConvCall { kernel: variant.run, source, conv, pixel_width, out: Disjoint::new(out) }.run(pool);
}

struct ConvCall<'a> {
    kernel: TileKernel,
    source: Source,
    conv: &'a Conv<'a>,
    /// Of a panel or tile of positions.
    pixel_width: usize,
    out: Disjoint<'a, f32>,
}

/// Where the product reads the elements of the window.
enum Source {
    /// In panels or rows of terms, copied step by step.
    Copied(Pack),
    /// In lines of the image, copied with their padding.
    Lines(Lines),
    /// In the image.
    InPlace,
}

impl Source {
    fn new(geometry: &Geometry, variant: &str) -> Source {
        let apart = geometry.groups * geometry.channels;
        if geometry.is_product() && !apart.is_multiple_of(SAME_SET) {
            return Source::InPlace;
        }
        if let Some(lines) = Lines::new(geometry) {
            return Source::Lines(lines);
        }
        Source::Copied(PACK.iter().find(|pack| pack.name == variant).expect("the same variants").run)
    }
}

/// Where the terms of a part's positions lie.
struct Layout {
    form: OperandLayout,
    /// From one position to the next.
    apart: usize,
    /// Positions that are `apart`.
    across: usize,
    /// From the first of them to the first of the next so many.
    down: usize,
}

impl Layout {
    /// Where a position's terms start.
    fn start(&self, position: usize) -> usize {
        position / self.across * self.down + position % self.across * self.apart
    }
}

/// A tile of a part's result as a matrix.
struct Tile {
    row: usize,
    column: usize,
    rows: usize,
    columns: usize,
}

/// A part of one group of one image's result.
struct ResultBlock {
    image: usize,
    group: usize,
    pixels: Range<usize>,
    /// Within the group; starts at a panel.
    channels: Range<usize>,
}

impl ConvCall<'_> {
    fn run(&self, pool: &Pool) {
        let Geometry { batch, groups, results, .. } = *self.conv.geometry;
        let count = self.conv.geometry.positions();
        let (pixels, channels) = self.part_size(batch * groups, pool.threads());
        let (pixel_parts, channel_parts) = (count.div_ceil(pixels), results.div_ceil(channels));
        let part_of = |len: usize, size: usize, index: usize| index * size..len.min((index + 1) * size);
        pool.run(batch * groups * pixel_parts * channel_parts, &|chunk| {
            let (item, chunk) =
                (chunk / (pixel_parts * channel_parts), chunk % (pixel_parts * channel_parts));
            let part = ResultBlock {
                image: item / groups,
                group: item % groups,
                pixels: part_of(count, pixels, chunk / channel_parts),
                channels: part_of(results, channels, chunk % channel_parts),
            };
            with_scratch(self.copied(part.pixels.len()), |copy| self.compute(&part, copy));
        });
    }

    /// Elements of a copy of what some positions see.
    fn copied(&self, positions: usize) -> usize {
        let geometry = self.conv.geometry;
        match &self.source {
            Source::Copied(_) => {
                let terms = if geometry.channels_last { ROW } else { geometry.terms().min(STEP_K) };
                positions.next_multiple_of(self.pixel_width) * terms
            }
            Source::Lines(lines) => lines.copied(geometry, positions),
            Source::InPlace => 0,
        }
    }

    /// Positions that a part has a multiple of: a panel, or a row where lines are copied.
    fn unit(&self) -> usize {
        if let Source::Lines(_) = self.source { self.conv.geometry.to[2] } else { self.pixel_width }
    }

    /// Positions and channels of a part, in whole panels: halved until there are enough parts, if there can be.
    fn part_size(&self, items: usize, threads: usize) -> (usize, usize) {
        let (geometry, wanted) = (self.conv.geometry, 4 * threads);
        let (filter_width, pixel_width) = (self.conv.filter.width(), self.unit());
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
        (self.even(pixels, items * geometry.results.div_ceil(channels), threads), channels)
    }

    /// So many positions or down to half as many, with which the largest share of a thread is smallest; each part comes
    /// `times` times.
    fn even(&self, pixels: usize, times: usize, threads: usize) -> usize {
        let (width, positions) = (self.unit(), self.conv.geometry.positions());
        let largest_share = |panels: &usize| {
            let parts = times * positions.div_ceil(panels * width);
            parts.div_ceil(threads) * panels
        };
        let most = pixels / width;
        let panels = (most.div_ceil(2)..=most).rev().min_by_key(largest_share);
        panels.filter(|_| !times.is_multiple_of(threads)).map_or(pixels, |panels| panels * width)
    }

    fn compute(&self, part: &ResultBlock, copy: &mut [f32]) {
        let Conv { geometry, x, bias, .. } = self.conv;
        match bias {
            Some(_) if geometry.channels_last && geometry.terms() > 0 => {}
            Some(bias) => self.fill(part, &bias[part.group * geometry.results..][..geometry.results]),
            None if geometry.terms() == 0 => self.fill(part, &vec![0.0; geometry.results]),
            None => {}
        }
        let image_len = x.len() / geometry.batch;
        self.multiply_all(part, &x[part.image * image_len..][..image_len], copy);
        self.activate(part);
    }

    /// Multiplies what a part sees of an image by the filter, step by step.
    fn multiply_all(&self, part: &ResultBlock, image: &[f32], copy: &mut [f32]) {
        let geometry = self.conv.geometry;
        let steps = (0..geometry.terms()).step_by(STEP_K);
        let steps = steps.map(|start| start..geometry.terms().min(start + STEP_K));
        match &self.source {
            Source::Copied(pack) => {
                let pixels = Pixels::new(geometry, image, part.group, part.pixels.clone(), self.pixel_width);
                for terms in steps {
                    // SAFETY: the variant of the tile is available, so this one is.
                    unsafe { pack(&pixels, terms.clone(), copy) };
                    self.multiply(part, &terms, copy);
                }
            }
            Source::Lines(lines) => {
                lines.copy(geometry, image, part.pixels.clone(), copy);
                steps.for_each(|terms| self.multiply(part, &terms, copy));
            }
            Source::InPlace => {
                let first = (part.pixels.start * geometry.groups + part.group) * geometry.channels;
                steps.for_each(|terms| self.multiply(part, &terms, &image[first + terms.start..]));
            }
        }
    }

    /// Starts sums from the bias, if the product cannot.
    fn fill(&self, part: &ResultBlock, bias: &[f32]) {
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

    /// Where the product reads `k` terms of positions.
    fn layout(&self, k: usize) -> Layout {
        let geometry = self.conv.geometry;
        let rows = |rows: LeftRows| Layout {
            form: OperandLayout::Rows(rows),
            apart: rows.apart,
            across: usize::MAX,
            down: 0,
        };
        match &self.source {
            Source::Copied(_) if geometry.channels_last => rows(LeftRows::COPIED),
            Source::Copied(_) => {
                Layout { form: OperandLayout::Packed, apart: k, across: usize::MAX, down: 0 }
            }
            Source::Lines(lines) => {
                let (across, down) = (geometry.to[2], lines.down(geometry));
                Layout { across, down, ..rows(lines.rows(geometry)) }
            }
            Source::InPlace => rows(LeftRows { apart: geometry.groups * geometry.channels, run: k, jump: 0 }),
        }
    }

    /// Multiplies positions by the filter, all left panels by one right panel after the other.
    fn multiply(&self, part: &ResultBlock, terms: &Range<usize>, pixels: &[f32]) {
        let (filter_width, pixel_width) = (self.conv.filter.width(), self.pixel_width);
        let (height, width) = match self.conv.geometry.channels_last {
            true => (pixel_width, filter_width),
            false => (filter_width, pixel_width),
        };
        let (rows, columns) = self.sides(part);
        let layout = self.layout(terms.len());
        for column in (0..columns).step_by(width) {
            let mut row = 0;
            while row < rows {
                let tile_rows = height.min(rows - row).min(layout.across - row % layout.across);
                let tile = Tile { row, column, rows: tile_rows, columns: width.min(columns - column) };
                self.multiply_tile(part, terms, pixels, &layout, tile);
                row += tile_rows;
            }
        }
    }

    fn multiply_tile(
        &self,
        part: &ResultBlock,
        terms: &Range<usize>,
        pixels: &[f32],
        layout: &Layout,
        tile: Tile,
    ) {
        let Conv { geometry, filter, bias, activation, .. } = *self.conv;
        let Tile { row, column, rows, columns } = tile;
        let filter_at = |channel: usize| filter.panel(part.group, terms, part.channels.start + channel);
        let pixels_at = |pixel: usize| &pixels[layout.start(pixel)..];
        let (left, right) = match layout.form {
            OperandLayout::Rows(_) => (pixels_at(row), filter_at(column)),
            _ => (filter_at(row), pixels_at(column)),
        };
        let (start, stride) = (self.start(part, row) + column, self.row_stride());
        let resume = terms.start > 0 || bias.is_some();
        let complete = terms.end == geometry.terms();
        let least = if complete { operands::least(activation) } else { f32::NEG_INFINITY };
        // SAFETY: both sides have `k` terms for whole tiles, or for the rows that there are; the part lies within `out` and
        // is this chunk's alone.
        unsafe {
            let out = self.out.pointer(start..start + (rows - 1) * stride + columns);
            if geometry.channels_last && terms.len() < SHORT && columns > LANES {
                (0..rows).for_each(|row| prefetch_row(out.wrapping_add(row * stride), columns));
            }
            let (form, k) = (layout.form, terms.len());
            let product = Product::new(left, right, form, k, rows, columns, out, stride, resume);
            let product = match bias.filter(|_| terms.start == 0 && geometry.channels_last) {
                Some(bias) => {
                    let first = part.group * geometry.results + part.channels.start + column;
                    product.starting_from(&bias[first..][..columns])
                }
                None => product,
            };
            (self.kernel)(&product.at_least(least));
        }
    }

    /// Applies an activation that [`operands::least`] is not already to a part whose sums are complete.
    fn activate(&self, part: &ResultBlock) {
        if self.conv.activation.is_none_or(|activation| activation.function == Unary::Relu) {
            return;
        }
        let (rows, columns) = self.sides(part);
        for row in 0..rows {
            let start = self.start(part, row);
            // SAFETY: the part is this chunk's alone.
            operands::activate(self.conv.activation, unsafe { self.out.part(start..start + columns) });
        }
    }

    /// Rows and columns of a part as a matrix.
    fn sides(&self, part: &ResultBlock) -> (usize, usize) {
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
    fn start(&self, part: &ResultBlock, row: usize) -> usize {
        let Geometry { groups, results, channels_last, .. } = *self.conv.geometry;
        let count = self.conv.geometry.positions();
        let channel = part.group * results + part.channels.start;
        match channels_last {
            true => (part.image * count + part.pixels.start + row) * groups * results + channel,
            false => (part.image * groups * results + channel + row) * count + part.pixels.start,
        }
    }
}

/// Asks for the cache lines of elements that will be written.
fn prefetch_row(row: *const f32, len: usize) {
    (0..len).step_by(LANES).for_each(|start| prefetch_line(row.wrapping_add(start)));
}

/// A convolution of f32, or of halves by way of f32.
pub(crate) fn kernel_for(cpu: &Cpu, op: &ops::Conv, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
    let (variant, depthwise) = (cpu.pick(matmul::VARIANTS), cpu.pick(DEPTHWISE_VARIANTS));
    let activation = op.activation.map(|function| Activation { function, variant: cpu.pick(unary::F32) });
    let (filter, dtype) = (node.inputs[1], node.inputs[0].dtype);
    let (op, form, pool) = (op.clone(), form(cpu, op, filter), Arc::clone(&cpu.pool));
    if is_float(dtype) {
        Some(Arc::new(ConvKernel { op, form, activation, dtype, variant, depthwise, pool }))
    } else {
        None
    }
}

/// The layout of the filter of a convolution.
pub(crate) fn packing(cpu: &Cpu, op: &ops::Conv, node: &NodeTypes<'_>, position: usize) -> Option<String> {
    let (filter, layout) = (node.inputs[position], op.filter_layout);
    if position != 1 || !is_float(filter.dtype) {
        return None;
    }
    let size = |axis: usize| filter.shape[axis].as_static();
    let (channels, results) = (layout.channel_axis(filter.rank()), layout.result_axis(filter.rank()));
    let depthwise = op.groups > 1 && size(channels) == Some(1) && size(results) == Some(op.groups);
    (!depthwise).then(|| form(cpu, op, filter).to_string())
}

/// Brings a filter into panels.
pub(crate) fn pack(layout: &str, filter: &Tensor) -> Result<PackedWeight, PackError> {
    let packed = PackedFilter::pack(layout.parse::<FilterForm>()?, filter)?;
    Ok(PackedWeight { layout: layout.to_string(), bytes: packed.bytes(), data: Arc::new(packed) })
}

/// The panels of a filter.
pub(crate) fn save(weight: &PackedWeight) -> Result<Bytes, String> {
    let filter: &PackedFilter =
        weight.data.downcast_ref().ok_or_else(|| format!("{} is not a layout of the CPU", weight.layout))?;
    Ok(filter.saved().clone())
}

/// A filter of saved panels, used where they lie.
pub(crate) fn load(layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("{ty} has sizes without numbers"))?;
    let filter = PackedFilter::from_panels(layout.parse()?, &shape, bytes)?;
    Ok(PackedWeight { layout: layout.to_string(), bytes: filter.bytes(), data: Arc::new(filter) })
}

fn form(cpu: &Cpu, op: &ops::Conv, filter: &Type) -> FilterForm {
    let (rows, columns) = matmul::tile_size(&cpu.packs_for(matmul::VARIANTS));
    let (side, width) = match op.layout {
        ImageLayout::ChannelsLast if winograd::pays(op, filter) => (Side::Winograd, columns),
        ImageLayout::ChannelsLast => (Side::Right, columns),
        ImageLayout::ChannelsFirst => (Side::Left, rows),
    };
    FilterForm { side, width, stored: op.filter_layout, groups: op.groups }
}

struct ConvKernel {
    op: ops::Conv,
    form: FilterForm,
    activation: Option<Activation>,
    dtype: DType,
    variant: &'static Variant<matmul::TileKernel>,
    depthwise: &'static Variant<DepthwiseKernel>,
    pool: Arc<Pool>,
}

impl Kernel for ConvKernel {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.op.clone()).name(), self.dtype, self.variant.name)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (shape, x) = (x.shape, floats::read(x)?);
        let bias = (call.inputs.len() > 2).then(|| floats::read(view(&call, 2))).transpose()?;
        let result = &mut call.outputs[0];
        let filter = match &call.inputs[1] {
            Operand::Packed(packed) => match packed.data.downcast_ref::<PackedFilter>() {
                Some(filter) => Cow::Borrowed(filter),
                None => panic!("a filter in the layout {}, which is not the CPU's", packed.layout),
            },
            Operand::View(filter) => {
                let window = self.op.filter_layout.spatial(filter.shape);
                let geometry = Geometry::new(&self.op, shape, window, result.shape);
                if geometry.is_depthwise() {
                    let filter = self.taps(&geometry, *filter)?;
                    let (geometry, bias, activation) = (&geometry, bias.as_deref(), self.activation);
                    let operands = Depthwise { geometry, x: &x, filter: &filter, bias, activation };
                    floats::write(result, |out| depthwise(self.depthwise, &self.pool, &operands, out))?;
                    return Ok(());
                }
                Cow::Owned(PackedFilter::pack(self.form, &tensor(*filter)?)?)
            }
            Operand::InResult | Operand::Buffer(_) => panic!("a filter is a value to read"),
        };
        let geometry = &Geometry::new(&self.op, shape, filter.window(), result.shape);
        let (bias, activation) = (bias.as_deref(), self.activation);
        let operands = Conv { geometry, x: &x, filter: &filter, bias, activation };
        floats::write(result, |out| conv(self.variant, &self.pool, &operands, out))?;
        Ok(())
    }
}

impl ConvKernel {
    /// The filters of single channels, in the order that the layout of the images asks for.
    fn taps<'m>(&self, geometry: &Geometry, filter: View<'m>) -> Result<Cow<'m, [f32]>, String> {
        let values = floats::read(filter)?;
        let columns = match self.op.filter_layout {
            FilterLayout::Rscf => geometry.groups,
            FilterLayout::Fcrs => geometry.taps(),
        };
        if geometry.channels_last == (self.op.filter_layout == FilterLayout::Rscf) {
            return Ok(values);
        }
        let column = |column: usize| values[column..].iter().step_by(columns);
        Ok(Cow::Owned((0..columns).flat_map(column).copied().collect()))
    }
}

/// A copy of an operand.
fn tensor(view: View<'_>) -> Result<Tensor, String> {
    let bytes = AlignedBytes::try_copy_of(view.bytes).map_err(|error| error.to_string())?;
    let bytes = Bytes::new(bytes);
    Tensor::from_bytes(view.dtype, *view.shape, bytes).map_err(|error| error.to_string())
}
