//! Panels in NEON: four registers hold one column group of all 16 rows.
//!
//! Byte products come in three ways, by what the processor has: `usdot` of the i8mm extension, `sdot` of the dotprod
//! extension, or widening products. All sums are exact, so all three give the same bits.

use std::arch::aarch64::*;
use std::marker::PhantomData;

use super::simd::{Floats, Isa, Quantized, operations, scale_of, upper_bits};
use crate::instruction_set::{dot_products, mixed_dot_products};
use crate::vec::prefetch_line;

/// NEON with a way to multiply bytes.
pub(super) struct Neon<D>(PhantomData<D>);

/// A way to multiply bytes.
///
/// # Safety
/// The machine has what [`ByteDot::available`] looks for.
pub(super) trait ByteDot: 'static {
    /// Whether this machine has the instructions.
    fn available() -> bool;
    /// Adds for each row the products of its 4 unsigned codes with 4 signed bytes, exactly. With `SMALL`, codes are at most 127.
    unsafe fn dot<const SMALL: bool>(sums: Ints, codes: Bytes, x: int8x16_t) -> Ints;
}

/// Products of 8 bits with sums of 16.
pub(super) struct Widening;
/// `sdot`, of signed bytes.
pub(super) struct Signed;
/// `usdot`, of unsigned with signed bytes.
pub(super) struct Mixed;

type Bytes = [uint8x16_t; 4];
type Ints = [int32x4_t; 4];

/// For each quarter of 16 codes, their places, each for the four bytes of an f32.
static PLACES: [[u8; 16]; 4] = {
    let (mut places, mut at) = ([[0; 16]; 4], 0);
    while at < 64 {
        places[at / 16][at % 16] = (at / 4) as u8;
        at += 1;
    }
    places
};
/// The bytes of four f32.
static BYTES_OF_FLOATS: [u8; 16] = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];

impl<D: ByteDot> Isa for Neon<D> {
    // 16 registers of integer sums, 4 of codes and one of inputs; the sums of floats make room between groups.
    const TILE: usize = 4;
    type Bytes = Bytes;
    type Ints = Ints;
    type Lanes = crate::vec::Neon;

    fn available() -> bool {
        crate::vec::Neon::available() && D::available()
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        prefetch_line(from);
    }

