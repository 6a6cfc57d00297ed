//! Panels of bf16 weights times inputs that are rounded to bf16, by the instructions that some processors have for pairs.
//!
//! Each instruction adds two products to an f32 and rounds as its architecture says: AVX-512 to nearest, with subnormal
//! numbers as zeros; NEON to odd. So results are those of the kind of processor. Whatever the tile, a row adds its pairs in
//! the order of the columns.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
#[cfg(target_arch = "aarch64")]
use super::neon::{Mixed, Neon};
use super::panel::{Entry, Product};
use super::simd::{Floats, Isa, ROWS};

/// An instruction set with products of bf16 pairs.
///
/// # Safety
/// As [`Isa`], where [`PairDots::has_pair_dots`].
pub(super) trait PairDots: Isa {
    /// Whether this machine has the instruction set and the products.
    fn has_pair_dots() -> bool;
    /// Adds for each row the products of its pair with the pair at `x`.
    unsafe fn dot_pairs(sums: Floats<Self>, pairs: Self::Bytes, x: *const u8) -> Floats<Self>;
    /// [`multiply`] with its target features.
    unsafe fn multiply_pairs<const T: usize>(product: &Product);
}

/// The function for tiles of `T` tokens.
pub(super) fn entry<I: PairDots, const T: usize>() -> Entry {
    if const { T <= I::FLOAT_TILE } { I::multiply_pairs::<T> } else { unreachable!("tiles are smaller") }
}

/// Multiplies panels of bf16 pairs with a tile of them.
#[inline(always)]
unsafe fn multiply<I: PairDots, const T: usize>(product: &Product) {
    let (mut panel, mut out) = (product.panel, product.out);
    for _ in 0..product.panels {
        // SAFETY: the panels and their products lie one after another; the tile has `T` pairs for each pair of columns.
        unsafe {
            let mut sums = [I::zero(); T];
            for pair in 0..product.columns.div_ceil(2) {
                let (pairs, x) = (I::bytes(panel), product.x.add(4 * pair * T));
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = I::dot_pairs(*sum, pairs, x.add(4 * t));
                }
                panel = panel.add(4 * ROWS);
            }
            for sum in sums {
                I::store(out, sum);
                out = out.add(4 * ROWS);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl PairDots for Avx512 {
    fn has_pair_dots() -> bool {
        Avx512::available() && is_x86_feature_detected!("avx512bf16")
    }

    #[inline(always)]
    unsafe fn dot_pairs(sums: __m512, pairs: __m512i, x: *const u8) -> __m512 {
        // SAFETY: all bits are pairs of bf16; the rest is the caller's promise.
        unsafe {
            let [pairs, x] =
                [pairs, Avx512::splat_int(x)].map(|pairs| std::mem::transmute::<__m512i, __m512bh>(pairs));
            // The last operand, because the instruction itself broadcasts it from memory: a broadcast of its own costs time.
            _mm512_dpbf16_ps(sums, pairs, x)
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn multiply_pairs<const T: usize>(product: &Product) {
        // SAFETY: passed on to the caller.
        unsafe { multiply::<Avx512, T>(product) }
    }
}

#[cfg(target_arch = "aarch64")]
impl PairDots for Neon<Mixed> {
    fn has_pair_dots() -> bool {
        Neon::<Mixed>::available() && std::arch::is_aarch64_feature_detected!("bf16")
    }

    #[inline(always)]
    unsafe fn dot_pairs(mut sums: Floats<Self>, pairs: [uint8x16_t; 4], x: *const u8) -> Floats<Self> {
        // SAFETY: passed on to the caller.
        unsafe {
            let x = vreinterpretq_u8_s32(vdupq_n_s32(x.cast::<i32>().read_unaligned()));
            for (sum, pairs) in sums.iter_mut().zip(pairs) {
                *sum = bfdot(*sum, pairs, x);
            }
            sums
        }
    }

    #[target_feature(enable = "neon,bf16")]
    unsafe fn multiply_pairs<const T: usize>(product: &Product) {
        // SAFETY: passed on to the caller.
        unsafe { multiply::<Neon<Mixed>, T>(product) }
    }
}

// The compiler does not offer it as a function yet.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon,bf16")]
fn bfdot(mut sums: float32x4_t, a: uint8x16_t, b: uint8x16_t) -> float32x4_t {
    // SAFETY: the function has the target feature, and the instruction touches registers only.
    unsafe {
        std::arch::asm!(
            "bfdot {0:v}.4s, {1:v}.8h, {2:v}.8h",
            inout(vreg) sums, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}
