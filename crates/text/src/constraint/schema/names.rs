//! The names of properties: patterns of them, and schemas for them.

use serde_json::{Map, Value, json};

use super::choices::{is_anything, is_same};
use super::draft::Draft;
use super::logic::Logic;
use super::{EXCEPT, count, formats, list, named, pattern};
use crate::ConstraintError;

type Outcome = Result<(), ConstraintError>;

/// `patternProperties`: llguidance takes patterns that match no name in common, each with names that are not listed.
pub(super) fn patterns(logic: &Logic<'_>, draft: &mut Draft<'_>) -> Outcome {
    let Some(Value::Object(patterns)) = draft.take("patternProperties") else { return Ok(()) };
    let (mut left, mut everywhere) = (Vec::new(), Vec::new());
    for (pattern, schema) in patterns {
        let names: Vec<&str> = named(&draft.map, "properties").map(|(name, _)| &**name).collect();
        let is_free =
            names.is_empty() || logic.exists(&[&pattern], &[&pattern::of_texts(names)]) != Some(false);
        if logic.exists(&[], &[&pattern]) == Some(false) {
            everywhere.push(schema);
        } else if is_free {
            left.push((pattern, schema));
        } else {
            add_to_properties(&mut draft.map, &schema, |name| logic.matches(&pattern, name) != Some(false));
        }
    }
    if let Some(all) = everywhere.iter().cloned().reduce(|one, other| both(&one, &other)) {
        add_to_properties(&mut draft.map, &all, |_| true);
        left.iter_mut().for_each(|(_, schema)| *schema = both(schema, &all));
        draft.map.insert("additionalProperties".into(), all);
    }
    let mut merged: Vec<(String, Value)> = Vec::new();
    for (pattern, schema) in left {
        merge(logic, draft, &mut merged, pattern, schema)?;
    }
    // llguidance would begin names that do not exist.
    let all: Vec<&str> = merged.iter().map(|(pattern, _)| &**pattern).collect();
    if !all.is_empty() && logic.exists(&[], &all) == Some(false) {
        draft.map.insert("additionalProperties".into(), false.into());
    }
    if !merged.is_empty() {
        draft.map.insert("patternProperties".into(), merged.into_iter().collect::<Map<_, _>>().into());
    }
    Ok(())
}

fn add_to_properties(map: &mut Map<String, Value>, schema: &Value, is_meant: impl Fn(&str) -> bool) {
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        let meant = properties.iter_mut().filter(|(name, _)| is_meant(name));
        meant.for_each(|(_, value)| *value = both(value, schema));
    }
}

/// The schema of values that fit two.
fn both(one: &Value, other: &Value) -> Value {
    match (is_anything(one), is_anything(other)) {
        (_, true) => one.clone(),
        (true, _) => other.clone(),
        _ if is_same(one, other) => one.clone(),
        _ => json!({ "allOf": [one, other] }),
    }
}

/// Adds a pattern to others. Patterns that match a name in common become one, whose values fit the schemas of both, or are
/// split where those differ.
fn merge(
    logic: &Logic<'_>,
    draft: &Draft<'_>,
    merged: &mut Vec<(String, Value)>,
    mut pattern: String,
    mut schema: Value,
) -> Outcome {
    while let Some(at) =
        merged.iter().position(|(known, _)| logic.exists(&[known, &pattern], &[]) != Some(false))
    {
        let (known, other) = merged.remove(at);
        let is_between = |name: &String| logic.matches(&known, name) != logic.matches(&pattern, name);
        let splits_names = named(&draft.map, "properties").any(|(name, _)| is_between(name));
        if !is_same(&schema, &other) && (splits_names || logic.is_empty(&[&schema, &other])) {
            let (one, two) = (&*known, &*pattern);
            let parts: [(&[&str], &[&str]); 3] = [(&[one], &[two]), (&[one, two], &[]), (&[two], &[one])];
            let parts: Option<Vec<_>> = parts.iter().map(|(all, none)| logic.language(all, none)).collect();
            let Some([first, shared, rest]) = parts.and_then(|parts| <[_; 3]>::try_from(parts).ok()) else {
                let problem =
                    format!("names may match both /{known}/ and /{pattern}/, which is not supported");
                return Err(draft.refuse("patternProperties", problem));
            };
            let is_impossible = logic.is_empty(&[&schema, &other]);
            let together = if is_impossible { false.into() } else { both(&other, &schema) };
            merged.extend(first.map(|pattern| (pattern, other)));
            merged.extend(shared.map(|pattern| (pattern, together)));
            let Some(rest) = rest else { return Ok(()) };
            pattern = rest;
            continue;
        }
        schema = both(&other, &schema);
        pattern = pattern::union([&*known, &*pattern]);
    }
    merged.push((pattern, schema));
    Ok(())
}

