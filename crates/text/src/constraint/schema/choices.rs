//! `oneOf`, `not` and `if` as alternatives.

use serde_json::{Map, Value, json};

use super::ORIGIN;
use super::draft::Draft;
use super::logic::Logic;
use super::negation::{beyond_properties, is_exact, negate};
use crate::ConstraintError;

/// The most alternatives that conditions are multiplied to here.
const MAX_ALTERNATIVES: usize = 64;
/// The most alternatives of `oneOf` that are compared with each other.
const MAX_OPTIONS: usize = 500;

const SEVERAL: &str = "a value may fit several of its schemas, which is not supported; `anyOf` is";

type Outcome = Result<(), ConstraintError>;

/// `if`, with `then` and `else`: a value fits the first two, or not the first and the last. Conditions of `allOf` are
/// taken together, because most of their combinations are impossible.
pub(super) fn conditions(logic: &Logic<'_>, draft: &mut Draft<'_>) -> Outcome {
    let mut conditions: Vec<Value> = Vec::new();
    if draft.map.contains_key("if") {
        let own = ["if", "then", "else"]
            .map(|keyword| draft.take(keyword).map(|schema| (keyword.to_owned(), schema)));
        conditions.push(own.into_iter().flatten().collect::<Map<_, _>>().into());
    }
    if let Some(Value::Array(rules)) = draft.take("allOf") {
        let is_condition = |rule: &Value| {
            let keys =
                rule.as_object().map(|map| map.keys().map(String::as_str).filter(|key| *key != ORIGIN));
            rule.get("if").is_some()
                && keys.is_some_and(|mut keys| keys.all(|key| matches!(key, "if" | "then" | "else")))
        };
        let (mut more, others): (Vec<Value>, Vec<Value>) = rules.into_iter().partition(is_condition);
        conditions.append(&mut more);
        if !others.is_empty() {
            draft.map.insert("allOf".into(), others.into());
        }
    }
    let own = Value::Object(draft.map.clone());
    let around: Vec<&Value> = draft.around.iter().copied().chain([&own]).collect();
    let mut all: Vec<Vec<Value>> = Vec::new();
    for condition in &conditions {
        let alternatives = if all.is_empty() { vec![Vec::new()] } else { std::mem::take(&mut all) };
        for alternative in alternatives {
            let Some(more) = decide(logic, &around, &alternative, condition) else {
                let problem = "values that do not fit it cannot be told from others, which is not supported";
                let pointer = super::origin(condition).map(|(pointer, _)| pointer);
                return Err(pointer.map_or_else(
                    || draft.refuse("if", problem),
                    |at| super::refuse(at, Some("if"), problem),
                ));
            };
            all.extend(more);
        }
        // What is left is multiplied by llguidance.
        if all.len() > MAX_ALTERNATIVES || all.is_empty() {
            add_alternatives(draft, std::mem::take(&mut all), all.is_empty());
        }
    }
    if !conditions.is_empty() {
        add_alternatives(draft, all, false);
    }
    Ok(())
}

/// What a condition makes of the schemas of an alternative: those with `then`, and those with `else`.
fn decide(
    logic: &Logic<'_>,
    around: &[&Value],
    alternative: &[Value],
    rule: &Value,
) -> Option<Vec<Vec<Value>>> {
    let part = |keyword: &str| rule.get(keyword).filter(|schema| !is_anything(schema));
    let (then, otherwise) = (part("then"), part("else"));
    if then.is_none() && otherwise.is_none() {
        return Some(vec![alternative.to_vec()]);
    }
    let is_possible = |more: &[&Value]| {
        let all: Vec<&Value> =
            around.iter().copied().chain(alternative).chain(more.iter().copied()).collect();
        !logic.is_empty(&all)
    };
    let with = |more: &[&Value]| alternative.iter().chain(more.iter().copied()).cloned().collect::<Vec<_>>();
    let condition = &rule["if"];
    if !is_possible(&[condition]) {
        return Some(vec![with(otherwise.as_slice())]);
    }
    let negated = negate(logic, condition)?;
    let taken: Vec<&Value> = [condition].into_iter().chain(then).collect();
    let left: Vec<&Value> = [&negated].into_iter().chain(otherwise).collect();
    if !is_possible(&[&negated]) && !is_exact(logic, condition) {
        return None;
    }
    let possible = [taken, left].into_iter().filter(|schemas| is_possible(schemas));
    Some(possible.map(|schemas| with(&schemas)).collect())
}

