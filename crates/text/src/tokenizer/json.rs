//! Values of keys in the JSON files of tokenizers.

use serde_json::Value;

/// The string of a key.
pub(super) fn text<'v>(value: &'v Value, key: &str) -> Result<&'v str, String> {
    let kind = value["type"].as_str().unwrap_or("a step");
    value[key].as_str().ok_or_else(|| format!("{kind}: {key} is missing, or is not a string"))
}

/// The one character of a key.
pub(super) fn character(value: &Value, key: &str) -> Result<char, String> {
    let text = text(value, key)?;
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(format!("{key} is {text:?}, not one character")),
    }
}

/// The list of a key.
pub(super) fn list<'v>(value: &'v Value, key: &str) -> Result<&'v [Value], String> {
    let list = value[key].as_array().map(Vec::as_slice);
    list.ok_or_else(|| format!("{key} is missing, or is not a list"))
}

/// The flag of a key; `default` if there is none.
pub(super) fn flag(value: &Value, key: &str, default: bool) -> Result<bool, String> {
    match &value[key] {
        Value::Null => Ok(default),
        other => other.as_bool().ok_or_else(|| format!("{key} is {other}, not true or false")),
    }
}

/// The number of a key; `default` if there is none.
pub(super) fn number(value: &Value, key: &str, default: usize) -> Result<usize, String> {
    match &value[key] {
        Value::Null => Ok(default),
        other => {
            let number = other.as_u64().and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("{key} is {other}, not a number of things"))
        }
    }
}
