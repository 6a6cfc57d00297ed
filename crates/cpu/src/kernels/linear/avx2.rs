//! Panels in AVX2: two registers hold one column group of all 16 rows.
//!
//! Byte products are added in pairs in 16 bits, which must not saturate: codes up to 127 times inputs within ±127 stay
//! below 2^15. Smaller codes leave room to add two or four pairs before they are widened. From larger
//! codes, a zero point of 128 is subtracted; their magnitudes are multiplied with inputs that take the signs of the codes.
//! Large codes with another zero point are split into their lower 7 bits and the eighth.
//!
//! The 16 registers hold the sums of 4 tokens at most. So 8 of them hold the codes of four steps instead, and up to 12
//! tokens pass: their sums wait in the first-level cache, and codes are unpacked once for all.

use std::arch::x86_64::*;

use super::simd::{Codes, Floats, Isa, Quantized, operations, scale_of, upper_bits};

pub(super) struct Avx2;

type Pair = (__m256i, __m256i);

impl Isa for Avx2 {
    const TILE: usize = 12;
    // 12 registers of sums, 2 of weights and one of a token.
    const FLOAT_TILE: usize = 6;
    const CODES_STAY: bool = true;
    type Bytes = Pair;
    type Ints = Pair;
    type Lanes = crate::vec::Avx2;

    fn available() -> bool {
        crate::vec::Avx2::available()
    }

    #[inline(always)]
    unsafe fn dots<C: Codes>(sums: Pair, codes: [Pair; 4], x: *const u8, stride: usize) -> Pair {
        // SAFETY: the caller vouches for the instruction set and the pointer.
        unsafe {
            let place = |step: usize| x.add(step * stride).cast::<i32>().read_unaligned();
            let splat = |step: usize| _mm256_set1_epi32(place(step));
            let x = [splat(0), splat(1), splat(2), splat(3)];
            let [a, b, c, d] = codes;
            (dot_four::<C>(sums.0, [a.0, b.0, c.0, d.0], x), dot_four::<C>(sums.1, [a.1, b.1, c.1, d.1], x))
        }
    }

