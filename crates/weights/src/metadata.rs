//! What a file says about its weights: an ordered map from keys to typed values.

use std::fmt;
use std::ops::Range;

use indexmap::IndexMap;
use tensor::Bytes;

use crate::Error;

/// Keys and values in file order. GGUF has typed values; safetensors has strings; a PyTorch checkpoint gives the
/// numbers and strings that lie beside the weights, as `model_args.dim`.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    values: IndexMap<String, MetaValue>,
}

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

/// Many strings in one run of bytes: a vocabulary of 128 000 tokens costs no allocation of its own.
///
/// They are bytes until someone asks for text, since old vocabularies cut characters in two. Nothing is lost.
#[derive(Clone)]
pub struct Strings {
    bytes: Bytes,
    ranges: Vec<Range<usize>>,
}

impl Strings {
    /// Strings at the given places in `bytes`, every one of which must lie inside.
    pub(crate) fn new(bytes: Bytes, ranges: Vec<Range<usize>>) -> Strings {
        debug_assert!(ranges.iter().all(|range| range.start <= range.end && range.end <= bytes.len()));
        Strings { bytes, ranges }
    }

    /// How many strings.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The bytes of one string.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(self.ranges.get(index)?.clone())
    }

    /// The bytes of each string, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let bytes: &[u8] = &self.bytes;
        self.ranges.iter().map(move |range| &bytes[range.clone()])
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Strings {
        let mut bytes = Vec::new();
        let ranges = strings.into_iter().map(|string| {
            let start = bytes.len();
            bytes.extend_from_slice(string.as_ref());
            start..bytes.len()
        });
        let ranges = ranges.collect();
        Strings::new(Bytes::new(bytes), ranges)
    }
}

impl PartialEq for Strings {
    fn eq(&self, other: &Strings) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

impl Metadata {
    /// No keys.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// No keys, and room for some.
    pub(crate) fn with_capacity(keys: usize) -> Metadata {
        Metadata { values: IndexMap::with_capacity(keys) }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &MetaValue)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key, whatever its type.
    pub fn get(&self, key: &str) -> Option<&MetaValue> {
        self.values.get(key)
    }

    /// Sets a value; gives back the one it replaces.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<MetaValue>) -> Option<MetaValue> {
        self.values.insert(key.into(), value.into())
    }

    /// The value of a key that must be there: `metadata.required::<u64>("llama.context_length")`.
    ///
    /// # Errors
    /// If the key is absent, or its value is of another type or out of range.
    pub fn required<'a, T: FromMeta<'a>>(&'a self, key: &str) -> Result<T, Error> {
        self.optional(key)?.ok_or_else(|| Error::MissingKey { key: key.to_string(), expected: T::EXPECTED })
    }

    /// The value of a key that may be absent: `metadata.optional::<f32>("llama.rope.freq_base")?.unwrap_or(1e4)`.
    ///
    /// # Errors
    /// If the value is there and of another type or out of range.
    pub fn optional<'a, T: FromMeta<'a>>(&'a self, key: &str) -> Result<Option<T>, Error> {
        self.values.get(key).map(|value| T::from_meta(key, value)).transpose()
    }

    /// An integer of any type that is in range.
    ///
    /// # Errors
    /// As [`Metadata::required`]; so for each getter below.
    pub fn u32(&self, key: &str) -> Result<u32, Error> {
        self.required(key)
    }

    /// An integer of any type that is in range.
    pub fn u64(&self, key: &str) -> Result<u64, Error> {
        self.required(key)
    }

    /// An integer of any type that is in range, as a count or a size.
    pub fn usize(&self, key: &str) -> Result<usize, Error> {
        self.required(key)
    }

