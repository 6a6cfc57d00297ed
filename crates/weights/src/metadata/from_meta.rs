//! Metadata values as the types that are asked for, and what is said where they are of others.

use super::{MetaArray, MetaValue, Strings};
use crate::Error;

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

fn wrong_type(key: &str, expected: &'static str, value: &MetaValue) -> Error {
    let kind = value.kind().map_or_else(String::new, |kind| format!("{kind} "));
    Error::WrongType { key: key.to_string(), expected, found: format!("{kind}{value}") }
}

fn out_of_range(key: String, expected: &'static str, value: i128) -> Error {
    Error::OutOfRange { key, expected, value: value.to_string() }
}

fn not_utf8(key: String, bytes: &[u8]) -> Error {
    Error::NotUtf8 { key, bytes: bytes[..bytes.len().min(32)].to_vec() }
}