    operations! {
        fn lanes() -> crate::vec::Avx2 = crate::vec::Avx2::new();
        fn bytes(from: *const u8) -> Pair =
            (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast()));
        fn prefetch(from: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(from.cast());
        fn low_nibbles(bytes: Pair) -> Pair = both(bytes, |bytes| _mm256_and_si256(bytes, _mm256_set1_epi8(15)));
        fn high_nibbles(bytes: Pair) -> Pair = both(bytes, |bytes| {
            _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(15))
        });
        fn with_upper_bits<const FIELD: usize, const WIDTH: usize>(nibbles: Pair, bits: Pair) -> Pair = {
            let upper = both(bits, |bits| {
                let bits = match FIELD * WIDTH {
                    0 => _mm256_slli_epi16::<4>(bits),
                    1 => _mm256_slli_epi16::<3>(bits),
                    2 => _mm256_slli_epi16::<2>(bits),
                    3 => _mm256_slli_epi16::<1>(bits),
                    4 => bits,
                    5 => _mm256_srli_epi16::<1>(bits),
                    6 => _mm256_srli_epi16::<2>(bits),
                    _ => _mm256_srli_epi16::<3>(bits),
                };
                _mm256_and_si256(bits, _mm256_set1_epi8(upper_bits(WIDTH)))
            });
            (_mm256_or_si256(nibbles.0, upper.0), _mm256_or_si256(nibbles.1, upper.1))
        };
        fn lookup(nibbles: Pair, table: &'static [u8; 16]) -> Pair = both(nibbles, |nibbles| {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, nibbles)
        });

        fn zero_ints() -> Pair = (_mm256_setzero_si256(), _mm256_setzero_si256());
        fn splat_int(from: *const u8) -> Pair = {
            let int = _mm256_set1_epi32(from.cast::<i32>().read_unaligned());
            (int, int)
        };
        fn dot<const SMALL: bool>(sums: Pair, codes: Pair, x: *const u8) -> Pair = {
            let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
            (dot_rows::<SMALL>(sums.0, codes.0, x), dot_rows::<SMALL>(sums.1, codes.1, x))
        };
        fn to_floats(ints: Pair) -> Floats<Self> = (_mm256_cvtepi32_ps(ints.0), _mm256_cvtepi32_ps(ints.1));
        fn unsigned(from: *const u8) -> Floats<Self> = {
            let bytes = _mm_loadu_si128(from.cast());
            let ints = (_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes)));
            Self::to_floats(ints)
        };
        fn signed(from: *const u8) -> Floats<Self> = {
            let bytes = _mm_loadu_si128(from.cast());
            let ints = (_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes)));
            Self::to_floats(ints)
        };
        fn exponents(from: *const u8) -> Floats<Self> = {
            // The two smallest are subnormal: bits that are shifted. From 2 on, the exponent counts up.
            let bytes = _mm_loadu_si128(from.cast());
            let exponents = (_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes)));
            let powers = both(exponents, |exponents| {
                let two = _mm256_set1_epi32(2);
                let small = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), _mm256_min_epi32(exponents, two));
                let rest = _mm256_sub_epi32(_mm256_max_epi32(exponents, two), two);
                _mm256_add_epi32(small, _mm256_slli_epi32::<23>(rest))
            });
            (_mm256_castsi256_ps(powers.0), _mm256_castsi256_ps(powers.1))
        };
        fn float8(from: *const u8) -> Floats<Self> = {
            // The exponent of an f16 has one bit more, and a bias that is larger by 8.
            let codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(from.cast()));
            let sign = _mm256_slli_epi16::<8>(_mm256_and_si256(codes, _mm256_set1_epi16(0x80)));
            let rest = _mm256_slli_epi16::<7>(_mm256_and_si256(codes, _mm256_set1_epi16(0x7f)));
            let halves = _mm256_or_si256(sign, rest);
            (_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves)))
        };
        fn table_pair(table: *const u8, from: *const u8) -> (Floats<Self>, Floats<Self>) = {
            let table = (_mm256_loadu_ps(table.cast()), _mm256_loadu_ps(table.add(32).cast()));
            let bytes = _mm_loadu_si128(from.cast());
            let low = (_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes)));
            let high = both(low, |low| _mm256_srli_epi32::<4>(low));
            let look = |index: __m256i| {
                // Of an index, the lower 3 bits choose in each half of the table; the sign bit between the halves.
                let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
                let (first, second) =
                    (_mm256_permutevar8x32_ps(table.0, index), _mm256_permutevar8x32_ps(table.1, index));
                _mm256_blendv_ps(first, second, upper)
            };
            ((look(low.0), look(low.1)), (look(high.0), look(high.1)))
        };
        fn pairs(from: *const u8) -> (Floats<Self>, Floats<Self>) = {
            // A bf16 is the upper half of an f32.
            let pairs = Self::bytes(from);
            let first = both(pairs, |pairs| _mm256_slli_epi32::<16>(pairs));
            let second = both(pairs, |pairs| _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000u32 as i32)));
            let floats = |ints: Pair| (_mm256_castsi256_ps(ints.0), _mm256_castsi256_ps(ints.1));
            (floats(first), floats(second))
        };
        fn code(codes: Pair, column: usize) -> Floats<Self> = {
            let codes = both(codes, |codes| _mm256_srlv_epi32(codes, _mm256_set1_epi32(8 * column as i32)));
            Self::to_floats(both(codes, |codes| _mm256_and_si256(codes, _mm256_set1_epi32(255))))
        };

        fn quantize(low: Floats<Self>, high: Floats<Self>) -> Quantized = {
            let (scale, inverse) = scale_of(largest(low, high));
            let inverse = _mm256_set1_ps(inverse);
            let code = |values| _mm256_cvtps_epi32(_mm256_mul_ps(values, inverse));
            // Packing works in halves of 128 bits, so the codes come out four by four in another order.
            let low = _mm256_packs_epi32(code(low.0), code(low.1));
            let high = _mm256_packs_epi32(code(high.0), code(high.1));
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let codes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
            let codes = _mm256_max_epi8(codes, _mm256_set1_epi8(-127));
            let mut bytes = [0u8; 32];
            _mm256_storeu_si256(bytes.as_mut_ptr().cast(), codes);
            let sums = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
            let sums = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
            let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b01_00_11_10>(sums));
            let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b10_11_00_01>(sums));
            let sums = [_mm256_extract_epi32::<0>(sums), _mm256_extract_epi32::<4>(sums)];
            Quantized { codes: bytes, scale, sums }
        };
    }
}

