//! Depthwise convolution where channels come first: sixteen positions of a row at a time, tap after tap.
//!
//! A channel is copied with its padding first, each row apart by the remainder of its columns divided by the stride, so
//! that neighbouring positions read neighbouring elements.

use crate::kernels::conv::geometry::Geometry;
use crate::kernels::conv::operands::Depthwise;
use crate::kernels::every::join_every;
use crate::vec::{LANES, Simd, with_scratch};

/// A channel of the result, [depth, height, width].
#[inline(always)]
pub(super) fn channel<S: Simd>(s: S, conv: &Depthwise<'_>, number: usize, out: &mut [f32]) {
    let (geometry, taps) = (conv.geometry, conv.geometry.taps());
    let plane: usize = geometry.from.iter().product();
    let (x, group) = (&conv.x[number * plane..][..plane], number % geometry.groups);
    let filter = &conv.filter[group * taps..][..taps];
    let padded = Padded::new(geometry);
    let offsets: Vec<usize> = (0..taps).map(|tap| padded.tap(geometry, tap)).collect();
    with_scratch(
        padded.len(),
        #[inline(always)]
        |copy| {
            padded.fill(geometry, x, copy);
            let [_, height, width] = geometry.to;
            for (line, out) in out.chunks_exact_mut(width).enumerate() {
                let copy = &copy[padded.line(geometry, line / height, line % height)..];
                for start in (0..width).step_by(LANES) {
                    let mut sum = s.splat(conv.bias.map_or(0.0, |bias| bias[group]));
                    for (&offset, &factor) in offsets.iter().zip(filter) {
                        let from = &copy[offset + start..][..LANES];
                        // SAFETY: as many as sliced.
                        sum = s.fma(unsafe { s.load(from.as_ptr()) }, s.splat(factor), sum);
                    }
                    let count = LANES.min(width - start);
                    // SAFETY: `count` elements of the line are left.
                    unsafe { s.store_partial(out[start..].as_mut_ptr(), sum, count) };
                }
            }
        },
    );
}

/// A channel with its padding. Each row is apart by the remainder of columns divided by the stride.
struct Padded {
    /// Depth and height.
    sizes: [usize; 2],
    /// Columns of one remainder, and room for a vector more.
    part: usize,
    /// Of the strides.
    parts: usize,
}

impl Padded {
    fn new(geometry: &Geometry) -> Padded {
        let spanned = |axis: usize| {
            (geometry.to[axis] - 1) * geometry.strides[axis]
                + (geometry.window[axis] - 1) * geometry.dilations[axis]
                + 1
        };
        let parts = geometry.strides[2];
        Padded { sizes: [spanned(0), spanned(1)], part: spanned(2).div_ceil(parts) + LANES, parts }
    }

    fn len(&self) -> usize {
        self.sizes[0] * self.sizes[1] * self.parts * self.part
    }

    #[inline(always)]
    fn fill(&self, geometry: &Geometry, x: &[f32], copy: &mut [f32]) {
        copy.fill(0.0);
        let [depth, height, width] = geometry.from;
        let before = geometry.before;
        for (line, row) in copy.chunks_exact_mut(self.parts * self.part).enumerate() {
            let (plane, line) = (line / self.sizes[1], line % self.sizes[1]);
            let inside = |index: usize, axis: usize, size: usize| {
                index.checked_sub(before[axis]).filter(|&index| index < size)
            };
            let (Some(plane), Some(line)) = (inside(plane, 0, depth), inside(line, 1, height)) else {
                continue;
            };
            let x = &x[(plane * height + line) * width..][..width];
            for (remainder, row) in row.chunks_exact_mut(self.part).enumerate() {
                // The first column of the image with this remainder, and where it goes.
                let first = (remainder + self.parts - before[2] % self.parts) % self.parts;
                let to = ((first + before[2]) / self.parts).min(self.part);
                let from = x.get(first..).unwrap_or_default();
                join_every(
                    self.parts,
                    &mut row[to..],
                    from,
                    #[inline(always)]
                    |_, from| from,
                );
            }
        }
    }

    /// Where the elements begin that the first tap sees from the positions of a row.
    fn line(&self, geometry: &Geometry, plane: usize, line: usize) -> usize {
        let row = plane * geometry.strides[0] * self.sizes[1] + line * geometry.strides[1];
        row * self.parts * self.part
    }

    /// How far from there the elements are that another tap sees.
    fn tap(&self, geometry: &Geometry, tap: usize) -> usize {
        let [depth, height, width] = geometry.tap(tap);
        let [down, along, across] = geometry.dilations;
        let (row, column) = (depth * down * self.sizes[1] + height * along, width * across);
        row * self.parts * self.part + column % self.parts * self.part + column / self.parts
    }
}
