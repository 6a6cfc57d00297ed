//! Convolutions by a window of 3 × 3 that moves by one element, by Winograd's algorithm F(2 × 2, 3 × 3): 16 multiplications
//! for each channel where the sums of four positions have 36 terms.
//!
//! A tile is 2 × 2 positions, which see 4 × 4 elements `d`. Its results are `Aᵀ [Σ U ⊙ (Bᵀ d B)] A`, summed over channels:
//! sixteen products of matrices, tiles times channels by channels times results. `U = G g Gᵀ` is the filter, transformed in
//! f64 when it is packed (`filter`). Each sum runs over channels in order, and the bias is added last.
//!
//! Results are within `(C + 9) · 2⁻²⁴ · E` of the exact ones, for `C` channels, while nothing overflows. `E` is the bias
//! and what the formula gives with the magnitudes of all elements and factors. So the error depends on the largest
//! elements that a tile sees; an element that is not finite spoils all four positions.
//!
//! Bound by arithmetic. A thread transforms what some tiles see, `STEP_K` terms to a row, then multiplies one panel of
//! the filter after the other and transforms its sums back while they are in the nearest caches.

use std::ops::Range;

use graph::Type;
use graph::ops;

use super::Geometry;
use super::filter::{STEP_K, WINOGRAD_TERMS};
use super::operands::{self, Conv};
use crate::Pool;
use crate::kernels::disjoint::Disjoint;
use crate::kernels::matmul::{LeftRows, OperandLayout, Product, ROW, TileKernel, tile_size};
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Simd, with_scratch};

/// Elements that a part works on, if it has more than one row of the product's tiles: five eighths of a second cache of
/// 1 MiB.
const WORKED_ON: usize = 160 * 1024;

/// Channels from which transforms cost less than the multiplications that they save.
const LEAST: usize = 32;

/// Whether a convolution of channels that lie last is computed here. It depends on the filter alone, whose sizes are known
/// when a graph is compiled.
pub(super) fn pays(op: &ops::Conv, filter: &Type) -> bool {
    let size = |axis: usize| filter.shape[axis].as_static().unwrap_or_default();
    let (rank, layout) = (filter.rank(), op.filter_layout);
    let spatial = layout.first_spatial_axis();
    let plain = op.groups == 1 && op.windows.strides == [1, 1] && op.windows.dilations == [1, 1];
    let channels = size(layout.channel_axis(rank));
    plain
        && [size(spatial), size(spatial + 1)] == [3, 3]
        && channels >= LEAST
        && channels.is_multiple_of(LANES)
        && size(layout.result_axis(rank)) >= LEAST
}

/// Writes the convolution to `out`; the lengths of the operands fit.
///
/// # Panics
/// If the window moves by more than one element, or channels do not lie last in whole vectors.
pub(super) fn conv(variant: &Variant<TileKernel>, pool: &Pool, conv: &Conv<'_>, out: &mut [f32]) {
    let Geometry { channels_last, channels, window, strides, dilations, .. } = *conv.geometry;
    let fits = channels_last && window == [1, 3, 3] && [strides, dilations] == [[1; 3]; 2];
    assert!(fits && channels.is_multiple_of(LANES), "conv: Winograd's algorithm for {:?}", conv.geometry);
    let named = |variants: &'static [Variant<Transform>]| {
        variants.iter().find(|other| other.name == variant.name).expect("the same variants").run
    };
    let [_, down, across] = conv.geometry.to;
    let call = WinogradCall {
        kernel: variant.run,
        see: named(SEE),
        write: named(WRITE),
        conv,
        grid: [down.div_ceil(2), across.div_ceil(2)],
        height: tile_size(variant.name).0,
        zeros: vec![0.0; conv.geometry.channels],
        out: Disjoint::new(out),
    };
    call.run(pool);
}

struct WinogradCall<'a> {
    kernel: TileKernel,
    see: Transform,
    write: Transform,
    conv: &'a Conv<'a>,
    /// Tiles of an image, down and across.
    grid: [usize; 2],
    /// Rows of the product's tile.
    height: usize,
    /// The channels of a pixel in the padding.
    zeros: Vec<f32>,
    out: Disjoint<'a, f32>,
}

/// Some tiles of an image, and some channels of the result.
struct TileBlock {
    image: usize,
    tiles: Range<usize>,
    /// Starts at a panel of the filter.
    channels: Range<usize>,
}

