//! How panels store the codes of quantized weights: [`Codes`] of 4, 5, 6 and 8 bits, and levels of tables.

use std::marker::PhantomData;

use super::simd::{Codes, Isa};

/// 4-bit codes: columns 0..16 in the low nibbles of four registers, columns 16..32 in the high ones. 256 bytes.
pub(super) struct Nibbles<const ZERO_POINT: i32>;

#[inline(always)]
unsafe fn nibbles<I: Isa, const STEP: usize>(codes: *const u8) -> I::Bytes {
    // SAFETY: passed on to the caller.
    unsafe {
        let bytes = I::bytes(codes.add(64 * (STEP % 4)));
        if STEP < 4 { I::low_nibbles(bytes) } else { I::high_nibbles(bytes) }
    }
}

impl<const ZERO_POINT: i32> Codes for Nibbles<ZERO_POINT> {
    const ZERO_POINT: i32 = ZERO_POINT;
    const MOST: u8 = 15;
    const BYTES: usize = 256;

    #[inline(always)]
    unsafe fn step<I: Isa, const STEP: usize>(codes: *const u8) -> I::Bytes {
        // SAFETY: passed on to the caller.
        unsafe { nibbles::<I, STEP>(codes) }
    }
}

/// What nibbles stand for: 16 whole levels.
pub(super) trait Table {
    /// The levels.
    const LEVELS: [i8; 16];
    /// The magnitude of the lowest level, or more.
    const ZERO_POINT: i32;
    /// Gives the nibble of each level, for formats whose files store levels in place of nibbles. The bits of a level are
    /// its index.
    const NIBBLES: Option<&'static [u8; 256]> = None;
    /// The levels plus the zero point.
    const CODES: [u8; 16] = {
        let (mut codes, mut nibble) = ([0; 16], 0);
        while nibble < 16 {
            codes[nibble] = (Self::LEVELS[nibble] as i32 + Self::ZERO_POINT) as u8;
            nibble += 1;
        }
        codes
    };
}

/// The levels of `iq4_nl`.
pub(super) struct UnevenLevels;

impl Table for UnevenLevels {
    const LEVELS: [i8; 16] = tensor::blocks::iq4_nl::LEVELS;
    const ZERO_POINT: i32 = 128;
}

/// Floats of 4 bits, doubled.
pub(super) struct FourBitFloats;

impl Table for FourBitFloats {
    const LEVELS: [i8; 16] = tensor::blocks::mxfp4::LEVELS;
    const ZERO_POINT: i32 = 12;
}

/// Lists the levels of `iq1`, `iq2` and `tq`.
pub(super) struct CoarseLevels;

impl Table for CoarseLevels {
    const LEVELS: [i8; 16] = [-43, -25, -9, -8, -7, -1, 0, 1, 2, 7, 8, 9, 25, 43, 0, 0];
    const ZERO_POINT: i32 = 43;
    const NIBBLES: Option<&'static [u8; 256]> = Some(&nibbles_of(Self::LEVELS));
}

/// The levels of `iq3_xxs`.
pub(super) struct ThreeBitLevels;

impl Table for ThreeBitLevels {
    const LEVELS: [i8; 16] = signed(tensor::blocks::iq3_xxs::LEVELS);
    const ZERO_POINT: i32 = 62;
    const NIBBLES: Option<&'static [u8; 256]> = Some(&nibbles_of(Self::LEVELS));
}

/// The levels of `iq3_s`.
pub(super) struct OddLevels;

impl Table for OddLevels {
    const LEVELS: [i8; 16] = signed(tensor::blocks::iq3_s::LEVELS);
    const ZERO_POINT: i32 = 15;
    const NIBBLES: Option<&'static [u8; 256]> = Some(&nibbles_of(Self::LEVELS));
}

/// Makes [`Table::NIBBLES`] of the levels.
const fn nibbles_of(levels: [i8; 16]) -> [u8; 256] {
    let (mut nibbles, mut at) = ([0; 256], 16);
    while at > 0 {
        at -= 1;
        nibbles[levels[at] as u8 as usize] = at as u8;
    }
    nibbles
}

/// Levels, and then their negatives.
const fn signed(levels: [i8; 8]) -> [i8; 16] {
    let (mut both, mut at) = ([0; 16], 0);
    while at < 8 {
        (both[at], both[8 + at]) = (levels[at], -levels[at]);
        at += 1;
    }
    both
}

/// Nibbles that stand for the levels of a table. 256 bytes.
pub(super) struct Levels<T>(PhantomData<T>);

impl<T: Table> Codes for Levels<T> {
    const ZERO_POINT: i32 = T::ZERO_POINT;
    // Levels are at most as far above zero as the lowest is below it.
    const MOST: u8 = if T::ZERO_POINT < 128 { 2 * T::ZERO_POINT as u8 } else { 255 };
    const BYTES: usize = 256;

    #[inline(always)]
    unsafe fn step<I: Isa, const STEP: usize>(codes: *const u8) -> I::Bytes {
        // SAFETY: passed on to the caller.
        unsafe { I::lookup(nibbles::<I, STEP>(codes), const { &T::CODES }) }
    }
}

/// 5-bit codes: a register with the fifth bits of all steps, then nibbles. 320 bytes.
pub(super) struct FiveBits<const ZERO_POINT: i32>;

impl<const ZERO_POINT: i32> Codes for FiveBits<ZERO_POINT> {
    const ZERO_POINT: i32 = ZERO_POINT;
    const MOST: u8 = 31;
    const BYTES: usize = 320;

    #[inline(always)]
    unsafe fn step<I: Isa, const STEP: usize>(codes: *const u8) -> I::Bytes {
        // SAFETY: passed on to the caller.
        unsafe { I::with_upper_bits::<STEP, 1>(nibbles::<I, STEP>(codes.add(64)), I::bytes(codes)) }
    }
}

/// 6-bit codes: a register with the upper bits of four steps, nibbles, and the upper bits of the other steps. 384 bytes,
/// which are first read in their order.
pub(super) struct SixBits<const ZERO_POINT: i32>;

impl<const ZERO_POINT: i32> Codes for SixBits<ZERO_POINT> {
    const ZERO_POINT: i32 = ZERO_POINT;
    const MOST: u8 = 63;
    const BYTES: usize = 384;

    #[inline(always)]
    unsafe fn step<I: Isa, const STEP: usize>(codes: *const u8) -> I::Bytes {
        // SAFETY: passed on to the caller.
        unsafe {
            let nibbles = nibbles::<I, STEP>(codes.add(64));
            let pairs = I::bytes(codes.add(320 * (STEP / 4)));
            match STEP % 4 {
                0 => I::with_upper_bits::<0, 2>(nibbles, pairs),
                1 => I::with_upper_bits::<1, 2>(nibbles, pairs),
                2 => I::with_upper_bits::<2, 2>(nibbles, pairs),
                _ => I::with_upper_bits::<3, 2>(nibbles, pairs),
            }
        }
    }
}

/// 8-bit codes. 512 bytes.
pub(super) struct EightBits<const ZERO_POINT: i32>;

impl<const ZERO_POINT: i32> Codes for EightBits<ZERO_POINT> {
    const ZERO_POINT: i32 = ZERO_POINT;
    const MOST: u8 = 255;
    const BYTES: usize = 512;

    #[inline(always)]
    unsafe fn step<I: Isa, const STEP: usize>(codes: *const u8) -> I::Bytes {
        // SAFETY: passed on to the caller.
        unsafe { I::bytes(codes.add(64 * STEP)) }
    }
}
