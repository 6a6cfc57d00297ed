//! `iq1_m`: 256 weights of about 1.75 bits: -1, 0 or 1, moved by an eighth per 8, in 56 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..32 | byte `i`: the lower 8 bits of the grid point of weights `8 · i..8 · i + 8` |
//! | 32..48 | nibble `i`: the upper 3 bits of that point, and the sign of its eighth |
//! | 48..56 | for each 64 weights 16 bits: four scales of 3 bits, each for 16 weights, and 4 bits of `d`, an f16 |
//!
//! `weight = d · (2 · scale + 1) · (coordinate ± 1/8)`

use super::block::{Format, Groups, Scale, field};
use super::grids::{Eighths, IQ1, put_eight};
use super::iq1_s::levels;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq1M.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq1M.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq1M, group: 16, minimums: false, codes: (-9, 9), scales: &[Scale::Nibbles(48)] };

/// Codes and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    integers(block).groups()
}

/// The block in integers: codes are eight times coordinates, more or less by 1.
pub fn integers(block: &[u8; BYTES]) -> Eighths {
    let (mut codes, mut multiples) = ([0; ELEMENTS], [0; 16]);
    for (at, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let nibble = u16::from(block[32 + at / 2] >> (4 * (at % 2)));
        let point = u16::from(block[at]) | (nibble & 7) << 8;
        put_eight(IQ1[usize::from(point)], levels(nibble & 8 != 0), codes);
    }
    let mut d = 0;
    for (quarter, multiples) in multiples.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let word = u16::from_le_bytes(*field(block, 48 + 2 * quarter));
        d |= word >> 12 << (4 * quarter);
        *multiples = std::array::from_fn(|at| 2 * (word >> (3 * at) & 7) as u8 + 1);
    }
    Eighths { codes, d: d.to_le_bytes(), multiples }
}
