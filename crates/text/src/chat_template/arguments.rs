//! Calls of filters, methods and functions: operands by the names of their parameters.

use std::borrow::Cow;

use minijinja::value::Kwargs;
use minijinja::{Error, Value};

use super::python::{self, fault};

/// A call with its operands in the order of the parameters.
pub(super) struct Call<'a> {
    name: &'a str,
    operands: Vec<Option<Value>>,
}

/// A filter or method: its name, its parameters, and the function. A parameter with the empty name takes no keyword; the
/// first operand is the value that it is applied to.
pub(super) type Row = (&'static str, &'static [&'static str], fn(&Call) -> Result<Value, Error>);

impl<'a> Call<'a> {
    /// Binds operands to parameters as Python does.
    ///
    /// # Errors
    /// If there are too many, one is given twice, or a keyword is not a parameter.
    pub(super) fn bind(name: &'a str, parameters: &[&str], operands: &[Value]) -> Result<Call<'a>, Error> {
        let (positional, keywords) = split(operands);
        let (most, count) = (parameters.len(), positional.len());
        if count > most {
            return Err(fault(format!("{name} takes {most} operands, and has {count}")));
        }
        let mut operands: Vec<Option<Value>> = positional.iter().cloned().map(Some).collect();
        operands.resize(most, None);
        for (keyword, value) in keywords {
            let place = parameters.iter().position(|parameter| *parameter == keyword && !keyword.is_empty());
            let Some(place) = place else { return Err(fault(format!("{name} has no parameter {keyword}"))) };
            if operands[place].replace(value).is_some() {
                return Err(fault(format!("{name} has {keyword} twice")));
            }
        }
        Ok(Call { name, operands })
    }

    /// An operand, if it is given.
    pub(super) fn get(&self, place: usize) -> Option<&Value> {
        self.operands[place].as_ref()
    }

    /// An operand, if it is given and not none.
    pub(super) fn some(&self, place: usize) -> Option<&Value> {
        self.get(place).filter(|value| !value.is_none())
    }

    /// An operand that there has to be.
    pub(super) fn value(&self, place: usize) -> Result<&Value, Error> {
        self.get(place).ok_or_else(|| self.fault("lacks an operand"))
    }

    pub(super) fn text(&self, place: usize) -> Result<&str, Error> {
        self.text_of(self.value(place)?)
    }

    pub(super) fn text_of<'v>(&self, value: &'v Value) -> Result<&'v str, Error> {
        value.as_str().ok_or_else(|| self.fault(format!("takes a string, not {}", value.kind())))
    }

    pub(super) fn text_or<'v>(&'v self, place: usize, otherwise: &'v str) -> Result<&'v str, Error> {
        self.get(place).map_or(Ok(otherwise), |value| self.text_of(value))
    }

    /// `str(value)`.
    pub(super) fn shown(&self, place: usize) -> Result<Cow<'_, str>, Error> {
        let value = self.value(place)?;
        Ok(value.as_str().map_or_else(|| Cow::Owned(python::string(value)), Cow::Borrowed))
    }

    pub(super) fn whole(&self, place: usize) -> Result<i64, Error> {
        let value = self.value(place)?;
        whole(value).ok_or_else(|| self.fault(format!("takes a whole number, not {value}")))
    }

    pub(super) fn whole_or(&self, place: usize, otherwise: i64) -> Result<i64, Error> {
        if self.get(place).is_some() { self.whole(place) } else { Ok(otherwise) }
    }

    /// Whether an operand is given and true.
    pub(super) fn is_set(&self, place: usize) -> bool {
        self.get(place).is_some_and(Value::is_true)
    }

    /// An error that names what is called.
    pub(super) fn fault(&self, problem: impl std::fmt::Display) -> Error {
        fault(format!("{} {problem}", self.name))
    }
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

/// A whole number, which a truth value is too, if the value is one.
pub(super) fn whole(value: &Value) -> Option<i64> {
    let is_whole = value.is_integer() || bool::try_from(value.clone()).is_ok();
    if is_whole { i64::try_from(value.clone()).ok() } else { None }
}