    /// A number of either precision.
    pub fn f32(&self, key: &str) -> Result<f32, Error> {
        self.required(key)
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<bool, Error> {
        self.required(key)
    }

    /// Text.
    pub fn str(&self, key: &str) -> Result<&str, Error> {
        self.required(key)
    }

    /// An array of texts. The error names the first that is not UTF-8.
    pub fn strings(&self, key: &str) -> Result<Vec<&str>, Error> {
        self.required(key)
    }

    /// An array of texts as bytes, UTF-8 or not.
    pub fn byte_strings(&self, key: &str) -> Result<&Strings, Error> {
        self.required(key)
    }

    /// An array of integers of any type, each in range.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, Error> {
        self.required(key)
    }

    /// An array of integers of any type, each in range.
    pub fn u32s(&self, key: &str) -> Result<Vec<u32>, Error> {
        self.required(key)
    }

    /// An array of numbers of either precision.
    pub fn f32s(&self, key: &str) -> Result<Vec<f32>, Error> {
        self.required(key)
    }
}

/// A type that a metadata value can be read as.
pub trait FromMeta<'a>: Sized {
    /// The type in words, as messages say it.
    const EXPECTED: &'static str;

    /// Reads a value.
    ///
    /// # Errors
    /// If it is of another type or out of range; `key` goes into the message.
    fn from_meta(key: &str, value: &'a MetaValue) -> Result<Self, Error>;
}

macro_rules! integers_from_meta {
    ($($rust:ty, $one:literal, $many:literal;)*) => { $(
        impl FromMeta<'_> for $rust {
            const EXPECTED: &'static str = $one;

            fn from_meta(key: &str, value: &MetaValue) -> Result<$rust, Error> {
                let wide = value.integer().ok_or_else(|| wrong_type(key, Self::EXPECTED, value))?;
                <$rust>::try_from(wide).map_err(|_| out_of_range(key.to_string(), Self::EXPECTED, wide))
            }
        }

        impl FromMeta<'_> for Vec<$rust> {
            const EXPECTED: &'static str = $many;

            fn from_meta(key: &str, value: &MetaValue) -> Result<Vec<$rust>, Error> {
                let MetaValue::Array(array) = value else {
                    return Err(wrong_type(key, Self::EXPECTED, value));
                };
                let integers = array.integers().ok_or_else(|| wrong_type(key, Self::EXPECTED, value))?;
                let narrow = |(index, wide)| {
                    <$rust>::try_from(wide)
                        .map_err(|_| out_of_range(format!("{key}[{index}]"), <$rust>::EXPECTED, wide))
                };
                integers.enumerate().map(narrow).collect()
            }
        }
    )* };
}

integers_from_meta! {
    u32, "an integer (u32)", "an array of integers (u32)";
    i32, "an integer (i32)", "an array of integers (i32)";
    u64, "an integer (u64)", "an array of integers (u64)";
    i64, "an integer (i64)", "an array of integers (i64)";
    usize, "an integer (usize)", "an array of integers (usize)";
}

impl FromMeta<'_> for f32 {
    const EXPECTED: &'static str = "a number";

    fn from_meta(key: &str, value: &MetaValue) -> Result<f32, Error> {
        f64::from_meta(key, value).map(|wide| wide as f32)
    }
}

impl FromMeta<'_> for f64 {
    const EXPECTED: &'static str = "a number";

    fn from_meta(key: &str, value: &MetaValue) -> Result<f64, Error> {
        match *value {
            MetaValue::F32(number) => Ok(f64::from(number)),
            MetaValue::F64(number) => Ok(number),
            _ => Err(wrong_type(key, Self::EXPECTED, value)),
        }
    }
}

impl FromMeta<'_> for Vec<f32> {
    const EXPECTED: &'static str = "an array of numbers";

    fn from_meta(key: &str, value: &MetaValue) -> Result<Vec<f32>, Error> {
        match value {
            MetaValue::Array(MetaArray::F32(numbers)) => Ok(numbers.clone()),
            MetaValue::Array(MetaArray::F64(numbers)) => {
                Ok(numbers.iter().map(|&wide| wide as f32).collect())
            }
            _ => Err(wrong_type(key, Self::EXPECTED, value)),
        }
    }
}

