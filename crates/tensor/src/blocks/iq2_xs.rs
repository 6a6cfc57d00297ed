//! `iq2_xs`: 256 weights of about 2.3 bits: points of a grid, signs, and a scale per 16, in 74 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | for each 8 weights 16 bits: a point of 9, then 7 signs |
//! | 66..74 | nibble `i`: the scale of weights `16 · i..16 · i + 16` |
//!
//! `weight = d · (2 · scale + 1) / 8 · ± coordinate`; of eight signs, an even number is negative.

use super::block::{Format, Groups, Scale, field};
use super::grids::{Eighths, IQ2_XS, even_signs, negate, put_eight};
use super::iq2_xxs::LEVELS;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq2Xs.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq2Xs.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq2Xs, group: 16, minimums: false, codes: (-43, 43), scales: &[Scale::F16(0)] };

/// Codes and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    integers(block).groups()
}

/// The block in integers.
pub fn integers(block: &[u8; BYTES]) -> Eighths {
    let mut codes = [0; ELEMENTS];
    for (at, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = u16::from_le_bytes(*field(block, 2 + 2 * at));
        put_eight(IQ2_XS[usize::from(word & 511)], LEVELS, codes);
        negate(even_signs(u32::from(word >> 9)), codes);
    }
    Eighths { codes, d: *field(block, 0), multiples: odd_multiples(field(block, 66)) }
}

/// Twice each nibble, plus 1.
pub(super) fn odd_multiples(scales: &[u8; 8]) -> [u8; 16] {
    std::array::from_fn(|group| 2 * (scales[group / 2] >> (4 * (group % 2)) & 15) + 1)
}
