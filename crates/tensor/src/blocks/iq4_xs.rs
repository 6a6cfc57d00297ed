//! `iq4_xs`: 256 weights of 4 bits on uneven levels, a 6-bit scale per 32, in 136 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | u16: bits `2g` and `2g + 1` are the upper bits of scale `g` |
//! | 4..8 | byte `4 + i`: lower bits of scale `2i` in the low nibble, of scale `2i + 1` in the high one |
//! | 8..136 | byte `8 + 16g + i`: weight `32g + i` in the low nibble, weight `32g + 16 + i` in the high one |
//!
//! `weight = (d · (scale − 32)) · LEVELS[nibble]`, with the [`LEVELS`] of `iq4_nl`.

use super::block::{Format, Groups, Importance, Scale, field, half_at, put_half};
use super::iq4_nl::{pack_levels, search_levels, unpack_levels};
use super::rounding::{extreme, inverse, nearest, square_sum};
use crate::DType;

pub use super::iq4_nl::LEVELS;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq4Xs.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq4Xs.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq4Xs, group: 32, minimums: false, codes: (-127, 113), scales: &[Scale::F16(0)] };

/// Codes among [`LEVELS`], with scales of 8 groups.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 8> {
    let mut codes = [0; ELEMENTS];
    let nibbles = field::<128>(block, 8).as_chunks::<16>().0;
    for (codes, packed) in codes.as_chunks_mut::<32>().0.iter_mut().zip(nibbles) {
        unpack_levels(packed, codes);
    }
    let d = half_at(block, 0);
    let scales = scales(field(block, 2)).map(|scale| d * f32::from(scale));
    Groups { codes, scales, minimums: [0.0; 8] }
}

/// The 6-bit scale of each group, −32 to 31, from bytes 2 to 7 of a block.
#[inline]
pub fn scales(packed: &[u8; 6]) -> [i8; 8] {
    let upper = u16::from_le_bytes([packed[0], packed[1]]);
    std::array::from_fn(|group| {
        let lower = packed[2 + group / 2] >> (4 * (group % 2)) & 15;
        let upper = (upper >> (2 * group) & 3) as u8;
        (lower | upper << 4) as i8 - 32
    })
}

/// Scales of least cost, which are rounded to multiples of `d`, and the levels nearest to those.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let spread = square_sum(values) * (2.0 / 256.0);
    let groups = values.as_chunks::<32>().0;
    let scales: [f32; 8] = std::array::from_fn(|group| {
        let columns = importance.map(|importance| &importance.columns[32 * group..]);
        search_levels(&groups[group], columns, spread)
    });
    let d = -extreme(&scales) / 32.0;
    put_half(block, 0, d);
    let unit = inverse(d);
    let scales = scales.map(|scale| nearest(unit * scale).clamp(-32, 31));
    block[2..8].fill(0);
    for (group, scale) in scales.iter().enumerate() {
        let biased = (scale + 32) as u8;
        block[2 + group / 4] |= (biased >> 4) << (2 * (group % 4));
        block[4 + group / 2] |= (biased & 15) << (4 * (group % 2));
    }
    for ((values, packed), scale) in groups.iter().zip(block[8..].as_chunks_mut::<16>().0).zip(scales) {
        pack_levels(values, d * scale as f32, packed);
    }
}