#[inline(always)]
fn both(bytes: Pair, function: impl Fn(__m256i) -> __m256i) -> Pair {
    (function(bytes.0), function(bytes.1))
}

#[inline(always)]
unsafe fn dot_rows<const SMALL: bool>(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        if SMALL {
            let pairs = _mm256_maddubs_epi16(codes, x);
            return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
        let lower = _mm256_maddubs_epi16(_mm256_and_si256(codes, _mm256_set1_epi8(127)), x);
        let eighth = _mm256_and_si256(_mm256_srli_epi16::<7>(codes), _mm256_set1_epi8(1));
        let eighth = _mm256_maddubs_epi16(eighth, x);
        let sums = _mm256_add_epi32(sums, _mm256_madd_epi16(lower, _mm256_set1_epi16(1)));
        _mm256_add_epi32(sums, _mm256_madd_epi16(eighth, _mm256_set1_epi16(128)))
    }
}

/// As [`Isa::dots`], for 8 rows.
#[inline(always)]
unsafe fn dot_four<C: Codes>(sums: __m256i, codes: [__m256i; 4], x: [__m256i; 4]) -> __m256i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let mut sums = sums;
        if C::ZERO_POINT == 128 {
            for (codes, x) in codes.into_iter().zip(x) {
                let codes = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
                let products = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
                sums = _mm256_add_epi32(sums, _mm256_madd_epi16(products, ones));
            }
            return sums;
        }
        if C::MOST > 127 {
            for (codes, x) in codes.into_iter().zip(x) {
                sums = dot_rows::<false>(sums, codes, x);
            }
            return sums;
        }
        // How many products fit; they come in pairs.
        let fit = ((1 << 15) - 1) / (2 * 127 * C::MOST as i32);
        let mut products = [_mm256_setzero_si256(); 4];
        for (product, (codes, x)) in products.iter_mut().zip(codes.into_iter().zip(x)) {
            *product = _mm256_maddubs_epi16(codes, x);
        }
        let [a, b, c, d] = products;
        let (ab, cd) = (_mm256_add_epi16(a, b), _mm256_add_epi16(c, d));
        if fit >= 4 {
            return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_add_epi16(ab, cd), ones));
        }
        if fit >= 2 {
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(ab, ones));
            return _mm256_add_epi32(sums, _mm256_madd_epi16(cd, ones));
        }
        for product in products {
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(product, ones));
        }
        sums
    }
}

/// The largest magnitude. Magnitudes compare as integers do, and NaN as the largest.
#[inline(always)]
unsafe fn largest(low: (__m256, __m256), high: (__m256, __m256)) -> f32 {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let magnitude =
            |values| _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(0x7fff_ffff));
        let low = _mm256_max_epu32(magnitude(low.0), magnitude(low.1));
        let high = _mm256_max_epu32(magnitude(high.0), magnitude(high.1));
        let eight = _mm256_max_epu32(low, high);
        let four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
        let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
        let one = _mm_max_epu32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
        f32::from_bits(_mm_cvtsi128_si32(one) as u32)
    }
}
