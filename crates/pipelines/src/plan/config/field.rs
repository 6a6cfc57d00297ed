//! What every field of a configuration can be asked: its name, what it may hold, its value as text.

use std::path::{Path, PathBuf};

use engine::Reproducible;
use models::{MIXES, Mix};
use serde_json::Value;
use sources::nearest;
use tensor::DeviceSpec;

use super::auto::Auto;
use super::check::ranges;
use super::enums::{FloatType, KVCacheStrategy, PipelineEngine, RopeType};
use super::problems::Problems;
use super::{PipelineConfig, SupportedEncoding};
use crate::error::UnknownField;

/// A field of [`PipelineConfig`]: a row of [`FIELDS`](super::FIELDS).
pub struct Field {
    /// The name, in files and in the struct.
    pub name: &'static str,
    /// Names that mean the same: those of later versions of the interface.
    pub aliases: &'static [&'static str],
    /// What it may hold.
    pub kind: Kind,
    /// What it does, in a line or two.
    pub(super) help: &'static str,
    pub(super) get: fn(&PipelineConfig) -> Value,
    pub(super) set: fn(&mut PipelineConfig, &Value) -> Result<(), String>,
}

/// What a field may hold. Ranges are no part of it: a configuration is validated as a whole.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// One value, or each value of a list.
    pub item: Item,
    /// Whether it is a list.
    pub list: bool,
    /// The word for no value, where there may be none: `auto` or `none`.
    pub none: Option<&'static str>,
}

/// A single value.
#[derive(Debug, Clone, Copy)]
pub enum Item {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Any text.
    Text,
    /// A file or folder.
    Path,
    /// `cpu`, `gpu` or `gpu:0`.
    Device,
    /// One of some names.
    Choice(fn() -> Vec<&'static str>),
}

impl Field {
    /// What the field does, in a line or two.
    pub fn help(&self) -> &'static str {
        self.help.trim()
    }

    /// The value in a configuration.
    pub fn value(&self, config: &PipelineConfig) -> Value {
        (self.get)(config)
    }

    /// Changes the value in a configuration.
    ///
    /// # Errors
    /// If it is of another kind: what it may be instead.
    pub fn set(&self, config: &mut PipelineConfig, value: &Value) -> Result<(), String> {
        (self.set)(config, value)?;
        if self.name == "quantization_encoding" {
            // Which of the mixtures of an encoding is meant, if the value says it.
            let label = value.as_str().filter(|name| SupportedEncoding::is_variant(name));
            config._weights_label = label.map(str::to_string);
        }
        Ok(())
    }

    /// The value that a text on a command line or in the environment stands for, within its range. Lists are separated
    /// by commas.
    ///
    /// # Errors
    /// What it may be instead.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let value = self.kind.parse(text);
        let mut config = PipelineConfig::default();
        self.set(&mut config, &value)?;
        let mut problems = Problems::default();
        ranges(&config, &mut problems);
        match problems.0.into_iter().find(|problem| problem.field == self.name) {
            Some(problem) => Err(problem.fix),
            None => Ok(value),
        }
    }

    /// The value in a configuration as [`Field::parse`] reads it.
    pub fn text(&self, config: &PipelineConfig) -> String {
        let item = |value: &Value| match value {
            Value::Null => self.kind.none.unwrap_or("none").to_string(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match self.value(config) {
            Value::Array(values) => values.iter().map(item).collect::<Vec<_>>().join(","),
            value => item(&value),
        }
    }

    /// The field with a name or an alias; dashes count as underscores.
    ///
    /// # Errors
    /// If there is none, with the nearest.
    pub fn find(name: &str) -> Result<&'static Field, UnknownField> {
        let plain = name.replace('-', "_");
        let known = |field: &&Field| field.name == plain || field.aliases.contains(&&plain[..]);
        super::FIELDS.iter().find(known).ok_or_else(|| {
            let names = super::FIELDS.iter().flat_map(|field| field.aliases.iter().chain([&field.name]));
            UnknownField { name: name.to_string(), nearest: nearest(&plain, names.copied()) }
        })
    }
}

