//! What a rendering has spent, and the operators that spend it.

use std::fmt::{self, Write};

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

/// Charges for all of its operand, which something is about to walk.
pub(super) const CHARGE: &str = "(charge)";
/// Charges for the items of its operand, which gets a name. Texts are shared, so they cost nothing then.
pub(super) const KEEP: &str = "(keep)";
/// As [`KEEP`], for what another value is about to hold.
pub(super) const HOLD: &str = "(hold)";
/// Refuses to go through what is null, as Python does.
pub(super) const EACH: &str = "(each)";
/// `left + right`.
pub(super) const ADD: &str = "(+)";
/// `left * right`.
pub(super) const MULTIPLY: &str = "(*)";
/// `left ~ right`.
pub(super) const CONCAT: &str = "(~)";
/// `value[start:stop:step]`.
pub(super) const SLICE: &str = "([:])";

/// Lists and objects inside one another.
const MAX_DEPTH: usize = 128;

/// Work left to a rendering: bytes of text and items of lists, made or walked.
struct Budget(u64);

/// Adds the operators that compiled templates call.
pub(super) fn add_operators(environment: &mut Environment<'static>, work: u64) {
    environment.add_function(CHARGE, move |state: &mut State, value: &Value| weigh(state, work, value));
    for (name, depth) in [(KEEP, 0), (HOLD, 1)] {
        environment.add_function(name, move |state: &mut State, value: &Value| {
            charge_walk(state, work, |left| walk(value, depth, |_| 1, left))
        });
    }
    environment.add_function(EACH, |value: &Value| match value.is_none() {
        true => Err(fault("none is not iterable")),
        false => Ok(()),
    });
    environment.add_function(ADD, move |state: &mut State, left: &Value, right: &Value| {
        spend(state, work, shallow(left) + shallow(right))?;
        add(left, right)
    });
    environment.add_function(MULTIPLY, move |state: &mut State, left: &Value, right: &Value| {
        multiply(state, work, left, right)
    });
    environment.add_function(CONCAT, move |state: &mut State, left: &Value, right: &Value| {
        weigh(state, work, left)?;
        weigh(state, work, right)?;
        let mut text = Text { text: String::new(), limit: left_over(state, work) };
        write!(text, "{left}{right}").map_err(|fmt::Error| exhausted())?;
        spend(state, work, text.text.len() as u64)?;
        Ok(Value::from(text.text))
    });
    environment.add_function(SLICE, move |state: &mut State, operands: Rest<Value>| {
        let [value, start, stop, step] = &operands.0[..] else {
            return Err(fault("a slice has four operands"));
        };
        spend(state, work, shallow(value))?;
        slice(value, [start, stop, step])
    });
}

/// Takes `amount` from the budget of `work`.
pub(super) fn spend(state: &mut State, work: u64, amount: u64) -> Result<(), Error> {
    let budget = state.get_or_insert_extension_with(|| Budget(work));
    budget.0 = budget.0.checked_sub(amount).ok_or_else(exhausted)?;
    Ok(())
}

/// Charges for all that a value holds, so that whoever walks it next is paid for.
pub(super) fn weigh(state: &mut State, work: u64, value: &Value) -> Result<(), Error> {
    charge_walk(state, work, |left| walk(value, 0, shallow, left))
}

fn charge_walk(
    state: &mut State,
    work: u64,
    walk: impl FnOnce(&mut u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let before = left_over(state, work);
    let mut left = before;
    walk(&mut left)?;
    spend(state, work, before - left)
}

/// The items of a list, or the bytes of a text.
pub(super) fn shallow(value: &Value) -> u64 {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len) as u64 + 1,
        ValueKind::Bytes => value.as_bytes().map_or(0, <[u8]>::len) as u64 + 1,
        _ => value.len().unwrap_or(0) as u64 + 1,
    }
}

/// Charges for a filter or method before it runs: all its operands, and how far it may outgrow them.
pub(super) fn charge_call(state: &mut State, work: u64, name: &str, operands: &[Value]) -> Result<(), Error> {
    for operand in operands {
        match name {
            "length" | "count" | "first" | "last" | "default" | "d" | "list" | "items" | "get" | "keys"
            | "values" | "map" | "select" | "reject" | "selectattr" | "rejectattr" => {
                spend(state, work, shallow(operand))?;
            }
            _ => weigh(state, work, operand)?,
        }
    }
    spend(state, work, growth(name, operands))
}

fn growth(name: &str, operands: &[Value]) -> u64 {
    let size = |index: usize| operands.get(index).map_or(1, shallow);
    let numbers = || operands.iter().filter_map(|operand| operand.as_i64().map(i64::unsigned_abs));
    match (name, operands) {
        ("join", _) => size(0).saturating_mul(size(1)),
        ("replace", [text, old, ..]) => {
            let matches = match (text.as_str(), old.as_str()) {
                (Some(text), Some(old)) => text.matches(old).count() as u64,
                _ => size(0),
            };
            matches.saturating_mul(size(2))
        }
        ("indent" | "batch" | "slice", _) => size(0).saturating_mul(numbers().fold(4, u64::saturating_add)),
        ("format", [text, ..]) => {
            // A format writes a width as digits, or takes it from an operand.
            let written = text.as_str().unwrap_or_default().split(|letter: char| !letter.is_ascii_digit());
            let written =
                written.filter(|digits| !digits.is_empty()).map(|digits| digits.parse().unwrap_or(u64::MAX));
            let widest = numbers().chain(written).max().unwrap_or(1);
            size(0).saturating_mul(widest.min(1 << 40))
        }
        _ => 0,
    }
}

