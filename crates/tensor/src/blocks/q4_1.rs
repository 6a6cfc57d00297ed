//! `q4_1`: 32 weights of 4 bits with one scale and one offset, in 20 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `m`, f16 |
//! | 4..20 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · nibble + m`; the minimum that is subtracted is `−m`.

use super::block::{Format, Groups, Importance, Scale, field, half_at, pack_nibbles, unpack_nibbles};
use super::quantize::affine_codes;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q4_1.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q4_1.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format {
    dtype: DType::Q4_1,
    group: 32,
    minimums: true,
    codes: (0, 15),
    scales: &[Scale::F16(0), Scale::F16(2)],
};

/// Codes 0 to 15, one scale and one minimum.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let mut codes = [0; ELEMENTS];
    unpack_nibbles(field::<16>(block, 4), &mut codes);
    Groups { codes, scales: [half_at(block, 0)], minimums: [-half_at(block, 2)] }
}

/// As `affine_codes`.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let codes = affine_codes(values, importance, 15, block);
    pack_nibbles(&codes, &mut block[4..]);
}
