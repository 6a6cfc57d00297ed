//! Filters of numbers, as jinja2 has them.

use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

use super::arguments::{bind, fault, required, text_or, whole, whole_or};
use super::methods::trimmed;
use super::text_filters::Filter;

/// The filters of numbers by their names.
pub(super) const FILTERS: &[(&str, Filter)] =
    &[("abs", abs), ("filesizeformat", filesizeformat), ("float", float), ("int", int), ("round", round)];

fn abs(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value] = bind("abs", [""], operands)?;
    let value = required("abs", value)?;
    match (whole(&value), value.kind()) {
        (Some(number), _) => Ok(Value::from(number.unsigned_abs())),
        (None, ValueKind::Number) if !value.is_integer() => Ok(Value::from(f64::try_from(value)?.abs())),
        (None, ValueKind::Number) => minijinja::filters::abs(value),
        (None, kind) => Err(fault(format!("abs takes a number, not {kind}"))),
    }
}

fn round(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, precision, method] = bind("round", ["", "precision", "method"], operands)?;
    let value = required("round", value)?;
    let precision = whole_or("round", &precision, 0)?.clamp(-400, 400) as i32;
    let method = text_or("round", &method, "common")?;
    if !matches!(value.kind(), ValueKind::Number | ValueKind::Bool) {
        return Err(fault(format!("round takes a number, not {}", value.kind())));
    }
    let is_whole = whole(&value).is_some() || value.is_integer();
    if method == "common" && is_whole {
        return match (i128::try_from(value), precision) {
            (Ok(number), 0..) => Ok(Value::from(number)),
            (Ok(number), precision) => rounded_whole(number, precision.unsigned_abs()),
            (Err(error), _) => Err(error),
        };
    }
    let number = if is_whole { i128::try_from(value)? as f64 } else { f64::try_from(value)? };
    let scale = 10f64.powi(precision);
    let rounded = match method {
        "common" if !number.is_finite() => number,
        // Written out, a float rounds as it is, not as its product with a power of ten is.
        "common" if precision >= 0 => format!("{number:.*}", precision as usize).parse().unwrap_or(number),
        "common" => (number * scale).round_ties_even() / scale,
        "ceil" => (number * scale).ceil() / scale,
        "floor" => (number * scale).floor() / scale,
        _ => return Err(fault(format!("round takes common, ceil or floor, not {method}"))),
    };
    Ok(Value::from(rounded))
}

/// A whole number to a power of ten, halves to the even one.
fn rounded_whole(number: i128, digits: u32) -> Result<Value, Error> {
    let Some(unit) = 10i128.checked_pow(digits) else { return Ok(Value::from(0)) };
    let (quotient, rest) = (number.div_euclid(unit), number.rem_euclid(unit));
    let up = rest > unit - rest || rest == unit - rest && quotient % 2 != 0;
    let rounded = (quotient + i128::from(up)).checked_mul(unit);
    rounded.map(Value::from).ok_or_else(|| fault("a rounded number is beyond 128 bits"))
}

/// A whole number out of a text or a number, or else `default`.
fn int(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, otherwise, base] = bind("int", ["", "default", "base"], operands)?;
    let base = whole_or("int", &base, 10)?;
    let value = defined("int", value)?;
    let read = match value.as_str() {
        Some(digits) => parsed(digits, base).or_else(|| truncated(parsed_float(digits)?)),
        None if value.kind() == ValueKind::Number && !value.is_integer() => {
            truncated(f64::try_from(value.clone())?)
        }
        None => i128::try_from(value.clone()).ok().filter(|_| !value.is_none()),
    };
    let number = |read: i128| i64::try_from(read).map_or_else(|_| Value::from(read), Value::from);
    Ok(read.map(number).or(otherwise).unwrap_or_else(|| Value::from(0)))
}

fn defined(filter: &str, value: Option<Value>) -> Result<Value, Error> {
    let value = value.filter(|value| !value.is_undefined());
    value.ok_or_else(|| fault(format!("{filter} takes a value, which is undefined")))
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

fn float(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    let [value, otherwise] = bind("float", ["", "default"], operands)?;
    let value = defined("float", value)?;
    let read = match (value.as_str(), value.kind()) {
        (Some(digits), _) => parsed_float(digits),
        (None, ValueKind::Number | ValueKind::Bool) => match whole(&value) {
            Some(number) => Some(number as f64),
            None => f64::try_from(value).ok(),
        },
        _ => None,
    };
    Ok(read.map(Value::from).or(otherwise).unwrap_or_else(|| Value::from(0.0)))
}

fn filesizeformat(_: &mut State, operands: &[Value]) -> Result<Value, Error> {
    const PREFIXES: [(&str, &str); 8] = [
        ("kB", "KiB"),
        ("MB", "MiB"),
        ("GB", "GiB"),
        ("TB", "TiB"),
        ("PB", "PiB"),
        ("EB", "EiB"),
        ("ZB", "ZiB"),
        ("YB", "YiB"),
    ];
    let [value, binary] = bind("filesizeformat", ["", "binary"], operands)?;
    let value = required("filesizeformat", value)?;
    let bytes = match value.as_str() {
        Some(digits) => parsed_float(digits),
        None => f64::try_from(value.clone()).ok(),
    };
    let bytes = bytes.ok_or_else(|| fault(format!("filesizeformat takes a number, not {}", value.kind())))?;
    let binary = binary.is_some_and(|binary| binary.is_true());
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return Ok(Value::from("1 Byte"));
    }
    if bytes < base {
        return Ok(Value::from(format!("{} Bytes", bytes as i128)));
    }
    let powers = (2..).map(|power| base.powi(power));
    let (unit, prefix) =
        powers.zip(PREFIXES).find(|(unit, _)| bytes < *unit).unwrap_or((base.powi(9), PREFIXES[7]));
    let prefix = if binary { prefix.1 } else { prefix.0 };
    Ok(Value::from(format!("{:.1} {prefix}", base * bytes / unit)))
}
