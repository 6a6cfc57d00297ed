//! `nvfp4`: 64 weights of 4-bit floats (e2m1), with an 8-bit float per 16 and an f32 for all, in 40 bytes. Files store the f32
//! once for a matrix, in a tensor of its own.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `d`, f32 |
//! | 4..8 | `s`, e4m3, for each 16 weights |
//! | 8..40 | for each 32 weights, byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · s · level of nibble`, with the levels of [`mxfp4`](super::mxfp4), which are doubled. An e4m3 has no NaN here.

use super::block::{Format, Groups, Scale, field, float8, unpack_nibbles};
use super::mxfp4::LEVELS;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Nvfp4.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Nvfp4.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Nvfp4, group: 16, minimums: false, codes: (-12, 12), scales: &[Scale::F32(0)] };

/// Codes among [`LEVELS`], and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 4> {
    let mut codes = [0; ELEMENTS];
    for (half, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        unpack_nibbles(field::<16>(block, 8 + 16 * half), codes);
    }
    let scale = f32::from_le_bytes(*field(block, 0));
    Groups {
        codes: codes.map(|code| LEVELS[usize::from(code as u8 & 15)]),
        scales: field::<4>(block, 4).map(|byte| scale * float8(byte)),
        minimums: [0.0; 4],
    }
}
