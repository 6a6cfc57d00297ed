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

use super::quantize::{recode, whole_multiples};
use super::search::{Steps, affine, costs, multiples, square_sum};
use super::{Format, Groups, Importance, field, half_at, pack_pairs, put_half, unpack_pairs};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q2K.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q2K.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Q2K, group: 16, minimums: true, codes: (0, 3), halves: &[80, 82] };

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

/// The weights of a block.
pub fn dequantize(block: &[u8; BYTES], values: &mut [f32; ELEMENTS]) {
    unpack(block).dequantize(values);
}

/// Scales and minimums of least cost, which are rounded to multiples of `d` and `dmin`, and the codes nearest to those.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    const STEPS: Steps = Steps { from: -0.5, by: 0.1, count: 15, absolute: true };
    let spread = square_sum(values) / 256.0;
    let mut codes = [0; ELEMENTS];
    let (mut scales, mut minimums, mut weights) = ([0.0; 16], [0.0; 16], [0.0; 16]);
    for (group, (values, codes)) in
        values.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0).enumerate()
    {
        let (costs, steps) = match importance {
            None => (values.map(f32::abs), STEPS),
            Some(Importance { columns, .. }) => (costs(values, &columns[16 * group..], spread), Steps::FINE),
        };
        (scales[group], minimums[group]) = affine(values, &costs, 3, steps, codes);
        weights[group] = costs.iter().fold(0.0, |sum, cost| sum + cost);
    }
    let [(d, scales), (dmin, minimums)] = match importance {
        None => [whole_multiples(&scales, 15), whole_multiples(&minimums, 15)],
        Some(_) => [multiples(&scales, &weights, 15), multiples(&minimums, &weights, 15)],
    };
    for (byte, (scale, minimum)) in block.iter_mut().zip(scales.iter().zip(minimums)) {
        *byte = scale | minimum << 4;
    }
    let (d, dmin) = (put_half(block, 80, d), put_half(block, 82, dmin));
    let scales = scales.map(|scale| d * f32::from(scale));
    let minimums = minimums.map(|minimum| dmin * f32::from(minimum));
    recode(values, &scales, &minimums, FORMAT.codes, &mut codes);
    for (codes, packed) in codes.as_chunks::<128>().0.iter().zip(block[16..80].as_chunks_mut::<32>().0) {
        pack_pairs(codes, packed);
    }
}
