//! `fp4`: 64 weights of 4 bits on levels of bitsandbytes, with one scale, in 36 bytes. No file stores these blocks: bitsandbytes
//! keeps the scales, often quantized themselves, apart.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `d`, f32 |
//! | 4..36 | byte `i`: weight `2 · i` in the low nibble, weight `2 · i + 1` in the high one |
//!
//! `weight = d · LEVELS[nibble]`

use super::block::{Format, Scale};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Fp4.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Fp4.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format::of_floats(DType::Fp4, &[Scale::F32(0)]);

/// What the nibbles mean: 4-bit floats, divided by the largest of them, 12.
pub const LEVELS: [f32; 16] = [
    0.0,
    0.0625 / 12.0,
    8.0 / 12.0,
    1.0,
    4.0 / 12.0,
    0.5,
    2.0 / 12.0,
    0.25,
    0.0,
    -0.0625 / 12.0,
    -8.0 / 12.0,
    -1.0,
    -4.0 / 12.0,
    -0.5,
    -2.0 / 12.0,
    -0.25,
];

/// The weights.
#[inline]
pub fn dequantize(block: &[u8; BYTES], values: &mut [f32; ELEMENTS]) {
    super::nf4::with_levels(&LEVELS, block, values);
}
