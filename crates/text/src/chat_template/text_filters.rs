//! Filters of texts, as jinja2 has them.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::arguments::{Call, Row, split, whole};
use super::letters::is_space;
use super::methods::{center, lines, padded, trim};
use super::pprint::pprint;
use super::printf::printf;
use super::python::{self, fault, is_mapping, members};
use super::wrap;

type Result<T = Value> = std::result::Result<T, minijinja::Error>;

/// Operands are paid for.
pub(super) const FILTERS: &[Row] = &[
    ("attr", &["", "name"], attr),
    ("center", &["", "width"], |call| Ok(padded(&call.shown(0)?, call.whole_or(1, 80)?, ' ', center).into())),
    ("d", &["", "default_value", "boolean"], default),
    ("default", &["", "default_value", "boolean"], default),
    ("e", &[""], |call| Ok(Value::from_safe_string(escaped(call.value(0)?)))),
    ("escape", &[""], |call| Ok(Value::from_safe_string(escaped(call.value(0)?)))),
    ("forceescape", &[""], |call| Ok(Value::from_safe_string(html(&call.shown(0)?)))),
    ("indent", &["", "width", "first", "blank"], indent),
    ("join", &["", "d", "attribute"], join),
    ("pprint", &[""], pprint),
    ("replace", &["", "old", "new", "count"], |call| {
        let (own, old, new) = (call.shown(0)?, call.shown(1)?, call.shown(2)?);
        let count = if call.some(3).is_some() { call.whole(3)? } else { -1 };
        Ok(own.replacen(&*old, &new, usize::try_from(count).unwrap_or(usize::MAX)).into())
    }),
    ("string", &[""], |call| match call.value(0)? {
        text if text.as_str().is_some() => Ok(text.clone()),
        other => Ok(python::string(other).into()),
    }),
    ("trim", &["", "chars"], |call| trim(call, true, true)),
    ("urlencode", &[""], urlencode),
    ("wordcount", &[""], |call| {
        let value = call.shown(0)?;
        let words = value.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
        Ok(words.filter(|word| !word.is_empty()).count().into())
    }),
    ("wordwrap", &["", "width", "break_long_words", "wrapstring", "break_on_hyphens"], wordwrap),
    ("xmlattr", &["", "autospace"], xmlattr),
];

fn indent(call: &Call) -> Result {
    let own = call.text(0)?.to_owned() + "\n";
    let space = match call.get(1).and_then(Value::as_str) {
        Some(space) => space.to_owned(),
        None => " ".repeat(call.whole_or(1, 4)?.max(0) as usize),
    };
    let (first, blank) = (call.is_set(2), call.is_set(3));
    let mut indented = String::new();
    for (index, line) in lines(&own, false).into_iter().enumerate() {
        if index > 0 {
            indented.push('\n');
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            indented.push_str(&space);
        }
        indented.push_str(line);
    }
    Ok(indented.into())
}

fn wordwrap(call: &Call) -> Result {
    let is_set = |place: usize| call.get(place).is_none_or(Value::is_true);
    let width = usize::try_from(call.whole_or(1, 79)?).ok().filter(|&width| width > 0);
    let width = width.ok_or_else(|| call.fault("takes a width above zero"))?;
    let between = call.some(3).map_or(Ok("\n"), |between| call.text_of(between))?;
    let wrapped = lines(call.text(0)?, false).into_iter();
    let wrapped = wrapped.map(|line| wrap::wrapped(line, width, is_set(2), is_set(4)).join(between));
    Ok(wrapped.collect::<Vec<_>>().join(between).into())
}

/// Percent signs for all but letters, digits and a few marks; a slash stays in a path, and a space is `+` in a query.
fn urlencode(call: &Call) -> Result {
    let value = call.value(0)?;
    if !matches!(value.kind(), ValueKind::Map | ValueKind::Seq | ValueKind::Iterable) {
        return Ok(quoted(&call.shown(0)?, '/').into());
    }
    let query = |value: &Value| quoted(&python::string(value), ' ').replace(' ', "+");
    let pairs = members(value)?;
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| [query(key), query(value)].join("=")).collect();
    Ok(pairs.join("&").into())
}

fn quoted(own: &str, keep: char) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) || char::from(byte) == keep;
    let quoted = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    own.bytes().map(quoted).collect()
}

fn xmlattr(call: &Call) -> Result {
    let map = call.value(0)?;
    if map.kind() != ValueKind::Map {
        return Err(call.fault(format!("takes an object, not {}", map.kind())));
    }
    let mut attributes = String::new();
    for (key, value) in members(map)? {
        if value.is_none() || value.is_undefined() {
            continue;
        }
        let key = python::string(&key);
        if key.contains(|letter: char| is_space(letter) || matches!(letter, '/' | '>' | '=')) {
            return Err(call.fault(format!("takes no \"{key}\" as a name")));
        }
        attributes += &format!(" {}=\"{}\"", html(&key), escaped(&value));
    }
    let space = call.get(1).is_none_or(Value::is_true);
    Ok(if space { &attributes } else { attributes.trim_start_matches(' ') }.into())
}

/// A value as HTML text: with entities, unless it is marked as safe.
pub(super) fn escaped(value: &Value) -> String {
    let text = python::string(value);
    if value.is_safe() { text } else { html(&text) }
}

fn html(text: &str) -> String {
    const ENTITIES: [(char, &str); 5] =
        [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&#34;"), ('\'', "&#39;")];
    ENTITIES.iter().fold(text.to_owned(), |text, (letter, entity)| text.replace(*letter, entity))
}

/// An attribute as `.` finds it, except that members of objects are not found.
fn attr(call: &Call) -> Result {
    let (value, name) = (call.value(0)?, call.text(1)?);
    if is_mapping(value) { Ok(Value::UNDEFINED) } else { value.get_attr(name) }
}

fn join(call: &Call) -> Result {
    let between = if call.get(1).is_some() { call.shown(1)? } else { "".into() };
    let mut joined = String::new();
    for (index, item) in call.value(0)?.try_iter()?.enumerate() {
        if index > 0 {
            joined.push_str(&between);
        }
        let item = match call.get(2) {
            Some(path) => attribute(item, path, call)?,
            None => item,
        };
        python::write_str(&item, &mut joined)?;
    }
    Ok(joined.into())
}

/// The value at a path such as `function.0.name`.
fn attribute(mut item: Value, path: &Value, call: &Call) -> Result {
    if whole(path).is_some() {
        return item.get_item(path);
    }
    for name in call.text_of(path)?.split('.') {
        let key = name.parse::<i64>().map_or_else(|_| Value::from(name), Value::from);
        item = item.get_item(&key)?;
    }
    Ok(item)
}

/// `format`, which takes any number of operands.
pub(super) fn format(operands: &[Value]) -> Result {
    let (positional, keywords) = split(operands);
    let Some((format, values)) = positional.split_first() else {
        return Err(fault("format lacks an operand"));
    };
    let format = python::string(format);
    match (values, keywords.is_empty()) {
        (values, true) => printf(&format, values).map(Value::from),
        ([], false) => printf(&format, &[Value::from_pairs(keywords)]).map(Value::from),
        _ => Err(fault("format takes values by place or by name, not both")),
    }
}

fn default(call: &Call) -> Result {
    let value = call.get(0).cloned().unwrap_or_default();
    if value.is_undefined() || call.is_set(2) && !value.is_true() {
        return Ok(call.get(1).cloned().unwrap_or_else(|| "".into()));
    }
    Ok(value)
}
