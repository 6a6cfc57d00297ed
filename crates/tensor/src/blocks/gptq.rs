//! `gptq`: 32 weights of 4 bits with one scale and one zero point, in 19 bytes: what checkpoints of GPTQ
//! (Frantar et al., 2022, <https://arxiv.org/abs/2210.17323>) are repacked into, row by row. No file stores these blocks.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2 | `z`, u8 |
//! | 3..19 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · (nibble − z)`; the minimum that is subtracted is `d · z`, which has at most 19 bits. So weights are exact.

use super::quantize::{inverse, range};
use super::{Format, Groups, Importance, field, half_at, pack_nibbles, put_half, unpack_nibbles};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Gptq.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Gptq.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Gptq, group: 32, minimums: true, codes: (0, 15), halves: &[0] };

/// Codes 0 to 15, one scale and one minimum.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let mut codes = [0; ELEMENTS];
    unpack_nibbles(field::<16>(block, 3), &mut codes);
    let scale = half_at(block, 0);
    Groups { codes, scales: [scale], minimums: [scale * f32::from(block[2])] }
}

/// The weights of a block.
pub fn dequantize(block: &[u8; BYTES], values: &mut [f32; ELEMENTS]) {
    unpack(block).dequantize(values);
}

/// The range of the values, widened to hold 0, is cut into 15 steps, as GPTQ does it. Both ends may be off by half a step.
/// Importance changes nothing.
pub fn quantize(
    values: &[f32; ELEMENTS],
    _importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let (low, high) = range(values);
    let scale = put_half(block, 0, (high.max(0.0) - low.min(0.0)) / 15.0);
    let inverse = inverse(scale);
    let zero = (-low.min(0.0) * inverse).round().clamp(0.0, 15.0);
    block[2] = zero as u8;
    let codes = values.map(|value| ((value * inverse).round() + zero).clamp(0.0, 15.0) as u8);
    pack_nibbles(&codes, &mut block[3..]);
}
