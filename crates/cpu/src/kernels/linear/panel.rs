//! Weights in panels of 16 rows, and the product of a panel with a tile of tokens.
//!
//! Along the columns, four neighbouring codes of each of the 16 rows (or two bf16, or one f32) fill a register, so that
//! one instruction multiplies them with the same columns of a token, broadcast to all rows: no sum across a register
//! is ever needed. Quantized panels are sequences of blocks of 32 or 256 columns, each with its factors first:
//!
//! ```text
//! [ factors of 16 rows | codes of columns 0..32 | codes of columns 32..64 | … ]
//! ```
//!
//! One sum per output element runs over the groups of columns in order: within a group in exact integers, from
//! group to group in f32. So the result depends on neither the number of tokens nor the tile.
//!
//! A full tile is bound by the dot-product unit: of 120 multiplications per 32 columns and 12 tokens, 96 are dot
//! products and 24 apply scales. One token alone is bound by memory. Codes are unpacked in registers for every tile:
//! that costs little compared with the multiplications, and packed panels stay in the first-level cache, which bytes would not.
//!
//! If registers cannot hold the sums of many tokens, the codes stay there instead ([`Isa::CODES_STAY`]).

use std::marker::PhantomData;

use tensor::DType;

pub(super) use super::codes::*;
pub(super) use super::factors::*;
use super::prepare::InputFormat;
use super::simd::{Codes, Floats, Isa, MAX_TILE, ROWS};
use crate::vec::Simd;

/// How far ahead of their use weights are asked for, in bytes.
const AHEAD: usize = 4096;

/// Neighbouring panels times one tile.
pub(super) struct Product {
    pub(super) dtype: DType,
    pub(super) tokens: usize,
    pub(super) columns: usize,
    /// The first.
    pub(super) panel: *const u8,
    pub(super) panels: usize,
    pub(super) x: *const u8,
    /// [panels, tokens, 16]
    pub(super) out: *mut u8,
}

/// Multiplies panels with a tile.
pub(super) type Entry = unsafe fn(&Product);

/// How a panel is stored. Functions are unsafe as those of [`Isa`] are: pointers lead to a whole panel and a whole
/// tile of the layout's form.
pub(super) trait Layout {
    /// What the layout wants of the input.
    const FORM: InputFormat;
    /// Up to this many tokens, sums stay in registers even with [`Isa::CODES_STAY`], because that is faster.
    const FEW: usize = MAX_TILE;
    /// The bytes of a panel.
    fn panel_bytes(columns: usize) -> usize;
    /// The products with `T` tokens.
    unsafe fn multiply<I: Isa, const T: usize>(
        panel: *const u8,
        columns: usize,
        x: *const u8,
    ) -> [Floats<I>; T];
    /// As [`Layout::multiply`], for codes that stay in registers while up to [`MAX_TILE`] tokens pass. Stores 16 sums per
    /// token at `out`.
    unsafe fn multiply_passing<I: Isa>(_: *const u8, _: usize, _: *const u8, _: usize, _: *mut u8) {
        unreachable!("only codes stay in registers")
    }
    /// Writes the weights as f32: for each column 16 of them, as [`Plain<4>`] has them.
    unsafe fn widen<I: Isa>(panel: *const u8, columns: usize, out: *mut u8);
}

/// Quantized weights: codes of a kind with factors of a kind.
pub(super) struct Blocks<C, F>(PhantomData<(C, F)>);

/// Calls a macro with each of the eight steps of 32 columns as a literal, or with four of them.
macro_rules! steps {
    (0 of 1, $do:ident) => {
        $do!(0);
        $do!(1);
        $do!(2);
        $do!(3);
        $do!(4);
        $do!(5);
        $do!(6);
        $do!(7);
    };
    (0 of 2, $do:ident) => {
        $do!(0);
        $do!(1);
        $do!(2);
        $do!(3);
    };
    (1 of 2, $do:ident) => {
        $do!(4);
        $do!(5);
        $do!(6);
        $do!(7);
    };
}

impl<C: Codes, F: Factors> Layout for Blocks<C, F> {
    const FORM: InputFormat = InputFormat::Int8 {
        groups: F::GROUPS,
        zero_point: if F::MINIMUMS { None } else { Some(C::ZERO_POINT) },
    };
    const FEW: usize = 2;

