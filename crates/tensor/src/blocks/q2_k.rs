//! `q2_k`: 256 weights of 2 bits, a 4-bit scale and minimum per 16, in 84 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | byte `g`: scale `s` of group `g` in the low nibble, minimum `m` in the high one |
//! | 16..80 | codes `q`: bits `2k` and `2k + 1` of byte `32h + i` are weight `128h + 32k + i` |
//! | 80..82 | `d`, f16 |
//! | 82..84 | `dmin`, f16 |
//!
//! `weight = (d · s) · q − dmin · m`

use super::block::{Format, Groups, Importance, Scale, field, half_at, pack_pairs, unpack_pairs};
use super::quantize::{Affine, affine_groups};
use super::rounding::square_sum;
use super::search::Steps;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q2K.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q2K.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format {
    dtype: DType::Q2K,
    group: 16,
    minimums: true,
    codes: (0, 3),
    scales: &[Scale::F16(80), Scale::F16(82)],
};

/// Codes 0 to 3, with scales and minimums of 16 groups.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    let mut codes = [0; ELEMENTS];
    let packed = field::<64>(block, 16).as_chunks::<32>().0;
    for (codes, packed) in codes.as_chunks_mut::<128>().0.iter_mut().zip(packed) {
        unpack_pairs(packed, codes);
    }
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    let (scales, minimums) = scales_and_minimums(field(block, 0));
    Groups {
        codes,
        scales: scales.map(|scale| d * f32::from(scale)),
        minimums: minimums.map(|minimum| dmin * f32::from(minimum)),
    }
}

/// The 4-bit scale and minimum of each group, from the first 16 bytes of a block.
#[inline]
pub fn scales_and_minimums(packed: &[u8; 16]) -> ([u8; 16], [u8; 16]) {
    (packed.map(|byte| byte & 15), packed.map(|byte| byte >> 4))
}

/// Scales and minimums of least cost, which are rounded to multiples of `d` and `dmin`, and the codes nearest to those.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    const STEPS: Steps = Steps { from: -0.5, by: 0.1, count: 15, absolute: true };
    let importance = (importance, square_sum(values) / 256.0);
    let cost = |values: &[f32; 16]| values.map(f32::abs);
    let Affine { codes, scales, minimums } =
        affine_groups::<16, 16>(values, importance, (cost, STEPS), (FORMAT.codes, 15), (block, 80));
    for (byte, (scale, minimum)) in block.iter_mut().zip(scales.iter().zip(minimums)) {
        *byte = scale | minimum << 4;
    }
    for (codes, packed) in codes.as_chunks::<128>().0.iter().zip(block[16..80].as_chunks_mut::<32>().0) {
        pack_pairs(codes, packed);
    }
}