    operations! {
        fn lanes() -> crate::vec::Neon = crate::vec::Neon::new();
        fn bytes(from: *const u8) -> Bytes = each(|i| vld1q_u8(from.add(16 * i)));
        fn low_nibbles(bytes: Bytes) -> Bytes = each(|i| vandq_u8(bytes[i], vdupq_n_u8(15)));
        fn high_nibbles(bytes: Bytes) -> Bytes = each(|i| vshrq_n_u8::<4>(bytes[i]));
        fn with_upper_bits<const FIELD: usize, const WIDTH: usize>(nibbles: Bytes, bits: Bytes) -> Bytes = each(|i| {
            let bits = match FIELD * WIDTH {
                0 => vshlq_n_u8::<4>(bits[i]),
                1 => vshlq_n_u8::<3>(bits[i]),
                2 => vshlq_n_u8::<2>(bits[i]),
                3 => vshlq_n_u8::<1>(bits[i]),
                4 => bits[i],
                5 => vshrq_n_u8::<1>(bits[i]),
                6 => vshrq_n_u8::<2>(bits[i]),
                _ => vshrq_n_u8::<3>(bits[i]),
            };
            vorrq_u8(nibbles[i], vandq_u8(bits, vdupq_n_u8(upper_bits(WIDTH) as u8)))
        });
        fn lookup(nibbles: Bytes, table: &'static [u8; 16]) -> Bytes = {
            let table = vld1q_u8(table.as_ptr());
            each(|i| vqtbl1q_u8(table, nibbles[i]))
        };

        fn zero_ints() -> Ints = [vdupq_n_s32(0); 4];
        fn splat_int(from: *const u8) -> Ints = [vdupq_n_s32(from.cast::<i32>().read_unaligned()); 4];
        fn dot<const SMALL: bool>(sums: Ints, codes: Bytes, x: *const u8) -> Ints = {
            let x = vreinterpretq_s8_s32(vdupq_n_s32(x.cast::<i32>().read_unaligned()));
            D::dot::<SMALL>(sums, codes, x)
        };
        fn to_floats(ints: Ints) -> Floats<Self> = each(|i| vcvtq_f32_s32(ints[i]));

        fn unsigned(from: *const u8) -> Floats<Self> = {
            let codes = widened(vld1q_u8(from));
            each(|i| vcvtq_f32_u32(codes[i]))
        };
        fn signed(from: *const u8) -> Floats<Self> = {
            let bytes = vld1q_s8(from.cast());
            let halves = [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)];
            each(|i| {
                let half = halves[i / 2];
                vcvtq_f32_s32(if i % 2 == 0 { vmovl_s16(vget_low_s16(half)) } else { vmovl_high_s16(half) })
            })
        };
        fn exponents(from: *const u8) -> Floats<Self> = {
            // The two smallest are subnormal: bits that are shifted. From 2 on, the exponent counts up.
            let exponents = widened(vld1q_u8(from));
            let two = vdupq_n_u32(2);
            each(|i| {
                let small = vreinterpretq_s32_u32(vminq_u32(exponents[i], two));
                let small = vshlq_u32(vdupq_n_u32(1 << 21), small);
                let rest = vsubq_u32(vmaxq_u32(exponents[i], two), two);
                vreinterpretq_f32_u32(vaddq_u32(small, vshlq_n_u32::<23>(rest)))
            })
        };
        fn float8(from: *const u8) -> Floats<Self> = {
            // The exponent of an f16 has one bit more, and a bias that is larger by 8.
            let bytes = vld1q_u8(from);
            let halves = [vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)].map(|codes| {
                let sign = vshlq_n_u16::<8>(vandq_u16(codes, vdupq_n_u16(0x80)));
                vorrq_u16(sign, vshlq_n_u16::<7>(vandq_u16(codes, vdupq_n_u16(0x7f))))
            });
            each(|i| {
                let half = halves[i / 2];
                let quarter = if i % 2 == 0 { vget_low_u16(half) } else { vget_high_u16(half) };
                vcvt_f32_f16(vreinterpret_f16_u16(quarter))
            })
        };
        fn table_pair(table: *const u8, from: *const u8) -> (Floats<Self>, Floats<Self>) = {
            let table = uint8x16x4_t(
                vld1q_u8(table),
                vld1q_u8(table.add(16)),
                vld1q_u8(table.add(32)),
                vld1q_u8(table.add(48)),
            );
            let bytes = vld1q_u8(from);
            let look = |nibbles: uint8x16_t| {
                each(|i| {
                    // The four bytes of each code's number.
                    let codes = vqtbl1q_u8(nibbles, vld1q_u8(PLACES[i].as_ptr()));
                    let bytes = vaddq_u8(vshlq_n_u8::<2>(codes), vld1q_u8(BYTES_OF_FLOATS.as_ptr()));
                    vreinterpretq_f32_u8(vqtbl4q_u8(table, bytes))
                })
            };
            (look(vandq_u8(bytes, vdupq_n_u8(15))), look(vshrq_n_u8::<4>(bytes)))
        };
        fn pairs(from: *const u8) -> (Floats<Self>, Floats<Self>) = {
            // A bf16 is the upper half of an f32.
            let pairs: [uint32x4_t; 4] = each(|i| vreinterpretq_u32_u8(vld1q_u8(from.add(16 * i))));
            (
                each(|i| vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs[i]))),
                each(|i| vreinterpretq_f32_u32(vandq_u32(pairs[i], vdupq_n_u32(0xffff_0000)))),
            )
        };
        fn code(codes: Bytes, column: usize) -> Floats<Self> = each(|i| {
            let codes = vshlq_u32(vreinterpretq_u32_u8(codes[i]), vdupq_n_s32(-8 * column as i32));
            vcvtq_f32_u32(vandq_u32(codes, vdupq_n_u32(255)))
        });

        fn quantize(low: Floats<Self>, high: Floats<Self>) -> Quantized = {
            let (scale, inverse) = scale_of(largest(low, high));
            let [low, high] = [low, high].map(|values| codes_of(values, inverse));
            let mut codes = [0u8; 32];
            vst1q_s8(codes.as_mut_ptr().cast(), low);
            vst1q_s8(codes.as_mut_ptr().add(16).cast(), high);
            Quantized { codes, scale, sums: [low, high].map(|codes| i32::from(vaddlvq_s8(codes))) }
        };
    }
}

/// An array of what a function gives for each quarter of the rows.
#[inline(always)]
fn each<T>(function: impl Fn(usize) -> T) -> [T; 4] {
    [function(0), function(1), function(2), function(3)]
}

