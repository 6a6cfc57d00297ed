//! One element's value, whatever its type: what is printed, set and read one by one.

use std::fmt;

use crate::{DType, Error, bf16, f16, float8};

/// The value of one element. Holds every plain dtype's values exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// Of `bool`.
    Bool(bool),
    /// Of signed integers.
    Int(i64),
    /// Of unsigned integers.
    UInt(u64),
    /// Of floats.
    Float(f64),
}

impl Scalar {
    /// The value as a float; beyond 2⁵³ integers are rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(value) => f64::from(u8::from(value)),
            Scalar::Int(value) => value as f64,
            Scalar::UInt(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    /// The value as an integer, or `None` for one with a fraction and for what is too large.
    pub fn as_i64(self) -> Option<i64> {
        self.as_i128().and_then(|value| i64::try_from(value).ok())
    }

    /// The value as a truth value, or `None` for what is neither 0 nor 1.
    pub fn as_bool(self) -> Option<bool> {
        match self.as_i128() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        }
    }

    fn as_i128(self) -> Option<i128> {
        match self {
            Scalar::Bool(value) => Some(i128::from(value)),
            Scalar::Int(value) => Some(i128::from(value)),
            Scalar::UInt(value) => Some(i128::from(value)),
            // Below 2^64 all whole numbers convert exactly; above, no integer dtype holds them.
            Scalar::Float(value) if value.fract() == 0.0 && value.abs() <= 2f64.powi(64) => {
                Some(value as i128)
            }
            Scalar::Float(_) => None,
        }
    }

    /// The value of the element whose bytes these are.
    ///
    /// # Panics
    /// If there are fewer bytes than an element has, or several elements share bytes.
    pub(crate) fn read(dtype: DType, bytes: &[u8]) -> Scalar {
        fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
            *bytes.first_chunk().expect("the bytes of an element")
        }
        match dtype {
            DType::Bool => Scalar::Bool(bytes[0] != 0),
            DType::U8 => Scalar::UInt(bytes[0].into()),
            DType::U16 => Scalar::UInt(u16::from_ne_bytes(first(bytes)).into()),
            DType::U32 => Scalar::UInt(u32::from_ne_bytes(first(bytes)).into()),
            DType::U64 => Scalar::UInt(u64::from_ne_bytes(first(bytes))),
            DType::I8 => Scalar::Int(i8::from_ne_bytes(first(bytes)).into()),
            DType::I16 => Scalar::Int(i16::from_ne_bytes(first(bytes)).into()),
            DType::I32 => Scalar::Int(i32::from_ne_bytes(first(bytes)).into()),
            DType::I64 => Scalar::Int(i64::from_ne_bytes(first(bytes))),
            DType::F16 => Scalar::Float(f16::from_ne_bytes(first(bytes)).into()),
            DType::BF16 => Scalar::Float(bf16::from_ne_bytes(first(bytes)).into()),
            DType::F32 => Scalar::Float(f32::from_ne_bytes(first(bytes)).into()),
            DType::F64 => Scalar::Float(f64::from_ne_bytes(first(bytes))),
            dtype if dtype.is_float8() => Scalar::Float(float8::decode(dtype, bytes[0]).into()),
            dtype => unreachable!("elements of {dtype} share bytes"),
        }
    }

    /// Writes the value as an element. Floats are rounded to the nearest value, ties to even; beyond the largest they
    /// become infinity, or NaN where the dtype has none.
    ///
    /// # Errors
    /// If an integer dtype cannot hold the value exactly, `bool` is given neither 0 nor 1, or several elements share
    /// bytes.
    ///
    /// # Panics
    /// If `bytes` are fewer than an element has.
    pub(crate) fn write(self, dtype: DType, bytes: &mut [u8]) -> Result<(), Error> {
        let misfit = || Error::Value { value: self.to_string(), dtype };
        let whole = || self.as_i128().ok_or_else(misfit);
        macro_rules! put {
            ($value:expr) => {{
                let value = $value.to_ne_bytes();
                bytes[..value.len()].copy_from_slice(&value);
            }};
        }
        macro_rules! put_whole {
            ($rust:ty) => {
                put!(<$rust>::try_from(whole()?).map_err(|_| misfit())?)
            };
        }
        match dtype {
            DType::Bool => bytes[0] = u8::from(self.as_bool().ok_or_else(misfit)?),
            DType::U8 => put_whole!(u8),
            DType::U16 => put_whole!(u16),
            DType::U32 => put_whole!(u32),
            DType::U64 => put_whole!(u64),
            DType::I8 => put_whole!(i8),
            DType::I16 => put_whole!(i16),
            DType::I32 => put_whole!(i32),
            DType::I64 => put_whole!(i64),
            DType::F16 => put!(f16::from_f64(self.as_f64())),
            DType::BF16 => put!(bf16::from_f64(self.as_f64())),
            DType::F32 => put!(self.as_f32()),
            DType::F64 => put!(self.as_f64()),
            dtype if dtype.is_float8() => bytes[0] = float8::encode(dtype, self.as_f32()),
            _ => return Err(misfit()),
        }
        Ok(())
    }

    /// Rounded once: an integer does not pass through f64.
    fn as_f32(self) -> f32 {
        match self {
            Scalar::Int(value) => value as f32,
            Scalar::UInt(value) => value as f32,
            other => other.as_f64() as f32,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::UInt(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value:?}"),
        }
    }
}

