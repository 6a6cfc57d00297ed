//! `q5_0`: 32 weights of 5 bits with one scale, in 22 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..6 | u32: bit `i` is the fifth bit of weight `i` |
//! | 6..22 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · (nibble + 16 · bit − 16)`

use super::block::{Format, Groups, Importance, Scale, field, half_at, pack_nibbles, unpack_nibbles};
use super::quantize::symmetric_codes;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q5_0.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q5_0.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Q5_0, group: 32, minimums: false, codes: (-16, 15), scales: &[Scale::F16(0)] };

/// Codes −16 to 15, and one scale.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let mut codes = unpack_codes(field(block, 2), field(block, 6));
    for code in &mut codes {
        *code -= 16;
    }
    Groups { codes, scales: [half_at(block, 0)], minimums: [0.0] }
}

/// As `symmetric_codes`.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let codes = symmetric_codes(values, importance, 16, block);
    pack_codes(&codes, &mut block[2..]);
}

/// Unsigned 5-bit codes from their fifth bits and nibbles.
#[inline(always)]
pub(super) fn unpack_codes(high: &[u8; 4], nibbles: &[u8; 16]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_nibbles(nibbles, &mut codes);
    for (codes, byte) in codes.as_chunks_mut::<8>().0.iter_mut().zip(high) {
        for (bit, code) in codes.iter_mut().enumerate() {
            *code |= ((byte >> bit & 1) << 4) as i8;
        }
    }
    codes
}

/// The inverse of [`unpack_codes`]: four bytes of fifth bits, then the nibbles.
pub(super) fn pack_codes(codes: &[u8; ELEMENTS], packed: &mut [u8]) {
    let (high, nibbles) = packed.split_at_mut(4);
    pack_nibbles(codes, nibbles);
    for (codes, byte) in codes.as_chunks::<8>().0.iter().zip(high) {
        *byte = (0..8).map(|bit| (codes[bit] >> 4 & 1) << bit).sum();
    }
}