/// 16 bytes as u32.
#[inline]
#[target_feature(enable = "neon")]
fn widened(bytes: uint8x16_t) -> [uint32x4_t; 4] {
    let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
    [vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)]
}

/// The largest magnitude. Magnitudes compare as integers do, and NaN as the largest.
#[inline]
#[target_feature(enable = "neon")]
fn largest(low: [float32x4_t; 4], high: [float32x4_t; 4]) -> f32 {
    let mut largest = vdupq_n_u32(0);
    for values in low.into_iter().chain(high) {
        largest = vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(values), vdupq_n_u32(0x7fff_ffff)));
    }
    f32::from_bits(vmaxvq_u32(largest))
}

/// Multiples of `1 / inverse`, rounded to nearest even; -127 for NaN.
#[inline]
#[target_feature(enable = "neon")]
fn codes_of(values: [float32x4_t; 4], inverse: f32) -> int8x16_t {
    let code = |values: float32x4_t| {
        let multiples = vmulq_n_f32(values, inverse);
        let is_number = vceqq_f32(multiples, multiples);
        vqmovn_s32(vbslq_s32(is_number, vcvtnq_s32_f32(multiples), vdupq_n_s32(-127)))
    };
    let [a, b, c, d] = values;
    vcombine_s8(vqmovn_s16(vcombine_s16(code(a), code(b))), vqmovn_s16(vcombine_s16(code(c), code(d))))
}

impl ByteDot for Widening {
    fn available() -> bool {
        true
    }

    #[inline(always)]
    unsafe fn dot<const SMALL: bool>(sums: Ints, codes: Bytes, x: int8x16_t) -> Ints {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            if SMALL {
                return each(|i| {
                    let codes = vreinterpretq_s8_u8(codes[i]);
                    let low = vmull_s8(vget_low_s8(codes), vget_low_s8(x));
                    // Two products of at most 127 times 128 fit in 16 bits.
                    vpadalq_s16(sums[i], vpaddq_s16(low, vmull_high_s8(codes, x)))
                });
            }
            let missing = missing(x);
            each(|i| {
                let codes = below_zero(codes[i]);
                let low = vpaddlq_s16(vmull_s8(vget_low_s8(codes), vget_low_s8(x)));
                let high = vpaddlq_s16(vmull_high_s8(codes, x));
                vaddq_s32(vaddq_s32(sums[i], missing), vpaddq_s32(low, high))
            })
        }
    }
}

impl ByteDot for Signed {
    fn available() -> bool {
        dot_products()
    }

    #[inline(always)]
    unsafe fn dot<const SMALL: bool>(sums: Ints, codes: Bytes, x: int8x16_t) -> Ints {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            if SMALL {
                return each(|i| sdot(sums[i], vreinterpretq_s8_u8(codes[i]), x));
            }
            let missing = missing(x);
            each(|i| sdot(vaddq_s32(sums[i], missing), below_zero(codes[i]), x))
        }
    }
}

impl ByteDot for Mixed {
    fn available() -> bool {
        mixed_dot_products()
    }

    #[inline(always)]
    unsafe fn dot<const SMALL: bool>(sums: Ints, codes: Bytes, x: int8x16_t) -> Ints {
        // SAFETY: the caller vouches for the instruction set.
        each(|i| unsafe { usdot(sums[i], codes[i], x) })
    }
}

/// Codes less 128, as signed bytes.
#[inline]
#[target_feature(enable = "neon")]
fn below_zero(codes: uint8x16_t) -> int8x16_t {
    vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(128)))
}

/// 128 times the sum of each four bytes: what [`below_zero`] takes from their products.
#[inline]
#[target_feature(enable = "neon")]
fn missing(x: int8x16_t) -> int32x4_t {
    vshlq_n_s32::<7>(vpaddlq_s16(vpaddlq_s8(x)))
}

// The compiler does not offer these two as functions yet.

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the function has the target feature, and the instruction touches registers only.
    unsafe {
        std::arch::asm!(
            "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sums, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

#[inline]
#[target_feature(enable = "neon,i8mm")]
fn usdot(mut sums: int32x4_t, unsigned: uint8x16_t, signed: int8x16_t) -> int32x4_t {
    // SAFETY: the function has the target feature, and the instruction touches registers only.
    unsafe {
        std::arch::asm!(
            "usdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sums, in(vreg) unsigned, in(vreg) signed,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}
