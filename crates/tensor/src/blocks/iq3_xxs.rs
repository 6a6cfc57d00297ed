//! `iq3_xxs`: 256 weights of about 3 bits: points of a grid, signs, and a scale per 32, in 98 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | byte `i`: the point of weights `4 · i..4 · i + 4` |
//! | 66..98 | for each 32 weights: four times 7 signs, then a scale of 4 bits |
//!
//! `weight = d · (2 · scale + 1) / 4 · ± coordinate`; of eight signs, an even number is negative.

use super::block::{Format, Groups, Scale, field};
use super::grids::{Eighths, IQ3_XXS, even_signs, negate, put_four};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq3Xxs.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq3Xxs.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq3Xxs, group: 16, minimums: false, codes: (-62, 62), scales: &[Scale::F16(0)] };

/// The coordinates of points.
pub const LEVELS: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];

/// Codes and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    integers(block).groups()
}

/// The block in integers.
pub fn integers(block: &[u8; BYTES]) -> Eighths {
    let (mut codes, mut multiples) = ([0; ELEMENTS], [0; 16]);
    for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let word = u32::from_le_bytes(*field(block, 66 + 4 * group));
        for (at, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let points = &block[2 + 8 * group + 2 * at..][..2];
            put_four(IQ3_XXS[usize::from(points[0])], LEVELS, codes);
            put_four(IQ3_XXS[usize::from(points[1])], LEVELS, &mut codes[4..]);
            negate(even_signs(word >> (7 * at)), codes);
        }
        multiples[2 * group..][..2].fill(4 * (word >> 28) as u8 + 2);
    }
    Eighths { codes, d: *field(block, 0), multiples }
}
