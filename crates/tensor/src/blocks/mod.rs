//! Quantized blocks: how 32 or 256 weights share scales in a few bytes.
//!
//! Every format packs the same thing differently: small integer codes and, for each group of 16 or 32 codes, an f32
//! scale and an f32 minimum, so that
//!
//! ```text
//! weight = scale · code − minimum
//! ```
//!
//! A scale is a power of two, or an f16 (11 significant bits) times an integer of at most 7, so it is exact in f32; its product with
//! a code has at most 23 bits and is exact too. Only the subtraction rounds. Weights therefore equal those of GGML's
//! reference to the bit, and a fused multiply-add may be used or not. (Formats with an f32 scale, which GGML does not have,
//! round products as well. In some of them, codes stand for floats.)

mod block;
mod grids;
mod quantize;
mod random;
mod rounding;
mod search;

pub mod fp4;
pub mod fp8;
pub mod ggml_nvfp4;
pub mod gptq;
pub mod gptq8;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nf4;
pub mod nvfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod tq1_0;
pub mod tq2_0;

use half::{bf16, f16};

use crate::{DType, small_float};
use rounding::square_sum;

pub use block::{Format, Groups, Importance, Scale};
pub use gptq::GptqMatrix;
pub use grids::Eighths;
pub use random::random_blocks;

macro_rules! formats {
    (
        $($dtype:ident => $module:ident),*;
        only read: $($read:ident => $from:ident),*;
        floats: $($float:ident => $of:ident),* $(,)?
    ) => {
        /// Every block format.
        pub const FORMATS: &[Format] = &[$($module::FORMAT,)* $($from::FORMAT,)* $($of::FORMAT,)*];

        /// The dtypes that values can be quantized to. Blocks of the others are read from files.
        pub const WRITTEN: &[DType] = &[$(DType::$dtype,)*];

        /// Dequantizes whole blocks: `bytes` of `dtype` into `values`. Unpacks floats of less than a byte.
        ///
        /// # Panics
        /// If `dtype` is none of these nor f32, or the lengths do not belong together.
        pub fn dequantize(dtype: DType, bytes: &[u8], values: &mut [f32]) {
            check_lengths(dtype, bytes.len(), values.len());
            match dtype {
                DType::F32 => bytemuck::cast_slice_mut(values).copy_from_slice(bytes),
                $(DType::$dtype => each_block(bytes, values, |block, values| $module::unpack(block).dequantize(values)),)*
                $(DType::$read => each_block(bytes, values, |block, values| $from::unpack(block).dequantize(values)),)*
                $(DType::$float => each_block(bytes, values, $of::dequantize),)*
                dtype if dtype.is_sub_byte() => small_float::unpack(dtype, bytes, values),
                _ => panic!("{dtype} is no block format"),
            }
        }

        /// Unpacks whole blocks: one code per weight, one scale and one minimum per group of [`Format::group`].
        ///
        /// # Panics
        /// If `dtype` is no block format of integers, or the lengths do not belong together.
        pub fn unpack(dtype: DType, bytes: &[u8], codes: &mut [i8], scales: &mut [f32], minimums: &mut [f32]) {
            check_lengths(dtype, bytes.len(), codes.len());
            match dtype {
                $(DType::$dtype => unpack_each(bytes, codes, scales, minimums, $module::unpack),)*
                $(DType::$read => unpack_each(bytes, codes, scales, minimums, $from::unpack),)*
                _ => panic!("{dtype} is no block format of integers"),
            }
        }

        /// Quantizes finite values into whole blocks of `dtype`, as GGML does it; f32 is copied.
        ///
        /// # Panics
        /// If `dtype` is neither among [`WRITTEN`] nor f32, or the values do not divide into blocks.
        pub fn quantize(dtype: DType, values: &[f32]) -> Vec<u8> {
            let mut bytes = vec![0; dtype.bytes_for(values.len()).unwrap_or(0)];
            quantize_row(dtype, values, None, &mut bytes);
            bytes
        }

        /// Quantizes the finite values of a row into whole blocks of `dtype`, as GGML does it, or rounds them to f16 or
        /// bf16; f32 is copied.
        /// `importance` holds the mean square of what each column is multiplied with, where that is known: errors are
        /// then smaller where it is larger.
        ///
        /// # Panics
        /// If `dtype` is neither among [`WRITTEN`] nor one of these, or the lengths do not belong together.
        pub fn quantize_row(dtype: DType, values: &[f32], importance: Option<&[f32]>, bytes: &mut [u8]) {
            check_lengths(dtype, bytes.len(), values.len());
            match dtype {
                DType::F32 => bytes.copy_from_slice(bytemuck::cast_slice(values)),
                DType::F16 => each_block(values, bytes, |&[value], half| *half = f16::from_f32(value).to_le_bytes()),
                DType::BF16 => each_block(values, bytes, |&[value], half| *half = bf16::from_f32(value).to_le_bytes()),
                $(DType::$dtype => quantize_each(values, importance, bytes, $module::quantize),)*
                _ => panic!("values are not quantized to {dtype}"),
            }
        }
    };
}

