//! `mxfp4`: 32 weights of 4-bit floats (e2m1) with one power of two, in 17 bytes (OCP Microscaling Formats 1.0).
//!
//! | bytes | content |
//! |---|---|
//! | 0 | `e`, an exponent biased by 127 |
//! | 1..17 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = 2^(e − 128) · LEVELS[nibble]`. The levels are twice those of e2m1, so that they are whole.

use super::block::{Format, Groups, Scale, field, unpack_nibbles};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Mxfp4.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Mxfp4.block().elements;
/// The format in numbers.
pub const FORMAT: Format = Format {
    dtype: DType::Mxfp4,
    group: 32,
    minimums: false,
    codes: (-12, 12),
    scales: &[Scale::Exponent(0)],
};

/// Twice the numbers that the 16 nibbles mean. There is no negative zero.
pub const LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Codes among [`LEVELS`], and one scale.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let mut codes = [0; ELEMENTS];
    unpack_nibbles(field::<16>(block, 1), &mut codes);
    for code in &mut codes {
        *code = LEVELS[usize::from(*code as u8 & 15)];
    }
    Groups { codes, scales: [half_power_of_two(block[0])], minimums: [0.0] }
}

/// `2^(e − 128)`; the two smallest are subnormal.
#[inline(always)]
pub(super) fn half_power_of_two(e: u8) -> f32 {
    match e {
        0 | 1 => f32::from_bits(0x0020_0000 << e),
        e => f32::from_bits(u32::from(e - 1) << 23),
    }
}

/// Writes the blocks of neighbouring weights, as OCP's layout has them: two to a byte, the first of them in the low nibble.
/// `exponents` has one byte for each block, `pairs` 16.
///
/// # Panics
/// If the lengths do not belong together.
pub fn from_pairs(exponents: &[u8], pairs: &[u8], blocks: &mut [u8]) {
    let (pairs, blocks) = (pairs.as_chunks::<16>().0, blocks.as_chunks_mut::<BYTES>().0);
    assert!(exponents.len() == pairs.len() && pairs.len() == blocks.len(), "bytes of the same blocks");
    for ((&exponent, pairs), block) in exponents.iter().zip(pairs).zip(blocks) {
        block[0] = exponent;
        for (index, byte) in block[1..].iter_mut().enumerate() {
            // Weights `index` and `16 + index` are in bytes of the lower and the upper half.
            let nibble = |pair: u8| if index % 2 == 0 { pair & 15 } else { pair >> 4 };
            *byte = nibble(pairs[index / 2]) | nibble(pairs[8 + index / 2]) << 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_halves() {
        let pairs: [u8; 16] = std::array::from_fn(|i| ((2 * i as u8) & 15) | ((2 * i as u8 + 1) << 4));
        let mut block = [0; BYTES];
        from_pairs(&[128], &pairs, &mut block);
        let groups = unpack(&block);
        assert_eq!(groups.scales, [1.0]);
        let expected: [i8; 32] = std::array::from_fn(|i| LEVELS[i % 16]);
        assert_eq!(groups.codes, expected);
    }
}
