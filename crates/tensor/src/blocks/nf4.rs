//! `nf4`: 64 weights of 4 bits on levels of bitsandbytes, with one scale, in 36 bytes. No file stores these blocks: bitsandbytes
//! keeps the scales, often quantized themselves, apart.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `d`, f32 |
//! | 4..36 | byte `i`: weight `2 · i` in the low nibble, weight `2 · i + 1` in the high one |
//!
//! `weight = d · LEVELS[nibble]`

use super::block::{Format, Scale, field};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Nf4.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Nf4.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format::of_floats(DType::Nf4, &[Scale::F32(0)]);

/// What the nibbles mean: the quantiles of a normal distribution (Dettmers et al., 2023, <https://arxiv.org/abs/2305.14314>).
pub const LEVELS: [f32; 16] = [
    -1.0,
    -0.6961928,
    -0.52507305,
    -0.3949175,
    -0.28444138,
    -0.18477343,
    -0.091050036,
    0.0,
    0.0795803,
    0.1609302,
    0.2461123,
    0.33791524,
    0.44070983,
    0.562617,
    0.72295684,
    1.0,
];

/// The weights.
#[inline]
pub fn dequantize(block: &[u8; BYTES], values: &mut [f32; ELEMENTS]) {
    with_levels(&LEVELS, block, values);
}

/// The weights on some levels.
pub(super) fn with_levels(levels: &[f32; 16], block: &[u8; BYTES], values: &mut [f32; ELEMENTS]) {
    let scale = f32::from_le_bytes(*field(block, 0));
    for (pair, byte) in values.as_chunks_mut::<2>().0.iter_mut().zip(&block[4..]) {
        *pair = [byte & 15, byte >> 4].map(|nibble| scale * levels[usize::from(nibble)]);
    }
}
