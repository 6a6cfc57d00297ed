//! Floats of less than a byte: what their bits mean, and how they lie in bytes.
//!
//! | dtype | exponent, mantissa | bias | largest | packed |
//! |---|---|---|---|---|
//! | `f4e2m1fn` | 2, 1 | 1 | 6 | two to a byte, the first in the low half |
//! | `f6e2m3fn` | 2, 3 | 1 | 7.5 | four to three bytes, the first in the lowest bits, bytes little-endian |
//! | `f6e3m2fn` | 3, 2 | 3 | 28 | as above |
//!
//! All have a sign, both zeros and subnormals, and neither infinity nor NaN (OCP Microscaling Formats 1.0).

use crate::DType;

/// The value of an element's bits; exact. Higher bits of the code are ignored.
///
/// # Panics
/// If `dtype` is not a float of less than a byte.
pub fn decode(dtype: DType, code: u8) -> f32 {
    let (exponent_bits, mantissa_bits, bias) = format(dtype);
    let magnitude = code & ((1 << (exponent_bits + mantissa_bits)) - 1);
    let sign = if code >> (exponent_bits + mantissa_bits) & 1 == 1 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1));
    let significand = u8::from(exponent > 0) << mantissa_bits | mantissa;
    let exponent = i32::from(exponent.max(1)) - bias - mantissa_bits;
    sign * f32::from(significand) * 2f32.powi(exponent)
}

/// The values of packed elements.
///
/// # Panics
/// If `dtype` is no float of less than a byte, or the lengths do not belong together.
pub fn unpack(dtype: DType, bytes: &[u8], values: &mut [f32]) {
    let block = dtype.block();
    let bits = 8 * block.bytes / block.elements;
    assert_eq!(dtype.bytes_for(values.len()), Some(bytes.len()), "bytes for {} of {dtype}", values.len());
    for (bytes, values) in bytes.chunks_exact(block.bytes).zip(values.chunks_exact_mut(block.elements)) {
        let packed = bytes.iter().rev().fold(0u32, |packed, &byte| packed << 8 | u32::from(byte));
        for (i, value) in values.iter_mut().enumerate() {
            *value = decode(dtype, (packed >> (i * bits)) as u8);
        }
    }
}

/// Rounds to the nearest value, ties to the even code. What is beyond the largest value becomes the largest of its sign;
/// NaN, which the formats lack, becomes 0.
///
/// # Panics
/// If `dtype` is no float of less than a byte.
pub fn encode(dtype: DType, value: f64) -> u8 {
    let sign = 1 << (dtype.size_in_bits() - 1);
    let magnitude = if value.is_nan() { 0.0 } else { value.abs() };
    let distance = |code: u8| (f64::from(decode(dtype, code)) - magnitude).abs();
    let nearer = |a: &u8, b: &u8| distance(*a).total_cmp(&distance(*b)).then((a & 1).cmp(&(b & 1)));
    // A finite distance for infinity too.
    let code = if magnitude.is_infinite() { sign - 1 } else { (0..sign).min_by(nearer).unwrap_or(0) };
    if value.is_sign_negative() && !value.is_nan() { sign | code } else { code }
}

/// Packs elements, each as [`encode`] rounds it.
///
/// # Panics
/// If `dtype` is not a float of less than a byte, or the numbers do not fill whole bytes.
pub fn pack(dtype: DType, values: &[f64]) -> Vec<u8> {
    let block = dtype.block();
    let bits = 8 * block.bytes / block.elements;
    assert!(dtype.bytes_for(values.len()).is_some(), "{} of {dtype} fill no bytes", values.len());
    let packed = values.chunks_exact(block.elements).flat_map(|values| {
        let code =
            |packed: u32, (i, &value): (usize, &f64)| packed | u32::from(encode(dtype, value)) << (i * bits);
        values.iter().enumerate().fold(0, code).to_le_bytes().into_iter().take(block.bytes)
    });
    packed.collect()
}

/// Bits of exponent and mantissa, and the bias.
fn format(dtype: DType) -> (i32, i32, i32) {
    match dtype {
        DType::F4E2M1 => (2, 1, 1),
        DType::F6E2M3 => (2, 3, 1),
        DType::F6E3M2 => (3, 2, 3),
        _ => panic!("{dtype} is no float of less than a byte"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Tensor};

    fn positive(dtype: DType) -> Vec<f32> {
        (0..1 << (dtype.size_in_bits() - 1)).map(|code| decode(dtype, code)).collect()
    }

    #[test]
    fn values_are_those_of_the_specification() {
        assert_eq!(positive(DType::F4E2M1), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        for (dtype, subnormals, largest) in [
            (DType::F6E2M3, &[0.0, 0.125, 0.25, 0.375][..], 7.5),
            (DType::F6E3M2, &[0.0, 0.0625, 0.125, 0.1875, 0.25, 0.3125][..], 28.0),
        ] {
            let values = positive(dtype);
            assert_eq!((&values[..subnormals.len()], *values.last().unwrap()), (subnormals, largest));
            assert!(values.is_sorted() && decode(dtype, 1 << 5) == 0.0 && decode(dtype, 0x3f) == -largest);
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_code() {
        for dtype in DType::STORED_ONLY {
            for code in 0..1u8 << dtype.size_in_bits() {
                let value = decode(*dtype, code);
                assert_eq!(encode(*dtype, value.into()), code, "{dtype} {value}");
            }
        }
        let cases =
            [(2.5, 2.0), (1.25, 1.0), (1.75, 2.0), (5.1, 6.0), (-1e9, -6.0), (f64::NEG_INFINITY, -6.0)];
        for (value, expected) in cases {
            assert_eq!(decode(DType::F4E2M1, encode(DType::F4E2M1, value)), expected, "{value}");
        }
        assert_eq!(encode(DType::F6E3M2, f64::NAN), 0);
        let values = [0.125, 0.25, 0.375, -7.5];
        let bytes = pack(DType::F6E2M3, &values);
        let mut unpacked = [0.0; 4];
        unpack(DType::F6E2M3, &bytes, &mut unpacked);
        assert_eq!(unpacked.map(f64::from), values);
    }

    #[test]
    fn elements_are_packed_from_the_lowest_bits_on() {
        let tensor =
            |dtype, count, bytes: &'static [u8]| Tensor::from_bytes(dtype, [count], Bytes::new(bytes));
        assert_eq!(tensor(DType::F4E2M1, 4, &[0x21, 0xf7]).unwrap().to_f32_vec(), [0.5, 1.0, 6.0, -6.0]);
        // 1, 2, 3 and 63 in six bits each.
        let packed = 1 | 2 << 6 | 3 << 12 | 63u32 << 18;
        let bytes = &packed.to_le_bytes()[..3];
        let mut values = [0.0; 4];
        unpack(DType::F6E2M3, bytes, &mut values);
        assert_eq!(values, [0.125, 0.25, 0.375, -7.5]);
        assert!(tensor(DType::F4E2M1, 3, &[0, 0]).is_err() && tensor(DType::F6E3M2, 4, &[0; 4]).is_err());
    }
}
