//! Functions that jinja2 and `transformers` give a template.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::value::{Object, ObjectRepr, Rest, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::arguments::{Call, split};
use super::python::{Range, fault, members};

/// The message of `raise_exception`: the template refuses the conversation.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// Adds the functions.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("range", |operands: Rest<ValueOrKwargs>| range(&operands.into_values()));
    environment.add_function("dict", |operands: Rest<ValueOrKwargs>| dict(&operands.into_values()));
    environment.add_function("cycler", |operands: Rest<Value>| {
        if operands.is_empty() {
            return Err(fault("cycler takes values"));
        }
        Ok(Value::from_object(Cycler { items: operands.to_vec(), at: AtomicUsize::new(0) }))
    });
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    // It prints all there is.
    environment.remove_global("debug");
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
}

fn range(operands: &[Value]) -> Result<Value, Error> {
    let call = Call::bind("range", &["", "", ""], operands)?;
    let (start, stop) =
        if call.get(1).is_some() { (call.whole(0)?, call.whole(1)?) } else { (0, call.whole(0)?) };
    Range::new(start, stop, call.whole_or(2, 1)?).map(Value::from_object)
}

/// An object of another's members or of pairs, and of what is given by name.
fn dict(operands: &[Value]) -> Result<Value, Error> {
    let (positional, keywords) = split(operands);
    let mut pairs = match positional {
        [] => Vec::new(),
        [value] => members(value)?,
        _ => return Err(fault("dict takes one object")),
    };
    pairs.extend(keywords.into_iter().map(|(name, value)| (Value::from(name), value)));
    Ok(Value::from_pairs(pairs))
}

/// Values in turn.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = self.at.load(Ordering::Relaxed);
        (key.as_str() == Some("current")).then(|| self.items[at].clone())
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        method: &str,
        operands: &[Value],
    ) -> Result<Value, Error> {
        Call::bind(method, &[], operands)?;
        let at = self.at.load(Ordering::Relaxed);
        match method {
            "next" => {
                self.at.store((at + 1) % self.items.len(), Ordering::Relaxed);
                Ok(self.items[at].clone())
            }
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}
