//! Convolutions in which each channel has a filter of its own.
//!
//! Where channels lie last, sixteen of them are computed at a time; where they come first, sixteen positions of a row.
//! Bound by memory, or by loads.

mod channels_first;
mod channels_last;

use self::channels_first::channels;
use self::channels_last::row;
use super::geometry::Geometry;
use super::operands::Depthwise;
use crate::Pool;
use crate::variant::{Variant, variants};
use crate::vec::Simd;

/// Results that one thread computes at a time, if they are whole rows or channels, and no more than a fair share.
const CHUNK: usize = 16 * 1024;
/// Results that are worth another chunk.
const LEAST: usize = 2 * 1024;

/// Some rows (channels last) or channels (channels first) of the result, from one with a number on.
pub type DepthwiseKernel = unsafe fn(&Depthwise<'_>, usize, &mut [f32]);

variants! {
    /// Sixteen channels or positions at a time.
    pub static DEPTHWISE_VARIANTS = items, (conv: &Depthwise<'_>, first: usize, out: &mut [f32])
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
    let share = (out.len() / (4 * pool.threads())).clamp(LEAST, CHUNK);
    let per_chunk = (share / item).max(1);
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
    if !geometry.channels_last {
        return channels(s, conv, first, out);
    }
    for (i, out) in out.chunks_exact_mut(item_len(geometry)).enumerate() {
        row(s, conv, first + i, out);
    }
}
