//! `q4_1`: 32 weights of 4 bits with one scale and one offset, in 20 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `m`, f16 |
//! | 4..20 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · nibble + m`; the minimum that is subtracted is `−m`.

use super::quantize::{inverse, range};
use super::search::{Steps, affine, costs};
use super::{Format, Groups, Importance, field, half_at, pack_nibbles, put_half, unpack_nibbles};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Q4_1.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Q4_1.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Q4_1, group: 32, minimums: true, codes: (0, 15), halves: &[0, 2] };

/// Codes 0 to 15, one scale and one minimum.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let mut codes = [0; ELEMENTS];
    unpack_nibbles(field::<16>(block, 4), &mut codes);
    Groups { codes, scales: [half_at(block, 0)], minimums: [-half_at(block, 2)] }
}

/// The weights of a block.
pub fn dequantize(block: &[u8; BYTES], values: &mut [f32; ELEMENTS]) {
    unpack(block).dequantize(values);
}

/// The lowest value gets the code 0 and the highest 15, halves are rounded up; or, where importance is known, scale
/// and offset of least cost are searched.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    if let Some(Importance { columns, row }) = importance {
        let mut codes = [0; ELEMENTS];
        let costs = costs::<ELEMENTS>(values, columns, row);
        let (scale, minimum) = affine(values, &costs, 15, Steps::FINE, &mut codes);
        put_half(block, 0, scale);
        put_half(block, 2, -minimum);
        return pack_nibbles(&codes, &mut block[4..]);
    }
    let (low, high) = range(values);
    let scale = (high - low) / 15.0;
    let inverse = inverse(scale);
    put_half(block, 0, scale);
    put_half(block, 2, low);
    let codes = values.map(|value| ((value - low) * inverse + 0.5).min(15.0) as u8);
    pack_nibbles(&codes, &mut block[4..]);
}
