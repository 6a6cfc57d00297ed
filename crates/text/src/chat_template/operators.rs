//! Operators as Python has them, paid for before they make anything.

use std::cmp::Ordering;
use std::fmt::{self, Write};

use minijinja::value::{Rest, Tuple, ValueKind};
use minijinja::{AutoEscape, Environment, Error, State, Value};

use super::arguments::{fault, whole};
use super::printf::printf;
use super::python;
use super::text_filters::escaped;
use super::work::{self, ITEM, exhausted, left_over, shallow, spend, weigh};

/// `left + right`.
pub(super) const ADD: &str = "(+)";
/// `left - right`.
pub(super) const SUBTRACT: &str = "(-)";
/// `left * right`.
pub(super) const MULTIPLY: &str = "(*)";
/// `left / right`.
pub(super) const DIVIDE: &str = "(/)";
/// `left // right`.
pub(super) const DIVIDE_WHOLE: &str = "(//)";
/// `left % right`.
pub(super) const REMAINDER: &str = "(%)";
/// `left ** right`.
pub(super) const POWER: &str = "(**)";
/// `-value`.
pub(super) const NEGATE: &str = "(neg)";
/// `left ~ right`.
pub(super) const CONCAT: &str = "(~)";
/// `value[start:stop:step]`.
pub(super) const SLICE: &str = "([:])";
/// `left < right`.
pub(super) const LESS: &str = "(<)";
/// `left <= right`.
pub(super) const LESS_OR_EQUAL: &str = "(<=)";
/// `left > right`.
pub(super) const GREATER: &str = "(>)";
/// `left >= right`.
pub(super) const GREATER_OR_EQUAL: &str = "(>=)";
/// `left in right`.
pub(super) const IN: &str = "(in)";

type Binary = fn(&mut State, u64, &Value, &Value) -> Result<Value, Error>;

/// Adds the operators that rewritten templates call, held to `work`.
pub(super) fn add(environment: &mut Environment<'static>, work: u64) {
    let binary: [(&str, Binary); 13] = [
        (ADD, add_values),
        (SUBTRACT, |_, _, left, right| {
            arithmetic("-", left, right, i128::checked_sub, |left, right| left - right)
        }),
        (MULTIPLY, multiply),
        (DIVIDE, |_, _, left, right| divide(left, right)),
        (DIVIDE_WHOLE, |_, _, left, right| {
            let whole = |left, right| Some(floored(left, right)?.0);
            divisor(right)?;
            arithmetic("//", left, right, whole, |left, right| floored_floats(left, right).0)
        }),
        (REMAINDER, remainder),
        (POWER, |_, _, left, right| power(left, right)),
        (CONCAT, concat),
        (LESS, |state, work, left, right| compare(state, work, "<", left, right, Ordering::is_lt)),
        (LESS_OR_EQUAL, |state, work, left, right| compare(state, work, "<=", left, right, Ordering::is_le)),
        (GREATER, |state, work, left, right| compare(state, work, ">", left, right, Ordering::is_gt)),
        (GREATER_OR_EQUAL, |state, work, left, right| {
            compare(state, work, ">=", left, right, Ordering::is_ge)
        }),
        (IN, contains),
    ];
    for (name, operator) in binary {
        environment.add_function(name, move |state: &mut State, left: &Value, right: &Value| {
            operator(state, work, left, right)
        });
    }
    environment.add_function(NEGATE, |value: &Value| match Numbers::of(&Value::from(0), value) {
        Some(_) => arithmetic("-", &Value::from(-1), value, i128::checked_mul, |left, right| left * right),
        None => Err(fault(format!("cannot negate {}", value.kind()))),
    });
    environment.add_function(SLICE, move |state: &mut State, operands: Rest<Value>| {
        let [value, start, stop, step] = &operands.0[..] else {
            return Err(fault("a slice has four operands"));
        };
        spend(state, work, shallow(value))?;
        slice(value, [start, stop, step])
    });
    environment.set_formatter(|out, state, value| match state.auto_escape() {
        AutoEscape::None => python::write_str(value, out).map_err(Error::from),
        _ => out.write_str(&escaped(value)).map_err(Error::from),
    });
}

/// Two numbers; truth values count.
enum Numbers {
    Whole(i128, i128),
    Float(f64, f64),
}

impl Numbers {
    fn of(left: &Value, right: &Value) -> Option<Numbers> {
        let is_number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
        if !is_number(left) || !is_number(right) {
            return None;
        }
        let is_whole = |value: &Value| value.is_integer() || value.kind() == ValueKind::Bool;
        if is_whole(left) && is_whole(right) {
            return Some(Numbers::Whole(left.clone().try_into().ok()?, right.clone().try_into().ok()?));
        }
        let float = |value: &Value| match is_whole(value) {
            true => i128::try_from(value.clone()).ok().map(|whole| whole as f64),
            false => f64::try_from(value.clone()).ok(),
        };
        Some(Numbers::Float(float(left)?, float(right)?))
    }
}

