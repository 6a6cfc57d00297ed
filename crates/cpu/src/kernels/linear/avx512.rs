//! Panels in AVX-512 with byte dot products: a register holds one column group of all 16 rows.

use std::arch::x86_64::*;

use super::simd::{Isa, Quantized, operations, scale_of, upper_bits};

pub(super) struct Avx512;

impl Isa for Avx512 {
    // 12 integer and 12 float sums leave 8 of the 32 registers.
    const TILE: usize = 12;
    type Bytes = __m512i;
    type Ints = __m512i;
    type Lanes = crate::vec::Avx512;

    fn available() -> bool {
        crate::vec::Avx512::available() && crate::instruction_set::dot_products()
    }

    operations! {
        fn lanes() -> crate::vec::Avx512 = crate::vec::Avx512::new();
        fn bytes(from: *const u8) -> __m512i = _mm512_loadu_si512(from.cast());
        fn prefetch(from: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(from.cast());
        fn low_nibbles(bytes: __m512i) -> __m512i = _mm512_and_si512(bytes, _mm512_set1_epi8(15));
        fn high_nibbles(bytes: __m512i) -> __m512i =
            _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi8(15));
        fn with_upper_bits<const FIELD: usize, const WIDTH: usize>(nibbles: __m512i, bits: __m512i) -> __m512i = {
            let bits = match FIELD * WIDTH {
                0 => _mm512_slli_epi16::<4>(bits),
                1 => _mm512_slli_epi16::<3>(bits),
                2 => _mm512_slli_epi16::<2>(bits),
                3 => _mm512_slli_epi16::<1>(bits),
                4 => bits,
                5 => _mm512_srli_epi16::<1>(bits),
                6 => _mm512_srli_epi16::<2>(bits),
                _ => _mm512_srli_epi16::<3>(bits),
            };
            _mm512_or_si512(nibbles, _mm512_and_si512(bits, _mm512_set1_epi8(upper_bits(WIDTH))))
        };
        fn lookup(nibbles: __m512i, table: &'static [u8; 16]) -> __m512i =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), nibbles);

        fn zero_ints() -> __m512i = _mm512_setzero_si512();
        fn splat_int(from: *const u8) -> __m512i = _mm512_set1_epi32(from.cast::<i32>().read_unaligned());
        fn dot<const SMALL: bool>(sums: __m512i, codes: __m512i, x: *const u8) -> __m512i =
            _mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(x.cast::<i32>().read_unaligned()));
        fn to_floats(ints: __m512i) -> __m512 = _mm512_cvtepi32_ps(ints);

        fn unsigned(from: *const u8) -> __m512 =
            _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())));
        fn signed(from: *const u8) -> __m512 =
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())));
        fn exponents(from: *const u8) -> __m512 = {
            // The two smallest are subnormal: bits that are shifted. From 2 on, the exponent counts up.
            let exponents = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            let two = _mm512_set1_epi32(2);
            let small = _mm512_sllv_epi32(_mm512_set1_epi32(1 << 21), _mm512_min_epi32(exponents, two));
            let rest = _mm512_sub_epi32(_mm512_max_epi32(exponents, two), two);
            _mm512_castsi512_ps(_mm512_add_epi32(small, _mm512_slli_epi32::<23>(rest)))
        };
        fn float8(from: *const u8) -> __m512 = {
            // The exponent of an f16 has one bit more, and a bias that is larger by 8.
            let codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(from.cast()));
            let sign = _mm256_slli_epi16::<8>(_mm256_and_si256(codes, _mm256_set1_epi16(0x80)));
            let rest = _mm256_slli_epi16::<7>(_mm256_and_si256(codes, _mm256_set1_epi16(0x7f)));
            _mm512_cvtph_ps(_mm256_or_si256(sign, rest))
        };
        fn table_pair(table: *const u8, from: *const u8) -> (__m512, __m512) = {
            let (table, bytes) = (_mm512_loadu_ps(table.cast()), _mm_loadu_si128(from.cast()));
            let low = _mm512_cvtepu8_epi32(bytes);
            // Of an index, the lower 4 bits count.
            (_mm512_permutexvar_ps(low, table), _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(low), table))
        };
        fn pairs(from: *const u8) -> (__m512, __m512) = {
            // A bf16 is the upper half of an f32.
            let pairs = _mm512_loadu_si512(from.cast());
            let second = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000u32 as i32));
            (_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(second))
        };
        fn code(codes: __m512i, column: usize) -> __m512 = {
            let codes = _mm512_srlv_epi32(codes, _mm512_set1_epi32(8 * column as i32));
            _mm512_cvtepi32_ps(_mm512_and_si512(codes, _mm512_set1_epi32(255)))
        };

        fn quantize(low: __m512, high: __m512) -> Quantized = {
            // Magnitudes compare as integers do, and NaN as the largest.
            let magnitude = _mm512_set1_epi32(0x7fff_ffff);
            let largest = _mm512_max_epu32(
                _mm512_and_si512(_mm512_castps_si512(low), magnitude),
                _mm512_and_si512(_mm512_castps_si512(high), magnitude),
            );
            let (scale, inverse) = scale_of(f32::from_bits(_mm512_reduce_max_epu32(largest)));
            let inverse = _mm512_set1_ps(inverse);
            let lowest = _mm_set1_epi8(-127);
            let low = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(low, inverse)));
            let high = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(high, inverse)));
            let (low, high) = (_mm_max_epi8(low, lowest), _mm_max_epi8(high, lowest));
            let mut codes = [0u8; 32];
            _mm_storeu_si128(codes.as_mut_ptr().cast(), low);
            _mm_storeu_si128(codes.as_mut_ptr().add(16).cast(), high);
            let sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), _mm256_set_m128i(high, low));
            let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b01_00_11_10>(sums));
            let sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32::<0b10_11_00_01>(sums));
            let sums = [_mm256_extract_epi32::<0>(sums), _mm256_extract_epi32::<4>(sums)];
            Quantized { codes, scale, sums }
        };
    }
}
