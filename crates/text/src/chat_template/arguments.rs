//! What a filter, method or function is called with, by the names of its parameters.

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};

/// The operands of a call by its parameters, as Python binds them; `None` where one is not given. A parameter with
/// the empty name takes no keyword.
///
/// # Errors
/// When there are too many, one is given twice, or there is a keyword that is no parameter.
pub(super) fn bind<const N: usize>(
    callee: &str,
    parameters: [&str; N],
    operands: &[Value],
) -> Result<[Option<Value>; N], Error> {
    let (operands, keywords) = split(operands);
    if operands.len() > N {
        return Err(fault(format!("{callee} takes {N} operands, and has {}", operands.len())));
    }
    let mut bound = [const { None }; N];
    for (slot, operand) in bound.iter_mut().zip(operands) {
        *slot = Some(operand.clone());
    }
    for (name, value) in keywords {
        let place = parameters.iter().position(|parameter| *parameter == name && !name.is_empty());
        let Some(place) = place else { return Err(fault(format!("{callee} has no parameter {name}"))) };
        if bound[place].replace(value).is_some() {
            return Err(fault(format!("{callee} has {name} twice")));
        }
    }
    Ok(bound)
}

/// Positional operands, and those by name.
pub(super) fn split(operands: &[Value]) -> (&[Value], Vec<(String, Value)>) {
    let Some((last, positional)) = operands.split_last().filter(|(last, _)| last.is_kwargs()) else {
        return (operands, Vec::new());
    };
    let Ok(keywords) = Kwargs::try_from(last.clone()) else { return (operands, Vec::new()) };
    let pairs =
        keywords.args().filter_map(|name| Some((name.to_owned(), keywords.peek::<Value>(name).ok()?)));
    (positional, pairs.collect())
}

/// A text.
pub(super) fn text<'a>(callee: &str, value: &'a Value) -> Result<&'a str, Error> {
    value.as_str().ok_or_else(|| fault(format!("{callee} takes a string, not {}", value.kind())))
}

/// A text, or what it is where none is given.
pub(super) fn text_or<'a>(
    callee: &str,
    value: &'a Option<Value>,
    otherwise: &'a str,
) -> Result<&'a str, Error> {
    value.as_ref().map_or(Ok(otherwise), |value| text(callee, value))
}

/// A whole number, which a truth value is too, or what it is where none is given.
pub(super) fn whole_or(callee: &str, value: &Option<Value>, otherwise: i64) -> Result<i64, Error> {
    match value {
        None => Ok(otherwise),
        Some(value) => {
            whole(value).ok_or_else(|| fault(format!("{callee} takes a whole number, not {value}")))
        }
    }
}

/// A whole number, if the value is one.
pub(super) fn whole(value: &Value) -> Option<i64> {
    match value.is_integer() || bool::try_from(value.clone()).is_ok() {
        true => i64::try_from(value.clone()).ok(),
        false => None,
    }
}

/// An operand that there has to be.
pub(super) fn required(callee: &str, value: Option<Value>) -> Result<Value, Error> {
    value.ok_or_else(|| fault(format!("{callee} lacks an operand")))
}

pub(super) fn fault(problem: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}
