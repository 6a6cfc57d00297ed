//! Convolutions in which each channel has a filter of its own.
//!
//! Where channels lie last, sixteen of them are computed at a time, tap after tap. Where they come first, sixteen
//! positions of a row are: the channel is copied with its padding first, each row apart by the remainder of its columns
//! divided by the stride, so that neighbouring positions read neighbouring elements. Bound by memory, or by loads.

use super::Geometry;
use crate::Pool;
use crate::kernels::variant::{Variant, variants};
use crate::vec::{LANES, Simd, with_scratch};

/// Results that one thread computes at a time, if they are whole rows or channels.
const CHUNK: usize = 16 * 1024;

/// The operands of a convolution of single channels.
pub struct Depthwise<'a> {
    /// The sizes.
    pub geometry: &'a Geometry,
    /// The images.
    pub x: &'a [f32],
    /// [taps, channels] where channels lie last, [channels, taps] where they come first.
    pub filter: &'a [f32],
    /// One number for each channel.
    pub bias: Option<&'a [f32]>,
}

/// Some rows (channels last) or channels (channels first) of the result, from one with a number on.
pub type DepthwiseKernel = unsafe fn(&Depthwise<'_>, usize, &mut [f32]);

variants! {
    /// Sixteen channels or positions at a time.
    pub const DEPTHWISE_VARIANTS = items, (conv: &Depthwise<'_>, first: usize, out: &mut [f32])
}

/// Writes the convolution to `out`.
///
/// # Panics
/// If lengths disagree, the groups have several channels, or this machine cannot run the variant.
pub fn depthwise(variant: &Variant<DepthwiseKernel>, pool: &Pool, conv: &Depthwise<'_>, out: &mut [f32]) {
    let geometry = conv.geometry;
    assert!((variant.available)(), "conv: this machine cannot run {}", variant.name);
    assert!(geometry.channels == 1 && geometry.results == 1, "conv: one channel in {geometry:?}");
    assert_eq!(conv.x.len(), geometry.operand_len(), "conv: length of x for {geometry:?}");
    assert_eq!(out.len(), geometry.result_len(), "conv: length of out for {geometry:?}");
    assert_eq!(conv.filter.len(), geometry.groups * geometry.taps(), "conv: length of filter");
    assert!(conv.bias.is_none_or(|bias| bias.len() == geometry.groups), "conv: length of bias");
    if out.is_empty() {
        return;
    }
    let item = item_len(geometry);
    let per_chunk = (CHUNK / item).max(1);
    pool.run_on_pieces(out, per_chunk * item, &|index, out| {
        // SAFETY: the variant is available.
        unsafe { (variant.run)(conv, index * per_chunk, out) };
    });
}

/// A row of the result, or a channel.
fn item_len(geometry: &Geometry) -> usize {
    match geometry.channels_last {
        true => geometry.to[2] * geometry.groups,
        false => geometry.positions(),
    }
}

#[inline(always)]
fn items<S: Simd>(s: S, conv: &Depthwise<'_>, first: usize, out: &mut [f32]) {
    let geometry = conv.geometry;
    for (i, out) in out.chunks_exact_mut(item_len(geometry)).enumerate() {
        match geometry.channels_last {
            true => row(s, conv, first + i, out),
            false => channel(s, conv, first + i, out),
        }
    }
}

/// A row of the result, [positions, channels].
#[inline(always)]
fn row<S: Simd>(s: S, conv: &Depthwise<'_>, number: usize, out: &mut [f32]) {
    let (geometry, channels) = (conv.geometry, conv.geometry.groups);
    let [depth, height, _] = geometry.to;
    let (image, plane, line) = (number / (depth * height), number / height % depth, number % height);
    let image_len = geometry.from.iter().product::<usize>() * channels;
    let x = &conv.x[image * image_len..][..image_len];
    let mut taps: Vec<(&[f32], &[f32])> = Vec::with_capacity(geometry.taps());
    for (column, out) in out.chunks_exact_mut(channels).enumerate() {
        taps.clear();
        taps.extend((0..geometry.taps()).filter_map(|tap| {
            let pixel = pixel(geometry, [plane, line, column], tap)?;
            Some((&x[pixel * channels..][..channels], &conv.filter[tap * channels..][..channels]))
        }));
        for start in (0..channels).step_by(LANES) {
            let count = LANES.min(channels - start);
            // SAFETY: every slice has `channels` elements, of which `count` are left.
            unsafe {
                let mut sum = match conv.bias {
                    Some(bias) => load(s, bias.as_ptr().add(start), count),
                    None => s.splat(0.0),
                };
                for (x, filter) in &taps {
                    let x = load(s, x.as_ptr().add(start), count);
                    sum = s.fma(x, load(s, filter.as_ptr().add(start), count), sum);
                }
                s.store_partial(out.as_mut_ptr().add(start), sum, count);
            }
        }
    }
}

/// Sixteen values or the last few: whole vectors load faster.
///
/// # Safety
/// `count <= 16` values are readable at `from`.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, from: *const f32, count: usize) -> S::F32 {
    // SAFETY: the caller's promise.
    unsafe { if count == LANES { s.load(from) } else { s.load_partial(from, count) } }
}

/// The pixel under a tap of the window at a position; `None` in the padding.
fn pixel(geometry: &Geometry, position: [usize; 3], tap: usize) -> Option<usize> {
    let tap = geometry.tap(tap);
    (0..3).try_fold(0, |at, axis| {
        let padded = position[axis] * geometry.strides[axis] + tap[axis] * geometry.dilations[axis];
        let index = padded.checked_sub(geometry.before[axis]).filter(|&index| index < geometry.from[axis])?;
        Some(at * geometry.from[axis] + index)
    })
}

/// A channel of the result, [depth, height, width].
#[inline(always)]
fn channel<S: Simd>(s: S, conv: &Depthwise<'_>, number: usize, out: &mut [f32]) {
    let (geometry, taps) = (conv.geometry, conv.geometry.taps());
    let plane: usize = geometry.from.iter().product();
    let (x, group) = (&conv.x[number * plane..][..plane], number % geometry.groups);
    let filter = &conv.filter[group * taps..][..taps];
    let padded = Padded::new(geometry);
    let offsets: Vec<usize> = (0..taps).map(|tap| padded.tap(geometry, tap)).collect();
    with_scratch(padded.len(), |copy| {
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
    });
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
                match self.parts {
                    1 => row[to..].iter_mut().zip(from).for_each(|(to, from)| *to = *from),
                    parts => {
                        row[to..].iter_mut().zip(from.chunks(parts)).for_each(|(to, from)| *to = from[0])
                    }
                }
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
