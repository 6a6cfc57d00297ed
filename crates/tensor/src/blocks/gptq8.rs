//! `gptq8`: 32 weights of 8 bits with one scale and one zero point, in 37 bytes: what checkpoints of 8-bit integers are
//! repacked into, if their scales are f32 or they have zero points. No file stores these blocks.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `d`, f32 |
//! | 4 | `z`, u8 |
//! | 5..37 | codes, u8 |
//!
//! `weight = d · (code − z)`. Unpacked, codes and `z` are less by 128.

use super::block::{Format, Groups, Scale, field};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Gptq8.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Gptq8.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Gptq8, group: 32, minimums: true, codes: (-128, 127), scales: &[Scale::F32(0)] };

/// Codes −128 to 127, one scale and one minimum.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let scale = f32::from_le_bytes(*field(block, 0));
    let codes = field::<32>(block, 5).map(|code| (code ^ 128) as i8);
    Groups { codes, scales: [scale], minimums: [scale * (f32::from(block[4]) - 128.0)] }
}