/// `propertyNames`: listed names, or a pattern that the names match.
pub(super) fn names(logic: &Logic<'_>, draft: &mut Draft<'_>) -> Outcome {
    let Some(schema) = draft.take("propertyNames") else { return Ok(()) };
    if let Some(excluded) = excluded(&schema) {
        let properties: Map<String, Value> = excluded.into_iter().map(|name| (name, false.into())).collect();
        draft.add("propertyNames", json!({ "properties": properties }));
        return Ok(());
    }
    if let Some(names) = logic.values(&schema, 0).filter(|_| is_list(&schema)) {
        let names = names.iter().filter_map(Value::as_str);
        let properties: Map<String, Value> = names.map(|name| (name.to_owned(), true.into())).collect();
        draft.add("propertyNames", json!({ "properties": properties, "additionalProperties": false }));
        return Ok(());
    }
    let mut patterns = Vec::new();
    if !collect(logic, &schema, &mut patterns, 0) {
        let problem = "names that fit it cannot be told from others, which is not supported";
        return Err(draft.refuse("propertyNames", problem));
    }
    let names: Vec<String> = named(&draft.map, "properties").map(|(name, _)| name.clone()).collect();
    let is_unfit = |name: &&String| patterns.iter().any(|pattern| logic.matches(pattern, name) != Some(true));
    let unfit: Map<String, Value> =
        names.iter().filter(is_unfit).map(|name| (name.clone(), false.into())).collect();
    if patterns.iter().all(|pattern| covers(logic, draft, pattern)) {
        if !unfit.is_empty() {
            draft.add("propertyNames", json!({ "properties": unfit }));
        }
        return Ok(());
    }
    let Some(pattern) = single(logic, patterns) else {
        return Err(draft.refuse("propertyNames", "several patterns for names are not supported"));
    };
    let is_listed = !names.is_empty()
        && logic.exists(&[&pattern], &[&pattern::of_texts(names.iter().map(String::as_str))]) == Some(false);
    if is_listed {
        // llguidance would begin names that do not exist.
        let fit = names.into_iter().map(|name| (name, true.into()));
        let properties: Map<String, Value> = fit.chain(unfit).collect();
        draft.add("propertyNames", json!({ "properties": properties, "additionalProperties": false }));
    } else {
        draft.add(
            "propertyNames",
            json!({ "patternProperties": { (pattern): true }, "additionalProperties": false }),
        );
    }
    Ok(())
}

/// The names of `{"not": {"enum": […]}}`, or none of which may be there.
fn excluded(schema: &Value) -> Option<Vec<String>> {
    let map = schema.as_object()?;
    let not = map.get("not")?.as_object()?;
    let is_plain = map.keys().all(|key| matches!(&**key, "$comment" | "not" | "type"));
    let values = not.get("const").map_or_else(|| list(not, "enum"), std::slice::from_ref);
    let is_list = not.keys().all(|key| matches!(&**key, "$comment" | "enum" | "const" | "type"));
    let names = values.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
    names.filter(|names| is_plain && is_list && !names.is_empty())
}

