//! One block: its format, its parts, and what it unpacks to.

use std::ops::Range;

use half::f16;

use crate::DType;

/// What a kernel must know of a block format to choose its own layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The dtype, which says how many weights and bytes are in a block.
    pub dtype: DType,
    /// How many codes share a scale: 16 or 32.
    pub group: usize,
    /// Whether groups have minimums of their own; they are all zero otherwise.
    pub minimums: bool,
    /// The lowest and the highest code; both are 0 if codes stand for floats that are no multiples of a scale.
    pub codes: (i8, i8),
    /// The scales of a whole block.
    pub scales: &'static [Scale],
}

impl Format {
    /// The format of codes that stand for floats, with one scale for all of a block.
    pub(super) const fn of_floats(dtype: DType, scales: &'static [Scale]) -> Format {
        Format { dtype, group: dtype.block().elements, minimums: false, codes: (0, 0), scales }
    }

    /// Whether weights are whole multiples of a scale, less a minimum.
    pub const fn has_integers(&self) -> bool {
        self.codes.1 > self.codes.0
    }
}

/// Where in a block a scale of all its weights is, in bytes, and how it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// An f16.
    F16(usize),
    /// An f32.
    F32(usize),
    /// An f16 of four nibbles: the highest of four 16-bit words, from its lowest bits on.
    Nibbles(usize),
    /// A power of two, of which the block has the exponent: f8e8m0fnu.
    Exponent(usize),
    /// Four e4m3 without a sign, of as many groups.
    Floats8(usize),
}

impl Scale {
    /// Whether a block stores a finite number here.
    pub fn is_finite(self, block: &[u8]) -> bool {
        match self {
            Scale::F16(at) => half_at(block, at).is_finite(),
            Scale::F32(at) => f32::from_le_bytes(*field(block, at)).is_finite(),
            // Of the exponent, the upper four bits are in the last nibble, and the lowest is next to them.
            Scale::Nibbles(at) => block[at + 7] & 0x70 != 0x70 || block[at + 5] & 0xc0 != 0xc0,
            Scale::Exponent(at) => block[at] != u8::MAX,
            Scale::Floats8(_) => true,
        }
    }

    /// Where it starts and how many bytes it takes.
    pub fn range(self) -> Range<usize> {
        match self {
            Scale::F16(at) => at..at + 2,
            Scale::F32(at) => at..at + 4,
            Scale::Nibbles(at) => at..at + 8,
            Scale::Exponent(at) => at..at + 1,
            Scale::Floats8(at) => at..at + 4,
        }
    }

    /// Stores a number, rounded; of an exponent, the power of two of at most its magnitude; of several floats, its magnitude,
    /// a half of it, and so on, rounded down.
    pub(super) fn put(self, block: &mut [u8], value: f32) {
        match self {
            Scale::F16(at) => _ = put_half(block, at, value),
            Scale::F32(at) => block[at..at + 4].copy_from_slice(&value.to_le_bytes()),
            Scale::Nibbles(at) => {
                let half = f16::from_f32(value).to_bits();
                for (word, byte) in block[at..at + 8].iter_mut().skip(1).step_by(2).enumerate() {
                    *byte = *byte & 15 | ((half >> (4 * word) & 15) as u8) << 4;
                }
            }
            Scale::Exponent(at) => block[at] = (value.to_bits() >> 23) as u8,
            Scale::Floats8(at) => {
                let float8 = |value: f32| (f16::from_f32(value / 256.0).to_bits() >> 7) as u8;
                let halves = block[at..at + 4].iter_mut().enumerate();
                halves.for_each(|(index, byte)| *byte = float8(value.abs() / (1 << index) as f32));
            }
        }
    }
}