    fn panel_bytes(columns: usize) -> usize {
        columns / F::COLUMNS * (F::BYTES + F::COLUMNS / 32 * C::BYTES)
    }

    #[inline(always)]
    unsafe fn multiply<I: Isa, const T: usize>(
        panel: *const u8,
        columns: usize,
        x: *const u8,
    ) -> [Floats<I>; T] {
        let (mut factors, mut x) = (panel, x);
        // SAFETY: the pointers advance block by block through the panel and the tile.
        unsafe {
            let mut sums = [I::zero(); T];
            for _ in 0..columns / F::COLUMNS {
                let shared = F::block::<I>(factors);
                let mut codes = factors.add(F::BYTES);
                for piece in 0..F::COLUMNS / 32 {
                    // Few tokens pass so fast that the processor looks ahead far enough by itself.
                    if T >= 4 {
                        for line in 0..C::BYTES / 64 {
                            I::prefetch(codes.wrapping_add(AHEAD + 64 * line));
                        }
                    }
                    // x: int8 codes [8 steps, T, 4 columns], scales [T], corrections [groups, T]
                    let scales = x.add(32 * T);
                    macro_rules! group {
                        ($group:tt of $groups:tt) => {
                            let corrections = scales.add(4 * T * (1 + $group));
                            let mut dots = [I::zero_ints(); T];
                            if !F::MINIMUMS {
                                for (t, dot) in dots.iter_mut().enumerate() {
                                    *dot = I::splat_int(corrections.add(4 * t));
                                }
                            }
                            macro_rules! step {
                                ($step:literal) => {
                                    let step = C::step::<I, $step>(codes);
                                    for (t, dot) in dots.iter_mut().enumerate() {
                                        let x = x.add(4 * ($step * T + t));
                                        *dot = if C::MOST < 128 {
                                            I::dot::<true>(*dot, step, x)
                                        } else {
                                            I::dot::<false>(*dot, step, x)
                                        };
                                    }
                                };
                            }
                            steps!($group of $groups, step);
                            let group = F::group::<I>(factors, shared, $groups * piece + $group);
                            for (t, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
                                let correction = corrections.add(4 * t);
                                *sum = add_group::<I, F>(*sum, dot, group, scales.add(4 * t), correction);
                            }
                        };
                    }
                    if F::GROUPS == 1 {
                        group!(0 of 1);
                    } else {
                        group!(0 of 2);
                        group!(1 of 2);
                    }
                    codes = codes.add(C::BYTES);
                    x = x.add(T * (36 + 4 * F::GROUPS));
                }
                factors = codes;
            }
            sums
        }
    }

    #[inline(always)]
    unsafe fn multiply_passing<I: Isa>(
        panel: *const u8,
        columns: usize,
        x: *const u8,
        tokens: usize,
        out: *mut u8,
    ) {
        let (mut factors, mut x) = (panel, x);
        // SAFETY: the pointers advance block by block through the panel and the tile.
        unsafe {
            let (mut sums, mut dots) = ([I::zero(); MAX_TILE], [I::zero_ints(); MAX_TILE]);
            for _ in 0..columns / F::COLUMNS {
                let shared = F::block::<I>(factors);
                let mut codes = factors.add(F::BYTES);
                for piece in 0..F::COLUMNS / 32 {
                    for line in 0..C::BYTES / 64 {
                        I::prefetch(codes.wrapping_add(AHEAD + 64 * line));
                    }
                    let scales = x.add(32 * tokens);
                    let corrections = scales.add(4 * tokens);
                    macro_rules! half {
                        ($half:literal, [$($step:literal),*]) => {
                            let starts = $half == 0 || F::GROUPS == 2;
                            let ends = $half == 1 || F::GROUPS == 2;
                            let four = [$(C::step::<I, $step>(codes)),*];
                            let corrections = corrections.add(if F::GROUPS == 2 { 4 * tokens * $half } else { 0 });
                            let group = F::group::<I>(factors, shared, F::GROUPS * piece + F::GROUPS * $half / 2);
                            for (t, (sum, dot)) in sums[..tokens].iter_mut().zip(&mut dots).enumerate() {
                                let correction = corrections.add(4 * t);
                                let start = match starts {
                                    false => *dot,
                                    true if F::MINIMUMS || C::ZERO_POINT == 128 => I::zero_ints(),
                                    true => I::splat_int(correction),
                                };
                                let x = x.add(16 * tokens * $half + 4 * t);
                                let products = I::dots::<C>(start, four, x, 4 * tokens);
                                if ends {
                                    let scale = scales.add(4 * t);
                                    *sum = add_group::<I, F>(*sum, products, group, scale, correction);
                                } else {
                                    *dot = products;
                                }
                            }
                        };
                    }
                    half!(0, [0, 1, 2, 3]);
                    half!(1, [4, 5, 6, 7]);
                    codes = codes.add(C::BYTES);
                    x = x.add(tokens * (36 + 4 * F::GROUPS));
                }
                factors = codes;
            }
            for (t, sum) in sums[..tokens].iter().enumerate() {
                I::store(out.add(64 * t), *sum);
            }
        }
    }

