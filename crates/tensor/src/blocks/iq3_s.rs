//! `iq3_s`: 256 weights of about 3.4 bits: points of a grid, signs, and a scale per 32, in 110 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..66 | byte `i`: the lower 8 bits of the point of weights `4 · i..4 · i + 4` |
//! | 66..74 | bit `i`: the upper bit of that point |
//! | 74..106 | bit `i`: the sign of weight `i` |
//! | 106..110 | nibble `i`: the scale of weights `32 · i..32 · i + 32` |
//!
//! `weight = d · (2 · scale + 1) · ± coordinate`

use super::block::{Format, Groups, Scale, field};
use super::grids::{Eighths, IQ3_S, negate, put_four};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq3S.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq3S.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq3S, group: 16, minimums: false, codes: (-15, 15), scales: &[Scale::F16(0)] };

/// The coordinates of points.
pub const LEVELS: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];

/// Codes and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    integers(block).groups()
}

/// The block in integers.
pub fn integers(block: &[u8; BYTES]) -> Eighths {
    let mut codes = [0; ELEMENTS];
    for (at, codes) in codes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let point = usize::from(block[2 + at]) | usize::from(block[66 + at / 8] >> (at % 8) & 1) << 8;
        put_four(IQ3_S[point], LEVELS, codes);
    }
    for (codes, &signs) in codes.as_chunks_mut::<8>().0.iter_mut().zip(&block[74..106]) {
        negate(signs, codes);
    }
    let scale = |group: usize| block[106 + group / 4] >> (4 * (group / 2 % 2)) & 15;
    let multiples = std::array::from_fn(|group| 8 * (2 * scale(group) + 1));
    Eighths { codes, d: *field(block, 0), multiples }
}
