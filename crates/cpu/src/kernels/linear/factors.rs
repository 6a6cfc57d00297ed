//! How panels store the scales and minimums of quantized weights.

use super::simd::{Floats, Isa, ROWS};
use crate::vec::Simd;

/// How scales and minimums are stored: weight = scale · code + minimum.
pub(super) trait Factors {
    /// Columns of a block.
    const COLUMNS: usize;
    /// Groups in 32 columns, 1 or 2.
    const GROUPS: usize;
    /// Whether there are minimums.
    const MINIMUMS: bool;
    /// The bytes that a block's factors take.
    const BYTES: usize;
    /// The f32 scale and minimum that all groups of a block share.
    unsafe fn block<I: Isa>(factors: *const u8) -> (Floats<I>, Floats<I>);
    /// The scale and minimum of a group.
    unsafe fn group<I: Isa>(
        factors: *const u8,
        block: (Floats<I>, Floats<I>),
        group: usize,
    ) -> (Floats<I>, Floats<I>);
}

/// An f16 scale per 32 columns, and with `MINIMUMS` an f16 minimum after the scales.
pub(super) struct Halves<const MINIMUMS: bool>;

impl<const MINIMUMS: bool> Factors for Halves<MINIMUMS> {
    const COLUMNS: usize = 32;
    const GROUPS: usize = 1;
    const MINIMUMS: bool = MINIMUMS;
    const BYTES: usize = 32 * (1 + MINIMUMS as usize);

    #[inline(always)]
    unsafe fn block<I: Isa>(factors: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::halves(factors), if MINIMUMS { I::halves(factors.add(32)) } else { I::zero() }) }
    }

    #[inline(always)]
    unsafe fn group<I: Isa>(_: *const u8, block: (Floats<I>, Floats<I>), _: usize) -> (Floats<I>, Floats<I>) {
        block
    }
}

/// An f16 scale per 32 columns, and a u8 multiple of it that is subtracted: the zero point.
pub(super) struct HalvesAndZeros;

impl Factors for HalvesAndZeros {
    const COLUMNS: usize = 32;
    const GROUPS: usize = 1;
    const MINIMUMS: bool = true;
    const BYTES: usize = 32 + ROWS;

    #[inline(always)]
    unsafe fn block<I: Isa>(factors: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe {
            let scale = I::halves(factors);
            (scale, I::lanes().sub(I::zero(), I::mul(scale, I::unsigned(factors.add(32)))))
        }
    }

    #[inline(always)]
    unsafe fn group<I: Isa>(_: *const u8, block: (Floats<I>, Floats<I>), _: usize) -> (Floats<I>, Floats<I>) {
        block
    }
}

/// A power of two per 32 columns: the byte of its exponent.
pub(super) struct Exponents;

impl Factors for Exponents {
    const COLUMNS: usize = 32;
    const GROUPS: usize = 1;
    const MINIMUMS: bool = false;
    const BYTES: usize = ROWS;

    #[inline(always)]
    unsafe fn block<I: Isa>(factors: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::exponents(factors), I::zero()) }
    }

    #[inline(always)]
    unsafe fn group<I: Isa>(_: *const u8, block: (Floats<I>, Floats<I>), _: usize) -> (Floats<I>, Floats<I>) {
        block
    }
}

/// An f32 scale per 32 columns, and a u8 multiple of it that is subtracted: the zero point.
pub(super) struct SinglesAndZeros;

impl Factors for SinglesAndZeros {
    const COLUMNS: usize = 32;
    const GROUPS: usize = 1;
    const MINIMUMS: bool = true;
    const BYTES: usize = 5 * ROWS;

    #[inline(always)]
    unsafe fn block<I: Isa>(factors: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe {
            let scale = I::floats(factors);
            (scale, I::lanes().sub(I::zero(), I::mul(scale, I::unsigned(factors.add(4 * ROWS)))))
        }
    }

    #[inline(always)]
    unsafe fn group<I: Isa>(_: *const u8, block: (Floats<I>, Floats<I>), _: usize) -> (Floats<I>, Floats<I>) {
        block
    }
}

/// An f32 scale per 64 columns, times 256, then for each group of 16 an e4m3 multiple of it.
pub(super) struct FloatMultiples;

impl Factors for FloatMultiples {
    const COLUMNS: usize = 64;
    const GROUPS: usize = 2;
    const MINIMUMS: bool = false;
    const BYTES: usize = 8 * ROWS;

    #[inline(always)]
    unsafe fn block<I: Isa>(factors: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::floats(factors), I::zero()) }
    }

    #[inline(always)]
    unsafe fn group<I: Isa>(
        factors: *const u8,
        block: (Floats<I>, Floats<I>),
        group: usize,
    ) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::mul(block.0, I::float8(factors.add(ROWS * (4 + group)))), block.1) }
    }
}

/// An f16 scale per 256 columns, then for each group of 16 a u8 multiple of its eighth.
pub(super) struct EighthMultiples;

impl Factors for EighthMultiples {
    const COLUMNS: usize = 256;
    const GROUPS: usize = 2;
    const MINIMUMS: bool = false;
    const BYTES: usize = 18 * ROWS;

    #[inline(always)]
    unsafe fn block<I: Isa>(factors: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::mul(I::halves(factors), I::lanes().splat(0.125)), I::zero()) }
    }

    #[inline(always)]
    unsafe fn group<I: Isa>(
        factors: *const u8,
        block: (Floats<I>, Floats<I>),
        group: usize,
    ) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::mul(block.0, I::unsigned(factors.add(ROWS * (2 + group)))), block.1) }
    }
}

/// An f16 scale per 256 columns, then for each group of 32 (or 16, with two `GROUPS`) an i8 multiple of it.
pub(super) struct Multiples<const GROUPS: usize>;

impl<const GROUPS: usize> Factors for Multiples<GROUPS> {
    const COLUMNS: usize = 256;
    const GROUPS: usize = GROUPS;
    const MINIMUMS: bool = false;
    const BYTES: usize = 32 + 16 * 8 * GROUPS;

    #[inline(always)]
    unsafe fn block<I: Isa>(factors: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::halves(factors), I::zero()) }
    }

    #[inline(always)]
    unsafe fn group<I: Isa>(
        factors: *const u8,
        block: (Floats<I>, Floats<I>),
        group: usize,
    ) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::mul(block.0, I::signed(factors.add(32 + 16 * group))), block.1) }
    }
}

/// An f16 scale and an f16 minimum (subtracted) per 256 columns, then u8 multiples of the scale for each group, then
/// u8 multiples of the minimum.
pub(super) struct MultiplesAndMinimums<const GROUPS: usize>;

impl<const GROUPS: usize> Factors for MultiplesAndMinimums<GROUPS> {
    const COLUMNS: usize = 256;
    const GROUPS: usize = GROUPS;
    const MINIMUMS: bool = true;
    const BYTES: usize = 64 + 2 * 16 * 8 * GROUPS;

    #[inline(always)]
    unsafe fn block<I: Isa>(factors: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::halves(factors), I::lanes().sub(I::zero(), I::halves(factors.add(32)))) }
    }

    #[inline(always)]
    unsafe fn group<I: Isa>(
        factors: *const u8,
        block: (Floats<I>, Floats<I>),
        group: usize,
    ) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe {
            let scale = I::unsigned(factors.add(64 + 16 * group));
            let minimum = I::unsigned(factors.add(64 + 16 * (8 * GROUPS + group)));
            (I::mul(block.0, scale), I::mul(block.1, minimum))
        }
    }
}
