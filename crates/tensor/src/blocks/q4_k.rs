//! `q4_k`: 256 weights of 4 bits, a 6-bit scale and minimum per 32, in 144 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `dmin`, f16 |
//! | 4..16 | scales `s` and minimums `m` of 8 groups: see [`scales_and_minimums`] |
//! | 16..144 | byte `16 + 32c + i`: weight `64c + i` in the low nibble, weight `64c + 32 + i` in the high one |
//!
//! `weight = (d · s) · nibble − dmin · m`

use super::block::{Format, Groups, Importance, Scale, field, half_at, pack_nibbles, unpack_nibbles};
use super::quantize::{Affine, affine_groups};
use super::rounding::square_sum;
use super::search::Steps;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q4K.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q4K.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format {
    dtype: DType::Q4K,
    group: 32,
    minimums: true,
    codes: (0, 15),
    scales: &[Scale::F16(0), Scale::F16(2)],
};

/// Codes 0 to 15, with scales and minimums of 8 groups.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 8> {
    let codes = unpack_codes(field(block, 16));
    let (scales, minimums) = unpack_factors(field(block, 0));
    Groups { codes, scales, minimums }
}

/// The 6-bit scale and minimum of each group, from bytes 4 to 15 of a block.
///
/// The first four of each are the low six bits of bytes 0 to 3 and 4 to 7; the other four have their lower bits in
/// the nibbles of bytes 8 to 11, scales low and minimums high, and their upper bits atop the first four.
#[inline]
pub fn scales_and_minimums(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut minimums) = ([0; 8], [0; 8]);
    for i in 0..4 {
        let (scale, minimum, lower) = (packed[i], packed[4 + i], packed[8 + i]);
        scales[i] = scale & 63;
        minimums[i] = minimum & 63;
        scales[4 + i] = (lower & 15) | (scale >> 6) << 4;
        minimums[4 + i] = (lower >> 4) | (minimum >> 6) << 4;
    }
    (scales, minimums)
}

/// Scales and minimums of least cost, which are rounded to multiples of `d` and `dmin`, and the codes nearest to those.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    const STEPS: Steps = Steps { from: -1.0, by: 0.1, count: 20, absolute: false };
    let codes = quantize_codes(values, importance, STEPS, FORMAT.codes, &mut block[..16]);
    for (codes, packed) in codes.as_chunks::<64>().0.iter().zip(block[16..].as_chunks_mut::<32>().0) {
        pack_nibbles(codes, packed);
    }
}

/// The nibbles of 256 weights.
#[inline(always)]
pub(super) fn unpack_codes(packed: &[u8; 128]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    for (codes, packed) in codes.as_chunks_mut::<64>().0.iter_mut().zip(packed.as_chunks::<32>().0) {
        unpack_nibbles(packed, codes);
    }
    codes
}

/// The f32 scales and minimums of 8 groups, from the first 16 bytes of a `q4_k` or `q5_k` block.
#[inline(always)]
pub(super) fn unpack_factors(header: &[u8; 16]) -> ([f32; 8], [f32; 8]) {
    let (d, dmin) = (half_at(header, 0), half_at(header, 2));
    let (scales, minimums) = scales_and_minimums(field(header, 4));
    (scales.map(|scale| d * f32::from(scale)), minimums.map(|minimum| dmin * f32::from(minimum)))
}

/// Chooses and stores the first 16 bytes of a `q4_k` or `q5_k` block, and the codes that go with them.
pub(super) fn quantize_codes(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    steps: Steps,
    range: (i8, i8),
    header: &mut [u8],
) -> [u8; ELEMENTS] {
    let spread = 2.0 * square_sum(values) / 256.0;
    let cost = |values: &[f32; 32]| {
        let size = (square_sum(values) / 32.0).sqrt();
        values.map(|value| size + value.abs())
    };
    let importance = (importance, spread);
    let Affine { codes, scales, minimums } =
        affine_groups::<32, 8>(values, importance, (cost, steps), (range, 63), (header, 0));
    for i in 0..4 {
        header[4 + i] = scales[i] | (scales[4 + i] >> 4) << 6;
        header[8 + i] = minimums[i] | (minimums[4 + i] >> 4) << 6;
        header[12 + i] = (scales[4 + i] & 15) | minimums[4 + i] << 4;
    }
    codes
}