/// One block, unpacked: codes in the order of the weights, and what turns them into weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Groups<const ELEMENTS: usize, const GROUPS: usize> {
    /// One integer per weight.
    pub codes: [i8; ELEMENTS],
    /// What a code of each group counts in; may be negative.
    pub scales: [f32; GROUPS],
    /// What is subtracted in each group; zero in formats without minimums.
    pub minimums: [f32; GROUPS],
}

impl<const ELEMENTS: usize, const GROUPS: usize> Groups<ELEMENTS, GROUPS> {
    /// The weights: `scale · code − minimum`.
    #[inline]
    pub fn dequantize(&self, values: &mut [f32; ELEMENTS]) {
        // Two passes, since a loop over one group alone is too short to become vector code.
        for (value, &code) in values.iter_mut().zip(&self.codes) {
            *value = f32::from(code);
        }
        let factors = self.scales.iter().zip(&self.minimums);
        for (values, (scale, minimum)) in values.chunks_exact_mut(const { ELEMENTS / GROUPS }).zip(factors) {
            for value in values {
                *value = scale * *value - minimum;
            }
        }
    }
}

/// How much errors in the values of a block matter.
#[derive(Debug, Clone, Copy)]
pub struct Importance<'a, const N: usize> {
    /// The mean square of what each column is multiplied with.
    pub columns: &'a [f32; N],
    /// The mean square of the row that the block is a part of.
    pub row: f32,
}

/// The `N` bytes of a block that start at `offset`.
#[inline(always)]
pub(super) fn field<const N: usize>(block: &[u8], offset: usize) -> &[u8; N] {
    block[offset..].first_chunk().expect("fields lie within their block")
}

/// The f16 at `offset`.
#[inline(always)]
pub(super) fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes(*field(block, offset)).to_f32()
}

/// The value of an e4m3; exact. That of NaN's code would be 480.
#[inline(always)]
pub(super) fn float8(code: u8) -> f32 {
    // The exponent of an f16 has one bit more, and a bias that is larger by 8.
    f16::from_bits(u16::from(code & 0x80) << 8 | u16::from(code & 0x7f) << 7).to_f32() * 256.0
}

/// Stores an f16 at `offset` and returns it as rounded.
pub(super) fn put_half(block: &mut [u8], offset: usize, value: f32) -> f32 {
    let half = f16::from_f32(value);
    block[offset..offset + 2].copy_from_slice(&half.to_le_bytes());
    half.to_f32()
}

/// Low nibbles into the first half of the codes, high nibbles into the second.
#[inline(always)]
pub(super) fn unpack_nibbles(packed: &[u8], codes: &mut [i8]) {
    let (low, high) = codes.split_at_mut(packed.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(packed) {
        *low = (byte & 15) as i8;
        *high = (byte >> 4) as i8;
    }
}

/// The inverse of [`unpack_nibbles`]; bits above the fourth are dropped.
pub(super) fn pack_nibbles(codes: &[u8], packed: &mut [u8]) {
    let (low, high) = codes.split_at(packed.len());
    for ((low, high), byte) in low.iter().zip(high).zip(packed) {
        *byte = (low & 15) | (high << 4);
    }
}

/// Bits 0 and 1 of each byte into the first quarter of the codes, bits 2 and 3 into the second, and so on.
#[inline(always)]
pub(super) fn unpack_pairs(packed: &[u8], codes: &mut [i8]) {
    for (quarter, codes) in codes.chunks_exact_mut(packed.len()).enumerate() {
        for (code, byte) in codes.iter_mut().zip(packed) {
            *code = (byte >> (2 * quarter) & 3) as i8;
        }
    }
}

/// The inverse of [`unpack_pairs`]; bits above the second are dropped.
pub(super) fn pack_pairs(codes: &[u8], packed: &mut [u8]) {
    packed.fill(0);
    for (quarter, codes) in codes.chunks_exact(packed.len()).enumerate() {
        for (code, byte) in codes.iter().zip(&mut *packed) {
            *byte |= (code & 3) << (2 * quarter);
        }
    }
}
