//! The keys of configurations: what files call each value, which values it may have, and where it is kept.
//!
//! A block lists its keys once. Both readers, the checks, the writer of GGUF metadata and the defaults that a
//! `config.json` leaves out go through that list.

use serde_json::{Map, Value};
use weights::{FromMeta, MetaArray, MetaValue, Metadata};

use crate::Error;

/// Sizes beyond these are no model but a damaged or hostile file.
pub(crate) const MAX_SIZE: usize = 1 << 24;
pub(crate) const MAX_LAYERS: usize = 1 << 12;
pub(crate) const MAX_HEAD: usize = 1 << 14;
pub(crate) const MAX_EXPERTS: usize = 1 << 12;
pub(crate) const MAX_WIDTH: usize = 1 << 10;

/// A key of the configuration `B` of a block.
pub(crate) struct Key<B> {
    /// What its value is, in messages.
    what: &'static str,
    /// Its name in a `config.json`, in the words that all families share; empty if it has none.
    hugging_face: &'static str,
    /// Its name in GGUF metadata, without that of the architecture; empty if it has none.
    gguf: &'static str,
    range: Range,
    field: fn(&mut B) -> &mut dyn Field,
}

/// Which values a key may have.
enum Range {
    /// Whole numbers from 1 to a limit.
    UpTo(usize),
    /// All numbers but 0, infinities and NaN.
    Number,
    /// The same; files leave 1 out.
    Factor,
    /// Finite numbers above 0.
    Positive,
    /// All.
    Any,
}

/// A block's configuration, with a list of its keys.
pub(crate) trait Keyed: Clone + 'static {
    /// The keys. The first one says whether a file has the block.
    const KEYS: &'static [Key<Self>];
}