/// A whole result of whole operands, and a float otherwise.
fn arithmetic(
    operator: &str,
    left: &Value,
    right: &Value,
    whole: fn(i128, i128) -> Option<i128>,
    float: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    match Numbers::of(left, right) {
        Some(Numbers::Whole(one, other)) => match whole(one, other) {
            Some(result) => Ok(integer(result)),
            None => Err(fault(format!("{left} {operator} {right} is beyond 128 bits"))),
        },
        Some(Numbers::Float(one, other)) => Ok(Value::from(float(one, other))),
        None => Err(unsupported(operator, left, right)),
    }
}

/// A number of as few bits as hold it.
pub(super) fn integer(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| Value::from(number), Value::from)
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Error {
    fault(format!("{operator} takes no {} and {}", left.kind(), right.kind()))
}

/// Numbers, texts, lists and tuples; what was marked as safe escapes what it is added to.
fn add_values(state: &mut State, work: u64, left: &Value, right: &Value) -> Result<Value, Error> {
    use ValueKind::{Iterable, Seq};
    spend(state, work, shallow(left) + shallow(right))?;
    if let (Some(one), Some(other)) = (left.as_str(), right.as_str()) {
        if !left.is_safe() && !right.is_safe() {
            return Ok(Value::from([one, other].concat()));
        }
        // Five bytes at most for one.
        spend(state, work, 5 * (shallow(left) + shallow(right)))?;
        return Ok(Value::from_safe_string([left, right].map(escaped).concat()));
    }
    match (left.kind(), right.kind()) {
        (Seq | Iterable, Seq | Iterable) if left.is_tuple() == right.is_tuple() => {
            let items: Vec<Value> = left.try_iter()?.chain(right.try_iter()?).collect();
            Ok(sequence(left, items))
        }
        _ => arithmetic("+", left, right, i128::checked_add, |left, right| left + right),
    }
}

/// Items as a tuple, where they come from one, and else as a list.
fn sequence(like: &Value, items: Vec<Value>) -> Value {
    if like.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) }
}

/// Numbers, or a text or list by a whole number.
fn multiply(state: &mut State, work: u64, left: &Value, right: &Value) -> Result<Value, Error> {
    use ValueKind::{Iterable, Seq, String};
    let (repeated, times) = match (left.kind(), right.kind()) {
        (String | Seq | Iterable, _) => (left, right),
        (_, String | Seq | Iterable) => (right, left),
        _ => return arithmetic("*", left, right, i128::checked_mul, |left, right| left * right),
    };
    let times = whole(times).ok_or_else(|| unsupported("*", left, right))?.max(0) as u64;
    let item = if repeated.as_str().is_some() { 1 } else { ITEM };
    spend(state, work, shallow(repeated).saturating_mul(times).saturating_mul(item))?;
    match repeated.as_str() {
        Some(text) if repeated.is_safe() => Ok(Value::from_safe_string(text.repeat(times as usize))),
        Some(text) => Ok(Value::from(text.repeat(times as usize))),
        None => {
            let items: Vec<Value> = repeated.try_iter()?.collect();
            Ok(sequence(repeated, (0..times).flat_map(|_| items.iter().cloned()).collect()))
        }
    }
}

fn divisor(number: &Value) -> Result<(), Error> {
    match Numbers::of(number, number) {
        Some(Numbers::Whole(0, _) | Numbers::Float(0.0, _)) => Err(fault("a division by zero")),
        _ => Ok(()),
    }
}

fn divide(left: &Value, right: &Value) -> Result<Value, Error> {
    divisor(right)?;
    match Numbers::of(left, right) {
        Some(Numbers::Whole(one, other)) => Ok(Value::from(one as f64 / other as f64)),
        Some(Numbers::Float(one, other)) => Ok(Value::from(one / other)),
        None => Err(unsupported("/", left, right)),
    }
}

/// The quotient towards minus infinity, and what remains, with the sign of the divisor.
fn floored(left: i128, right: i128) -> Option<(i128, i128)> {
    let (quotient, rest) = (left.checked_div(right)?, left.checked_rem(right)?);
    match rest != 0 && (rest < 0) != (right < 0) {
        true => Some((quotient - 1, rest + right)),
        false => Some((quotient, rest)),
    }
}

fn floored_floats(left: f64, right: f64) -> (f64, f64) {
    let mut rest = left % right;
    let mut quotient = (left - rest) / right;
    if rest == 0.0 {
        rest = 0.0f64.copysign(right);
    } else if (rest < 0.0) != (right < 0.0) {
        rest += right;
        quotient -= 1.0;
    }
    let floor = quotient.floor();
    match quotient {
        0.0 => (0.0f64.copysign(left / right), rest),
        _ if quotient - floor > 0.5 => (floor + 1.0, rest),
        _ => (floor, rest),
    }
}

