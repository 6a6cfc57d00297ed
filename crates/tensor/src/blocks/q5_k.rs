//! `q5_k`: 256 weights of 5 bits, a 6-bit scale and minimum per 32, in 176 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `dmin`, f16 |
//! | 4..16 | scales `s` and minimums `m` of 8 groups: see [`scales_and_minimums`] |
//! | 16..48 | bit `g` of byte `16 + i` is the fifth bit of weight `32g + i` |
//! | 48..176 | byte `48 + 32c + i`: weight `64c + i` in the low nibble, weight `64c + 32 + i` in the high one |
//!
//! `weight = (d · s) · (nibble + 16 · bit) − dmin · m`

use super::block::{Format, Groups, Importance, Scale, field, pack_nibbles};
use super::q4_k::{quantize_codes, unpack_codes, unpack_factors};
use super::search::Steps;
use crate::DType;

pub use super::q4_k::scales_and_minimums;

/// Bytes of a block.
pub const BYTES: usize = DType::Q5K.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q5K.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format {
    dtype: DType::Q5K,
    group: 32,
    minimums: true,
    codes: (0, 31),
    scales: &[Scale::F16(0), Scale::F16(2)],
};

/// Codes 0 to 31, with scales and minimums of 8 groups.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 8> {
    let mut codes = unpack_codes(field(block, 48));
    let fifth = field::<32>(block, 16);
    for (bit, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, byte) in codes.iter_mut().zip(fifth) {
            *code |= ((byte >> bit & 1) << 4) as i8;
        }
    }
    let (scales, minimums) = unpack_factors(field(block, 0));
    Groups { codes, scales, minimums }
}

/// As for `q4_k`.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    const STEPS: Steps = Steps { from: -0.5, by: 0.1, count: 15, absolute: false };
    let codes = quantize_codes(values, importance, STEPS, FORMAT.codes, &mut block[..16]);
    block[16..48].fill(0);
    for (bit, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
        for (byte, code) in block[16..48].iter_mut().zip(codes) {
            *byte |= (code >> 4) << bit;
        }
    }
    for (codes, packed) in codes.as_chunks::<64>().0.iter().zip(block[48..].as_chunks_mut::<32>().0) {
        pack_nibbles(codes, packed);
    }
}
