//! One metadata value, or an array of them: what they hold, and how they print.

use std::fmt;

use super::Strings;

/// Characters of a text that are shown.
const SHOWN: usize = 64;

/// One metadata value, of the types that GGUF has.
#[derive(Debug, Clone, PartialEq)]
pub enum MetaValue {
    /// An unsigned 8-bit integer.
    U8(u8),
    /// A signed 8-bit integer.
    I8(i8),
    /// An unsigned 16-bit integer.
    U16(u16),
    /// A signed 16-bit integer.
    I16(i16),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// A signed 32-bit integer.
    I32(i32),
    /// An unsigned 64-bit integer.
    U64(u64),
    /// A signed 64-bit integer.
    I64(i64),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
    /// True or false.
    Bool(bool),
    /// Text.
    String(String),
    /// What should be text, and is not UTF-8. Files with such a value open; asking for the text is an error.
    InvalidString(Vec<u8>),
    /// Many values of one type.
    Array(MetaArray),
}

/// An array of values of one type, stored without a word of overhead per value.
#[derive(Debug, Clone, PartialEq)]
pub enum MetaArray {
    /// Unsigned 8-bit integers.
    U8(Vec<u8>),
    /// Signed 8-bit integers.
    I8(Vec<i8>),
    /// Unsigned 16-bit integers.
    U16(Vec<u16>),
    /// Signed 16-bit integers.
    I16(Vec<i16>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// Signed 32-bit integers.
    I32(Vec<i32>),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// Single-precision numbers.
    F32(Vec<f32>),
    /// Double-precision numbers.
    F64(Vec<f64>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts, or what should be texts.
    Strings(Strings),
}

impl MetaValue {
    /// The value of any integer type.
    pub(super) fn integer(&self) -> Option<i128> {
        Some(match *self {
            MetaValue::U8(value) => value.into(),
            MetaValue::I8(value) => value.into(),
            MetaValue::U16(value) => value.into(),
            MetaValue::I16(value) => value.into(),
            MetaValue::U32(value) => value.into(),
            MetaValue::I32(value) => value.into(),
            MetaValue::U64(value) => value.into(),
            MetaValue::I64(value) => value.into(),
            _ => return None,
        })
    }
}

impl MetaArray {
    /// How many values.
    pub fn len(&self) -> usize {
        match self {
            MetaArray::U8(values) => values.len(),
            MetaArray::I8(values) => values.len(),
            MetaArray::U16(values) => values.len(),
            MetaArray::I16(values) => values.len(),
            MetaArray::U32(values) => values.len(),
            MetaArray::I32(values) => values.len(),
            MetaArray::U64(values) => values.len(),
            MetaArray::I64(values) => values.len(),
            MetaArray::F32(values) => values.len(),
            MetaArray::F64(values) => values.len(),
            MetaArray::Bool(values) => values.len(),
            MetaArray::Strings(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the values, in the plural.
    fn kind(&self) -> &'static str {
        match self {
            MetaArray::U8(_) => "u8s",
            MetaArray::I8(_) => "i8s",
            MetaArray::U16(_) => "u16s",
            MetaArray::I16(_) => "i16s",
            MetaArray::U32(_) => "u32s",
            MetaArray::I32(_) => "i32s",
            MetaArray::U64(_) => "u64s",
            MetaArray::I64(_) => "i64s",
            MetaArray::F32(_) => "f32s",
            MetaArray::F64(_) => "f64s",
            MetaArray::Bool(_) => "bools",
            MetaArray::Strings(_) => "strings",
        }
    }

    /// The values of an array of any integer type.
    pub(super) fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        fn widen<T: Copy + Into<i128>>(values: &[T]) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
            Some(Box::new(values.iter().map(|&value| value.into())))
        }
        match self {
            MetaArray::U8(values) => widen(values),
            MetaArray::I8(values) => widen(values),
            MetaArray::U16(values) => widen(values),
            MetaArray::I16(values) => widen(values),
            MetaArray::U32(values) => widen(values),
            MetaArray::I32(values) => widen(values),
            MetaArray::U64(values) => widen(values),
            MetaArray::I64(values) => widen(values),
            _ => None,
        }
    }
}

/// The value as messages and listings show it: long texts and arrays are cut short.
impl fmt::Display for MetaValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetaValue::U8(value) => write!(f, "{value}"),
            MetaValue::I8(value) => write!(f, "{value}"),
            MetaValue::U16(value) => write!(f, "{value}"),
            MetaValue::I16(value) => write!(f, "{value}"),
            MetaValue::U32(value) => write!(f, "{value}"),
            MetaValue::I32(value) => write!(f, "{value}"),
            MetaValue::U64(value) => write!(f, "{value}"),
            MetaValue::I64(value) => write!(f, "{value}"),
            MetaValue::F32(value) => write!(f, "{value:?}"),
            MetaValue::F64(value) => write!(f, "{value:?}"),
            MetaValue::Bool(value) => write!(f, "{value}"),
            MetaValue::String(value) if value.chars().nth(SHOWN).is_none() => write!(f, "{value:?}"),
            MetaValue::String(value) => {
                let start: String = value.chars().take(SHOWN).collect();
                write!(f, "{start:?}… ({} bytes)", value.len())
            }
            MetaValue::InvalidString(value) => write!(f, "{} bytes that are not UTF-8", value.len()),
            MetaValue::Array(array) => write!(f, "an array of {} {}", array.len(), array.kind()),
        }
    }
}

macro_rules! values_from {
    ($($rust:ty => $variant:ident),* $(,)?) => { $(
        impl From<$rust> for MetaValue {
            fn from(value: $rust) -> MetaValue { MetaValue::$variant(value) }
        }
        impl From<Vec<$rust>> for MetaValue {
            fn from(values: Vec<$rust>) -> MetaValue { MetaValue::Array(MetaArray::$variant(values)) }
        }
    )* };
}

values_from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
             f32 => F32, f64 => F64, bool => Bool);

impl From<&str> for MetaValue {
    fn from(text: &str) -> MetaValue {
        MetaValue::String(text.to_string())
    }
}

impl From<String> for MetaValue {
    fn from(text: String) -> MetaValue {
        MetaValue::String(text)
    }
}

impl From<Strings> for MetaValue {
    fn from(strings: Strings) -> MetaValue {
        MetaValue::Array(MetaArray::Strings(strings))
    }
}
