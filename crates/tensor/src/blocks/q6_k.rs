//! `q6_k`: 256 weights of 6 bits, an 8-bit scale per 16, in 210 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..128 | byte `64h + i`: weight `128h + i` in the low nibble, weight `128h + 64 + i` in the high one |
//! | 128..192 | bits `2k` and `2k + 1` of byte `128 + 32h + i` are the upper bits of weight `128h + 32k + i` |
//! | 192..208 | an i8 scale per group |
//! | 208..210 | `d`, f16 |
//!
//! `weight = (d · scale) · (nibble + 16 · upper − 32)`

use super::block::{
    Format, Groups, Importance, Scale, field, half_at, pack_nibbles, pack_pairs, put_half, unpack_nibbles,
    unpack_pairs,
};
use super::quantize::{extreme_multiples, recode};
use super::rounding::extreme;
use super::search::{NEGLIGIBLE, symmetric};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q6K.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q6K.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Q6K, group: 16, minimums: false, codes: (-32, 31), scales: &[Scale::F16(208)] };

/// Codes −32 to 31, with scales of 16 groups.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    let mut codes = [0; ELEMENTS];
    let lower = field::<128>(block, 0).as_chunks::<64>().0;
    let upper = field::<64>(block, 128).as_chunks::<32>().0;
    for (codes, (lower, upper)) in codes.as_chunks_mut::<128>().0.iter_mut().zip(lower.iter().zip(upper)) {
        let mut high = [0; 128];
        unpack_nibbles(lower, codes);
        unpack_pairs(upper, &mut high);
        for (code, high) in codes.iter_mut().zip(high) {
            *code = (*code | high << 4) - 32;
        }
    }
    let d = half_at(block, 208);
    let scales = scales(field(block, 192)).map(|scale| d * f32::from(scale));
    Groups { codes, scales, minimums: [0.0; 16] }
}

/// The 8-bit scale of each group, from bytes 192 to 207 of a block.
#[inline]
pub fn scales(packed: &[u8; 16]) -> [i8; 16] {
    packed.map(|byte| byte as i8)
}

/// Scales of least cost, which are rounded to multiples of `d`, and the codes nearest to those. Without importance,
/// errors cost by the square of their value.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let mut codes = [0; ELEMENTS];
    let mut scales = [0.0; 16];
    for (group, (values, codes)) in
        values.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0).enumerate()
    {
        scales[group] = match importance {
            None => symmetric(values, &values.map(|value| value * value), 32, codes),
            Some(Importance { columns, .. }) => symmetric(values, &columns[16 * group..], 32, codes),
        };
    }
    if extreme(&scales).abs() < NEGLIGIBLE {
        return block.fill(0);
    }
    // Scales plus 128.
    let mut biased = [0; 16];
    let d = extreme_multiples(&scales, 128, &mut biased);
    let scales = biased.map(|scale| (i16::from(scale) - 128) as i8);
    block[192..208].copy_from_slice(&scales.map(|scale| scale as u8));
    let d = put_half(block, 208, d);
    recode(values, &scales.map(|scale| d * f32::from(scale)), &[0.0; 16], FORMAT.codes, &mut codes);
    for (half, codes) in codes.as_chunks::<128>().0.iter().enumerate() {
        pack_nibbles(codes, &mut block[64 * half..][..64]);
        pack_pairs(&codes.map(|code| code >> 4), &mut block[128 + 32 * half..][..32]);
    }
}
