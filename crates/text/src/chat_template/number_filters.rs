//! Filters of numbers, as jinja2 has them.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::arguments::{Call, Row, whole};
use super::methods::trimmed;

type Result<T = Value> = std::result::Result<T, minijinja::Error>;

/// Operands are paid for.
pub(super) const FILTERS: &[Row] = &[
    ("filesizeformat", &["", "binary"], |call| {
        let value = call.value(0)?;
        let bytes = value.as_str().map_or_else(|| f64::try_from(value.clone()).ok(), parsed_float);
        let bytes = bytes.ok_or_else(|| call.fault(format!("takes a number, not {}", value.kind())))?;
        Ok(minijinja_contrib::filters::filesizeformat(bytes, Some(call.is_set(1))).into())
    }),
    ("float", &["", "default"], |call| {
        let value = defined(call)?;
        let read = match (value.as_str(), value.kind()) {
            (Some(digits), _) => parsed_float(digits),
            (None, ValueKind::Number) => {
                f64::try_from(value.clone()).ok().or(whole(value).map(|number| number as f64))
            }
            (None, ValueKind::Bool) => whole(value).map(|number| number as f64),
            _ => None,
        };
        Ok(read.map(Value::from).or(call.get(1).cloned()).unwrap_or_else(|| 0.0.into()))
    }),
    ("int", &["", "default", "base"], |call| {
        let (value, base) = (defined(call)?, call.whole_or(2, 10)?);
        let read = match value.as_str() {
            Some(digits) => parsed(digits, base).or_else(|| truncated(parsed_float(digits)?)),
            None if value.kind() == ValueKind::Number && !value.is_integer() => {
                truncated(f64::try_from(value.clone())?)
            }
            None => i128::try_from(value.clone()).ok().filter(|_| !value.is_none()),
        };
        Ok(read.map(integer).or(call.get(1).cloned()).unwrap_or_else(|| 0.into()))
    }),
];

fn defined<'c>(call: &'c Call) -> Result<&'c Value> {
    let value = call.get(0).filter(|value| !value.is_undefined());
    value.ok_or_else(|| call.fault("takes a value, which is undefined"))
}

/// A number of as few bits as hold it.
pub(super) fn integer(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| number.into(), Value::from)
}

fn truncated(number: f64) -> Option<i128> {
    number.is_finite().then_some(number as i128)
}

/// Digits to a base, with a sign, a prefix that says the base, and `_` between them.
fn parsed(digits: &str, base: i64) -> Option<i128> {
    let digits = trimmed(digits, None, true, true);
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits.strip_prefix('+').unwrap_or(digits)),
    };
    let prefixed = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (base, digits) = match (prefixed(["0x", "0X"]), prefixed(["0o", "0O"]), prefixed(["0b", "0B"])) {
        (Some(digits), ..) if base == 16 || base == 0 => (16, digits),
        (_, Some(digits), _) if base == 8 || base == 0 => (8, digits),
        (_, _, Some(digits)) if base == 2 || base == 0 => (2, digits),
        _ if base == 0 => (10, digits),
        _ => (u32::try_from(base).ok().filter(|base| (2..=36).contains(base))?, digits),
    };
    let is_spaced = !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__");
    if digits.starts_with(['+', '-']) || !is_spaced {
        return None;
    }
    i128::from_str_radix(&(sign.to_owned() + &digits.replace('_', "")), base).ok()
}

/// A float out of a text, as Python reads one.
fn parsed_float(digits: &str) -> Option<f64> {
    let digits = trimmed(digits, None, true, true);
    let between = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    let is_spaced = digits.char_indices().filter(|(_, letter)| *letter == '_').all(|(place, _)| {
        between(digits[..place].chars().next_back()) && between(digits[place + 1..].chars().next())
    });
    is_spaced.then(|| digits.replace('_', "").parse().ok()).flatten()
}
