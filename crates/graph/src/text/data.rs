//! The text of constants: numbers that read back to the same bits where there are few, else bytes.

use std::fmt::Write;

use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor, bf16, f16};

use crate::Type;

/// Constants of more elements than this print as bytes.
pub(super) const MAX_NUMBERS: usize = 16;

/// Data as it was read, before its type is known.
#[derive(Debug, Clone)]
pub(super) enum Data<'t> {
    /// Hexadecimal digits.
    Bytes(&'t str),
    /// Numbers in row-major order.
    Numbers(Vec<Number<'t>>),
    /// Bytes that are kept apart from the text.
    Detached(Bytes),
}

/// A number as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Number<'t> {
    /// Whether a minus stands before it.
    pub(super) negative: bool,
    /// Digits, or `true`, `false`, `inf`, `nan`.
    pub(super) text: &'t str,
    /// `0x…` of `nan(0x…)`: the bits of the element.
    pub(super) bits: Option<&'t str>,
}

/// `[1.0, -inf]`, or `0x0000803f` in memory order.
pub(super) fn print(tensor: &Tensor) -> String {
    let tensor = tensor.contiguous();
    match numbers(&tensor) {
        Some(numbers) => format!("[{}]", numbers.join(", ")),
        None => {
            let mut text = String::from("0x");
            tensor.bytes().iter().for_each(|byte| write!(text, "{byte:02x}").expect("writing to a string"));
            text
        }
    }
}

fn numbers(tensor: &Tensor) -> Option<Vec<String>> {
    if tensor.elements() > MAX_NUMBERS {
        return None;
    }
    macro_rules! print {
        ($($integer:ident: $rust:ty),*; $($float:ident: $bits:ty, $canonical:expr, $to_float:expr),*) => {
            match tensor.dtype() {
                $(DType::$integer => {
                    Some(tensor.to_vec::<$rust>().iter().map(|value| value.to_string()).collect())
                })*
                $(DType::$float => {
                    let print = |bytes: &[u8]| {
                        let bits = <$bits>::from_le_bytes(bytes.try_into().expect("a whole element"));
                        match $to_float(bits) {
                            value if !value.is_nan() => format!("{value:?}"),
                            _ if bits == $canonical => "nan".to_string(),
                            _ => format!("nan({bits:#x})"),
                        }
                    };
                    Some(tensor.bytes().chunks_exact(size_of::<$bits>()).map(print).collect())
                })*
                DType::Bool if tensor.bytes().iter().all(|&byte| byte <= 1) => {
                    Some(tensor.bytes().iter().map(|&byte| (byte == 1).to_string()).collect())
                }
                _ => None,
            }
        };
    }
    print!(
        U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, U64: u64, I64: i64;
        F16: u16, NAN_F16, |bits| f16::from_bits(bits).to_f32(),
        BF16: u16, NAN_BF16, |bits| bf16::from_bits(bits).to_f32(),
        F32: u32, NAN_F32, f32::from_bits,
        F64: u64, NAN_F64, f64::from_bits
    )
}

const NAN_F16: u16 = 0x7e00;
const NAN_BF16: u16 = 0x7fc0;
const NAN_F32: u32 = 0x7fc0_0000;
const NAN_F64: u64 = 0x7ff8_0000_0000_0000;

/// The tensor that data of a type is.
pub(super) fn parse(data: &Data<'_>, ty: &Type) -> Result<Tensor, String> {
    let shape = ty.static_shape().ok_or_else(|| format!("a constant has sizes in numbers, found {ty}"))?;
    let copy = |bytes: Vec<u8>| Bytes::new(AlignedBytes::copy_of(&bytes));
    let bytes = match data {
        Data::Bytes(digits) => copy(hex_bytes(digits)?),
        Data::Numbers(numbers) => {
            expect_count(numbers.len(), &shape, ty)?;
            let elements = numbers.iter().map(|number| element(number, ty.dtype));
            copy(elements.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Data::Detached(bytes) => bytes.clone(),
    };
    Tensor::from_bytes(ty.dtype, shape, bytes).map_err(|error| error.to_string())
}

fn expect_count(count: usize, shape: &Shape, ty: &Type) -> Result<(), String> {
    match shape.checked_elements() {
        Some(elements) if elements == count => Ok(()),
        Some(elements) => Err(format!("expected {elements} numbers for {ty}, found {count}")),
        None => Err(format!("the number of elements of {ty} overflows")),
    }
}

fn hex_bytes(digits: &str) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| match pair {
        &[high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    bytes.ok_or_else(|| "expected pairs of hexadecimal digits after 0x".to_string())
}

/// The bytes of one element.
fn element(number: &Number<'_>, dtype: DType) -> Result<Vec<u8>, String> {
    let Number { negative, text, bits } = *number;
    let wrong =
        || format!("expected a number of type {dtype}, found `{}{text}`", if negative { "-" } else { "" });
    macro_rules! read {
        (
            $($integer:ident: $rust:ty),*;
            $($float:ident: $read:ty, $bits:ty, $canonical:expr, $from:expr),*
        ) => {
            match dtype {
                $(DType::$integer => {
                    let value: i128 = text.parse().ok().filter(|_| bits.is_none()).ok_or_else(wrong)?;
                    let value = if negative { -value } else { value };
                    <$rust>::try_from(value).map(|value| value.to_le_bytes().to_vec()).map_err(|_| wrong())
                })*
                $(DType::$float => {
                    let from: fn($read) -> $bits = $from;
                    let sign = if negative { 1 << (<$bits>::BITS - 1) } else { 0 };
                    let bits: $bits = match (text, bits) {
                        ("nan", None) => $canonical,
                        ("nan", Some(digits)) => {
                            let bits = digits.strip_prefix("0x").ok_or_else(wrong)?;
                            let bits = <$bits>::from_str_radix(bits, 16).map_err(|_| wrong())?;
                            // A NaN: more than infinity once the sign is gone.
                            let is_nan = bits & (<$bits>::MAX >> 1) > from(<$read>::INFINITY);
                            if is_nan { bits } else { return Err(wrong()) }
                        }
                        ("inf", None) => from(<$read>::INFINITY),
                        (_, None) => {
                            let value = text.parse().ok().filter(|value: &$read| value.is_finite());
                            from(value.ok_or_else(wrong)?)
                        }
                        _ => return Err(wrong()),
                    };
                    Ok((bits ^ sign).to_le_bytes().to_vec())
                })*
                DType::Bool => match (negative, text, bits) {
                    (false, "true", None) => Ok(vec![1]),
                    (false, "false", None) => Ok(vec![0]),
                    _ => Err(wrong()),
                },
                _ => Err(format!("a constant of type {dtype} is written as 0x and its bytes")),
            }
        };
    }
    read!(
        U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, U64: u64, I64: i64;
        F16: f32, u16, NAN_F16, |value| f16::from_f32(value).to_bits(),
        BF16: f32, u16, NAN_BF16, |value| bf16::from_f32(value).to_bits(),
        F32: f32, u32, NAN_F32, f32::to_bits,
        F64: f64, u64, NAN_F64, f64::to_bits
    )
}
