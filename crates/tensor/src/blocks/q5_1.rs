//! `q5_1`: 32 weights of 5 bits with one scale and one offset, in 24 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `m`, f16 |
//! | 4..8 | u32: bit `i` is the fifth bit of weight `i` |
//! | 8..24 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · (nibble + 16 · bit) + m`; the minimum that is subtracted is `−m`.

use super::block::{Format, Groups, Importance, Scale, field, half_at};
use super::q5_0::{pack_codes, unpack_codes};
use super::quantize::affine_codes;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q5_1.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q5_1.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format {
    dtype: DType::Q5_1,
    group: 32,
    minimums: true,
    codes: (0, 31),
    scales: &[Scale::F16(0), Scale::F16(2)],
};

/// Codes 0 to 31, one scale and one minimum.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let codes = unpack_codes(field(block, 4), field(block, 8));
    Groups { codes, scales: [half_at(block, 0)], minimums: [-half_at(block, 2)] }
}

/// As `affine_codes`.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let codes = affine_codes(values, importance, 31, block);
    pack_codes(&codes, &mut block[4..]);
}