    #[inline(always)]
    unsafe fn widen<I: Isa>(panel: *const u8, columns: usize, out: *mut u8) {
        let (mut factors, mut out) = (panel, out);
        // SAFETY: the pointers advance block by block through the panel and the weights.
        unsafe {
            let zero_point = I::lanes().splat(if F::MINIMUMS { 0.0 } else { C::ZERO_POINT as f32 });
            for _ in 0..columns / F::COLUMNS {
                let shared = F::block::<I>(factors);
                let mut codes = factors.add(F::BYTES);
                for piece in 0..F::COLUMNS / 32 {
                    macro_rules! step {
                        ($step:literal) => {
                            let group = F::GROUPS * piece + F::GROUPS * $step / 8;
                            let (scale, minimum) = F::group::<I>(factors, shared, group);
                            let step = C::step::<I, $step>(codes);
                            I::widen_columns(step, [zero_point, scale, minimum], out.add(64 * 4 * $step));
                        };
                    }
                    steps!(0 of 1, step);
                    codes = codes.add(C::BYTES);
                    out = out.add(32 * 64);
                }
                factors = codes;
            }
        }
    }
}

/// Adds the products of a group of columns, whose factors these are, to a token's sums.
#[inline(always)]
unsafe fn add_group<I: Isa, F: Factors>(
    sum: Floats<I>,
    dot: I::Ints,
    (scale, minimum): (Floats<I>, Floats<I>),
    x_scale: *const u8,
    correction: *const u8,
) -> Floats<I> {
    // SAFETY: passed on to the caller.
    unsafe {
        let sum = I::mul_add(I::to_floats(dot), I::mul(scale, I::splat(x_scale)), sum);
        if F::MINIMUMS { I::mul_add(minimum, I::splat(correction), sum) } else { sum }
    }
}

/// Plain f32 (4 `BYTES`) or f16 (2): for each column 16 numbers. Multiplies f32 inputs.
pub(super) struct Plain<const BYTES: usize>;

impl<const BYTES: usize> Layout for Plain<BYTES> {
    const FORM: InputFormat = InputFormat::F32;

    fn panel_bytes(columns: usize) -> usize {
        columns * ROWS * BYTES
    }

    #[inline(always)]
    unsafe fn multiply<I: Isa, const T: usize>(
        panel: *const u8,
        columns: usize,
        x: *const u8,
    ) -> [Floats<I>; T] {
        // SAFETY: the panel holds 16 numbers per column, the tile T.
        unsafe {
            let mut sums = [I::zero(); T];
            for column in 0..columns {
                let weights = panel.add(column * ROWS * BYTES);
                let weights = if BYTES == 4 { I::floats(weights) } else { I::halves(weights) };
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = I::mul_add(weights, I::splat(x.add(4 * (column * T + t))), *sum);
                }
            }
            sums
        }
    }

    unsafe fn widen<I: Isa>(_: *const u8, _: usize, _: *mut u8) {
        unreachable!("inputs of plain weights are f32 in any case")
    }
}