impl FromMeta<'_> for bool {
    const EXPECTED: &'static str = "a bool";

    fn from_meta(key: &str, value: &MetaValue) -> Result<bool, Error> {
        match *value {
            MetaValue::Bool(truth) => Ok(truth),
            _ => Err(wrong_type(key, Self::EXPECTED, value)),
        }
    }
}

impl FromMeta<'_> for Vec<bool> {
    const EXPECTED: &'static str = "an array of bools";

    fn from_meta(key: &str, value: &MetaValue) -> Result<Vec<bool>, Error> {
        match value {
            MetaValue::Array(MetaArray::Bool(truths)) => Ok(truths.clone()),
            _ => Err(wrong_type(key, Self::EXPECTED, value)),
        }
    }
}

impl<'a> FromMeta<'a> for &'a str {
    const EXPECTED: &'static str = "a string";

    fn from_meta(key: &str, value: &'a MetaValue) -> Result<&'a str, Error> {
        match value {
            MetaValue::String(text) => Ok(text),
            MetaValue::InvalidString(bytes) => Err(not_utf8(key.to_string(), bytes)),
            _ => Err(wrong_type(key, Self::EXPECTED, value)),
        }
    }
}

impl<'a> FromMeta<'a> for &'a Strings {
    const EXPECTED: &'static str = "an array of strings";

    fn from_meta(key: &str, value: &'a MetaValue) -> Result<&'a Strings, Error> {
        match value {
            MetaValue::Array(MetaArray::Strings(strings)) => Ok(strings),
            _ => Err(wrong_type(key, Self::EXPECTED, value)),
        }
    }
}

impl<'a> FromMeta<'a> for Vec<&'a str> {
    const EXPECTED: &'static str = "an array of strings";

    fn from_meta(key: &str, value: &'a MetaValue) -> Result<Vec<&'a str>, Error> {
        let texts = <&Strings>::from_meta(key, value)?.iter().enumerate().map(|(index, bytes)| {
            std::str::from_utf8(bytes).map_err(|_| not_utf8(format!("{key}[{index}]"), bytes))
        });
        texts.collect()
    }
}