impl<B: Keyed> Key<B> {
    /// A number from 1 to a limit. Files must have it unless the block has a default.
    pub(crate) const fn size(
        what: &'static str,
        [hugging_face, gguf]: [&'static str; 2],
        limit: usize,
        field: fn(&mut B) -> &mut dyn Field,
    ) -> Key<B> {
        Key { what, hugging_face, gguf, range: Range::UpTo(limit), field }
    }

    /// A factor.
    pub(crate) const fn factor(
        what: &'static str,
        [hugging_face, gguf]: [&'static str; 2],
        field: fn(&mut B) -> &mut dyn Field,
    ) -> Key<B> {
        Key { what, hugging_face, gguf, range: Range::Factor, field }
    }

    /// A limit of values.
    pub(crate) const fn positive(
        what: &'static str,
        [hugging_face, gguf]: [&'static str; 2],
        field: fn(&mut B) -> &mut dyn Field,
    ) -> Key<B> {
        Key { what, hugging_face, gguf, range: Range::Positive, field }
    }

    /// A number other than 0 that files state even if it is 1.
    pub(crate) const fn number(
        what: &'static str,
        [hugging_face, gguf]: [&'static str; 2],
        field: fn(&mut B) -> &mut dyn Field,
    ) -> Key<B> {
        Key { what, hugging_face, gguf, range: Range::Number, field }
    }

    /// A flag, a list, or a number that is checked elsewhere.
    pub(crate) const fn any(
        [hugging_face, gguf]: [&'static str; 2],
        field: fn(&mut B) -> &mut dyn Field,
    ) -> Key<B> {
        Key { what: "", hugging_face, gguf, range: Range::Any, field }
    }

    /// Whether files must have it: there is no default.
    fn is_required(&self, block: &mut B) -> bool {
        matches!(self.range, Range::UpTo(_)) && (self.field)(block).numbers() == [0.0]
    }

    fn check(&self, block: &mut B) -> Result<(), String> {
        for number in (self.field)(block).numbers() {
            let expected = match self.range {
                Range::UpTo(limit) if number < 1.0 || number > limit as f64 => format!("1 to {limit}"),
                Range::Number | Range::Factor if !(number as f32).is_normal() => {
                    "a number other than 0".to_string()
                }
                Range::Positive if !(number.is_finite() && number > 0.0) => "a positive number".to_string(),
                _ => continue,
            };
            return Err(format!("the {} is {number}, expected {expected}", self.what));
        }
        Ok(())
    }
}

/// Reads the keys of a `config.json` that are there and not null; fields of others stay as they are.
///
/// # Errors
/// If a value is of another kind, or one is missing that has no default.
pub(crate) fn read_json<B: Keyed>(block: &mut B, json: &Map<String, Value>) -> Result<(), String> {
    for key in B::KEYS {
        match json.get(key.hugging_face).filter(|value| !value.is_null()) {
            Some(value) => (key.field)(block).read_json(value).ok_or_else(|| {
                format!("`{}` is {value}, expected {}", key.hugging_face, (key.field)(block).kind())
            })?,
            None if !key.hugging_face.is_empty() && key.is_required(block) => {
                return Err(format!("`{}` is missing", key.hugging_face));
            }
            None => {}
        }
    }
    Ok(())
}

/// Reads the keys of a GGUF file that are there; fields of others stay as they are.
///
/// # Errors
/// If a value is of another kind, or one is missing that has no default.
pub(crate) fn read_gguf<B: Keyed>(block: &mut B, keys: GgufKeys<'_>) -> Result<(), Error> {
    for key in B::KEYS.iter().filter(|key| !key.gguf.is_empty()) {
        let name = keys.key(key.gguf);
        if keys.metadata.get(&name).is_some() {
            (key.field)(block).read_gguf(keys.metadata, &name)?;
        } else if key.is_required(block) {
            keys.metadata.usize(&name)?;
        }
    }
    Ok(())
}

/// Reads a block of a `config.json` on top of its defaults, if the first of its keys is there and not 0.
///
/// # Errors
/// As [`read_json`].
pub(crate) fn block_from_json<B: Keyed>(
    mut defaults: B,
    json: &Map<String, Value>,
) -> Result<Option<B>, String> {
    match json.get(B::KEYS[0].hugging_face) {
        None | Some(Value::Null) => Ok(None),
        Some(first) if *first == 0 => Ok(None),
        Some(_) => read_json(&mut defaults, json).map(|()| Some(defaults)),
    }
}

/// Reads a block of a GGUF file on top of its defaults, if the first of its keys is there and not 0.
///
/// # Errors
/// As [`read_gguf`].
pub(crate) fn block_from_gguf<B: Keyed>(mut defaults: B, keys: GgufKeys<'_>) -> Result<Option<B>, Error> {
    match keys.optional::<usize>(B::KEYS[0].gguf)? {
        None | Some(0) => Ok(None),
        Some(_) => read_gguf(&mut defaults, keys).map(|()| Some(defaults)),
    }
}

/// Checks that each value is one that its key may have.
///
/// # Errors
/// With the value and what was expected.
pub(crate) fn check<B: Keyed>(block: &B) -> Result<(), String> {
    let mut block = block.clone();
    B::KEYS.iter().try_for_each(|key| key.check(&mut block))
}

/// The keys of GGUF metadata, without the name of the architecture.
pub(crate) fn gguf_entries<B: Keyed>(block: &B) -> Vec<(&'static str, MetaValue)> {
    let mut block = block.clone();
    let mut entry = |key: &'static Key<B>| {
        let field = (key.field)(&mut block);
        let is_left_out = matches!(key.range, Range::Factor) && field.numbers() == [1.0];
        Some((key.gguf, field.to_gguf()?)).filter(|(name, _)| !name.is_empty() && !is_left_out)
    };
    B::KEYS.iter().filter_map(&mut entry).collect()
}

/// The entries of a `config.json`, in the words that all families share.
pub(crate) fn json_entries<B: Keyed>(block: &B) -> Vec<(&'static str, Value)> {
    let mut block = block.clone();
    let named = B::KEYS.iter().filter(|key| !key.hugging_face.is_empty());
    named.map(|key| (key.hugging_face, (key.field)(&mut block).to_json())).collect()
}

/// Checks that a size is one from 1 to a limit.
///
/// # Errors
/// If it is not.
pub(crate) fn check_size(what: &str, size: usize, limit: usize) -> Result<(), String> {
    if (1..=limit).contains(&size) {
        return Ok(());
    }
    Err(format!("the {what} is {size}, expected 1 to {limit}"))
}

/// Checks that the first of two sizes is a multiple of the second.
///
/// # Errors
/// If it is not: "4 heads cannot share 3 key-value heads evenly".
pub(crate) fn check_shares(count: usize, what: &str, shared: usize, of_what: &str) -> Result<(), String> {
    if shared != 0 && count.is_multiple_of(shared) {
        return Ok(());
    }
    Err(format!("{count} {what} cannot share {shared} {of_what} evenly"))
}

/// A value as files hold it.
pub(crate) trait Field {
    /// Its kind in words.
    fn kind(&self) -> &'static str;

    /// Takes a value of a `config.json`, if it is of the kind.
    fn read_json(&mut self, value: &Value) -> Option<()>;

    /// Takes a value of GGUF metadata.
    ///
    /// # Errors
    /// If it is of another kind.
    ///
    /// # Panics
    /// If GGUF files hold no values of this kind: then no row of a table may name one.
    fn read_gguf(&mut self, _: &Metadata, key: &str) -> Result<(), Error> {
        unreachable!("no GGUF file has a `{key}`")
    }

    /// The value in a `config.json`; null if there is none.
    fn to_json(&self) -> Value;

    /// The value in GGUF metadata, if there is one.
    fn to_gguf(&self) -> Option<MetaValue> {
        None
    }

    /// The numbers to be checked.
    fn numbers(&self) -> Vec<f64> {
        Vec::new()
    }
}

impl Field for usize {
    fn kind(&self) -> &'static str {
        "a whole number"
    }

    fn read_json(&mut self, value: &Value) -> Option<()> {
        *self = usize::try_from(value.as_u64()?).ok()?;
        Some(())
    }

    fn read_gguf(&mut self, metadata: &Metadata, key: &str) -> Result<(), Error> {
        *self = metadata.usize(key)?;
        Ok(())
    }

    fn to_json(&self) -> Value {
        (*self).into()
    }

    fn to_gguf(&self) -> Option<MetaValue> {
        Some(u32::try_from(*self).unwrap_or(u32::MAX).into())
    }

    fn numbers(&self) -> Vec<f64> {
        vec![*self as f64]
    }
}

impl Field for f32 {
    fn kind(&self) -> &'static str {
        "a number"
    }

    fn read_json(&mut self, value: &Value) -> Option<()> {
        *self = value.as_f64()? as f32;
        Some(())
    }

    fn read_gguf(&mut self, metadata: &Metadata, key: &str) -> Result<(), Error> {
        *self = metadata.required(key)?;
        Ok(())
    }

    /// The shortest decimal that means it.
    fn to_json(&self) -> Value {
        self.to_string().parse::<f64>().map_or(Value::Null, Value::from)
    }

    fn to_gguf(&self) -> Option<MetaValue> {
        Some((*self).into())
    }

    fn numbers(&self) -> Vec<f64> {
        vec![f64::from(*self)]
    }
}

/// In a `config.json` alone: GGUF files hold f32.
impl Field for f64 {
    fn kind(&self) -> &'static str {
        "a number"
    }

    fn read_json(&mut self, value: &Value) -> Option<()> {
        *self = value.as_f64()?;
        Some(())
    }

    fn to_json(&self) -> Value {
        (*self).into()
    }

    fn numbers(&self) -> Vec<f64> {
        vec![*self]
    }
}

impl Field for bool {
    fn kind(&self) -> &'static str {
        "true or false"
    }

