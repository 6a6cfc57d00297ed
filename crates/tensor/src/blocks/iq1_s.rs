//! `iq1_s`: 256 weights of about 1.6 bits: -1, 0 or 1, moved by an eighth per 32, in 50 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | byte `i`: the lower 8 bits of the grid point of weights `8 · i..8 · i + 8` |
//! | 34..50 | for each 32 weights 16 bits: the upper 3 bits of four points, a scale of 3 bits, the sign of the eighth |
//!
//! `weight = d · (2 · scale + 1) · (coordinate ± 1/8)`

use super::block::{Format, Groups, Scale, field};
use super::grids::{Eighths, IQ1, put_eight};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq1S.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq1S.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq1S, group: 16, minimums: false, codes: (-9, 9), scales: &[Scale::F16(0)] };

/// Codes and one scale per 16.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 16> {
    integers(block).groups()
}

/// The block in integers: codes are eight times coordinates, more or less by 1.
pub fn integers(block: &[u8; BYTES]) -> Eighths {
    let (mut codes, mut multiples) = ([0; ELEMENTS], [0; 16]);
    for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let high = u16::from_le_bytes(*field(block, 34 + 2 * group));
        let levels = levels(high >> 15 == 1);
        for (at, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let point = u16::from(block[2 + 4 * group + at]) | (high >> (3 * at) & 7) << 8;
            put_eight(IQ1[usize::from(point)], levels, codes);
        }
        multiples[2 * group..][..2].fill(2 * (high >> 12 & 7) as u8 + 1);
    }
    Eighths { codes, d: *field(block, 0), multiples }
}

/// Eight times -1, 0 and 1, moved by 1.
pub(super) fn levels(down: bool) -> [i8; 3] {
    if down { [-9, -1, 7] } else { [-7, 1, 9] }
}
