//! The environment of a template: functions, filters, tests and methods as in jinja2 with `transformers`.

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, State, UndefinedBehavior, Value};

use super::arguments::{Call, split};
use super::python::{Generator, fault, is_mapping};
use super::{
    Limits, functions, json, macros, methods, number_filters, operators, syntax, text_filters, work,
};

/// An environment without templates.
pub(super) fn environment(limits: Limits) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax::config());
    work::add_charges(&mut environment, limits.work);
    operators::add(&mut environment, limits.work);
    macros::add(&mut environment);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(limits.fuel));
    environment.set_recursion_limit(limits.depth);
    let work = limits.work;
    environment.set_unknown_method_callback(move |state, value, method, operands| {
        let operands: Vec<Value> = [value].into_iter().chain(operands).cloned().collect();
        work::charge_call(state, work, method, &operands)?;
        methods::call(state, method, &operands)
    });
    functions::add(&mut environment);
    add_tests(&mut environment);
    for (name, filter) in engine_filters() {
        add_filter(&mut environment, work, name, filter);
    }
    for &(name, parameters, filter) in text_filters::FILTERS.iter().chain(number_filters::FILTERS) {
        let filter = move |operands: Rest<ValueOrKwargs>| {
            filter(&Call::bind(name, parameters, &operands.into_values())?)
        };
        add_filter(&mut environment, work, name, Value::from_function(filter));
    }
    environment
}

fn add_tests(environment: &mut Environment<'static>) {
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    // Python asks for a length and for items.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Undefined) || is_mapping(value)
    });
    environment.add_test("mapping", is_mapping);
    environment.add_test("callable", |value: &Value| {
        let name = value.as_object().map_or("", |object| object.type_name());
        value.is_undefined()
            || ["Function", "::Macro", "::Wrapped", "::Joiner"].iter().any(|own| name.contains(own))
    });
}

/// Filters that go through their operand, and give nothing for what is false: null, undefined, 0, an empty text.
const GENERATES: [&str; 5] = ["map", "reject", "rejectattr", "select", "selectattr"];

/// Filters that go through their operand, which may not be null.
const WALKS: [&str; 12] = [
    "batch", "dictsort", "groupby", "join", "list", "max", "min", "reverse", "slice", "sort", "sum", "unique",
];

/// Parameters that the engine takes by name only.
const NAMED: [(&str, &[&str]); 6] = [
    ("dictsort", &["case_sensitive", "by", "reverse"]),
    ("max", &["case_sensitive", "attribute"]),
    ("min", &["case_sensitive", "attribute"]),
    ("sort", &["reverse", "case_sensitive", "attribute"]),
    ("truncate", &["length", "killwords", "end", "leeway"]),
    ("unique", &["case_sensitive", "attribute"]),
];

/// A filter, charged for.
fn add_filter(environment: &mut Environment<'static>, work: u64, name: &'static str, filter: Value) {
    let generates = GENERATES.contains(&name);
    let named = NAMED.iter().find(|(filter, _)| *filter == name).map_or(&[][..], |(_, named)| named);
    environment.add_filter(
        name,
        move |state: &mut State, operands: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let operands = by_name(operands.into_values(), named);
            work::charge_call(state, work, name, &operands)?;
            let first = operands.first();
            if generates && first.is_some_and(|first| !first.is_true()) {
                return Ok(Value::from_object(Generator(Vec::new())));
            }
            if WALKS.contains(&name) && first.is_some_and(Value::is_none) {
                return Err(fault(format!("{name} takes a list, not none")));
            }
            match name {
                "first" | "last" if first.is_some_and(Value::is_undefined) => return Ok(Value::UNDEFINED),
                "items" if first.is_some_and(Value::is_undefined) => {
                    return Ok(Value::from_iter(None::<Value>));
                }
                "length" | "count" if first.is_some_and(Value::is_undefined) => return Ok(Value::from(0)),
                _ => {}
            }
            let value = filter.call(state, &operands)?;
            match generates {
                true => Ok(Value::from_object(Generator(value.try_iter()?.collect()))),
                false => Ok(value),
            }
        },
    );
}

/// The operands of a filter, of which those after the first have these names.
fn by_name(operands: Vec<Value>, named: &[&str]) -> Vec<Value> {
    let (positional, mut keywords) = split(&operands);
    if named.is_empty() || positional.len() < 2 || positional.len() > named.len() + 1 {
        return operands;
    }
    let values = positional[1..].iter().cloned();
    keywords.extend(named.iter().map(|name| (*name).to_owned()).zip(values));
    vec![positional[0].clone(), Kwargs::from_iter(keywords).into()]
}

/// The filters that the engine has as jinja2 has them, and `tojson` as `transformers` has it.
fn engine_filters() -> Vec<(&'static str, Value)> {
    macro_rules! filters {
        ($($name:ident)*) => {
            vec![$((stringify!($name), Value::from_function(minijinja::filters::$name))),*]
        };
    }
    let mut filters = filters! {
        abs batch bool capitalize chain dictsort first groupby items last length lines list lower map max min
        reject rejectattr reverse round safe select selectattr slice sort split sum title unique upper zip
    };
    let alias =
        |name: &str| filters.iter().find(|(filter, _)| *filter == name).expect("it is above").1.clone();
    let count = alias("length");
    filters.push(("count", count));
    filters.push(("striptags", Value::from_function(minijinja_contrib::filters::striptags)));
    filters.push(("truncate", Value::from_function(minijinja_contrib::filters::truncate)));
    let format = |operands: Rest<ValueOrKwargs>| text_filters::format(&operands.into_values());
    filters.push(("format", Value::from_function(format)));
    let random = || Err::<Value, _>(fault("random makes another prompt each time, so it is refused"));
    filters.push(("random", Value::from_function(move |_: Rest<Value>| random())));
    filters.push(("tojson", Value::from_function(json::tojson)));
    filters
}
