//! Schemas of values that do not fit a schema.

use serde_json::{Map, Value, json};

use super::logic::Logic;
use super::{EXCEPT, ORIGIN, TYPES, count, list, named, required};

/// Schemas inside schemas that are negated.
const MAX_DEPTH: usize = 8;

/// A schema of values that do not fit another; not of all of them. `None` if none is known.
pub(super) fn negate(logic: &Logic<'_>, schema: &Value) -> Option<Value> {
    negate_inner(logic, schema, 0)
}

/// Whether [`negate`] gives all values that do not fit a schema.
pub(super) fn is_exact(logic: &Logic<'_>, schema: &Value) -> bool {
    is_exact_inner(logic, schema, 0)
}

fn is_exact_inner(logic: &Logic<'_>, schema: &Value, depth: usize) -> bool {
    let Value::Object(map) = schema else { return true };
    let inner = |schema: &Value| is_exact_inner(logic, schema, depth + 1);
    depth <= MAX_DEPTH
        && map.iter().all(|(keyword, value)| match &**keyword {
            ORIGIN | EXCEPT | "not" | "required" | "minimum" | "maximum" | "exclusiveMinimum"
            | "exclusiveMaximum" | "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" => true,
            "type" => super::logic::allows(value, "fraction") || !super::logic::allows(value, "integer"),
            "pattern" => value
                .as_str()
                .is_some_and(|pattern| logic.complement(pattern).is_some_and(|(_, is_whole)| is_whole)),
            "const" => value.is_string() || value.is_null(),
            "enum" => list(map, keyword).iter().all(|value| value.is_string() || value.is_null()),
            "$ref" => value.as_str().is_some_and(|name| inner(logic.schemas.definition(name))),
            "properties" => named(map, keyword).all(|(_, schema)| inner(schema)),
            "allOf" | "anyOf" => list(map, keyword).iter().all(inner),
            _ => false,
        })
}

fn negate_inner(logic: &Logic<'_>, schema: &Value, depth: usize) -> Option<Value> {
    let map = match schema {
        Value::Bool(fits) => return Some((!fits).into()),
        Value::Object(map) => map,
        _ => return None,
    };
    if depth > MAX_DEPTH {
        return None;
    }
    let inner = |schema: &Value| {
        negate_inner(logic, schema, depth + 1).filter(|negated| *negated != Value::Bool(false))
    };
    let mut options: Vec<Value> = Vec::new();
    let mut constrains = false;
    for (keyword, value) in map.iter().filter(|(keyword, _)| *keyword != ORIGIN) {
        constrains = true;
        match &**keyword {
            "type" => options.extend(other_types(value)),
            "const" | "enum" => options.extend(other_values(map)),
            "$ref" => options.extend(value.as_str().and_then(|name| inner(logic.schemas.definition(name)))),
            "not" => options.push(value.clone()),
            EXCEPT => options.push(json!({ "enum": value })),
            "allOf" => options.extend(list(map, keyword).iter().filter_map(inner)),
            "anyOf" | "oneOf" => {
                let none = list(map, keyword).iter().map(inner).collect::<Option<Vec<_>>>();
                options.extend(none.map(|none| json!({ "allOf": none })));
            }
            "properties" => options.extend(named(map, keyword).filter_map(|(name, schema)| {
                Some(
                    json!({ "type": "object", "required": [name], "properties": { (name): inner(schema)? } }),
                )
            })),
            "pattern" => {
                let complement = value.as_str().and_then(|pattern| logic.complement(pattern));
                options.extend(complement.map(|(others, _)| json!({ "type": "string", "pattern": others })));
            }
            "items" if !map.contains_key("prefixItems") => {
                options.extend(inner(value).map(|other| json!({ "type": "array", "contains": other })));
            }
            _ => options.extend(beyond(map, keyword)),
        }
    }
    match options.len() {
        0 if !constrains => Some(false.into()),
        0 => None,
        1 => options.pop(),
        _ => Some(json!({ "anyOf": options })),
    }
}