/// The remainder of numbers, or a text with values in place of its `%`.
fn remainder(state: &mut State, work: u64, left: &Value, right: &Value) -> Result<Value, Error> {
    let Some(text) = left.as_str() else {
        divisor(right)?;
        let whole = |left, right| Some(floored(left, right)?.1);
        return arithmetic("%", left, right, whole, |left, right| floored_floats(left, right).1);
    };
    let operands: Vec<Value> = match right.is_tuple() {
        true => right.try_iter()?.collect(),
        false => vec![right.clone()],
    };
    let call: Vec<Value> = [left].into_iter().chain(&operands).cloned().collect();
    work::charge_call(state, work, "format", &call)?;
    printf(text, &operands).map(Value::from)
}

fn power(left: &Value, right: &Value) -> Result<Value, Error> {
    let beyond = || fault(format!("{left} ** {right} is beyond 128 bits"));
    let (base, exponent) = match Numbers::of(left, right) {
        Some(Numbers::Whole(base, exponent)) if exponent >= 0 => {
            let exponent = u32::try_from(exponent).map_err(|_| beyond())?;
            return base.checked_pow(exponent).map(integer).ok_or_else(beyond);
        }
        Some(Numbers::Whole(base, exponent)) => (base as f64, exponent as f64),
        Some(Numbers::Float(base, exponent)) => (base, exponent),
        None => return Err(unsupported("**", left, right)),
    };
    let result = base.powf(exponent);
    match result.is_finite() || !base.is_finite() || !exponent.is_finite() {
        true => Ok(Value::from(result)),
        false => Err(fault(format!("{left} ** {right} is no number"))),
    }
}

fn concat(state: &mut State, work: u64, left: &Value, right: &Value) -> Result<Value, Error> {
    weigh(state, work, left)?;
    weigh(state, work, right)?;
    let mut text = Text { text: String::new(), limit: left_over(state, work) };
    for value in [left, right] {
        python::write_str(value, &mut text).map_err(|fmt::Error| exhausted())?;
    }
    spend(state, work, text.text.len() as u64)?;
    Ok(Value::from(text.text))
}

/// A text that may not outgrow its limit.
struct Text {
    text: String,
    limit: u64,
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if (self.text.len() + part.len()) as u64 > self.limit {
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

/// Numbers, texts, or lists, among themselves.
fn compare(
    state: &mut State,
    work: u64,
    operator: &str,
    left: &Value,
    right: &Value,
    holds: fn(Ordering) -> bool,
) -> Result<Value, Error> {
    weigh(state, work, left)?;
    weigh(state, work, right)?;
    let order = match (Numbers::of(left, right), left.kind(), right.kind()) {
        (Some(Numbers::Whole(one, other)), ..) => Some(one.cmp(&other)),
        (Some(Numbers::Float(one, other)), ..) => one.partial_cmp(&other),
        (None, ValueKind::String, ValueKind::String) => left.as_str().partial_cmp(&right.as_str()),
        (None, ValueKind::Seq, ValueKind::Seq) if left.is_tuple() == right.is_tuple() => {
            Some(left.cmp(right))
        }
        _ => return Err(unsupported(operator, left, right)),
    };
    Ok(Value::from(order.is_some_and(holds)))
}

fn contains(state: &mut State, work: u64, left: &Value, right: &Value) -> Result<Value, Error> {
    weigh(state, work, right)?;
    match right.kind() {
        ValueKind::String if left.as_str().is_none() => Err(unsupported("in", left, right)),
        ValueKind::None => Err(unsupported("in", left, right)),
        _ => minijinja::tests::is_in(state, left, right).map(Value::from),
    }
}

/// As Python slices a text by its characters, or a list.
fn slice(value: &Value, [start, stop, step]: [&Value; 3]) -> Result<Value, Error> {
    let bound = |bound: &Value| match bound.is_none() {
        true => Ok(None),
        false => whole(bound).map(Some).ok_or_else(|| fault(format!("a slice's bound is {}", bound.kind()))),
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(fault("a slice's step is zero"));
    }
    match value.kind() {
        ValueKind::String => {
            let letters: Vec<char> = value.as_str().unwrap_or_default().chars().collect();
            let text: String =
                indices(letters.len(), start, stop, step).map(|index| letters[index]).collect();
            Ok(if value.is_safe() { Value::from_safe_string(text) } else { Value::from(text) })
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            let taken = indices(items.len(), start, stop, step).map(|index| items[index].clone()).collect();
            Ok(sequence(value, taken))
        }
        kind => Err(fault(format!("cannot slice {kind}"))),
    }
}

/// The indices of a slice, as Python's `slice.indices` has them.
fn indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let len = len as i64;
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |bound: i64| if bound < 0 { (bound + len).max(lowest) } else { bound.min(highest) };
    let start = start.map_or(if step > 0 { lowest } else { highest }, clamp);
    let stop = stop.map_or(if step > 0 { highest } else { lowest }, clamp);
    let next = move |index: &i64| index.checked_add(step);
    std::iter::successors(Some(start), next)
        .take_while(move |&index| if step > 0 { index < stop } else { index > stop })
        .map(|index| index as usize)
}