/// Whether a schema lists values, and says nothing else.
fn is_list(schema: &Value) -> bool {
    schema
        .as_object()
        .is_some_and(|map| map.keys().all(|key| matches!(&**key, "$comment" | "enum" | "const" | "type")))
}

/// Collects the patterns that texts must match which fit a schema. Returns whether they say all that it asks.
fn collect(logic: &Logic<'_>, schema: &Value, patterns: &mut Vec<String>, depth: usize) -> bool {
    let Value::Object(map) = schema else { return *schema == Value::Bool(true) };
    let (least, most) = (count(map, "minLength"), count(map, "maxLength"));
    if least.is_some() || most.is_some() {
        patterns.push(pattern::of_lengths(least.unwrap_or(0), most));
    }
    depth < 8
        && map.iter().all(|(keyword, value)| match (&**keyword, value) {
            ("$comment" | "minLength" | "maxLength", _) => true,
            ("type", types) => super::logic::allows(types, "string"),
            ("pattern", Value::String(pattern)) => {
                patterns.push(pattern.clone());
                true
            }
            ("format", Value::String(name)) => match formats::lookup(name) {
                Some(formats::Format::Pattern(pattern, None)) => {
                    patterns.push(pattern);
                    true
                }
                _ => false,
            },
            (EXCEPT, Value::Array(texts)) => {
                let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
                patterns.push(pattern::except(&texts));
                true
            }
            ("enum" | "const", _) => {
                let values = logic.values(schema, 0).unwrap_or_default();
                patterns.push(pattern::of_texts(values.iter().filter_map(Value::as_str)));
                true
            }
            ("$ref", Value::String(name)) => {
                collect(logic, logic.schemas.definition(name), patterns, depth + 1)
            }
            ("allOf", Value::Array(all)) => {
                all.iter().all(|schema| collect(logic, schema, patterns, depth + 1))
            }
            ("anyOf" | "oneOf", Value::Array(options)) => {
                let options = options.iter().map(|option| {
                    let mut own = Vec::new();
                    collect(logic, option, &mut own, depth + 1).then(|| single(logic, own)).flatten()
                });
                let options: Option<Vec<String>> = options.collect();
                let is_exact = keyword == "anyOf"
                    || options.as_deref().is_some_and(|options| are_disjoint(logic, options));
                patterns
                    .extend(options.iter().map(|options| pattern::union(options.iter().map(String::as_str))));
                options.is_some() && is_exact
            }
            _ => false,
        })
}

fn are_disjoint(logic: &Logic<'_>, patterns: &[String]) -> bool {
    let meets = |(at, one): (usize, &String)| {
        patterns[at + 1..].iter().any(|other| logic.exists(&[one, other], &[]) != Some(false))
    };
    !patterns.iter().enumerate().any(meets)
}

/// The pattern that matches what all of some do: one of them if that does.
fn single(logic: &Logic<'_>, patterns: Vec<String>) -> Option<String> {
    let implies = |one: &String| patterns.iter().all(|other| logic.exists(&[one], &[other]) == Some(false));
    let all = || logic.language(&patterns.iter().map(String::as_str).collect::<Vec<_>>(), &[]).flatten();
    patterns.iter().find(|pattern| implies(pattern)).cloned().or_else(all)
}

/// Whether all names that are not listed match a pattern anyway.
fn covers(logic: &Logic<'_>, draft: &Draft<'_>, pattern: &str) -> bool {
    let is_closed = draft.map.get("additionalProperties") == Some(&Value::Bool(false));
    let mut patterns = named(&draft.map, "patternProperties");
    let is_open = logic.exists(&[], &[pattern]) == Some(false);
    is_open || is_closed && patterns.all(|(own, _)| logic.exists(&[own], &[pattern]) == Some(false))
}
