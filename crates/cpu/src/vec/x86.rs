//! The lanes in x86 registers: one of 512 bits, or two of 256.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{LANES, Simd};

/// Proof that the machine has AVX-512 (F, BW, DQ, VL), FMA and AVX2.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

/// Proof that the machine has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx512 {
    /// The proof, given on the caller's word.
    ///
    /// # Safety
    /// [`Avx512::available`] is true.
    #[inline(always)]
    pub unsafe fn new() -> Avx512 {
        Avx512(())
    }

    /// Whether this machine has it.
    pub fn available() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && Avx2::available()
    }
}

impl Avx2 {
    /// The proof, given on the caller's word.
    ///
    /// # Safety
    /// [`Avx2::available`] is true.
    #[inline(always)]
    pub unsafe fn new() -> Avx2 {
        Avx2(())
    }

    /// Whether this machine has it.
    pub fn available() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
    }
}

/// An operation of one or two intrinsics, which only the proof in `self` makes callable.
macro_rules! intrinsic {
    ($($call:tt)*) => {{
        // SAFETY: `self` is proof of the instruction set, and memory is the caller's promise.
        unsafe { $($call)* }
    }};
}

impl Simd for Avx512 {
    type F32 = __m512;
    type Mask = __mmask16;

    const REGISTERS: usize = 32;
    const WIDENS_ONCE: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        intrinsic!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        intrinsic!(_mm512_loadu_ps(from))
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> __m512 {
        if count == LANES {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.load(from) };
        }
        intrinsic!(_mm512_maskz_loadu_ps(first(count), from))
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> __m512 {
        intrinsic!({
            let codes = _mm256_loadu_si256(from.cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(codes)))
        })
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> __m512 {
        intrinsic!(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast())))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, lanes: __m512) {
        intrinsic!(_mm512_storeu_ps(to, lanes))
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, lanes: __m512, count: usize) {
        if count == LANES {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.store(to, lanes) };
        }
        intrinsic!(_mm512_mask_storeu_ps(to, first(count), lanes))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        intrinsic!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        intrinsic!(_mm512_abs_ps(a))
    }

    #[inline(always)]
    fn copy_sign(self, magnitude: __m512, sign: __m512) -> __m512 {
        intrinsic!({
            let bit = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign))
        })
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        intrinsic!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn scale_by_power(self, a: __m512, n: __m512) -> __m512 {
        intrinsic!(_mm512_scalef_ps(a, n))
    }

    #[inline(always)]
    fn less(self, a: __m512, b: __m512) -> __mmask16 {
        intrinsic!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }

    #[inline(always)]
    fn select(self, mask: __mmask16, a: __m512, b: __m512) -> __m512 {
        intrinsic!(_mm512_mask_blend_ps(mask, b, a))
    }

    #[inline(always)]
    fn to_array(self, a: __m512) -> [f32; LANES] {
        let mut lanes = [0f32; LANES];
        intrinsic!(_mm512_storeu_ps(lanes.as_mut_ptr(), a));
        lanes
    }

    #[inline(always)]
    fn permute(self, a: __m512, places: &[u8; LANES]) -> __m512 {
        intrinsic!(_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(places.as_ptr().cast())), a))
    }
}

/// A mask of the first `count` lanes.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    debug_assert!(count <= LANES);
    ((1u32 << count) - 1) as __mmask16
}

/// Both halves of sixteen lanes.
type Pair = (__m256, __m256);

/// The same intrinsic on both halves.
macro_rules! both {
    ($name:ident($($a:ident),*)) => {
        intrinsic!(($name($($a.0),*), $name($($a.1),*)))
    };
}

/// The lanes of the eight places at an address.
#[inline(always)]
unsafe fn permute_half(a: Pair, places: *const u8) -> __m256 {
    // SAFETY: the caller vouches for the instruction set and the eight places.
    unsafe {
        let places = _mm256_cvtepu8_epi32(_mm_loadl_epi64(places.cast()));
        // Of a place, the lower 3 bits choose in each half of the lanes; the fourth, as a sign, between the halves.
        let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(places));
        let (low, high) = (_mm256_permutevar8x32_ps(a.0, places), _mm256_permutevar8x32_ps(a.1, places));
        _mm256_blendv_ps(low, high, upper)
    }
}