/// Transforms what the tiles of a part see into rows, or the sums of some channels into results.
type Transform = unsafe fn(&WinogradCall<'_>, &TileBlock, &mut [f32]);

variants! {
    static SEE = see, (call: &WinogradCall<'_>, part: &TileBlock, rows: &mut [f32])
}

variants! {
    static WRITE = write, (call: &WinogradCall<'_>, part: &TileBlock, sums: &mut [f32])
}

impl WinogradCall<'_> {
    fn run(&self, pool: &Pool) {
        let (count, results) = (self.grid[0] * self.grid[1], self.conv.geometry.results);
        let batch = self.conv.geometry.batch;
        let (tiles, channels) = self.part_size(batch, 4 * pool.threads());
        let (tile_parts, channel_parts) = (count.div_ceil(tiles), results.div_ceil(channels));
        let part_of = |len: usize, size: usize, index: usize| index * size..len.min((index + 1) * size);
        pool.run(batch * tile_parts * channel_parts, &|chunk| {
            let (item, chunk) = (chunk / (tile_parts * channel_parts), chunk % (tile_parts * channel_parts));
            let part = TileBlock {
                image: item,
                tiles: part_of(count, tiles, chunk / channel_parts),
                channels: part_of(results, channels, chunk % channel_parts),
            };
            let rows = self.steps() * self.rows(&part) * ROW;
            let sums = WINOGRAD_TERMS * part.tiles.len() * self.conv.filter.width();
            with_scratch(rows + sums, |scratch| {
                let (rows, sums) = scratch.split_at_mut(rows);
                self.compute(&part, rows, sums);
            });
        });
    }

    /// Tiles and channels of a part: as many tiles as fit the cache, all channels, halved until there are enough parts.
    fn part_size(&self, images: usize, wanted: usize) -> (usize, usize) {
        let (count, results) = (self.grid[0] * self.grid[1], self.conv.geometry.results);
        let width = self.conv.filter.width();
        let fitting = WORKED_ON / (self.steps() * ROW + WINOGRAD_TERMS * width);
        let whole = (fitting / self.height * self.height).max(self.height);
        let mut tiles = if count <= fitting { count } else { whole };
        let mut channels = results.next_multiple_of(width);
        while images * count.div_ceil(tiles) * results.div_ceil(channels) < wanted {
            if channels > width {
                channels = (channels / 2).next_multiple_of(width);
            } else if tiles > self.height {
                tiles = (tiles / 2).next_multiple_of(self.height);
            } else {
                break;
            }
        }
        (tiles, channels)
    }

    /// How often `STEP_K` terms fit the sixteen sums of a tile.
    fn steps(&self) -> usize {
        (WINOGRAD_TERMS * self.conv.geometry.channels).div_ceil(STEP_K)
    }

    /// Rows of terms for each step: whole tiles of the product.
    fn rows(&self, part: &TileBlock) -> usize {
        part.tiles.len().next_multiple_of(self.height)
    }

    fn compute(&self, part: &TileBlock, rows: &mut [f32], sums: &mut [f32]) {
        // SAFETY: the variant of the tile is available, so these are.
        unsafe { (self.see)(self, part, rows) };
        let width = self.conv.filter.width();
        for first in part.channels.clone().step_by(width) {
            let channels = first..part.channels.end.min(first + width);
            let part = TileBlock { image: part.image, tiles: part.tiles.clone(), channels };
            self.multiply(&part, rows, sums);
            // SAFETY: as above.
            unsafe { (self.write)(self, &part, sums) };
        }
    }

    /// Writes the sums of a panel's channels, [products, tiles, width]; a product ends where its terms or a step's do.
    fn multiply(&self, part: &TileBlock, rows: &[f32], sums: &mut [f32]) {
        let (channels, filter) = (self.conv.geometry.channels, self.conv.filter);
        let (tiles, width, step_rows) = (part.tiles.len(), filter.width(), self.rows(part));
        let sums = Disjoint::new(sums);
        let mut start = 0;
        while start < WINOGRAD_TERMS * channels {
            let (step, product) = (start / STEP_K, start / channels);
            let terms = start..((step + 1) * STEP_K).min((product + 1) * channels);
            let right = filter.panel(0, &terms, part.channels.start);
            let (resume, k) = (start > product * channels, terms.len());
            for row in (0..tiles).step_by(self.height) {
                let left = &rows[(step * step_rows + row) * ROW + start % STEP_K..];
                let (height, first) = (self.height.min(tiles - row), (product * tiles + row) * width);
                // SAFETY: rows are there for whole tiles of the product, and `ROW` holds a step's terms; sums are this
                // thread's alone.
                unsafe {
                    let out = sums.pointer(first..first + height * width);
                    (self.kernel)(&Product::new(
                        left,
                        right,
                        OperandLayout::Rows(LeftRows::COPIED),
                        k,
                        height,
                        width,
                        out,
                        width,
                        resume,
                    ));
                }
            }
            start = terms.end;
        }
    }

    /// The pixels that a tile sees, each from its first channel on.
    fn pixels(&self, image: usize, tile: usize) -> [[&[f32]; 4]; 4] {
        let geometry = self.conv.geometry;
        let ([_, height, width], [_, above, before]) = (geometry.from, geometry.before);
        let corner = [2 * (tile / self.grid[1]), 2 * (tile % self.grid[1])];
        let inside = |padded: usize, before: usize, size: usize| {
            padded.checked_sub(before).filter(|&index| index < size)
        };
        std::array::from_fn(|i| {
            let row = inside(corner[0] + i, above, height);
            std::array::from_fn(|j| match row.zip(inside(corner[1] + j, before, width)) {
                Some((row, column)) => {
                    let pixel = (image * height + row) * width + column;
                    &self.conv.x[pixel * geometry.channels..][..geometry.channels]
                }
                None => &self.zeros[..],
            })
        })
    }
}

/// Writes `Bᵀ d B` for each tile and channel to rows of terms, products times channels, cut into steps.
#[inline(always)]
fn see<S: Simd>(s: S, call: &WinogradCall<'_>, part: &TileBlock, rows: &mut [f32]) {
    let (channels, step_rows) = (call.conv.geometry.channels, call.rows(part));
    for (row, tile) in part.tiles.clone().enumerate() {
        let pixels = call.pixels(part.image, tile);
        for channel in (0..channels).step_by(LANES) {
            let mut seen = [[s.splat(0.0); 4]; 4];
            for j in 0..4 {
                let mut column = [s.splat(0.0); 4];
                for (i, lanes) in column.iter_mut().enumerate() {
                    // SAFETY: a pixel has whole vectors of channels.
                    *lanes = unsafe { s.load(pixels[i][j][channel..][..LANES].as_ptr()) };
                }
                let column = forward(s, column);
                (0..4).for_each(|i| seen[i][j] = column[i]);
            }
            for (i, line) in seen.into_iter().enumerate() {
                for (j, lanes) in forward(s, line).into_iter().enumerate() {
                    let term = (4 * i + j) * channels + channel;
                    let to = (term / STEP_K * step_rows + row) * ROW + term % STEP_K;
                    // SAFETY: the slice has sixteen values.
                    unsafe { s.store(rows[to..][..LANES].as_mut_ptr(), lanes) };
                }
            }
        }
    }
}

/// `Bᵀ d` for one column `d`.
#[inline(always)]
fn forward<S: Simd>(s: S, [a, b, c, d]: [S::F32; 4]) -> [S::F32; 4] {
    [s.sub(a, c), s.add(b, c), s.sub(c, b), s.sub(b, d)]
}

/// Writes `Aᵀ m A` of the sums of some channels to the result, with bias and activation.
#[inline(always)]
fn write<S: Simd>(s: S, call: &WinogradCall<'_>, part: &TileBlock, sums: &mut [f32]) {
    let Conv { geometry, bias, activation, .. } = call.conv;
    let [_, down, across] = geometry.to;
    let (width, step) = (call.conv.filter.width(), part.tiles.len() * call.conv.filter.width());
    let least = s.splat(operands::least(*activation));
    for (row, tile) in part.tiles.clone().enumerate() {
        let corner = [2 * (tile / call.grid[1]), 2 * (tile % call.grid[1])];
        for lane in (0..part.channels.len()).step_by(LANES) {
            let (channel, count) = (part.channels.start + lane, LANES.min(part.channels.len() - lane));
            let (mut top, mut bottom) = ([s.splat(0.0); 4], [s.splat(0.0); 4]);
            for (j, (top, bottom)) in top.iter_mut().zip(&mut bottom).enumerate() {
                let mut column = [s.splat(0.0); 4];
                for (i, lanes) in column.iter_mut().enumerate() {
                    let from = (4 * i + j) * step + row * width + lane;
                    // SAFETY: the slice has sixteen values.
                    *lanes = unsafe { s.load(sums[from..][..LANES].as_ptr()) };
                }
                [*top, *bottom] = back(s, column);
            }
            let bias = match bias {
                Some(bias) => s.load_slice(&bias[channel..][..count]),
                None => s.splat(0.0),
            };
            for (i, line) in [top, bottom].into_iter().enumerate() {
                for (j, lanes) in back(s, line).into_iter().enumerate() {
                    let at = [corner[0] + i, corner[1] + j];
                    if at[0] < down && at[1] < across {
                        let position = (part.image * down + at[0]) * across + at[1];
                        let start = position * geometry.results + channel;
                        // SAFETY: these positions and channels are this part's alone.
                        let to = unsafe { call.out.part(start..start + count) };
                        let result = s.max(least, s.add(lanes, bias));
                        s.store_slice(to, result);
                        operands::activate(*activation, to);
                    }
                }
            }
        }
    }
}

/// `Aᵀ m` for one column `m`.
#[inline(always)]
fn back<S: Simd>(s: S, [a, b, c, d]: [S::F32; 4]) -> [S::F32; 2] {
    [s.add(s.add(a, b), c), s.sub(s.sub(b, c), d)]
}
