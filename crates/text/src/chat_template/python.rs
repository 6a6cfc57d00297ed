//! Values as Python shows them: `str` and `repr`.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::letters::is_printable;

/// An error of a filter, function or operator that a template used wrongly.
pub(super) fn fault(problem: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// An object of members, which a namespace is not.
pub(super) fn is_mapping(value: &Value) -> bool {
    let name = value.as_object().map_or("", |object| object.type_name());
    value.kind() == ValueKind::Map
        && !["::Namespace", "::Macro", "::Loop"].iter().any(|own| name.ends_with(own))
}

/// The result of `map`, `select` and similar filters: an iterator, which `list` turns into a list.
#[derive(Debug)]
pub(super) struct Generator(pub(super) Vec<Value>);

/// The result of the methods `keys`, `values` and `items`.
#[derive(Debug)]
pub(super) struct View {
    pub(super) name: &'static str,
    pub(super) items: Vec<Value>,
}

/// The result of `range`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    start: i64,
    stop: i64,
    step: i64,
}

macro_rules! iterable {
    ($type:ty, $items:ident => $list:expr) => {
        impl Object for $type {
            fn repr(self: &Arc<Self>) -> ObjectRepr {
                ObjectRepr::Iterable
            }

            fn enumerate(self: &Arc<Self>) -> Enumerator {
                let $items = Arc::clone(self);
                Enumerator::Iter(Box::new((0..$list.len()).map(move |index| $list[index].clone())))
            }
        }
    };
}
iterable!(Generator, generator => generator.0);
iterable!(View, view => view.items);

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let index = key.as_i64().filter(|index| (0..self.len()).contains(index))?;
        Some(Value::from(self.start + index * self.step))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.len() as usize)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            1 => write!(f, "range({}, {})", self.start, self.stop),
            step => write!(f, "range({}, {}, {step})", self.start, self.stop),
        }
    }
}

impl Range {
    /// The most numbers of a range, in jinja2's sandbox.
    const MOST: i64 = 100_000;

    /// From `start` on in steps to before `stop`.
    ///
    /// # Errors
    /// When the step is zero, or there are more numbers than jinja2's sandbox lets be.
    pub(super) fn new(start: i64, stop: i64, step: i64) -> Result<Range, Error> {
        let bounded = [start, stop, step].iter().all(|bound| bound.unsigned_abs() < 1 << 60);
        let range = Range { start, stop, step };
        match bounded && step != 0 && range.len() <= Range::MOST {
            true => Ok(range),
            false if step == 0 => Err(fault("a range's step is zero")),
            false => Err(fault(format!("a range has more than {} numbers", Range::MOST))),
        }
    }

    fn len(&self) -> i64 {
        let (distance, step) = match self.step > 0 {
            true => (self.stop - self.start, self.step),
            false => (self.start - self.stop, -self.step),
        };
        (distance + step - 1).div_euclid(step).max(0)
    }
}

/// The members of an object, or of a list of pairs.
///
/// # Errors
/// If it is neither.
pub(super) fn members(value: &Value) -> Result<Vec<(Value, Value)>, Error> {
    let is_map = value.kind() == ValueKind::Map;
    let member = |item: Value| match item.len() {
        _ if is_map => Ok((item.clone(), value.get_item(&item)?)),
        Some(2) => Ok((item.get_item_by_index(0)?, item.get_item_by_index(1)?)),
        _ => Err(fault("a pair has two items")),
    };
    value.try_iter()?.map(member).collect()
}

/// Writes `str(value)`, which is what a template shows of a value.
pub(super) fn write_str(value: &Value, out: &mut dyn Write) -> fmt::Result {
    match value.as_str() {
        Some(text) => out.write_str(text),
        None if value.is_undefined() => Ok(()),
        None => write_repr(value, out),
    }
}

/// `str(value)` of a value that was paid for.
pub(super) fn string(value: &Value) -> String {
    let mut text = String::new();
    write_str(value, &mut text).expect("a String takes all");
    text
}

/// Writes `repr(value)`, which is what a list shows of its values.
pub(super) fn write_repr(value: &Value, out: &mut dyn Write) -> fmt::Result {
    match value.kind() {
        ValueKind::Undefined => out.write_str("Undefined"),
        ValueKind::String if value.is_safe() => {
            out.write_str("Markup(")?;
            quote(value.as_str().unwrap_or_default(), out)?;
            out.write_char(')')
        }
        ValueKind::String => quote(value.as_str().unwrap_or_default(), out),
        ValueKind::Number if !value.is_integer() => {
            out.write_str(&float(f64::try_from(value.clone()).unwrap_or(f64::NAN)))
        }
        ValueKind::Seq if value.is_tuple() => match value.len() {
            Some(1) => write_items(value, ["(", ",)"], out),
            _ => write_items(value, ["(", ")"], out),
        },
        ValueKind::Seq if value.downcast_object_ref::<Range>().is_none() => {
            write_items(value, ["[", "]"], out)
        }
        ValueKind::Iterable => {
            if let Some(view) = value.downcast_object_ref::<View>() {
                out.write_str(view.name)?;
                return write_items(value, ["([", "])"], out);
            }
            match value.downcast_object_ref::<Generator>() {
                Some(_) => out.write_str("<generator object>"),
                None => write_items(value, ["[", "]"], out),
            }
        }
        ValueKind::Map => write_map(value, out),
        _ => write!(out, "{value}"),
    }
}

fn write_items(list: &Value, [open, close]: [&str; 2], out: &mut dyn Write) -> fmt::Result {
    out.write_str(open)?;
    for (index, item) in list.try_iter().map_err(|_| fmt::Error)?.enumerate() {
        if index > 0 {
            out.write_str(", ")?;
        }
        write_repr(&item, out)?;
    }
    out.write_str(close)
}

fn write_map(map: &Value, out: &mut dyn Write) -> fmt::Result {
    let name = map.as_object().map_or("", |object| object.type_name());
    if name.ends_with("::Macro") || name.ends_with("::Loop") {
        return write!(out, "{map}");
    }
    let [open, close] = if name.ends_with("::Namespace") { ["<Namespace {", "}>"] } else { ["{", "}"] };
    out.write_str(open)?;
    for (index, key) in map.try_iter().map_err(|_| fmt::Error)?.enumerate() {
        if index > 0 {
            out.write_str(", ")?;
        }
        write_repr(&key, out)?;
        out.write_str(": ")?;
        write_repr(&map.get_item(&key).map_err(|_| fmt::Error)?, out)?;
    }
    out.write_str(close)
}

/// A float as `repr` writes it: shortest, with an exponent from 1e16 on and below 1e-4.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => match exponent.strip_prefix('-') {
            Some(digits) => format!("{mantissa}e-{digits:0>2}"),
            None => format!("{mantissa}e+{exponent:0>2}"),
        },
        None => text,
    }
}

/// A text in quotes, with escapes for what does not print.
fn quote(text: &str, out: &mut dyn Write) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(quote)?;
    for letter in text.chars() {
        match letter {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            letter if letter == quote || letter == '\\' => write!(out, "\\{letter}")?,
            letter if is_printable(letter) => out.write_char(letter)?,
            letter => match u32::from(letter) {
                code @ 0..=0xff => write!(out, "\\x{code:02x}")?,
                code @ 0x100..=0xffff => write!(out, "\\u{code:04x}")?,
                code => write!(out, "\\U{code:08x}")?,
            },
        }
    }
    out.write_char(quote)
}