impl Simd for Avx2 {
    type F32 = Pair;
    type Mask = Pair;

    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        let lanes = intrinsic!(_mm256_set1_ps(x));
        (lanes, lanes)
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Pair {
        intrinsic!((_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))))
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Pair {
        if count == LANES {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.load(from) };
        }
        let (low, high) = halves(count);
        intrinsic!({
            // The upper address may lie beyond the values; masked lanes are not touched.
            let second = _mm256_maskload_ps(from.wrapping_add(8), lane_mask(high));
            (_mm256_maskload_ps(from, lane_mask(low)), second)
        })
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> Pair {
        intrinsic!({
            let codes = _mm256_loadu_si256(from.cast());
            let low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(codes));
            let high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256::<1>(codes));
            (
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            )
        })
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> Pair {
        intrinsic!({
            let low = _mm_loadu_si128(from.cast());
            let high = _mm_loadu_si128(from.add(8).cast());
            (_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, lanes: Pair) {
        intrinsic!({
            _mm256_storeu_ps(to, lanes.0);
            _mm256_storeu_ps(to.add(8), lanes.1);
        })
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, lanes: Pair, count: usize) {
        if count == LANES {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.store(to, lanes) };
        }
        let (low, high) = halves(count);
        intrinsic!({
            _mm256_maskstore_ps(to, lane_mask(low), lanes.0);
            _mm256_maskstore_ps(to.wrapping_add(8), lane_mask(high), lanes.1);
        })
    }

    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: Pair, b: Pair, c: Pair) -> Pair {
        both!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: Pair, b: Pair) -> Pair {
        both!(_mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn abs(self, a: Pair) -> Pair {
        let sign = intrinsic!(_mm256_set1_ps(-0.0));
        intrinsic!((_mm256_andnot_ps(sign, a.0), _mm256_andnot_ps(sign, a.1)))
    }

    #[inline(always)]
    fn copy_sign(self, magnitude: Pair, sign: Pair) -> Pair {
        intrinsic!({
            let bit = _mm256_set1_ps(-0.0);
            (
                _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.0), _mm256_and_ps(bit, sign.0)),
                _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.1), _mm256_and_ps(bit, sign.1)),
            )
        })
    }

    #[inline(always)]
    fn round(self, a: Pair) -> Pair {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        intrinsic!((_mm256_round_ps::<NEAREST>(a.0), _mm256_round_ps::<NEAREST>(a.1)))
    }

    #[inline(always)]
    fn scale_by_power(self, a: Pair, n: Pair) -> Pair {
        intrinsic!((scale_by_power(a.0, n.0), scale_by_power(a.1, n.1)))
    }

    #[inline(always)]
    fn scale_exactly(self, a: Pair, n: Pair) -> Pair {
        intrinsic!((scale_exactly(a.0, n.0), scale_exactly(a.1, n.1)))
    }

    #[inline(always)]
    fn less(self, a: Pair, b: Pair) -> Pair {
        intrinsic!((_mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0), _mm256_cmp_ps::<_CMP_LT_OQ>(a.1, b.1)))
    }

    #[inline(always)]
    fn select(self, mask: Pair, a: Pair, b: Pair) -> Pair {
        intrinsic!((_mm256_blendv_ps(b.0, a.0, mask.0), _mm256_blendv_ps(b.1, a.1, mask.1)))
    }

    #[inline(always)]
    fn to_array(self, a: Pair) -> [f32; LANES] {
        let mut lanes = [0f32; LANES];
        // SAFETY: the array has sixteen values.
        unsafe { self.store(lanes.as_mut_ptr(), a) };
        lanes
    }

    #[inline(always)]
    fn permute(self, a: Pair, places: &[u8; LANES]) -> Pair {
        let (low, high) = places.split_at(LANES / 2);
        intrinsic!((permute_half(a, low.as_ptr()), permute_half(a, high.as_ptr())))
    }
}

/// Multiplies by two powers of two, so that only the last product rounds.
#[inline]
#[target_feature(enable = "avx2")]
fn scale_by_power(a: __m256, n: __m256) -> __m256 {
    let n = _mm256_cvtps_epi32(n);
    let first = _mm256_srai_epi32::<1>(n);
    let second = _mm256_sub_epi32(n, first);
    _mm256_mul_ps(_mm256_mul_ps(a, power(first)), power(second))
}

/// Adds to the exponent.
#[inline]
#[target_feature(enable = "avx2")]
fn scale_exactly(a: __m256, n: __m256) -> __m256 {
    let n = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
    _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n))
}

/// `2ⁿ` for normal results.
#[inline]
#[target_feature(enable = "avx2")]
fn power(n: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))))
}

/// A mask of the first `count <= 8` lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn lane_mask(count: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

/// How many of the first `count` lanes lie in each half.
#[inline(always)]
fn halves(count: usize) -> (usize, usize) {
    debug_assert!(count <= LANES);
    (count.min(8), count.saturating_sub(8))
}