fn left_over(state: &mut State, work: u64) -> u64 {
    state.get_or_insert_extension_with(|| Budget(work)).0
}

/// Takes from `left` for a value and all it holds; a text costs what `text` says.
fn walk(value: &Value, depth: usize, text: fn(&Value) -> u64, left: &mut u64) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(fault("a value is nested too deeply"));
    }
    let own = match value.kind() {
        ValueKind::String | ValueKind::Bytes => text(value),
        _ => 1,
    };
    *left = left.checked_sub(own).ok_or_else(exhausted)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                walk(&item, depth + 1, text, left)?;
            }
        }
        ValueKind::Map => {
            // A namespace can come to hold itself.
            let is_namespace =
                value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"));
            if is_namespace && depth > 0 {
                return Err(fault("a namespace cannot be kept in another value"));
            }
            for key in value.try_iter()? {
                walk(&key, depth + 1, text, left)?;
                walk(&value.get_item(&key)?, depth + 1, text, left)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// As Python adds: numbers, texts, lists; a text and something else do not add.
fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    use ValueKind::{Bool, Iterable, Number, Seq, String};
    match (left.kind(), right.kind()) {
        (String, String) => {
            Ok(Value::from([left, right].map(|text| text.as_str().unwrap_or_default()).concat()))
        }
        (Seq | Iterable, Seq | Iterable) => Ok(left.try_iter()?.chain(right.try_iter()?).collect()),
        (Number | Bool, Number | Bool) => number(left, right, i64::checked_add, |left, right| left + right),
        (left, right) => Err(fault(format!("cannot add {left} and {right}"))),
    }
}

/// As Python multiplies: numbers, or a text or list by a whole number.
fn multiply(state: &mut State, work: u64, left: &Value, right: &Value) -> Result<Value, Error> {
    use ValueKind::{Bool, Iterable, Number, Seq, String};
    let (repeated, times) = match (left.kind(), right.kind()) {
        (Number | Bool, Number | Bool) => {
            return number(left, right, i64::checked_mul, |left, right| left * right);
        }
        (String | Seq | Iterable, Number) => (left, right),
        (Number, String | Seq | Iterable) => (right, left),
        (left, right) => return Err(fault(format!("cannot multiply {left} by {right}"))),
    };
    let times = times.as_i64().ok_or_else(|| fault("a repetition takes a whole number"))?.max(0) as u64;
    spend(state, work, shallow(repeated).saturating_mul(times))?;
    match repeated.as_str() {
        Some(text) => Ok(Value::from(text.repeat(times as usize))),
        None => {
            let items: Vec<Value> = repeated.try_iter()?.collect();
            Ok((0..times).flat_map(|_| items.iter().cloned()).collect())
        }
    }
}

/// A whole result of whole operands, and a float otherwise.
fn number(
    left: &Value,
    right: &Value,
    whole: fn(i64, i64) -> Option<i64>,
    float: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    let is_whole = |value: &Value| value.is_integer() || value.kind() == ValueKind::Bool;
    if is_whole(left) && is_whole(right) {
        let result = whole(i64::try_from(left.clone())?, i64::try_from(right.clone())?);
        return result
            .map(Value::from)
            .ok_or_else(|| fault(format!("a result of {left} and {right} overflows")));
    }
    Ok(Value::from(float(f64::try_from(left.clone())?, f64::try_from(right.clone())?)))
}

/// As Python slices a text by its characters, or a list.
fn slice(value: &Value, [start, stop, step]: [&Value; 3]) -> Result<Value, Error> {
    let bound = |bound: &Value| match bound.is_none() {
        true => Ok(None),
        false => {
            bound.as_i64().map(Some).ok_or_else(|| fault(format!("a slice's bound is {}", bound.kind())))
        }
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(fault("a slice's step is zero"));
    }
    match value.kind() {
        ValueKind::String => {
            let letters: Vec<char> = value.as_str().unwrap_or_default().chars().collect();
            let text: String = places(letters.len(), start, stop, step).map(|place| letters[place]).collect();
            Ok(Value::from(text))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            Ok(places(items.len(), start, stop, step).map(|place| items[place].clone()).collect())
        }
        kind => Err(fault(format!("cannot slice {kind}"))),
    }
}

/// The indices of a slice, as Python's `slice.indices` has them.
fn places(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let len = len as i64;
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |bound: i64| if bound < 0 { (bound + len).max(lowest) } else { bound.min(highest) };
    let start = start.map_or(if step > 0 { lowest } else { highest }, clamp);
    let stop = stop.map_or(if step > 0 { highest } else { lowest }, clamp);
    let next = move |place: &i64| place.checked_add(step);
    std::iter::successors(Some(start), next)
        .take_while(move |&place| if step > 0 { place < stop } else { place > stop })
        .map(|place| place as usize)
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

fn exhausted() -> Error {
    Error::from(ErrorKind::OutOfFuel)
}

fn fault(problem: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}