/// Schemas of objects that fit one schema, and have a property which another does not allow.
pub(super) fn beyond_properties(logic: &Logic<'_>, one: &Value, other: &Value) -> Vec<Value> {
    let parts = logic.parts_of(one);
    let names = parts.iter().flat_map(|part| named(part, "properties").map(|(name, _)| name));
    let is_closed =
        |part: &&&Map<String, Value>| part.get("additionalProperties") == Some(&Value::Bool(false));
    let closed = logic.parts_of(other);
    let closed: Vec<_> = closed.iter().filter(is_closed).collect();
    let excludes = |part: &&&Map<String, Value>, name: &str| {
        !named(part, "properties").any(|(known, _)| known == name)
            && named(part, "patternProperties")
                .all(|(pattern, _)| logic.matches(pattern, name) == Some(false))
    };
    let mut names: Vec<&String> =
        names.filter(|name| closed.iter().any(|part| excludes(part, name))).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| json!({ "type": "object", "required": [name] })).collect()
}

/// Types that others do not have. Numbers that are no integers are left out: they cannot be asked for.
fn other_types(types: &Value) -> Option<Value> {
    let others: Vec<&str> = TYPES.into_iter().filter(|kind| !super::logic::allows(types, kind)).collect();
    (!others.is_empty()).then(|| json!({ "type": others }))
}

/// Values other than those that are listed: of other types, and other strings.
fn other_values(map: &Map<String, Value>) -> Vec<Value> {
    let values = map.get("const").map_or_else(|| list(map, "enum"), std::slice::from_ref);
    let is = |kind: &str| {
        values.iter().any(|value| match value {
            Value::Null => kind == "null",
            Value::Bool(_) => kind == "boolean",
            Value::Number(_) => kind == "number",
            Value::String(_) => kind == "string",
            Value::Array(_) => kind == "array",
            Value::Object(_) => kind == "object",
        })
    };
    let others: Vec<&str> = TYPES.into_iter().filter(|kind| !is(kind)).collect();
    let mut options = vec![json!({ "type": others })];
    let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    if !texts.is_empty() {
        options.push(json!({ "type": "string", EXCEPT: texts }));
    }
    let flags: Vec<bool> = values.iter().filter_map(Value::as_bool).collect();
    if let [flag] = flags[..] {
        options.push(json!({ "const": !flag }));
    }
    let mut numbers: Vec<&Value> = values.iter().filter(|value| value.is_number()).collect();
    numbers.sort_by(|one, other| one.as_f64().unwrap_or(0.0).total_cmp(&other.as_f64().unwrap_or(0.0)));
    if let [least, .., most] | [most @ least] = numbers[..] {
        options.push(json!({ "type": "number", "exclusiveMaximum": least }));
        options.push(json!({ "type": "number", "exclusiveMinimum": most }));
    }
    options
}

/// Values that miss a bound or a property.
fn beyond(map: &Map<String, Value>, keyword: &str) -> Vec<Value> {
    let value = &map[keyword];
    let kind = match keyword {
        "required" => {
            return required(map)
                .map(|name| json!({ "type": "object", "properties": { (name): false } }))
                .collect();
        }
        "minimum" => return vec![json!({ "type": "number", "exclusiveMaximum": value })],
        "maximum" => return vec![json!({ "type": "number", "exclusiveMinimum": value })],
        "exclusiveMinimum" => return vec![json!({ "type": "number", "maximum": value })],
        "exclusiveMaximum" => return vec![json!({ "type": "number", "minimum": value })],
        "minLength" | "maxLength" => "string",
        "minItems" | "maxItems" => "array",
        "minProperties" | "maxProperties" => "object",
        _ => return Vec::new(),
    };
    let Some(bound) = count(map, keyword) else { return Vec::new() };
    match (keyword.strip_prefix("min"), keyword.strip_prefix("max")) {
        (Some(_), _) if bound == 0 => Vec::new(),
        (Some(what), _) => vec![json!({ "type": kind, (format!("max{what}")): bound - 1 })],
        (_, Some(what)) => vec![json!({ "type": kind, (format!("min{what}")): bound + 1 })],
        _ => Vec::new(),
    }
}