    fn read_json(&mut self, value: &Value) -> Option<()> {
        *self = value.as_bool()?;
        Some(())
    }

    fn read_gguf(&mut self, metadata: &Metadata, key: &str) -> Result<(), Error> {
        *self = metadata.required(key)?;
        Ok(())
    }

    fn to_json(&self) -> Value {
        (*self).into()
    }

    fn to_gguf(&self) -> Option<MetaValue> {
        Some((*self).into())
    }
}

/// A fixed number of factors, in a `config.json` alone.
impl<const N: usize> Field for [f32; N] {
    fn kind(&self) -> &'static str {
        "a list of as many numbers as the model has"
    }

    fn read_json(&mut self, value: &Value) -> Option<()> {
        let values = value.as_array().filter(|values| values.len() == N)?;
        self.iter_mut().zip(values).try_for_each(|(field, value)| field.read_json(value))
    }

    fn to_json(&self) -> Value {
        self.iter().map(Field::to_json).collect()
    }

    fn numbers(&self) -> Vec<f64> {
        self.iter().flat_map(Field::numbers).collect()
    }
}

/// A value for each layer, in a `config.json` alone: GGUF lists have their own readers.
impl<F: Field + Default> Field for Vec<F> {
    fn kind(&self) -> &'static str {
        match F::default().kind() {
            "true or false" => "a list of flags",
            "a whole number" => "a list of whole numbers",
            _ => "a list of numbers",
        }
    }

    fn read_json(&mut self, value: &Value) -> Option<()> {
        let values = value.as_array()?;
        self.clear();
        self.resize_with(values.len(), F::default);
        self.iter_mut().zip(values).try_for_each(|(field, value)| field.read_json(value))
    }

    fn to_json(&self) -> Value {
        self.iter().map(Field::to_json).collect()
    }

    fn numbers(&self) -> Vec<f64> {
        self.iter().flat_map(Field::numbers).collect()
    }
}