formats! {
    Q4_0 => q4_0, Q4_1 => q4_1, Q5_0 => q5_0, Q5_1 => q5_1, Q8_0 => q8_0,
    Q2K => q2_k, Q3K => q3_k, Q4K => q4_k, Q5K => q5_k, Q6K => q6_k,
    Iq4Nl => iq4_nl, Iq4Xs => iq4_xs, Gptq => gptq;
    only read: Mxfp4 => mxfp4, Nvfp4 => nvfp4, GgmlNvfp4 => ggml_nvfp4, Gptq8 => gptq8,
    Iq1S => iq1_s, Iq1M => iq1_m, Iq2Xxs => iq2_xxs, Iq2Xs => iq2_xs, Iq2S => iq2_s, Iq3Xxs => iq3_xxs, Iq3S => iq3_s,
    Tq1_0 => tq1_0, Tq2_0 => tq2_0;
    floats: Fp8 => fp8, Nf4 => nf4, Fp4 => fp4,
}

macro_rules! eighths {
    ($($dtype:ident => $module:ident),* $(,)?) => {
        /// A block in integers, of the formats that have 16 multiples of an f16.
        ///
        /// # Panics
        /// If `block` is not one block.
        pub fn eighths(dtype: DType, block: &[u8]) -> Option<Eighths> {
            match dtype {
                $(DType::$dtype => Some($module::integers(block.try_into().expect("one block"))),)*
                _ => None,
            }
        }
    };
}

eighths! {
    Iq1S => iq1_s, Iq1M => iq1_m, Iq2Xxs => iq2_xxs, Iq2Xs => iq2_xs, Iq2S => iq2_s, Iq3Xxs => iq3_xxs, Iq3S => iq3_s,
    Tq1_0 => tq1_0, Tq2_0 => tq2_0,
}

/// The format of a block dtype, or `None` for plain numbers.
pub fn format(dtype: DType) -> Option<Format> {
    FORMATS.iter().copied().find(|format| format.dtype == dtype)
}

fn check_lengths(dtype: DType, bytes: usize, elements: usize) {
    assert_eq!(dtype.bytes_for(elements), Some(bytes), "bytes of {elements} {dtype} weights");
}

/// Converts chunk by chunk. The caller has checked that both sides have as many whole chunks.
fn each_block<A, B, const FROM: usize, const TO: usize>(
    from: &[A],
    to: &mut [B],
    convert: impl Fn(&[A; FROM], &mut [B; TO]),
) {
    for (from, to) in from.as_chunks().0.iter().zip(to.as_chunks_mut().0) {
        convert(from, to);
    }
}

