//! `iq2_s`: 256 weights of about 2.6 bits: points of a grid, signs, and a scale per 16, in 82 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | byte `i`: the lower 8 bits of the point of weights `8 · i..8 · i + 8` |
//! | 34..66 | byte `i`: the signs of these weights |
//! | 66..74 | pair of bits `i`: the upper 2 bits of the point |
//! | 74..82 | nibble `i`: the scale of weights `16 · i..16 · i + 16` |
//!
//! `weight = d · (2 · scale + 1) / 8 · ± coordinate`

use super::block::{Format, Groups, Scale, field};
use super::grids::{Eighths, IQ2_S, negate, put_eight};
use super::iq2_xs::odd_multiples;
use super::iq2_xxs::LEVELS;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq2S.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq2S.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq2S, group: 16, minimums: false, codes: (-43, 43), scales: &[Scale::F16(0)] };

/// Codes and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    integers(block).groups()
}

/// The block in integers.
pub fn integers(block: &[u8; BYTES]) -> Eighths {
    let mut codes = [0; ELEMENTS];
    for (at, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = block[66 + at / 4] >> (2 * (at % 4)) & 3;
        let point = usize::from(block[2 + at]) | usize::from(high) << 8;
        put_eight(IQ2_S[point], LEVELS, codes);
        negate(block[34 + at], codes);
    }
    Eighths { codes, d: *field(block, 0), multiples: odd_multiples(field(block, 74)) }
}
