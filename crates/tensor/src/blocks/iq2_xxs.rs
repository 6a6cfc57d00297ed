//! `iq2_xxs`: 256 weights of about 2 bits: points of a grid, signs, and a scale per 32, in 66 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | for each 32 weights: four points of 8 bits, then four times 7 signs, then a scale of 4 bits |
//!
//! `weight = d · (2 · scale + 1) / 8 · ± coordinate`; of eight signs, an even number is negative.

use super::block::{Format, Groups, Scale, field};
use super::grids::{Eighths, IQ2_XXS, even_signs, negate, put_eight};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq2Xxs.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq2Xxs.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq2Xxs, group: 16, minimums: false, codes: (-43, 43), scales: &[Scale::F16(0)] };

/// The coordinates of points.
pub(super) const LEVELS: [i8; 3] = [8, 25, 43];

/// Codes and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    integers(block).groups()
}

/// The block in integers.
pub fn integers(block: &[u8; BYTES]) -> Eighths {
    let (mut codes, mut multiples) = ([0; ELEMENTS], [0; 16]);
    for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let points = &block[2 + 8 * group..][..4];
        let word = u32::from_le_bytes(*field(block, 6 + 8 * group));
        for (at, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            put_eight(IQ2_XXS[usize::from(points[at])], LEVELS, codes);
            negate(even_signs(word >> (7 * at)), codes);
        }
        multiples[2 * group..][..2].fill(2 * (word >> 28) as u8 + 1);
    }
    Eighths { codes, d: *field(block, 0), multiples }
}