/// A value that files may leave out. A size or a limit of 0 in GGUF metadata says that there is none.
impl<F: Field + Default> Field for Option<F> {
    fn kind(&self) -> &'static str {
        F::default().kind()
    }

    fn read_json(&mut self, value: &Value) -> Option<()> {
        self.insert(F::default()).read_json(value)
    }

    fn read_gguf(&mut self, metadata: &Metadata, key: &str) -> Result<(), Error> {
        self.insert(F::default()).read_gguf(metadata, key)?;
        if self.numbers() == [0.0] {
            *self = None;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, Field::to_json)
    }

    fn to_gguf(&self) -> Option<MetaValue> {
        self.as_ref()?.to_gguf()
    }

    fn numbers(&self) -> Vec<f64> {
        self.as_ref().map_or_else(Vec::new, Field::numbers)
    }
}

/// The keys of a GGUF file that begin with the name of its architecture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GgufKeys<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) architecture: &'a str,
}

impl<'a> GgufKeys<'a> {
    /// A value, if the file has it.
    ///
    /// # Errors
    /// If it is of another kind.
    pub(crate) fn optional<T: FromMeta<'a>>(&self, name: &str) -> Result<Option<T>, Error> {
        Ok(self.metadata.optional(&self.key(name))?)
    }

    /// A value for each layer, if the file lists them.
    ///
    /// # Errors
    /// If they are of another kind, or not as many.
    pub(crate) fn optional_list<T>(&self, name: &str, layers: usize) -> Result<Option<Vec<T>>, Error>
    where
        Vec<T>: FromMeta<'a>,
    {
        let Some(MetaValue::Array(_)) = self.metadata.get(&self.key(name)) else { return Ok(None) };
        let list = self.optional::<Vec<T>>(name)?;
        match list.as_ref().map(Vec::len).filter(|&count| count != layers) {
            Some(count) => {
                let message = format!("{layers} layers, but {count} in the list `{}`", self.key(name));
                Err(Error::config("GGUF metadata", message))
            }
            None => Ok(list),
        }
    }

    /// A number that must be there.
    ///
    /// # Errors
    /// If it is not, or of another kind.
    pub(crate) fn size(&self, name: &str) -> Result<usize, Error> {
        Ok(self.metadata.usize(&self.key(name))?)
    }

    /// A list of flags, if the file has it.
    pub(crate) fn flags(&self, name: &str) -> Option<Vec<bool>> {
        match self.metadata.get(&self.key(name)) {
            Some(MetaValue::Array(MetaArray::Bool(flags))) => Some(flags.clone()),
            _ => None,
        }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }
}
