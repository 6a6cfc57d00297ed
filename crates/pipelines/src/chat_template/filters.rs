//! The environment of a template: `transformers`' functions, and jinja2's filters and methods.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use super::{Limits, json, syntax, work};

/// The message of `raise_exception`: the template refuses the conversation.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// What `map`, `select` and their like give: values to go through, which are no list until `list` makes one.
#[derive(Debug)]
pub(super) struct Generator(Vec<Value>);

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let generator = Arc::clone(self);
        Enumerator::Iter(Box::new((0..self.0.len()).map(move |index| generator.0[index].clone())))
    }
}

/// An environment without templates.
pub(super) fn environment(limits: Limits) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax::config());
    work::add_operators(&mut environment, limits.work);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(limits.fuel));
    environment.set_recursion_limit(limits.depth);
    let work = limits.work;
    environment.set_unknown_method_callback(move |state, value, method, args| {
        let operands: Vec<Value> = [value].into_iter().chain(args).cloned().collect();
        work::charge_call(state, work, method, &operands)?;
        minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
    });
    environment.add_function("raise_exception", raise_exception);
    // It prints all there is.
    environment.remove_global("debug");
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    for (name, filter) in builtin_filters() {
        add_filter(&mut environment, work, name, filter);
    }
    environment
}

/// A filter of the engine, charged for.
fn add_filter(environment: &mut Environment<'static>, work: u64, name: &'static str, filter: Value) {
    let generates = matches!(name, "map" | "select" | "reject" | "selectattr" | "rejectattr");
    environment.add_filter(
        name,
        move |state: &mut State, operands: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let operands = operands.into_values();
            work::charge_call(state, work, name, &operands)?;
            let value = filter.call(state, &operands)?;
            match generates {
                true => Ok(Value::from_object(Generator(value.try_iter()?.collect()))),
                false => Ok(value),
            }
        },
    );
}

/// All filters of the engine, and `tojson` as `transformers` has it.
fn builtin_filters() -> Vec<(&'static str, Value)> {
    macro_rules! filters {
        ($($name:ident)*) => {
            vec![$((stringify!($name), Value::from_function(minijinja::filters::$name))),*]
        };
    }
    let mut filters = filters! {
        abs attr batch bool capitalize chain default dictsort escape first float format groupby indent int items
        join last length lines list lower map max min pprint reject rejectattr replace reverse round safe select
        selectattr slice sort split string sum title trim unique upper zip
    };
    let alias =
        |name: &str| filters.iter().find(|(filter, _)| *filter == name).expect("it is above").1.clone();
    let aliases = [("count", alias("length")), ("d", alias("default")), ("e", alias("escape"))];
    filters.extend(aliases);
    filters.push(("tojson", Value::from_function(json::tojson)));
    filters
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
}
