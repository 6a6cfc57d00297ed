//! 8-bit floats: what their bytes mean, and how an f32 is rounded to one.
//!
//! | dtype | exponent bias | largest | infinity | NaN | negative zero |
//! |---|---|---|---|---|---|
//! | `f8e4m3fn` | 7 | 448 | – | `7f`, `ff` | yes |
//! | `f8e4m3fnuz` | 8 | 240 | – | `80` | – |
//! | `f8e5m2` | 15 | 57344 | `7c`, `fc` | `7d`–`7f`, `fd`–`ff` | yes |
//! | `f8e5m2fnuz` | 16 | 57344 | – | `80` | – |
//! | `f8e8m0fnu` | 127 | 2¹²⁷ | – | `ff` | – |
//!
//! The first four have a sign bit above exponent and mantissa, and subnormals as IEEE floats do (Micikevicius et al.
//! 2022, "FP8 formats for deep learning"; Noune et al. 2022 for `fnuz`). `f8e8m0fnu` is a bare exponent, 2^(byte − 127),
//! with neither zero nor sign (OCP Microscaling Formats 1.0).

use crate::DType;

/// The value of a byte; exact.
///
/// # Panics
/// If `dtype` is not an 8-bit float.
pub fn decode(dtype: DType, byte: u8) -> f32 {
    let format = match Format::of(dtype) {
        Some(format) => format,
        None if byte == 0xff => return f32::NAN,
        None => return power_of_two(i32::from(byte) - 127),
    };
    let (sign, magnitude) = (if byte >> 7 == 1 { -1.0 } else { 1.0 }, byte & 0x7f);
    if format.infinity == Some(magnitude) {
        return sign * f32::INFINITY;
    }
    let is_nan = if format.unsigned_zero { byte == format.nan } else { magnitude > format.largest };
    if is_nan {
        return f32::NAN;
    }
    let (exponent, mantissa) = (magnitude >> format.mantissa, magnitude & ((1 << format.mantissa) - 1));
    let significand = u8::from(exponent > 0) << format.mantissa | mantissa;
    let exponent = i32::from(exponent.max(1)) - format.bias - format.mantissa;
    sign * f32::from(significand) * power_of_two(exponent)
}

/// The values of all 256 bytes, for decoding many.
///
/// # Panics
/// If `dtype` is no 8-bit float.
pub fn values(dtype: DType) -> [f32; 256] {
    std::array::from_fn(|byte| decode(dtype, byte as u8))
}

/// Rounds to the nearest value, ties to the even byte. What rounds beyond the largest value becomes infinity where the
/// dtype has one, else NaN.
///
/// `f8e8m0fnu` has only powers of two: what is below 2⁻¹²⁷, zero included, becomes 2⁻¹²⁷, and negative values NaN.
///
/// # Panics
/// If `dtype` is no 8-bit float.
pub fn encode(dtype: DType, value: f32) -> u8 {
    round(dtype, value).unwrap_or_else(|overflow| overflow.special)
}

/// As [`encode`], of a number of 64 bits, which is rounded once.
///
/// # Panics
/// If `dtype` is no 8-bit float.
pub fn encode_f64(dtype: DType, value: f64) -> u8 {
    encode(dtype, round_to_odd(value))
}

/// Rounds to an `f32` such that rounding on to 16 or fewer bits is as good as rounding once: an inexact result gets an
/// odd last bit, so it is never mistaken for a tie (Boldo and Melquiond, "When double rounding is odd", 2005).
pub fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || value.is_nan() {
        return nearest;
    }
    let beyond = f64::from(nearest).abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(beyond)) | 1)
}

/// As [`encode`], but what is beyond the largest value, infinity included, becomes the largest value of its sign.
/// NaN stays NaN.
///
/// # Panics
/// If `dtype` is no 8-bit float.
pub fn encode_saturating(dtype: DType, value: f32) -> u8 {
    round(dtype, value).unwrap_or_else(|overflow| overflow.largest)
}

/// A signed 8-bit float.
struct Format {
    /// Bits of the mantissa.
    mantissa: i32,
    bias: i32,
    /// The byte of the largest finite value.
    largest: u8,
    /// The byte of positive infinity.
    infinity: Option<u8>,
    /// The byte of NaN without a sign.
    nan: u8,
    /// Whether the byte of negative zero means NaN, and nothing else does.
    unsigned_zero: bool,
}

/// What takes the place of a value beyond the largest.
struct Overflow {
    special: u8,
    largest: u8,
}

