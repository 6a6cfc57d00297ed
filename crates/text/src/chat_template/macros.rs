//! Macros that read `varargs` or `kwargs`.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{Kwargs, Object, ObjectRepr, Tuple};
use minijinja::{Environment, Error, State, Value};

use super::arguments::split;
use super::python::fault;

/// Wraps a macro: the macro, whether it reads `varargs`, whether `kwargs`, and its own parameters.
pub(super) const MACRO: &str = "(macro)";

/// Adds the function that wraps.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_function(MACRO, |inner: Value, varargs: bool, kwargs: bool, parameters: Vec<String>| {
        Value::from_object(Wrapped { inner, varargs, kwargs, parameters })
    });
}

/// A macro whose first two parameters take what the others do not.
struct Wrapped {
    inner: Value,
    varargs: bool,
    kwargs: bool,
    parameters: Vec<String>,
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

impl Object for Wrapped {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "name" => self.inner.get_attr("name").ok(),
            "arguments" => {
                Some(Value::from(Tuple::from(self.parameters.iter().map(Value::from).collect::<Vec<_>>())))
            }
            _ => None,
        }
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, operands: &[Value]) -> Result<Value, Error> {
        let (positional, keywords) = split(operands);
        let (own, more) = positional.split_at(positional.len().min(self.parameters.len()));
        if !more.is_empty() && !self.varargs {
            let (most, count) = (self.parameters.len(), positional.len());
            return Err(fault(format!("a macro takes {most} operands, and has {count}")));
        }
        let names: HashSet<&str> = self.parameters.iter().map(String::as_str).chain(["caller"]).collect();
        let (known, others): (Vec<_>, Vec<_>) =
            keywords.into_iter().partition(|(name, _)| names.contains(name.as_str()));
        if let Some((name, _)) = others.first().filter(|_| !self.kwargs) {
            return Err(fault(format!("a macro has no parameter {name}")));
        }
        let mut all = vec![Value::from(Tuple::from(more)), Value::from_pairs(others)];
        all.extend(own.iter().cloned());
        if !known.is_empty() {
            all.push(Kwargs::from_iter(known).into());
        }
        self.inner.call(state, &all)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}
