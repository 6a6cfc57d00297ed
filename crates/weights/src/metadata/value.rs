//! One metadata value, or an array of them: what they hold, and how they print.

use std::fmt;

use super::Strings;

/// Characters of a text that are shown.
const SHOWN: usize = 64;

/// Calls a macro with the number types of metadata: GGUF's code, the name of the variants, and the type.
macro_rules! with_numbers {
    ($callback:ident) => {
        $callback! {
            (0, U8, u8) (1, I8, i8) (2, U16, u16) (3, I16, i16) (4, U32, u32) (5, I32, i32) (10, U64, u64) (11, I64, i64)
            (6, F32, f32) (12, F64, f64)
        }
    };
}
pub(crate) use with_numbers;

macro_rules! values_from {
    ($rust:ty => $variant:ident) => {
        impl From<$rust> for MetaValue {
            fn from(value: $rust) -> MetaValue {
                MetaValue::$variant(value)
            }
        }
        impl From<Vec<$rust>> for MetaValue {
            fn from(values: Vec<$rust>) -> MetaValue {
                MetaValue::Array(MetaArray::$variant(values))
            }
        }
    };
}

macro_rules! values {
    ($(($code:literal, $variant:ident, $number:ident))*) => {
        /// One metadata value, of the types that GGUF has.
        #[derive(Debug, Clone, PartialEq)]
        pub enum MetaValue {
            $(#[doc = concat!("A number of type `", stringify!($number), "`.")]
            $variant($number),)*
            /// True or false.
            Bool(bool),
            /// Text.
            String(String),
            /// Text that is not UTF-8. Such a file opens; asking for the text is an error.
            InvalidString(Vec<u8>),
            /// Many values of one type.
            Array(MetaArray),
        }

        /// An array of values of one type, stored without a word of overhead per value.
        #[derive(Debug, Clone, PartialEq)]
        pub enum MetaArray {
            $(#[doc = concat!("Numbers of type `", stringify!($number), "`.")]
            $variant(Vec<$number>),)*
            /// Truth values.
            Bool(Vec<bool>),
            /// Texts, perhaps not UTF-8.
            Strings(Strings),
        }

        impl MetaValue {
            /// The type of a value that is not an array.
            pub(super) fn kind(&self) -> Option<&'static str> {
                match self {
                    $(MetaValue::$variant(_) => Some(stringify!($number)),)*
                    MetaValue::Bool(_) => Some("bool"),
                    MetaValue::String(_) => Some("string"),
                    MetaValue::InvalidString(_) | MetaValue::Array(_) => None,
                }
            }
        }

        impl MetaArray {
            /// How many values.
            pub fn len(&self) -> usize {
                match self {
                    $(MetaArray::$variant(values) => values.len(),)*
                    MetaArray::Bool(values) => values.len(),
                    MetaArray::Strings(values) => values.len(),
                }
            }

            /// The type of the values, in the plural.
            fn kind(&self) -> &'static str {
                match self {
                    $(MetaArray::$variant(_) => concat!(stringify!($number), "s"),)*
                    MetaArray::Bool(_) => "bools",
                    MetaArray::Strings(_) => "strings",
                }
            }
        }

        /// The value as messages and listings show it: long texts and arrays are cut short.
        impl fmt::Display for MetaValue {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(MetaValue::$variant(value) => write!(f, "{value:?}"),)*
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

        $(values_from!($number => $variant);)*
    };
}

with_numbers!(values);
values_from!(bool => Bool);

/// `$from` a value or array of any integer type, by `$widen`.
macro_rules! of_integers {
    ($enum:ident, $from:expr, $widen:expr) => {
        match $from {
            $enum::U8(own) => $widen(own),
            $enum::I8(own) => $widen(own),
            $enum::U16(own) => $widen(own),
            $enum::I16(own) => $widen(own),
            $enum::U32(own) => $widen(own),
            $enum::I32(own) => $widen(own),
            $enum::U64(own) => $widen(own),
            $enum::I64(own) => $widen(own),
            _ => None,
        }
    };
}

impl MetaValue {
    /// The value of any integer type.
    pub(super) fn integer(&self) -> Option<i128> {
        fn widen<T: Copy + Into<i128>>(value: &T) -> Option<i128> {
            Some((*value).into())
        }
        of_integers!(MetaValue, self, widen)
    }
}

impl MetaArray {
    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values of an array of any integer type.
    pub(super) fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        fn widen<T: Copy + Into<i128>>(values: &[T]) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
            Some(Box::new(values.iter().map(|&value| value.into())))
        }
        of_integers!(MetaArray, self, widen)
    }
}

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