/// bf16: for each pair of columns 16 pairs; an odd last column is paired with zeros. Inputs stay f32:
/// rounding them to bf16 would lose 16 bits.
pub(super) struct Pairs;

impl Layout for Pairs {
    const FORM: InputFormat = InputFormat::F32;

    fn panel_bytes(columns: usize) -> usize {
        columns.div_ceil(2) * ROWS * 4
    }

    #[inline(always)]
    unsafe fn multiply<I: Isa, const T: usize>(
        panel: *const u8,
        columns: usize,
        x: *const u8,
    ) -> [Floats<I>; T] {
        // SAFETY: the panel holds 16 pairs per pair of columns, the tile T numbers per column.
        unsafe {
            let mut sums = [I::zero(); T];
            for pair in 0..columns / 2 {
                let (first, second) = I::pairs(panel.add(pair * ROWS * 4));
                let x = x.add(8 * pair * T);
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = I::mul_add(first, I::splat(x.add(4 * t)), *sum);
                    *sum = I::mul_add(second, I::splat(x.add(4 * (T + t))), *sum);
                }
            }
            if columns % 2 == 1 {
                let (last, _) = I::pairs(panel.add(columns / 2 * ROWS * 4));
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = I::mul_add(last, I::splat(x.add(4 * ((columns - 1) * T + t))), *sum);
                }
            }
            sums
        }
    }

    unsafe fn widen<I: Isa>(_: *const u8, _: usize, _: *mut u8) {
        unreachable!("inputs of plain weights are f32 in any case")
    }
}

/// Codes that stand for floats, which multiply f32 inputs, with an f32 scale per 64 columns. A panel starts with what all its
/// codes share.
pub(super) struct Scaled<C>(PhantomData<C>);

/// How float codes are stored.
pub(super) trait FloatCodes {
    /// Bytes at the start of a panel.
    const HEAD: usize;
    /// The bytes of two columns.
    const PAIR: usize;
    /// What scales are multiplied with when they are packed.
    const FACTOR: f32;
    /// The numbers of two columns.
    unsafe fn pair<I: Isa>(head: *const u8, codes: *const u8) -> (Floats<I>, Floats<I>);
}

impl<C: FloatCodes> Scaled<C> {
    /// Bytes of 64 columns: scales, then codes.
    pub(super) const BLOCK: usize = 4 * ROWS + 32 * C::PAIR;
}

impl<C: FloatCodes> Layout for Scaled<C> {
    const FORM: InputFormat = InputFormat::F32;

    fn panel_bytes(columns: usize) -> usize {
        C::HEAD + columns / 64 * Self::BLOCK
    }

    #[inline(always)]
    unsafe fn multiply<I: Isa, const T: usize>(
        panel: *const u8,
        columns: usize,
        x: *const u8,
    ) -> [Floats<I>; T] {
        // SAFETY: the panel holds its head and whole blocks, the tile T numbers per column.
        unsafe {
            let mut sums = [I::zero(); T];
            for block in 0..columns / 64 {
                let scales = panel.add(C::HEAD + block * Self::BLOCK);
                let mut dots = [I::zero(); T];
                for pair in 0..32 {
                    let (first, second) = C::pair::<I>(panel, scales.add(4 * ROWS + pair * C::PAIR));
                    let x = x.add(4 * T * (64 * block + 2 * pair));
                    for (t, dot) in dots.iter_mut().enumerate() {
                        *dot = I::mul_add(first, I::splat(x.add(4 * t)), *dot);
                        *dot = I::mul_add(second, I::splat(x.add(4 * (T + t))), *dot);
                    }
                }
                let scale = I::floats(scales);
                for (sum, dot) in sums.iter_mut().zip(dots) {
                    *sum = I::mul_add(dot, scale, *sum);
                }
            }
            sums
        }
    }

    unsafe fn widen<I: Isa>(_: *const u8, _: usize, _: *mut u8) {
        unreachable!("inputs of float codes are f32 in any case")
    }
}

/// e4m3, a byte each.
pub(super) struct EightBitFloats;

impl FloatCodes for EightBitFloats {
    const HEAD: usize = 0;
    const PAIR: usize = 2 * ROWS;
    const FACTOR: f32 = 256.0;

