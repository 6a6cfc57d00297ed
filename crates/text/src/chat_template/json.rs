//! `tojson`: a value as Python's `json.dumps` writes it.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, Value};

use super::python::{self, Generator, Range, fault};

/// Lists and objects inside one another.
const MAX_DEPTH: usize = 128;

/// The filter, with the parameters that `transformers` gives it.
pub(super) fn tojson(value: &Value, ensure_ascii: Option<bool>, options: Kwargs) -> Result<String, Error> {
    let indent = indent(options.get("indent")?)?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.or(ensure_ascii).unwrap_or(false);
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let [between, colon] = match separators.as_deref() {
        Some([between, colon]) => [between.clone(), colon.clone()],
        Some(_) => return Err(fault("tojson: separators are two strings".to_owned())),
        None if indent.is_some() => [",".to_owned(), ": ".to_owned()],
        None => [", ".to_owned(), ": ".to_owned()],
    };
    let mut writer = Writer { text: String::new(), indent, between, colon, ascii, sort_keys };
    writer.value(value, 0)?;
    Ok(writer.text)
}

/// The indentation of one level: a number of spaces, or the text itself.
fn indent(indent: Option<Value>) -> Result<Option<String>, Error> {
    let Some(indent) = indent.filter(|indent| !indent.is_none()) else { return Ok(None) };
    if let Some(text) = indent.as_str() {
        return Ok(Some(text.to_owned()));
    }
    match indent.as_i64() {
        Some(width) if width <= 64 => Ok(Some(" ".repeat(width.max(0) as usize))),
        _ => Err(fault(format!("tojson: indent is {indent}; it is text, or a number up to 64"))),
    }
}

struct Writer {
    text: String,
    indent: Option<String>,
    between: String,
    colon: String,
    ascii: bool,
    sort_keys: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(fault(format!("tojson: more than {MAX_DEPTH} levels")));
        }
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Seq if value.downcast_object_ref::<Range>().is_none() => self.list(value, depth)?,
            // Python refuses the result of `map`, but llama.cpp's own templates write it.
            ValueKind::Iterable if value.downcast_object_ref::<Generator>().is_some() => {
                self.list(value, depth)?
            }
            kind => return Err(fault(format!("tojson: {kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn list(&mut self, list: &Value, depth: usize) -> Result<(), Error> {
        self.text.push('[');
        let mut empty = true;
        for item in list.try_iter()? {
            self.item(&mut empty, depth);
            self.value(&item, depth + 1)?;
        }
        self.close(']', empty, depth);
        Ok(())
    }

    fn map(&mut self, map: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = map.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.text.push('{');
        let mut empty = true;
        for key in keys {
            self.item(&mut empty, depth);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    self.text.push('"');
                    self.value(&key, depth)?;
                    self.text.push('"');
                }
                kind => return Err(fault(format!("tojson: a key is a {kind}"))),
            }
            self.text.push_str(&self.colon);
            self.value(&map.get_item(&key)?, depth + 1)?;
        }
        self.close('}', empty, depth);
        Ok(())
    }

    /// Writes the separator, unless the item is the first, and a line break if indented.
    fn item(&mut self, first: &mut bool, depth: usize) {
        if !std::mem::take(first) {
            self.text.push_str(&self.between);
        }
        self.line(depth + 1);
    }

    fn close(&mut self, bracket: char, empty: bool, depth: usize) {
        if !empty {
            self.line(depth);
        }
        self.text.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.text.push('\n');
            (0..depth).for_each(|_| self.text.push_str(indent));
        }
    }

    fn number(&mut self, value: &Value) {
        if value.is_integer() {
            self.text.push_str(&value.to_string());
            return;
        }
        let number = f64::try_from(value.clone()).unwrap_or(f64::NAN);
        self.text.push_str(&match number {
            _ if number.is_nan() => "NaN".to_owned(),
            _ if number.is_infinite() => if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
            _ => python::float(number),
        });
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                letter if letter < ' ' || (self.ascii && !(' '..='~').contains(&letter)) => {
                    self.escape(letter);
                }
                letter => self.text.push(letter),
            }
        }
        self.text.push('"');
    }

    fn escape(&mut self, letter: char) {
        if self.ascii && letter == '\u{7f}' {
            self.text.push(letter);
            return;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            write!(self.text, "\\u{unit:04x}").expect("a String takes all");
        }
    }
}