impl Kind {
    const fn one(item: Item) -> Kind {
        Kind { item, list: false, none: None }
    }

    /// A text as a value. A text that does not parse stays text, and the field refuses it.
    fn parse(&self, text: &str) -> Value {
        match self.none {
            Some(none) if none.eq_ignore_ascii_case(text) => Value::Null,
            // A path may have a comma.
            _ if self.list && matches!(self.item, Item::Path) && Path::new(text).exists() => {
                vec![text].into()
            }
            _ if self.list => text.split(',').filter(|part| !part.is_empty()).map(Value::from).collect(),
            _ => self.item.parse(text),
        }
    }
}

impl Item {
    fn parse(&self, text: &str) -> Value {
        let parsed = match self {
            Item::Bool => match &text.to_ascii_lowercase()[..] {
                "true" | "1" | "on" | "yes" => Some(Value::Bool(true)),
                "false" | "0" | "off" | "no" => Some(Value::Bool(false)),
                _ => None,
            },
            Item::Integer => text.parse::<i64>().ok().map(Value::from),
            Item::Number => text.parse::<f64>().ok().map(Value::from),
            Item::Text | Item::Path | Item::Device | Item::Choice(_) => None,
        };
        parsed.unwrap_or_else(|| Value::from(text))
    }
}

/// A type that a field can have.
pub(super) trait Setting: Sized {
    const KIND: Kind;

    fn value(&self) -> Value;

    fn read(value: &Value) -> Result<Self, String>;
}

impl Setting for bool {
    const KIND: Kind = Kind::one(Item::Bool);

    fn value(&self) -> Value {
        Value::from(*self)
    }

    fn read(value: &Value) -> Result<bool, String> {
        value.as_bool().ok_or_else(|| "give true or false".to_string())
    }
}

impl Setting for usize {
    const KIND: Kind = Kind::one(Item::Integer);

    fn value(&self) -> Value {
        Value::from(*self)
    }

    fn read(value: &Value) -> Result<usize, String> {
        let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| "give a whole number, at least 1".to_string())
    }
}

impl Setting for i64 {
    const KIND: Kind = Kind::one(Item::Integer);

    fn value(&self) -> Value {
        Value::from(*self)
    }

    fn read(value: &Value) -> Result<i64, String> {
        value.as_i64().ok_or_else(|| "give a whole number".to_string())
    }
}

impl Setting for f64 {
    const KIND: Kind = Kind::one(Item::Number);

    fn value(&self) -> Value {
        Value::from(*self)
    }

    fn read(value: &Value) -> Result<f64, String> {
        value.as_f64().ok_or_else(|| "give a number".to_string())
    }
}

impl Setting for String {
    const KIND: Kind = Kind::one(Item::Text);

    fn value(&self) -> Value {
        Value::from(&self[..])
    }

    fn read(value: &Value) -> Result<String, String> {
        value.as_str().map(str::to_string).ok_or_else(|| "give a text".to_string())
    }
}

impl Setting for PathBuf {
    const KIND: Kind = Kind::one(Item::Path);

    fn value(&self) -> Value {
        Value::from(self.to_string_lossy())
    }

    fn read(value: &Value) -> Result<PathBuf, String> {
        value.as_str().map(PathBuf::from).ok_or_else(|| "give a path".to_string())
    }
}

impl Setting for DeviceSpec {
    const KIND: Kind = Kind::one(Item::Device);

    fn value(&self) -> Value {
        Value::from(self.to_string())
    }

