//! `tq2_0`: 256 weights of -1, 0 or 1 (or 2) with one scale: four to a byte, in 66 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..32 | byte `i`: weights `i`, `32 + i`, `64 + i` and `96 + i`, two bits each |
//! | 32..64 | the same for the other half |
//! | 64..66 | `d`, f16 |
//!
//! `weight = d · (pair − 1)`

use super::block::{Format, Groups, Scale, field, unpack_pairs};
use super::grids::Eighths;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Tq2_0.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Tq2_0.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Tq2_0, group: 16, minimums: false, codes: (-1, 2), scales: &[Scale::F16(64)] };

/// Codes and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    integers(block).groups()
}

/// The block in integers.
pub fn integers(block: &[u8; BYTES]) -> Eighths {
    let mut codes = [0; ELEMENTS];
    let (first, second) = codes.split_at_mut(128);
    unpack_pairs(&block[..32], first);
    unpack_pairs(&block[32..64], second);
    Eighths { codes: codes.map(|code| code - 1), d: *field(block, 64), multiples: [8; 16] }
}
