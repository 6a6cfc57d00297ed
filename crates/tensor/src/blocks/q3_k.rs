//! `q3_k`: 256 weights of 3 bits, a 6-bit scale per 16, in 110 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..32 | bit `4h + k` of byte `i` is the third bit of weight `128h + 32k + i` |
//! | 32..96 | bits `2k` and `2k + 1` of byte `32 + 32h + i` are the lower bits of weight `128h + 32k + i` |
//! | 96..104 | byte `96 + i`: lower bits of scale `i` in the low nibble, of scale `8 + i` in the high one |
//! | 104..108 | bits `2k` and `2k + 1` of byte `104 + i` are the upper bits of scale `4k + i` |
//! | 108..110 | `d`, f16 |
//!
//! `weight = (d · (scale − 32)) · (lower + 4 · third − 4)`

use super::block::{
    Format, Groups, Importance, Scale, field, half_at, pack_nibbles, pack_pairs, put_half, unpack_nibbles,
    unpack_pairs,
};
use super::quantize::{extreme_multiples, recode};
use super::rounding::square_sum;
use super::search::{adjusted, costs, symmetric};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q3K.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q3K.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Q3K, group: 16, minimums: false, codes: (-4, 3), scales: &[Scale::F16(108)] };

/// Codes −4 to 3, with scales of 16 groups.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    let mut codes = [0; ELEMENTS];
    let lower = field::<64>(block, 32).as_chunks::<32>().0;
    for (codes, packed) in codes.as_chunks_mut::<128>().0.iter_mut().zip(lower) {
        unpack_pairs(packed, codes);
    }
    let third = field::<32>(block, 0);
    for (bit, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, byte) in codes.iter_mut().zip(third) {
            *code += ((byte >> bit & 1) << 2) as i8 - 4;
        }
    }
    let d = half_at(block, 108);
    let scales = scales(field(block, 96)).map(|scale| d * f32::from(scale));
    Groups { codes, scales, minimums: [0.0; 16] }
}

/// The 6-bit scale of each group, −32 to 31, from bytes 96 to 107 of a block.
#[inline]
pub fn scales(packed: &[u8; 12]) -> [i8; 16] {
    let (mut lower, mut upper) = ([0; 16], [0; 16]);
    unpack_nibbles(&packed[..8], &mut lower);
    unpack_pairs(&packed[8..], &mut upper);
    std::array::from_fn(|group| (lower[group] | upper[group] << 4) - 32)
}

/// Scales of least cost, which are rounded to multiples of `d`, and the codes nearest to those.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let spread = 2.0 * square_sum(values) / 256.0;
    let mut codes = [0; ELEMENTS];
    let (mut scales, mut weights) = ([0.0; 16], [0.0; 16]);
    for (group, (values, codes)) in
        values.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0).enumerate()
    {
        scales[group] = match importance {
            None => adjusted(values, 4, codes),
            Some(Importance { columns, .. }) => {
                let costs = costs::<16>(values, &columns[16 * group..], spread);
                weights[group] = costs.iter().fold(0.0, |sum, cost| sum + cost);
                symmetric(values, &costs, 4, codes)
            }
        };
    }
    // Scales plus 32.
    let mut biased = [0; 16];
    let d = match importance {
        None => extreme_multiples(&scales, 32, &mut biased),
        Some(_) => symmetric(&scales, &weights, 32, &mut biased),
    };
    pack_nibbles(&biased, &mut block[96..104]);
    pack_pairs(&biased.map(|scale| scale >> 4), &mut block[104..108]);
    let d = put_half(block, 108, d);
    let scales = biased.map(|scale| d * (f32::from(scale) - 32.0));
    recode(values, &scales, &[0.0; 16], FORMAT.codes, &mut codes);
    for (codes, packed) in codes.as_chunks::<128>().0.iter().zip(block[32..96].as_chunks_mut::<32>().0) {
        pack_pairs(codes, packed);
    }
    block[..32].fill(0);
    for (bit, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
        for (byte, code) in block.iter_mut().zip(codes) {
            *byte |= (code >> 2) << bit;
        }
    }
}