fn add_alternatives(draft: &mut Draft<'_>, alternatives: Vec<Vec<Value>>, is_impossible: bool) {
    let mut options: Vec<Value> = alternatives.into_iter().map(|all| json!({ "allOf": all })).collect();
    match options.len() {
        0 if is_impossible => draft.add("if", json!({ "anyOf": [false] })),
        0 => {}
        1 => draft.add("if", options.remove(0)),
        _ => draft.add("if", json!({ "anyOf": options })),
    }
}

/// `not`: values that do not fit the schema, or nothing if no value fits it anyway.
pub(super) fn negations(logic: &Logic<'_>, draft: &mut Draft<'_>) -> Outcome {
    let Some(schema) = draft.take("not") else { return Ok(()) };
    if draft.excludes(logic, &[&schema]) {
        return Ok(());
    }
    let Some(negated) = negate(logic, &schema) else {
        return Err(draft
            .refuse("not", "values that do not fit it cannot be told from others, which is not supported"));
    };
    draft.add("not", json!({ "allOf": [negated] }));
    Ok(())
}

/// `oneOf`: any of its schemas, without values that fit another of them.
pub(super) fn one_of(logic: &Logic<'_>, draft: &mut Draft<'_>) -> Outcome {
    let Some(Value::Array(options)) = draft.take("oneOf") else { return Ok(()) };
    if options.len() > MAX_OPTIONS {
        return Err(draft.refuse("oneOf", format!("more than {MAX_OPTIONS} schemas")));
    }
    let own = Value::Object(draft.map.clone());
    let excludes = |others: &[&Value]| {
        let all: Vec<&Value> =
            draft.around.iter().copied().chain(others.iter().copied()).chain([&own]).collect();
        logic.is_empty(&all)
    };
    let possible: Vec<&Value> = options.iter().filter(|option| !excludes(&[*option])).collect();
    let mut chosen = Vec::new();
    for (at, option) in possible.iter().enumerate() {
        let others = possible.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| *other);
        let mut overlapping = others.filter(|other| !excludes(&[*option, *other])).peekable();
        if overlapping.peek().is_none() {
            chosen.push((*option).clone());
        } else {
            chosen.extend(alone(logic, draft, option, overlapping, &excludes)?);
        }
    }
    let options = if chosen.is_empty() { vec![false.into()] } else { chosen };
    let is_only_choice = !draft.map.contains_key("anyOf");
    if is_only_choice {
        draft.map.insert("anyOf".into(), options.into());
    } else {
        draft.add("oneOf", json!({ "anyOf": options }));
    }
    Ok(())
}

/// The values of a schema that fit none of the schemas that overlap with it; `None` if there are none.
fn alone<'v>(
    logic: &Logic<'_>,
    draft: &Draft<'_>,
    option: &Value,
    overlapping: impl Iterator<Item = &'v Value>,
    excludes: &dyn Fn(&[&Value]) -> bool,
) -> Result<Option<Value>, ConstraintError> {
    let mut all = vec![option.clone()];
    let (mut is_twice, mut is_whole) = (false, true);
    for other in overlapping {
        is_twice |= is_same(option, other);
        is_whole &= is_exact(logic, other);
        if is_same(option, other) {
            continue;
        }
        let mut ways: Vec<Value> = negate(logic, other).into_iter().collect();
        ways.extend(beyond_properties(logic, option, other));
        ways.retain(|way| !excludes(&[option, way]));
        let way = match ways.len() {
            // All its values fit the other too.
            0 if is_exact(logic, other) => {
                is_twice = true;
                continue;
            }
            0 => return Err(draft.refuse("oneOf", SEVERAL)),
            1 => ways.remove(0),
            _ => json!({ "anyOf": ways }),
        };
        if !all.iter().any(|known| is_same(known, &way)) {
            all.push(way);
        }
    }
    // Values that fit this schema alone may be lost, but not all of them.
    if !is_twice && !is_whole && excludes(&all.iter().collect::<Vec<_>>()) {
        return Err(draft.refuse("oneOf", SEVERAL));
    }
    Ok((!is_twice).then(|| json!({ "allOf": all })))
}

/// Whether all values fit a schema for certain.
pub(super) fn is_anything(schema: &Value) -> bool {
    match schema {
        Value::Bool(fits) => *fits,
        Value::Object(map) => map.iter().all(|(keyword, _)| keyword == ORIGIN),
        _ => false,
    }
}

/// Whether two schemas are the same, wherever they are from.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let is_in = |(key, value): (&String, &Value)| {
                key == ORIGIN || other.get(key).is_some_and(|other| is_same(value, other))
            };
            one.iter().all(is_in) && other.keys().all(|key| key == ORIGIN || one.contains_key(key))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (one, other) => one == other,
    }
}
