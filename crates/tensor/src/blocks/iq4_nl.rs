//! `iq4_nl`: 32 weights of 4 bits on uneven levels with one scale, in 18 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..18 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · LEVELS[nibble]`

use super::quantize::{extreme, inverse};
use super::{Format, Groups, field, half_at, pack_nibbles, put_half, unpack_nibbles};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq4Nl.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq4Nl.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq4Nl, group: 32, minimums: false, codes: (-127, 113), halves: &[0] };

/// What the 16 nibbles mean: finer near zero, as weights are. Part of the GGML format.
pub const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Codes among [`LEVELS`], and one scale.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let mut codes = [0; ELEMENTS];
    unpack_levels(field(block, 2), &mut codes);
    Groups { codes, scales: [half_at(block, 0)], minimums: [0.0] }
}

/// The weights of a block.
pub fn dequantize(block: &[u8; BYTES], values: &mut [f32; ELEMENTS]) {
    unpack(block).dequantize(values);
}

/// The extreme value gets the level −127.
pub fn quantize(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    let scale = put_half(block, 0, extreme(values) / -127.0);
    pack_levels(values, scale, &mut block[2..]);
}

/// The levels of 32 nibbles.
#[inline(always)]
pub(super) fn unpack_levels(packed: &[u8; 16], codes: &mut [i8; 32]) {
    unpack_nibbles(packed, codes);
    for code in codes {
        *code = LEVELS[usize::from(*code as u8 & 15)];
    }
}

/// Stores the nibble of the level nearest to each of 32 values.
pub(super) fn pack_levels(values: &[f32; 32], scale: f32, packed: &mut [u8]) {
    let inverse = inverse(scale);
    let nibbles = values.map(|value| {
        let level = value * inverse;
        // The nibble is the number of midpoints between neighbouring levels that the value lies above.
        LEVELS.windows(2).filter(|pair| level > (f32::from(pair[0]) + f32::from(pair[1])) / 2.0).count() as i8
    });
    pack_nibbles(&nibbles, packed);
}