/// Quantizes block by block. The caller has checked that both sides have as many whole blocks.
fn quantize_each<const ELEMENTS: usize, const BYTES: usize>(
    values: &[f32],
    importance: Option<&[f32]>,
    bytes: &mut [u8],
    quantize: impl Fn(&[f32; ELEMENTS], Option<Importance<'_, ELEMENTS>>, &mut [u8; BYTES]),
) {
    let Some(columns) = importance else {
        return each_block(values, bytes, |values, block| quantize(values, None, block));
    };
    assert_eq!(columns.len(), values.len(), "the importance of each column");
    let row = square_sum(values) / values.len() as f32;
    let blocks = values.as_chunks().0.iter().zip(bytes.as_chunks_mut().0);
    for ((values, block), columns) in blocks.zip(columns.as_chunks().0) {
        quantize(values, Some(Importance { columns, row }), block);
    }
}

fn unpack_each<const BYTES: usize, const ELEMENTS: usize, const GROUPS: usize>(
    bytes: &[u8],
    codes: &mut [i8],
    scales: &mut [f32],
    minimums: &mut [f32],
    unpack: impl Fn(&[u8; BYTES]) -> Groups<ELEMENTS, GROUPS>,
) {
    let groups = codes.len() / ELEMENTS * GROUPS;
    assert_eq!((scales.len(), minimums.len()), (groups, groups), "scales and minimums of {groups} groups");
    let codes = codes.as_chunks_mut().0.iter_mut();
    let factors = scales.as_chunks_mut().0.iter_mut().zip(minimums.as_chunks_mut().0);
    for ((block, codes), (scales, minimums)) in bytes.as_chunks().0.iter().zip(codes).zip(factors) {
        let groups = unpack(block);
        *codes = groups.codes;
        *scales = groups.scales;
        *minimums = groups.minimums;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap()).collect()
    }

    fn fnv1a(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |digest, &byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    fn dequantized(dtype: DType, bytes: &[u8]) -> Vec<f32> {
        let block = dtype.block();
        let mut values = vec![f32::NAN; bytes.len() / block.bytes * block.elements];
        dequantize(dtype, bytes, &mut values);
        values
    }

    #[test]
    fn every_block_dtype_has_its_format() {
        for &dtype in DType::ALL {
            assert_eq!(format(dtype).is_some(), dtype.is_block(), "{dtype}");
        }
        for format in FORMATS {
            let block = format.dtype.block();
            assert!(block.elements.is_multiple_of(format.group));
            assert!(format.scales.iter().all(|scale| scale.range().end <= block.bytes));
        }
    }

    /// The goldens are of GGML's reference; tools/block_goldens.py wrote them.
    #[test]
    fn dequantizes_and_quantizes_as_the_reference_to_the_bit() {
        let mut checked = std::collections::BTreeMap::new();
        for (line, text) in include_str!("goldens.txt").lines().enumerate() {
            let fields: Vec<&str> = text.split(' ').collect();
            let [kind @ ("dequantize" | "quantize"), dtype, given, expected] = fields[..] else { continue };
            let (name, dtype, given) = (dtype, dtype.parse().unwrap(), unhex(given));
            let found = if kind == "dequantize" {
                format!("{:016x}", fnv1a(bytemuck::cast_slice(&dequantized(dtype, &given))))
            } else {
                let bytes = quantize(dtype, &bytemuck::pod_collect_to_vec::<u8, f32>(&given));
                bytes.iter().map(|byte| format!("{byte:02x}")).collect()
            };
            assert_eq!(found, expected, "{kind} {dtype}, line {} of goldens.txt", line + 1);
            *checked.entry((kind, name)).or_insert(0) += 1;
        }
        let count = |kind| checked.iter().filter(|((k, _), cases)| *k == kind && **cases >= 6).count();
        assert_eq!((count("dequantize"), count("quantize")), (FORMATS.len(), 5));
    }

    /// The rows of a kind and the importance of their columns, as tools/block_goldens.py makes them.
    fn golden_rows(kind: &str) -> (Vec<Vec<f32>>, Vec<f32>) {
        const COLUMNS: usize = 512;
        let mut state = kind.len() as u64;
        let rows = (0..3).map(|_| {
            let value = |i: usize| {
                let (bits, more) = (random::random(&mut state), random::random(&mut state));
                let v = ((bits & 0xffff) as i32 + (bits >> 16) as i32 - 0xffff) as f32;
                let unit = |bits: u32| 2f32.powi(-(bits as i32));
                match kind {
                    "triangular" => v * unit(20),
                    "heavy" => v * unit(20 + more % 8),
                    "groups" => v * unit(20 + i as u32 / 16 % 24),
                    "positive" => v.abs() * unit(20),
                    "negative" => -v.abs() * unit(20),
                    "offset" => (v + 65536.0) * unit(20),
                    "sparse" if more.is_multiple_of(16) => v * unit(20),
                    "sparse" => 0.0,
                    "ties" => (i % 32) as f32 / 2.0 - 8.0,
                    "constant" => -0.75,
                    "large" => v * 1024.0,
                    "tiny" => v * unit(40),
                    "negligible" => v * unit(70),
                    "zero" => 0.0,
                    _ => panic!("unknown kind {kind}"),
                }
            };
            (0..COLUMNS).map(value).collect()
        });
        let rows = rows.collect();
        let column = |_| (random::random(&mut state) & 0xffff) as f32 / 4096.0;
        (rows, (0..COLUMNS).map(column).collect())
    }

    /// The goldens are of GGML's library; tools/block_goldens.py wrote them.
    #[test]
    fn searched_scales_are_those_of_the_reference_to_the_bit() {
        let (mut checked, mut wrong) = (0, Vec::new());
        for text in include_str!("goldens.txt").lines() {
            let fields: Vec<&str> = text.split(' ').collect();
            let ["search", dtype, kind, importance, expected] = fields[..] else { continue };
            let (rows, columns) = golden_rows(kind);
            let columns = (importance == "important").then_some(&columns[..]);
            let dtype: DType = dtype.parse().unwrap();
            let quantized = rows.iter().flat_map(|row| {
                let mut bytes = vec![0xaa; dtype.bytes_for(row.len()).unwrap()];
                quantize_row(dtype, row, columns, &mut bytes);
                bytes
            });
            let found = format!("{:016x}", fnv1a(&quantized.collect::<Vec<u8>>()));
            if found != expected {
                wrong.push(format!("{dtype} {kind} {importance}"));
            }
            checked += 1;
        }
        assert!(wrong.is_empty(), "{}", wrong.join(", "));
        assert_eq!(checked, (WRITTEN.len() - 1) * 13 * 2, "all formats of files");
    }

    #[test]
    fn unpacked_groups_say_what_dequantizing_says() {
        for format in FORMATS.iter().filter(|format| format.has_integers()) {
            let (dtype, count) = (format.dtype, 5);
            let bytes = random_blocks(dtype, count, 7);
            let elements = count * dtype.block().elements;
            let mut codes = vec![0; elements];
            let mut scales = vec![0.0; elements / format.group];
            let mut minimums = scales.clone();
            unpack(dtype, &bytes, &mut codes, &mut scales, &mut minimums);
            assert!(codes.iter().all(|code| (format.codes.0..=format.codes.1).contains(code)), "{dtype}");
            assert!(format.minimums != minimums.iter().all(|&minimum| minimum == 0.0), "{dtype}");
            for (i, weight) in dequantized(dtype, &bytes).into_iter().enumerate() {
                let (scale, code, minimum) =
                    (scales[i / format.group], f32::from(codes[i]), minimums[i / format.group]);
                assert_eq!((scale * code - minimum).to_bits(), weight.to_bits(), "{dtype} weight {i}");
                if format.scales.iter().any(|scale| matches!(scale, Scale::F32(_))) {
                    continue;
                }
                // Products are exact, so fusing the subtraction changes nothing.
                assert_eq!(scale.mul_add(code, -minimum), weight, "{dtype} weight {i}");
                assert_eq!(f64::from(scale) * f64::from(code), f64::from(scale * code));
            }
        }
    }

    #[test]
    fn random_blocks_are_small_and_reproducible() {
        for format in FORMATS {
            let bytes = random_blocks(format.dtype, 40, 1);
            assert_eq!(bytes, random_blocks(format.dtype, 40, 1));
            assert_ne!(bytes, random_blocks(format.dtype, 40, 2));
            let weights = dequantized(format.dtype, &bytes);
            let largest = weights.iter().fold(0.0, |largest: f32, weight| largest.max(weight.abs()));
            assert!((0.25..=1.51).contains(&largest), "{}: {largest}", format.dtype);
        }
    }

    #[test]
    #[should_panic(expected = "bytes of 64 q4_0 weights")]
    fn lengths_must_belong_together() {
        dequantize(DType::Q4_0, &[0; 18], &mut [0.0; 64]);
    }

    /// How far a quantized weight can be from the value, relative to the largest magnitude in its block.
    ///
    /// Half a step of the codes, or a whole one where the codes of one sign reach less far than those of the other;
    /// rounding of the group's scale; and f16 rounding. Twice that where scales are searched, which gives up the
    /// extremes if many others gain.
    fn tolerance(dtype: DType) -> f32 {
        let level_gap = 14.0 / 127.0;
        let searched = dtype.block().elements == 256 || dtype == DType::Iq4Nl;
        let error = match dtype {
            DType::Q4_0 => 1.0 / 8.0,
            DType::Q5_0 => 1.0 / 16.0,
            DType::Q8_0 => 0.5 / 127.0,
            DType::Q4_1 => 1.0 / 15.0,
            DType::Q5_1 => 1.0 / 31.0,
            DType::Q2K => 1.0 / 3.0 + 1.5 / 15.0,
            DType::Q3K => 1.0 / 4.0 + 1.0 / 32.0,
            DType::Q4K => 1.0 / 15.0 + 1.5 / 63.0,
            DType::Q5K => 1.0 / 31.0 + 1.5 / 63.0,
            DType::Q6K => 1.0 / 32.0 + 1.0 / 128.0,
            DType::Iq4Nl => level_gap,
            DType::Iq4Xs => level_gap + 1.0 / 32.0,
            // The values reach from 0 on, and zero points are whole.
            DType::Gptq => 2.0 / 15.0,
            _ => unreachable!("{dtype} is no block format"),
        };
        0.002 + error * if searched { 2.0 } else { 1.0 }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn quantized_values_stay_near(
            units in prop::collection::vec(-1.0f32..1.0, 256),
            offset in -1.0f32..1.0,
            magnitude in 0.1f32..1000.0,
        ) {
            let values: Vec<f32> = units.iter().map(|unit| (unit + offset) * magnitude).collect();
            for &dtype in WRITTEN {
                let weights = dequantized(dtype, &quantize(dtype, &values));
                let size = dtype.block().elements;
                for (values, weights) in values.chunks(size).zip(weights.chunks(size)) {
                    let largest = values.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
                    for (value, weight) in values.iter().zip(weights) {
                        let error = (value - weight).abs() / largest;
                        prop_assert!(error <= tolerance(dtype), "{}: {} became {}", dtype, value, weight);
                    }
                }
            }
        }

        /// Blocks whose groups differ widely in scale, as random ones do.
        #[test]
        fn weights_stay_near_when_quantized_again(seed in any::<u64>()) {
            for &dtype in WRITTEN {
                let first = dequantized(dtype, &random_blocks(dtype, 2, seed));
                let second = dequantized(dtype, &quantize(dtype, &first));
                let largest = first.iter().fold(0.0, |largest: f32, weight| largest.max(weight.abs()));
                for (first, second) in first.iter().zip(&second) {
                    prop_assert!((first - second).abs() <= tolerance(dtype) * largest, "{}", dtype);
                }
            }
        }
    }
}
