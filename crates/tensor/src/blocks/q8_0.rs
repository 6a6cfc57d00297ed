//! `q8_0`: 32 weights of 8 bits with one scale, in 34 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | one i8 per weight |
//!
//! `weight = d · code`

use super::block::{Format, Groups, Importance, Scale, field, half_at, put_half};
use super::rounding::{extreme, inverse};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q8_0.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q8_0.block().elements;
/// The format in numbers. Quantizers do not use the code −128, but files may.
pub const FORMAT: Format =
    Format { dtype: DType::Q8_0, group: 32, minimums: false, codes: (-128, 127), scales: &[Scale::F16(0)] };

/// Codes −128 to 127, and one scale.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let codes = field::<ELEMENTS>(block, 2).map(|byte| byte as i8);
    Groups { codes, scales: [half_at(block, 0)], minimums: [0.0] }
}

/// The extreme value gets the code 127 or −127; halves are rounded away from zero. Importance changes nothing.
pub fn quantize(
    values: &[f32; ELEMENTS],
    _importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let scale = extreme(values).abs() / 127.0;
    let inverse = inverse(scale);
    put_half(block, 0, scale);
    for (byte, value) in block[2..].iter_mut().zip(values) {
        *byte = (value * inverse).round() as i8 as u8;
    }
}
