//! Types of elements: codes, and the Rust types that read them.

use std::fmt;

/// The type of a tensor's elements, by its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DType(pub u32);

macro_rules! dtypes {
    ($($(#[$doc:meta])* $constant:ident = $code:literal, $name:literal;)*) => {
        impl DType {
            $($(#[$doc])* pub const $constant: DType = DType($code);)*
        }

        impl fmt::Display for DType {
            /// The name in graph text; the number of a dtype that this crate has no Rust type for.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => f.write_str($name),)*
                    code => write!(f, "dtype {code}"),
                }
            }
        }
    };
}

dtypes! {
    /// One byte, 0 or 1.
    BOOL = 1, "bool";
    /// IEEE half precision.
    F16 = 79, "f16";
    /// The upper half of an `f32`.
    BF16 = 80, "bf16";
    /// IEEE single precision.
    F32 = 81, "f32";
    /// IEEE double precision.
    F64 = 82, "f64";
    /// Unsigned 8-bit integer.
    U8 = 134, "u8";
    /// Signed 8-bit integer.
    I8 = 135, "i8";
    /// Unsigned 16-bit integer.
    U16 = 136, "u16";
    /// Signed 16-bit integer.
    I16 = 137, "i16";
    /// Unsigned 32-bit integer.
    U32 = 138, "u32";
    /// Signed 32-bit integer.
    I32 = 139, "i32";
    /// Unsigned 64-bit integer.
    U64 = 140, "u64";
    /// Signed 64-bit integer.
    I64 = 141, "i64";
}

/// A half-precision number, as its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The upper half of an `f32`, as its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct BF16(pub u16);

/// A Rust type that elements are read and written as.
///
/// # Safety
/// Every pattern of bits is a value, and there is no padding.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The dtype. `bool` is read as `u8`.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => {
        $(
            // SAFETY: a number, or the bits of one.
            unsafe impl Element for $rust {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

elements!(F16 => F16, BF16 => BF16, f32 => F32, f64 => F64, u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32,
          i32 => I32, u64 => U64, i64 => I64);

impl F16 {
    /// The nearest half-precision number, ties to even; infinity beyond the largest.
    pub fn from_f32(value: f32) -> F16 {
        let bits = value.to_bits();
        let sign = (bits >> 16 & 0x8000) as u16;
        let magnitude = bits & 0x7fff_ffff;
        let half = match magnitude {
            0x7f80_0001.. => 0x7e00,
            // 65520 is the middle between the largest number and what would come after it.
            0x477f_f000.. => 0x7c00,
            // Adding 1/2 makes the adder round to multiples of 2⁻²⁴, the distance of subnormals.
            ..0x3880_0000 => (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits(),
            _ => (magnitude - 0x3800_0000 + 0xfff + (magnitude >> 13 & 1)) >> 13,
        };
        F16(sign | half as u16)
    }

    /// The same number, exactly.
    pub fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let magnitude = u32::from(self.0 & 0x7fff);
        let value = match magnitude {
            0x7c00.. => magnitude << 13 | 0x7f80_0000,
            0x0400.. => (magnitude << 13) + 0x3800_0000,
            _ => (magnitude as f32 / (1 << 24) as f32).to_bits(),
        };
        f32::from_bits(sign | value)
    }
}

impl BF16 {
    /// The nearest number, ties to even.
    pub fn from_f32(value: f32) -> BF16 {
        let bits = value.to_bits();
        if value.is_nan() {
            return BF16((bits >> 16 | 0x40) as u16);
        }
        BF16(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }

    /// The same number, exactly.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_trip_and_round_to_even() {
        for bits in 0..=u16::MAX {
            let value = F16(bits).to_f32();
            let again = F16::from_f32(value);
            assert!(value.is_nan() && again.to_f32().is_nan() || again == F16(bits), "{bits:#x} {value}");
            let value = BF16(bits).to_f32();
            let again = BF16::from_f32(value);
            assert!(value.is_nan() && again.to_f32().is_nan() || again == BF16(bits), "{bits:#x} {value}");
        }
        let halves = [
            (1.0, 0x3c00),
            (1.0 + 1.0 / 2048.0, 0x3c00),
            (1.0 + 3.0 / 2048.0, 0x3c02),
            (65519.0, 0x7bff),
            (65520.0, 0x7c00),
            (-6.1e-5, 0x83ff),
            (2f32.powi(-25), 0),
            (2f32.powi(-25) * 1.5, 1),
        ];
        for (value, bits) in halves {
            assert_eq!(F16::from_f32(value).0, bits, "{value}");
        }
        assert_eq!(BF16::from_f32(1.0 + 1.0 / 256.0).0, 0x3f80);
        assert_eq!(BF16::from_f32(1.0 + 3.0 / 256.0).0, 0x3f82);
        assert_eq!(BF16::from_f32(f32::MAX).to_f32(), f32::INFINITY);
    }
}
