//! `tq1_0`: 256 weights of -1, 0 or 1 with one scale: five to a byte, in 54 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..32 | byte `i`: weights `i`, `32 + i`, …, `128 + i` |
//! | 32..48 | byte `i`: weights `160 + i`, `176 + i`, …, `224 + i` |
//! | 48..52 | byte `i`: weights `240 + i`, `244 + i`, …, `252 + i` |
//! | 52..54 | `d`, f16 |
//!
//! `weight = d · (digit − 1)`. A byte is a fraction of 256 whose first digits to the base of 3 these are.

use super::block::{Format, Groups, Scale, field};
use super::grids::Eighths;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Tq1_0.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Tq1_0.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Tq1_0, group: 16, minimums: false, codes: (-1, 1), scales: &[Scale::F16(52)] };

/// Codes and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    integers(block).groups()
}

/// The block in integers.
pub fn integers(block: &[u8; BYTES]) -> Eighths {
    let mut codes = [0; ELEMENTS];
    for (bytes, start) in [(0..32, 0), (32..48, 160), (48..52, 240)] {
        let bytes = &block[bytes];
        for (digit, codes) in codes[start..].chunks_exact_mut(bytes.len()).take(5).enumerate() {
            for (code, byte) in codes.iter_mut().zip(bytes) {
                let shifted = byte.wrapping_mul([1, 3, 9, 27, 81][digit]);
                *code = ((u16::from(shifted) * 3) >> 8) as i8 - 1;
            }
        }
    }
    Eighths { codes, d: *field(block, 52), multiples: [8; 16] }
}