    fn read(value: &Value) -> Result<DeviceSpec, String> {
        let expected = || "give cpu, or gpu:0 and so on".to_string();
        let text = value.as_str().ok_or_else(expected)?.to_ascii_lowercase();
        match &text[..] {
            "cpu" => Ok(DeviceSpec::cpu()),
            "gpu" => DeviceSpec::accelerator(0).map_err(|error| error.to_string()),
            other => {
                let id = other.strip_prefix("gpu:").and_then(|id| id.parse().ok()).ok_or_else(expected)?;
                DeviceSpec::accelerator(id).map_err(|error| error.to_string())
            }
        }
    }
}

/// Enums of the configuration, by their names.
macro_rules! choices {
    ($($ty:ty),*) => {$(
        impl Setting for $ty {
            const KIND: Kind = Kind::one(Item::Choice(|| <$ty>::ALL.iter().map(|value| value.name()).collect()));

            fn value(&self) -> Value {
                Value::from(self.name())
            }

            fn read(value: &Value) -> Result<$ty, String> {
                named(value, <$ty as Setting>::KIND.item, |text| text.parse().ok())
            }
        }
    )*};
}

choices!(PipelineEngine, SupportedEncoding, KVCacheStrategy, RopeType, FloatType);

impl Setting for &'static Mix {
    const KIND: Kind = Kind::one(Item::Choice(|| MIXES.iter().map(|mix| mix.name).collect()));

    fn value(&self) -> Value {
        Value::from(self.name)
    }

    fn read(value: &Value) -> Result<&'static Mix, String> {
        named(value, Self::KIND.item, Mix::find)
    }
}

impl Setting for Reproducible {
    const KIND: Kind =
        Kind::one(Item::Choice(|| Reproducible::MEMBERS.iter().map(|value| value.name()).collect()));

    fn value(&self) -> Value {
        Value::from(self.name())
    }

    fn read(value: &Value) -> Result<Reproducible, String> {
        named(value, Self::KIND.item, |text| text.parse().ok())
    }
}

/// The choice with a name.
fn named<T>(value: &Value, item: Item, find: impl Fn(&str) -> Option<T>) -> Result<T, String> {
    let Item::Choice(names) = item else { unreachable!("a choice has names") };
    let expected = || format!("give one of {}", names().join(", "));
    let text = value.as_str().ok_or_else(expected)?;
    find(text).ok_or_else(|| match nearest(text, names()) {
        Some(nearest) => format!("{}; did you mean {nearest}?", expected()),
        None => expected(),
    })
}

impl<T: Setting> Setting for Option<T> {
    const KIND: Kind = Kind { none: Some("none"), ..T::KIND };

    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::value)
    }

    fn read(value: &Value) -> Result<Option<T>, String> {
        match value {
            Value::Null => Ok(None),
            // Where a file has no word for nothing.
            Value::String(word)
                if word == "none"
                    && !matches!(T::KIND.item, Item::Choice(names) if names().contains(&"none")) =>
            {
                Ok(None)
            }
            value => T::read(value).map(Some),
        }
    }
}

impl<T: Setting> Setting for Vec<T> {
    const KIND: Kind = Kind { list: true, ..T::KIND };

    fn value(&self) -> Value {
        self.iter().map(T::value).collect()
    }

    fn read(value: &Value) -> Result<Vec<T>, String> {
        match value {
            Value::Array(values) => values.iter().map(T::read).collect(),
            one => Ok(vec![T::read(one).map_err(|expected| format!("{expected}, or a list of such"))?]),
        }
    }
}

impl Setting for Auto {
    const KIND: Kind = Kind { none: Some("auto"), ..usize::KIND };

    fn value(&self) -> Value {
        self.given().map_or(Value::from("auto"), Value::from)
    }

    fn read(value: &Value) -> Result<Auto, String> {
        match value {
            Value::Null => Ok(Auto::Auto),
            Value::String(word) if word == "auto" => Ok(Auto::Auto),
            value => usize::read(value)
                .map(Auto::At)
                .map_err(|_| "give a whole number, at least 1, or auto".to_string()),
        }
    }
}
