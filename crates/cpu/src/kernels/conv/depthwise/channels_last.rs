//! Depthwise convolution where channels lie last: sixteen channels of some neighbouring positions at a time, tap after
//! tap.
//!
//! From most positions of a row all columns of the window lie in the image: a weight that is loaded serves several of
//! them. The others are computed one by one.

use crate::kernels::conv::geometry::Geometry;
use crate::kernels::conv::operands::{Depthwise, activate, least};
use crate::kernels::window::inside;
use crate::vec::{LANES, Simd};

/// Positions that share a weight: enough sums side by side to hide how long one takes.
const POSITIONS: usize = 4;

/// A tap of the window whose row lies in the image.
#[derive(Clone, Copy)]
struct Tap {
    /// The column it sees from position 0; negative in the padding.
    across: isize,
    /// The first pixel of the row it sees.
    row: usize,
    /// The first of its weights.
    filter: usize,
}

/// A row of the result, [positions, channels].
#[inline(always)]
pub(super) fn row<S: Simd>(s: S, conv: &Depthwise<'_>, number: usize, out: &mut [f32]) {
    let (geometry, channels) = (conv.geometry, conv.geometry.groups);
    let (width, stride) = (geometry.to[2], geometry.strides[2]);
    let seen = |tap: &Tap| inside(width, stride, tap.across, geometry.from[2]);
    let taps = taps(geometry, number);
    let all_seen = taps.iter().map(seen).fold(0..width, |a, b| a.start.max(b.start)..a.end.min(b.end));
    let mut some = Vec::with_capacity(taps.len());
    let mut column = 0;
    while column < width {
        let room = all_seen.end.saturating_sub(column);
        let count = if all_seen.start <= column && room >= POSITIONS { POSITIONS } else { 1 };
        let out = &mut out[column * channels..][..count * channels];
        // SAFETY: each tap that is handed on sees a pixel of the image from all `count` positions.
        unsafe {
            if count == POSITIONS {
                positions::<S, POSITIONS>(s, conv, &taps, column, out);
            } else {
                some.clear();
                some.extend(taps.iter().filter(|tap| seen(tap).contains(&column)));
                positions::<S, 1>(s, conv, &some, column, out);
            }
        }
        column += count;
    }
    activate(conv.activation, out);
}

/// The taps whose rows lie in the image, for a row of the result.
fn taps(geometry: &Geometry, number: usize) -> Vec<Tap> {
    let [depth, height, _] = geometry.to;
    let position = [number / height % depth, number % height];
    let image = number / (depth * height);
    let tap = |index: usize| {
        let tap = geometry.tap(index);
        let row = (0..2).try_fold(image, |at, axis| {
            let padded = position[axis] * geometry.strides[axis] + tap[axis] * geometry.dilations[axis];
            let index = padded.checked_sub(geometry.before[axis])?;
            (index < geometry.from[axis]).then_some(at * geometry.from[axis] + index)
        })?;
        let across = (tap[2] * geometry.dilations[2]) as isize - geometry.before[2] as isize;
        Some(Tap { across, row: row * geometry.from[2], filter: index * geometry.groups })
    };
    (0..geometry.taps()).filter_map(tap).collect()
}

/// Neighbouring positions from a column on, [N, channels].
///
/// # Safety
/// Each tap sees a pixel of the image from all of them.
#[inline(always)]
unsafe fn positions<S: Simd, const N: usize>(
    s: S,
    conv: &Depthwise<'_>,
    taps: &[Tap],
    column: usize,
    out: &mut [f32],
) {
    let channels = conv.geometry.groups;
    assert_eq!(out.len(), N * channels, "conv: {N} positions of {channels} channels");
    // SAFETY: the caller's promise; the channels of each call are among those there are.
    unsafe {
        if channels < LANES {
            return sums::<S, N>(s, conv, taps, column, (0, channels), out.as_mut_ptr());
        }
        for start in (0..channels).step_by(LANES) {
            // The last channels again, rather than a part of a vector.
            let start = start.min(channels - LANES);
            sums::<S, N>(s, conv, taps, column, (start, LANES), out.as_mut_ptr().add(start));
        }
    }
}

/// Some channels, from one on, of neighbouring positions.
///
/// # Safety
/// Each tap sees a pixel of the image from all positions, there are these channels, at most sixteen, and as many values
/// are writable at `to` for each position.
#[inline(always)]
unsafe fn sums<S: Simd, const N: usize>(
    s: S,
    conv: &Depthwise<'_>,
    taps: &[Tap],
    column: usize,
    (start, count): (usize, usize),
    to: *mut f32,
) {
    let (channels, stride) = (conv.geometry.groups, conv.geometry.strides[2]);
    // SAFETY: the bias, the weights of a tap and a pixel have all channels; the caller promises the rest.
    unsafe {
        let bias = conv.bias.map_or(s.splat(0.0), |bias| load(s, bias.as_ptr().add(start), count));
        let mut sums = [bias; N];
        for tap in taps {
            let weight = load(s, conv.filter.as_ptr().add(tap.filter + start), count);
            let first = tap.row + (column * stride).wrapping_add_signed(tap.across);
            let x = conv.x.as_ptr().add(first * channels + start);
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = s.fma(load(s, x.add(i * stride * channels), count), weight, *sum);
            }
        }
        let least = s.splat(least(conv.activation));
        for (i, &sum) in sums.iter().enumerate() {
            let (to, sum) = (to.add(i * channels), s.max(least, sum));
            if count == LANES { s.store(to, sum) } else { s.store_partial(to, sum, count) }
        }
    }
}

/// Sixteen values or fewer: whole vectors load faster.
///
/// # Safety
/// `count <= 16` values are readable at `from`.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, from: *const f32, count: usize) -> S::F32 {
    // SAFETY: the caller's promise.
    unsafe { if count == LANES { s.load(from) } else { s.load_partial(from, count) } }
}