impl MetaValue {
    /// The value of any integer type.
    fn integer(&self) -> Option<i128> {
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
    fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
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

/// Characters of a text that are shown.
const SHOWN: usize = 64;

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

fn wrong_type(key: &str, expected: &'static str, value: &MetaValue) -> Error {
    let kind = match value {
        MetaValue::U8(_) => "u8 ",
        MetaValue::I8(_) => "i8 ",
        MetaValue::U16(_) => "u16 ",
        MetaValue::I16(_) => "i16 ",
        MetaValue::U32(_) => "u32 ",
        MetaValue::I32(_) => "i32 ",
        MetaValue::U64(_) => "u64 ",
        MetaValue::I64(_) => "i64 ",
        MetaValue::F32(_) => "f32 ",
        MetaValue::F64(_) => "f64 ",
        MetaValue::Bool(_) => "bool ",
        MetaValue::String(_) => "string ",
        MetaValue::InvalidString(_) | MetaValue::Array(_) => "",
    };
    Error::WrongType { key: key.to_string(), expected, found: format!("{kind}{value}") }
}

fn out_of_range(key: String, expected: &'static str, value: i128) -> Error {
    Error::OutOfRange { key, expected, value: value.to_string() }
}

fn not_utf8(key: String, bytes: &[u8]) -> Error {
    Error::NotUtf8 { key, bytes: bytes[..bytes.len().min(32)].to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        let mut metadata = Metadata::new();
        metadata.insert("count", 5u32);
        metadata.insert("minus", -1i8);
        metadata.insert("huge", u64::MAX);
        metadata.insert("eps", 1e-5f32);
        metadata.insert("wide", 0.5f64);
        metadata.insert("flag", true);
        metadata.insert("name", "storyteller");
        metadata.insert("broken", MetaValue::InvalidString(vec![b'a', 0xff]));
        metadata.insert("kinds", vec![1u8, 2, 255]);
        metadata.insert("signed", vec![1i32, -2]);
        metadata.insert("scores", vec![0.5f32, -1.0]);
        metadata.insert("tokens", ["a", "β"].into_iter().collect::<Strings>());
        metadata.insert("cut", [&b"a"[..], b"\xce"].into_iter().collect::<Strings>());
        metadata
    }

    #[test]
    fn values_convert_where_they_fit() {
        let metadata = sample();
        assert_eq!(metadata.u32("count").unwrap(), 5);
        assert_eq!(metadata.required::<i64>("minus").unwrap(), -1);
        assert_eq!(metadata.u64("huge").unwrap(), u64::MAX);
        assert_eq!(metadata.f32("eps").unwrap(), 1e-5);
        assert_eq!(metadata.f32("wide").unwrap(), 0.5);
        assert!(metadata.bool("flag").unwrap());
        assert_eq!(metadata.str("name").unwrap(), "storyteller");
        assert_eq!(metadata.i32s("kinds").unwrap(), [1, 2, 255]);
        assert_eq!(metadata.f32s("scores").unwrap(), [0.5, -1.0]);
        assert_eq!(metadata.strings("tokens").unwrap(), ["a", "β"]);
        assert_eq!(metadata.byte_strings("cut").unwrap().get(1).unwrap(), b"\xce");
        assert_eq!(metadata.optional::<u32>("absent").unwrap(), None);
        assert_eq!(metadata.iter().next().unwrap().0, "count");
    }

    #[test]
    fn errors_name_key_expected_and_found() {
        fn check<T>(result: Result<T, Error>, message: &str) {
            assert_eq!(result.err().expect(message).to_string(), message);
        }
        let metadata = sample();
        check(metadata.u32("absent"), "metadata lacks `absent`, an integer (u32)");
        check(metadata.u32("minus"), "metadata `minus`: -1 is out of range for an integer (u32)");
        check(
            metadata.required::<i64>("huge"),
            "metadata `huge`: 18446744073709551615 is out of range for an integer (i64)",
        );
        check(
            metadata.usize("name"),
            "metadata `name`: expected an integer (usize), found string \"storyteller\"",
        );
        check(metadata.u64("eps"), "metadata `eps`: expected an integer (u64), found f32 1e-5");
        check(metadata.f32("count"), "metadata `count`: expected a number, found u32 5");
        check(metadata.bool("count"), "metadata `count`: expected a bool, found u32 5");
        check(metadata.str("flag"), "metadata `flag`: expected a string, found bool true");
        check(metadata.str("broken"), "metadata `broken`: not UTF-8: a\\xff");
        check(metadata.strings("cut"), "metadata `cut[1]`: not UTF-8: \\xce");
        check(
            metadata.byte_strings("scores"),
            "metadata `scores`: expected an array of strings, found an array of 2 f32s",
        );
        check(
            metadata.i32s("tokens"),
            "metadata `tokens`: expected an array of integers (i32), found an array of 2 strings",
        );
        check(metadata.i32s("count"), "metadata `count`: expected an array of integers (i32), found u32 5");
        check(metadata.u32s("signed"), "metadata `signed[1]`: -2 is out of range for an integer (u32)");
        check(
            metadata.f32s("kinds"),
            "metadata `kinds`: expected an array of numbers, found an array of 3 u8s",
        );
        check(
            metadata.required::<Vec<bool>>("kinds"),
            "metadata `kinds`: expected an array of bools, found an array of 3 u8s",
        );
        check(
            metadata.optional::<u32>("flag"),
            "metadata `flag`: expected an integer (u32), found bool true",
        );
    }
}
