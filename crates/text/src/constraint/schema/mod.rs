//! JSON schemas: what can be enforced, and what llguidance reads of it.
//!
//! llguidance leaves out keywords that no draft knows and takes some schemas that it does not enforce to the letter. So a
//! schema is first read ([`reader`]): every keyword is one that constrains, in the form of the newest draft, or an
//! annotation, or is refused; references become names of definitions. Then it is rewritten ([`rewriter`]) into the
//! keywords that llguidance enforces. Values may be lost on the way, such as dates of leap seconds, and never be won.

mod arrays;
mod choices;
mod document;
mod draft;
mod formats;
mod language;
mod logic;
mod names;
mod negation;
mod objects;
mod pattern;
mod reader;
mod rewriter;
#[cfg(test)]
mod tests;
mod unique;

use std::borrow::Cow;

use serde_json::{Map, Value, json};

pub(super) use unique::{Place, UniqueMap};

use super::ConstraintError;

/// Schemas inside schemas.
const MAX_DEPTH: usize = 64;
/// Schemas in all, as written and as rewritten.
const MAX_SCHEMAS: usize = 10_000;
/// The most bytes of a schema.
const MAX_BYTES: usize = 1 << 20;
/// Larger integers are not exact as floating-point numbers, which llguidance computes with.
const MAX_INTEGER: u64 = 1 << 53;
/// The types of JSON.
const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

/// Keywords whose values are schemas, lists of schemas, and schemas by name, as llguidance reads them.
const OF_SCHEMA: [&str; 2] = ["additionalProperties", "items"];
const OF_LIST: [&str; 3] = ["allOf", "anyOf", "prefixItems"];
const OF_MAP: [&str; 3] = ["properties", "patternProperties", "$defs"];
/// The keyword under which a rewritten schema keeps its origin for errors: a pointer into the request's schema, then
/// [`MADE_OF`] and the keyword that it was rewritten from.
const ORIGIN: &str = "$comment";
const MADE_OF: char = '\0';
/// The keyword of texts that a text must not be, in schemas that are being rewritten.
const EXCEPT: &str = "$except";
/// Between the parts of JSON: nothing, a space, or a line break and an indentation of at most 32 spaces or 8 tabs.
const WHITESPACE: &str = r" |\n( {0,32}|\t{0,8})";
/// llguidance's keyword for the layout of JSON. At the root of a caller's schema it may be `{"whitespace_flexible": false}`:
/// no white space between the parts.
const LAYOUT: &str = "x-guidance";
/// Each character of a string has one spelling, so that keys which differ as JSON differ as strings.
const ESCAPES: &str = "nrbtf\\\"";

/// A schema as llguidance compiles it.
pub(super) struct Prepared {
    pub(super) schema: Value,
    /// Where items are unique, which llguidance does not enforce.
    pub(super) unique: Option<UniqueMap>,
}

/// Rewrites a schema into one that llguidance compiles. Unless the matcher follows answers (`is_followed`), arrays of
/// unique items become a list of all such arrays.
///
/// # Errors
/// If a part of it cannot be enforced, with the pointer to it.
pub(super) fn prepare(schema: &Value, is_followed: bool) -> Result<Prepared, ConstraintError> {
    let bytes = schema.to_string().len();
    if bytes > MAX_BYTES {
        return Err(refuse("", None, format!("the schema has {bytes} bytes; the limit is {MAX_BYTES}")));
    }
    let (schema, is_compact) = without_layout(schema);
    let schemas = reader::read(&schema)?;
    let mut prepared = rewriter::rewrite(&schemas, is_followed)?;
    if prepared == Value::Bool(true) {
        prepared = json!({});
    }
    if let Value::Object(map) = &mut prepared {
        let layout = match is_compact {
            true => json!({ "whitespace_flexible": false, "json_allowed_escapes": ESCAPES }),
            false => json!({ "whitespace_pattern": WHITESPACE, "json_allowed_escapes": ESCAPES }),
        };
        map.insert(LAYOUT.into(), layout);
    }
    let unique = if is_followed { UniqueMap::new(&schemas) } else { None };
    Ok(Prepared { schema: prepared, unique })
}

/// A schema without its [`LAYOUT`], and whether that asks for JSON without white space.
fn without_layout(schema: &Value) -> (Cow<'_, Value>, bool) {
    let is_compact = schema.get(LAYOUT).is_some_and(|own| *own == json!({ "whitespace_flexible": false }));
    let mut schema = Cow::Borrowed(schema);
    if is_compact {
        schema.to_mut().as_object_mut().and_then(|map| map.shift_remove(LAYOUT));
    }
    (schema, is_compact)
}

/// The schemas directly in a prepared schema.
pub(super) fn children(schema: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        match value {
            Value::Object(map) if OF_MAP.contains(&&**key) => found.extend(map.values()),
            Value::Array(list) if OF_LIST.contains(&&**key) => found.extend(list),
            Value::Object(_) if OF_SCHEMA.contains(&&**key) => found.push(value),
            _ => {}
        }
    }
    found
}

/// Whether the value of a keyword is schemas.
pub(super) fn holds_schemas(keyword: &str) -> bool {
    OF_SCHEMA.contains(&keyword) || OF_LIST.contains(&keyword) || OF_MAP.contains(&keyword)
}

/// Whether a keyword of a prepared schema constrains.
pub(super) fn constrains(keyword: &str) -> bool {
    !keyword.starts_with('$') && !keyword.starts_with("x-") || keyword == "$ref"
}

/// Where a prepared schema is from: the pointer, and the keyword that it was made of.
pub(super) fn origin(schema: &Value) -> Option<(&str, Option<&str>)> {
    let origin = schema.get(ORIGIN)?.as_str()?;
    Some(origin.split_once(MADE_OF).map_or((origin, None), |(pointer, keyword)| (pointer, Some(keyword))))
}

fn refuse(pointer: &str, keyword: Option<&str>, problem: impl Into<String>) -> ConstraintError {
    ConstraintError {
        pointer: Some(pointer.to_owned()),
        keyword: keyword.map(str::to_owned),
        ..ConstraintError::new("json_schema", problem)
    }
}

/// The list of a keyword; empty if there is none.
fn list<'a>(map: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    map.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The schemas by name of a keyword; empty if there are none.
fn named<'a>(map: &'a Map<String, Value>, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    map.get(keyword).and_then(Value::as_object).into_iter().flatten()
}

/// The count of a keyword.
fn count(map: &Map<String, Value>, keyword: &str) -> Option<u64> {
    map.get(keyword).and_then(Value::as_u64)
}

/// The names of the properties that must be there.
fn required(map: &Map<String, Value>) -> impl Iterator<Item = &str> {
    list(map, "required").iter().filter_map(Value::as_str)
}
