//! `fp8`: 64 weights of 8-bit floats (e4m3) with one scale, in 68 bytes: what checkpoints with scales per matrix, row or block
//! of 128 × 128 are repacked into. No file stores these blocks.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `d`, f32 |
//! | 4..68 | codes, e4m3 |
//!
//! `weight = d · code`. A code has no NaN here.

use super::block::{Format, Scale, field, float8};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Fp8.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Fp8.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format::of_floats(DType::Fp8, &[Scale::F32(0)]);

/// The weights.
#[inline]
pub fn dequantize(block: &[u8; BYTES], values: &mut [f32; ELEMENTS]) {
    let scale = f32::from_le_bytes(*field(block, 0));
    for (value, &code) in values.iter_mut().zip(&block[4..]) {
        *value = scale * float8(code);
    }
}