impl Format {
    /// `None` for `f8e8m0fnu`.
    fn of(dtype: DType) -> Option<Format> {
        let (mantissa, bias, largest, infinity, nan) = match dtype {
            DType::F8E4M3 => (3, 7, 0x7e, None, 0x7f),
            DType::F8E4M3Fnuz => (3, 8, 0x7f, None, 0x80),
            DType::F8E5M2 => (2, 15, 0x7b, Some(0x7c), 0x7e),
            DType::F8E5M2Fnuz => (2, 16, 0x7f, None, 0x80),
            DType::F8E8M0 => return None,
            _ => panic!("{dtype} is no 8-bit float"),
        };
        Some(Format { mantissa, bias, largest, infinity, nan, unsigned_zero: nan == 0x80 })
    }
}

fn round(dtype: DType, value: f32) -> Result<u8, Overflow> {
    let Some(format) = Format::of(dtype) else { return round_to_power_of_two(value) };
    let sign = u8::from(value.is_sign_negative()) << 7;
    if value.is_nan() {
        return Ok(if format.unsigned_zero { format.nan } else { sign | format.nan });
    }
    // In units of the last place, a normal value lies in 2^mantissa .. 2^(mantissa + 1) and a subnormal below. Adding
    // the exponent above the mantissa then gives the byte of either, and a carry out of the mantissa is right too.
    let lowest = 1 - format.bias;
    let exponent = exponent_of(value).max(lowest);
    let code = if value.is_infinite() {
        i32::MAX
    } else {
        let units = value.abs() * power_of_two(format.mantissa - exponent);
        ((exponent - lowest) << format.mantissa) + units.round_ties_even() as i32
    };
    match code {
        0 if format.unsigned_zero => Ok(0),
        code if code <= i32::from(format.largest) => Ok(sign | code as u8),
        _ => {
            let nan = if format.unsigned_zero { format.nan } else { sign | format.nan };
            let special = format.infinity.map_or(nan, |infinity| sign | infinity);
            Err(Overflow { special, largest: sign | format.largest })
        }
    }
}

fn round_to_power_of_two(value: f32) -> Result<u8, Overflow> {
    if value.is_nan() || value < 0.0 {
        return Ok(0xff);
    }
    // The mantissa rounds into the exponent: up above one half, and at one half if the exponent is odd.
    let bits = value.abs().to_bits();
    let (exponent, mantissa) = (bits >> 23, bits & 0x7f_ffff);
    // 2^-127 is subnormal in f32, with half the mantissa's range below it, so 2^-127 .. 2^-126 is split at 3/4.
    let half = if exponent == 0 { 0x60_0000 } else { 0x40_0000 };
    let up = mantissa > half || (mantissa == half && exponent & 1 == 1);
    match exponent + u32::from(up) {
        code @ 0..=0xfe => Ok(code as u8),
        _ => Err(Overflow { special: 0xff, largest: 0xfe }),
    }
}

/// The exponent of a finite value; that of the smallest normal for subnormals and zero.
fn exponent_of(value: f32) -> i32 {
    ((value.to_bits() >> 23 & 0xff) as i32).max(1) - 127
}

