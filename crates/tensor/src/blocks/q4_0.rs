//! `q4_0`: 32 weights of 4 bits with one scale, in 18 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..18 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · (nibble − 8)`

use super::block::{Format, Groups, Importance, Scale, field, half_at, pack_nibbles, unpack_nibbles};
use super::quantize::symmetric_codes;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q4_0.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q4_0.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Q4_0, group: 32, minimums: false, codes: (-8, 7), scales: &[Scale::F16(0)] };

/// Codes −8 to 7, and one scale.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let mut codes = [0; ELEMENTS];
    unpack_nibbles(field::<16>(block, 2), &mut codes);
    for code in &mut codes {
        *code -= 8;
    }
    Groups { codes, scales: [half_at(block, 0)], minimums: [0.0] }
}

/// As `symmetric_codes`.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let codes = symmetric_codes(values, importance, 8, block);
    pack_nibbles(&codes, &mut block[2..]);
}
