//! The metadata of a file: an ordered map from keys to typed values.

mod from_meta;
mod strings;
#[cfg(test)]
mod tests;
mod value;

use indexmap::IndexMap;

pub use self::from_meta::FromMeta;
pub use self::strings::Strings;
pub(crate) use self::value::with_numbers;
pub use self::value::{MetaArray, MetaValue};
use crate::Error;

/// Keys and values in file order. GGUF has typed values; safetensors has strings; a PyTorch checkpoint gives the
/// numbers and strings that lie among the weights, as `model_args.dim`.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    values: IndexMap<String, MetaValue>,
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

    /// An integer of any type that is in range, as a count or a size.
    ///
    /// # Errors
    /// As [`Metadata::required`]; so for each getter below.
    pub fn usize(&self, key: &str) -> Result<usize, Error> {
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
}