    #[inline(always)]
    unsafe fn pair<I: Isa>(_: *const u8, codes: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { (I::float8(codes), I::float8(codes.add(ROWS))) }
    }
}

/// Nibbles that stand for 16 f32, with which the panel starts: those of the first of two columns are low.
pub(super) struct TableFloats;

impl FloatCodes for TableFloats {
    const HEAD: usize = 64;
    const PAIR: usize = ROWS;
    const FACTOR: f32 = 1.0;

    #[inline(always)]
    unsafe fn pair<I: Isa>(head: *const u8, codes: *const u8) -> (Floats<I>, Floats<I>) {
        // SAFETY: passed on to the caller.
        unsafe { I::table_pair(head, codes) }
    }
}

/// Calls `$body` with `$L` as the layout of a dtype's panels; `$none` when there is none.
macro_rules! with_layout {
    ($dtype:expr, $L:ident => $body:expr, else $none:expr) => {{
        use $crate::kernels::linear::panel::*;
        macro_rules! with {
            ($layout:ty) => {{
                type $L = $layout;
                $body
            }};
        }
        match $dtype {
            ::tensor::DType::Q4_0 => with!(Blocks<Nibbles<8>, Halves<false>>),
            ::tensor::DType::Q4_1 => with!(Blocks<Nibbles<0>, Halves<true>>),
            ::tensor::DType::Q5_0 => with!(Blocks<FiveBits<16>, Halves<false>>),
            ::tensor::DType::Q5_1 => with!(Blocks<FiveBits<0>, Halves<true>>),
            ::tensor::DType::Q8_0 => with!(Blocks<EightBits<128>, Halves<false>>),
            ::tensor::DType::Q2K => with!(Blocks<Nibbles<0>, MultiplesAndMinimums<2>>),
            ::tensor::DType::Q3K => with!(Blocks<Nibbles<4>, Multiples<2>>),
            ::tensor::DType::Q4K => with!(Blocks<Nibbles<0>, MultiplesAndMinimums<1>>),
            ::tensor::DType::Q5K => with!(Blocks<FiveBits<0>, MultiplesAndMinimums<1>>),
            ::tensor::DType::Q6K => with!(Blocks<SixBits<32>, Multiples<2>>),
            ::tensor::DType::Iq4Nl => with!(Blocks<Levels<UnevenLevels>, Halves<false>>),
            ::tensor::DType::Iq4Xs => with!(Blocks<Levels<UnevenLevels>, Multiples<1>>),
            ::tensor::DType::Gptq => with!(Blocks<Nibbles<0>, HalvesAndZeros>),
            ::tensor::DType::Mxfp4 => with!(Blocks<Levels<FourBitFloats>, Exponents>),
            ::tensor::DType::Nvfp4 | ::tensor::DType::GgmlNvfp4 => {
                with!(Blocks<Levels<FourBitFloats>, FloatMultiples>)
            }
            ::tensor::DType::Gptq8 => with!(Blocks<EightBits<0>, SinglesAndZeros>),
            ::tensor::DType::Fp8 => with!(Scaled<EightBitFloats>),
            ::tensor::DType::Nf4 | ::tensor::DType::Fp4 => with!(Scaled<TableFloats>),
            ::tensor::DType::Iq1S
            | ::tensor::DType::Iq1M
            | ::tensor::DType::Iq2Xxs
            | ::tensor::DType::Iq2Xs
            | ::tensor::DType::Iq2S
            | ::tensor::DType::Tq1_0
            | ::tensor::DType::Tq2_0 => with!(Blocks<Levels<CoarseLevels>, EighthMultiples>),
            ::tensor::DType::Iq3Xxs => with!(Blocks<Levels<ThreeBitLevels>, EighthMultiples>),
            ::tensor::DType::Iq3S => with!(Blocks<Levels<OddLevels>, EighthMultiples>),
            ::tensor::DType::F32 => with!(Plain<4>),
            ::tensor::DType::F16 => with!(Plain<2>),
            ::tensor::DType::BF16 => with!(Pairs),
            _ => $none,
        }
    }};
}

pub(super) use with_layout;