/// `2^exponent`, for exponents from -127 to 127.
fn power_of_two(exponent: i32) -> f32 {
    if exponent == -127 { f32::MIN_POSITIVE / 2.0 } else { f32::from_bits(((exponent + 127) as u32) << 23) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FLOATS: [DType; 5] =
        [DType::F8E8M0, DType::F8E4M3, DType::F8E4M3Fnuz, DType::F8E5M2, DType::F8E5M2Fnuz];

    #[test]
    fn known_bytes() {
        let cases: [(DType, u8, f32); 17] = [
            (DType::F8E4M3, 0x00, 0.0),
            (DType::F8E4M3, 0x01, 0.001953125),
            (DType::F8E4M3, 0x38, 1.0),
            (DType::F8E4M3, 0xc4, -3.0),
            (DType::F8E4M3, 0x7e, 448.0),
            (DType::F8E4M3Fnuz, 0x40, 1.0),
            (DType::F8E4M3Fnuz, 0x01, 0.0009765625),
            (DType::F8E4M3Fnuz, 0xff, -240.0),
            (DType::F8E5M2, 0x3c, 1.0),
            (DType::F8E5M2, 0x01, 1.0 / 65536.0),
            (DType::F8E5M2, 0x7b, 57344.0),
            (DType::F8E5M2, 0xfc, f32::NEG_INFINITY),
            (DType::F8E5M2Fnuz, 0x40, 1.0),
            (DType::F8E5M2Fnuz, 0x7f, 57344.0),
            (DType::F8E8M0, 0x7f, 1.0),
            (DType::F8E8M0, 0x00, 5.877472e-39),
            (DType::F8E8M0, 0xfe, 1.7014118e38),
        ];
        for (dtype, byte, value) in cases {
            assert_eq!(decode(dtype, byte), value, "{dtype} {byte:02x}");
        }
        assert!(decode(DType::F8E4M3, 0x80).is_sign_negative());
    }

    #[test]
    fn numbers_of_64_bits_are_rounded_once() {
        // Between 1 and 1.125, a hair above the middle: by way of the nearest f32 it would be a tie.
        let above = 1.0625 + 1e-12;
        assert_eq!(decode(DType::F8E4M3, encode(DType::F8E4M3, above as f32)), 1.0);
        assert_eq!(decode(DType::F8E4M3, encode_f64(DType::F8E4M3, above)), 1.125);
        assert!(decode(DType::F8E4M3, encode_f64(DType::F8E4M3, 1e300)).is_nan());
        assert_eq!(decode(DType::F8E5M2, encode_f64(DType::F8E5M2, -1e300)), f32::NEG_INFINITY);
    }

    #[test]
    fn nans_are_where_the_formats_put_them() {
        for (dtype, nans) in [
            (DType::F8E8M0, &[0xff][..]),
            (DType::F8E4M3, &[0x7f, 0xff]),
            (DType::F8E4M3Fnuz, &[0x80]),
            (DType::F8E5M2, &[0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff]),
            (DType::F8E5M2Fnuz, &[0x80]),
        ] {
            let found: Vec<u8> = (0..=255).filter(|&byte| decode(dtype, byte).is_nan()).collect();
            assert_eq!(found, nans, "{dtype}");
        }
    }

    #[test]
    fn every_value_encodes_to_its_byte() {
        for dtype in FLOATS {
            for byte in 0..=255 {
                let value = decode(dtype, byte);
                let encoded = encode(dtype, value);
                assert!(
                    encoded == byte || value.is_nan() && decode(dtype, encoded).is_nan(),
                    "{dtype} {byte:02x}"
                );
            }
        }
    }

    #[test]
    fn overflow_saturates_or_becomes_special() {
        // The largest value of e4m3fn is 448; the next step, 480, would be NaN's byte. The tie goes to 448.
        assert_eq!(encode(DType::F8E4M3, 464.0), 0x7e);
        assert_eq!(encode(DType::F8E4M3, -464.1), 0xff);
        assert_eq!(encode_saturating(DType::F8E4M3, -464.1), 0xfe);
        assert_eq!(encode(DType::F8E5M2, 61440.0), 0x7c);
        assert_eq!(encode_saturating(DType::F8E5M2, f32::INFINITY), 0x7b);
        assert_eq!(encode(DType::F8E4M3Fnuz, f32::NEG_INFINITY), 0x80);
        assert_eq!(encode_saturating(DType::F8E4M3Fnuz, f32::NEG_INFINITY), 0xff);
        assert_eq!(encode(DType::F8E8M0, f32::MAX), 0xff);
        assert_eq!(encode_saturating(DType::F8E8M0, f32::MAX), 0xfe);
        assert_eq!(encode_saturating(DType::F8E8M0, -1.0), 0xff);
        assert_eq!(encode(DType::F8E8M0, 0.0), 0);
        for dtype in FLOATS {
            assert!(decode(dtype, encode_saturating(dtype, f32::NAN)).is_nan(), "{dtype}");
        }
        assert_eq!(encode(DType::F8E5M2Fnuz, -0.0), 0);
        assert_eq!(encode(DType::F8E5M2, -0.0), 0x80);
    }

    proptest! {
        /// Against a search through all values, through f64 differences.
        #[test]
        fn encoding_is_nearest_with_ties_to_even(bits in any::<u32>(), exponent in 100u32..150, fine in any::<bool>()) {
            // Whole f32 range, or a few leading mantissa bits near 1, where ties are common.
            let bits = if fine { bits } else { (bits & 0x80f8_0000) | exponent << 23 };
            let value = f32::from_bits(bits);
            for dtype in FLOATS {
                let negative = dtype == DType::F8E8M0 && value < 0.0;
                if value.is_nan() || negative {
                    prop_assert!(decode(dtype, encode(dtype, value)).is_nan());
                    continue;
                }
                // Clamped where nothing but the largest value is near, so that differences are exact.
                let clamped = if dtype == DType::F8E8M0 { value } else { value.clamp(-1e6, 1e6) };
                let distance = |byte: u8| (f64::from(decode(dtype, byte)) - f64::from(clamped)).abs();
                // The one zero of a format without negative zero stands for both signs.
                let one_zero = decode(dtype, 0x80) != 0.0;
                let nearest = (0..=255)
                    .filter(|&byte| decode(dtype, byte).is_finite())
                    .filter(|&byte| {
                        decode(dtype, byte).is_sign_negative() == value.is_sign_negative() || (one_zero && byte == 0)
                    })
                    .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
                let encoded = encode_saturating(dtype, value);
                prop_assert_eq!(Some(encoded), nearest, "{} {:e}", dtype, value);
                let unsaturated = encode(dtype, value);
                prop_assert!(unsaturated == encoded || !decode(dtype, unsaturated).is_finite());
            }
        }
    }
}
