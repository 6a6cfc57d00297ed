//! The limits of floating-point dtypes.

use crate::{DType, bf16, f16};

/// The limits of a floating-point dtype.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FloatInfo {
    /// Bits of one element.
    pub bits: usize,
    /// The smallest finite value.
    pub min: f64,
    /// The largest finite value.
    pub max: f64,
    /// The distance from 1 to the next larger value.
    pub eps: f64,
    /// The smallest positive value that is not subnormal.
    pub tiny: f64,
}

impl DType {
    /// The limits of a float, or `None` for other dtypes.
    pub fn finfo(self) -> Option<FloatInfo> {
        let power = |exponent: i32| 2f64.powi(exponent);
        // The largest value, eps, tiny.
        let (max, eps, tiny) = match self {
            DType::F4E2M1 => (6.0, power(-1), 1.0),
            DType::F6E2M3 => (7.5, power(-3), 1.0),
            DType::F6E3M2 => (28.0, power(-2), power(-2)),
            DType::F8E8M0 => (power(127), 1.0, power(-127)),
            DType::F8E4M3 => (448.0, power(-3), power(-6)),
            DType::F8E4M3Fnuz => (240.0, power(-3), power(-7)),
            DType::F8E5M2 => (57344.0, power(-2), power(-14)),
            DType::F8E5M2Fnuz => (57344.0, power(-2), power(-15)),
            DType::F16 => (f16::MAX.into(), f16::EPSILON.into(), f16::MIN_POSITIVE.into()),
            DType::BF16 => (bf16::MAX.into(), bf16::EPSILON.into(), bf16::MIN_POSITIVE.into()),
            DType::F32 => (f32::MAX.into(), f32::EPSILON.into(), f32::MIN_POSITIVE.into()),
            DType::F64 => (f64::MAX, f64::EPSILON, f64::MIN_POSITIVE),
            _ => return None,
        };
        let min = if self.is_signed() { -max } else { tiny };
        Some(FloatInfo { bits: self.size_in_bits(), min, max, eps, tiny })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scalar, float8, small_float};

    /// Every value of a float of at most 16 bits.
    fn values(dtype: DType) -> Vec<f64> {
        let decode = |code: u32| match dtype.size_in_bits() {
            16 => Scalar::read(dtype, &(code as u16).to_ne_bytes()).as_f64(),
            8 => float8::decode(dtype, code as u8).into(),
            _ => small_float::decode(dtype, code as u8).into(),
        };
        let mut values: Vec<f64> =
            (0..1 << dtype.size_in_bits()).map(decode).filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn limits_are_found_among_the_values() {
        let mut checked = 0;
        for dtype in DType::every() {
            let Some(info) = dtype.finfo() else {
                assert!(!dtype.is_float(), "{dtype}");
                continue;
            };
            assert!(dtype.is_float(), "{dtype}");
            if info.bits > 16 {
                continue;
            }
            let values = values(dtype);
            assert_eq!((info.min, info.max), (values[0], values[values.len() - 1]), "{dtype}");
            let above_one = values.iter().find(|&&value| value > 1.0).unwrap();
            assert_eq!(above_one - 1.0, info.eps, "{dtype}");
            assert!(
                values.contains(&info.tiny) && values.contains(&(info.tiny * (1.0 + info.eps))),
                "{dtype}"
            );
            // Half of a normal value's distance to the next is too small for subnormals; a bare exponent has none.
            let is_normal_below = values.contains(&(info.tiny / 2.0 * (1.0 + info.eps)));
            assert_eq!(is_normal_below, dtype == DType::F8E8M0, "{dtype}");
            checked += 1;
        }
        assert_eq!(checked, 10);
    }
}
