//! Operators as Python has them, paid for before they make anything.

use std::collections::HashMap;
use std::sync::LazyLock;

use minijinja::value::{Rest, Tuple, ValueKind};
use minijinja::{AutoEscape, Environment, Error, Expression, State, Value};

use super::arguments::whole;
use super::printf::printf;
use super::python::{self, fault};
use super::text_filters::escaped;
use super::work::{self, ITEM, extent, shallow, spend, weigh};

/// `left + right`.
pub(super) const ADD: &str = "(+)";
/// `left * right`.
pub(super) const MULTIPLY: &str = "(*)";
/// `left % right`.
pub(super) const REMAINDER: &str = "(%)";
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
/// `left ** right`.
pub(super) const POWER: &str = "(**)";
/// `-value`.
pub(super) const NEGATE: &str = "(neg)";

type Binary = fn(&mut State, u64, &Value, &Value) -> Result<Value, Error>;

/// The operators of two operands.
const BINARY: [(&str, Binary); 10] = [
    (ADD, add_values),
    (MULTIPLY, multiply),
    (REMAINDER, remainder),
    (POWER, |_, _, left, right| arithmetic("**", left, right)),
    (CONCAT, concat),
    (LESS, |state, work, left, right| compare(state, work, "<", left, right)),
    (LESS_OR_EQUAL, |state, work, left, right| compare(state, work, "<=", left, right)),
    (GREATER, |state, work, left, right| compare(state, work, ">", left, right)),
    (GREATER_OR_EQUAL, |state, work, left, right| compare(state, work, ">=", left, right)),
    (IN, contains),
];

/// Adds the operators that rewritten templates call, held to `work`.
pub(super) fn add(environment: &mut Environment<'static>, work: u64) {
    for (name, operator) in BINARY {
        environment.add_function(name, move |state: &mut State, left: &Value, right: &Value| {
            operator(state, work, left, right)
        });
    }
    environment.add_function(NEGATE, |value: &Value| arithmetic("*", &Value::from(-1), value));
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

/// Arithmetic and comparisons as the engine has them, which are Python's among numbers.
fn engine(operator: &str, left: &Value, right: &Value) -> Result<Value, Error> {
    type Operators = HashMap<&'static str, Expression<'static, 'static>>;
    static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(Environment::empty);
    static OPERATORS: LazyLock<Operators> = LazyLock::new(|| {
        let compiled = |operator: &'static str| {
            let expression = ENGINE.compile_expression_owned(format!("left {operator} right"));
            (operator, expression.expect("these are expressions"))
        };
        ["+", "*", "%", "**", "<", "<=", ">", ">="].into_iter().map(compiled).collect()
    });
    let number = |value: &Value| {
        bool::try_from(value.clone()).map_or_else(|_| value.clone(), |truth| i64::from(truth).into())
    };
    OPERATORS[operator].eval(Value::from_pairs([("left", number(left)), ("right", number(right))]))
}

/// An operator of numbers; truth values count.
fn arithmetic(operator: &str, left: &Value, right: &Value) -> Result<Value, Error> {
    if !is_number(left) || !is_number(right) {
        return Err(unsupported(operator, left, right));
    }
    engine(operator, left, right).map_err(|_| {
        let problem = if operator == "%" { "divides by zero" } else { "is beyond 128 bits" };
        fault(format!("{left} {operator} {right} {problem}"))
    })
}

fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
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
        _ => arithmetic("+", left, right),
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
        _ => return arithmetic("*", left, right),
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

/// The remainder of numbers, or a text with values in place of its `%`.
fn remainder(state: &mut State, work: u64, left: &Value, right: &Value) -> Result<Value, Error> {
    let Some(text) = left.as_str() else { return arithmetic("%", left, right) };
    let operands: Vec<Value> =
        if right.is_tuple() { right.try_iter()?.collect() } else { vec![right.clone()] };
    let call: Vec<Value> = [left].into_iter().chain(&operands).cloned().collect();
    work::charge_call(state, work, "format", &call)?;
    printf(text, &operands).map(Value::from)
}

fn concat(state: &mut State, work: u64, left: &Value, right: &Value) -> Result<Value, Error> {
    let mut text = String::new();
    for value in [left, right] {
        weigh(state, work, value)?;
        spend(state, work, extent(value))?;
        python::write_str(value, &mut text)?;
    }
    Ok(Value::from(text))
}

/// Numbers, texts, or lists, among themselves.
fn compare(
    state: &mut State,
    work: u64,
    operator: &str,
    left: &Value,
    right: &Value,
) -> Result<Value, Error> {
    use ValueKind::{Seq, String};
    weigh(state, work, left)?;
    weigh(state, work, right)?;
    match (left.kind(), right.kind()) {
        (String, String) => {}
        (Seq, Seq) if left.is_tuple() == right.is_tuple() => {}
        _ if is_number(left) && is_number(right) => {}
        _ => return Err(unsupported(operator, left, right)),
    }
    engine(operator, left, right)
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
    let bound = |bound: &Value| match whole(bound) {
        None if bound.is_none() => Ok(None),
        None => Err(fault(format!("a slice's bound is {}", bound.kind()))),
        whole => Ok(whole),
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