macro_rules! scalars {
    ($($variant:ident from $($rust:ty),*;)*) => {
        $($(impl From<$rust> for Scalar {
            fn from(value: $rust) -> Scalar {
                Scalar::$variant(value.into())
            }
        })*)*
    };
}

scalars! {
    Bool from bool;
    Int from i8, i16, i32, i64;
    UInt from u8, u16, u32, u64;
    Float from f16, bf16, f32, f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: impl Into<Scalar>, dtype: DType) -> Result<Scalar, String> {
        let mut bytes = [0; 8];
        value.into().write(dtype, &mut bytes).map_err(|error| error.to_string())?;
        Ok(Scalar::read(dtype, &bytes))
    }

    #[test]
    fn every_plain_dtype_holds_its_values() {
        for &dtype in DType::ALL.iter().filter(|dtype| dtype.block().elements == 1) {
            assert_eq!(written(1, dtype).unwrap().as_f64(), 1.0, "{dtype}");
            assert_eq!(written(1.0, dtype), written(true, dtype), "{dtype}");
        }
        assert_eq!(written(u64::MAX, DType::U64), Ok(Scalar::UInt(u64::MAX)));
        assert_eq!(written(i64::MIN, DType::I64), Ok(Scalar::Int(i64::MIN)));
        assert_eq!(written(-3i8, DType::I16), Ok(Scalar::Int(-3)));
        assert_eq!(written(1e6, DType::F16), Ok(Scalar::Float(f64::INFINITY)));
        assert_eq!(written(16_777_217, DType::F32), Ok(Scalar::Float(16_777_216.0)));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(written(2.5, DType::I32), Err("i32 cannot hold 2.5".to_string()));
        assert_eq!(written(256, DType::U8), Err("u8 cannot hold 256".to_string()));
        assert_eq!(written(-1, DType::U64), Err("u64 cannot hold -1".to_string()));
        assert_eq!(
            written(2f64.powi(64), DType::U64),
            Err("u64 cannot hold 1.8446744073709552e19".to_string())
        );
        assert_eq!(written(f64::NAN, DType::I8), Err("i8 cannot hold NaN".to_string()));
        assert_eq!(written(2, DType::Bool), Err("bool cannot hold 2".to_string()));
        assert_eq!(written(1.0, DType::Q4_0), Err("q4_0 cannot hold 1.0".to_string()));
    }
}
