//! `ggml_nvfp4`: 64 weights of 4-bit floats (e2m1), with an 8-bit float per 16, in 36 bytes: GGML's NVFP4, whose scale of the
//! whole matrix is in a tensor of its own.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `s`, e4m3 without a sign, for each 16 weights |
//! | 4..36 | for each 16 weights, byte `i` of 8: weight `i` in the low nibble, weight `8 + i` in the high one |
//!
//! `weight = s / 2 · level of nibble`, with the levels of [`mxfp4`](super::mxfp4), which are doubled. The code of NaN is 0.

use super::block::{Format, Groups, Scale, field, float8, unpack_nibbles};
use super::mxfp4::LEVELS;
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::GgmlNvfp4.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::GgmlNvfp4.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format {
    dtype: DType::GgmlNvfp4,
    group: 16,
    minimums: false,
    codes: (-12, 12),
    scales: &[Scale::Floats8(0)],
};

/// Codes among [`LEVELS`], and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 4> {
    Groups {
        codes: nibbles(block).map(|nibble| LEVELS[usize::from(nibble as u8)]),
        scales: scales(block).map(|scale| 0.5 * float8(scale)),
        minimums: [0.0; 4],
    }
}

/// The nibble of each weight.
pub fn nibbles(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut nibbles = [0; ELEMENTS];
    for (group, nibbles) in nibbles.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        unpack_nibbles(field::<8>(block, 4 + 8 * group), nibbles);
    }
    nibbles
}

/// The e4m3 of each 16 weights, as numbers.
pub fn scales(block: &[u8; BYTES]) -> [u8; 4] {
    field::<4>(block, 0).map(|code| if code == 0x7f { 0 } else { code & 0x7f })
}
