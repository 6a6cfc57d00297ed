//! What can be said of schemas as they were read, without trying all values: each answer is right, or "not known".

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use llguidance::derivre::Regex;
use serde_json::{Map, Value};

use super::reader::Schemas;
use super::{EXCEPT, TYPES, count, language, list, named, pattern, required};

/// Schemas inside schemas that are looked at.
const MAX_DEPTH: usize = 12;
/// Lists of alternatives that are looked at inside each other.
const MAX_CHOICES: usize = 3;
/// The most values that a schema is taken to list.
const MAX_VALUES: usize = 1000;
/// The work that all questions about one document may take: schemas that are looked at, and more for patterns.
const FUEL: usize = 1_000_000;
const FUEL_OF_PATTERN: usize = 400;
const FUEL_OF_LANGUAGE: usize = 5_000;

pub(super) struct Logic<'a> {
    pub(super) schemas: &'a Schemas,
    fuel: Cell<usize>,
    /// Patterns that were compiled, questions that were answered, and patterns of texts that do not match others.
    compiled: RefCell<HashMap<String, Option<Regex>>>,
    existing: RefCell<HashMap<[Vec<String>; 2], Option<bool>>>,
    complements: RefCell<HashMap<String, Option<(String, bool)>>>,
}

/// The parts of a schema that all values must fit.
pub(super) type Parts<'v> = Vec<&'v Map<String, Value>>;

impl<'a> Logic<'a> {
    pub(super) fn new(schemas: &'a Schemas) -> Logic<'a> {
        let (compiled, existing, complements) = Default::default();
        Logic { schemas, fuel: Cell::new(FUEL), compiled, existing, complements }
    }

    /// Whether there is surely no value that fits all of these schemas.
    pub(super) fn is_empty<'v>(&'v self, all: &[&'v Value]) -> bool {
        self.none_fits(all, 0, &mut Vec::new())
    }

    fn none_fits<'v>(&'v self, all: &[&'v Value], depth: usize, choices: &mut Vec<&'v [Value]>) -> bool {
        match self.parts(all, depth) {
            Err(has_false) => has_false,
            Ok(parts) => self.no_value_fits(&parts, depth, choices),
        }
    }

    fn no_value_fits<'v>(&'v self, parts: &Parts<'v>, depth: usize, choices: &mut Vec<&'v [Value]>) -> bool {
        TYPES.iter().all(|kind| self.has_none_of(kind, parts, depth))
            || self.lists_refuted(parts, depth)
            || self.has_no_alternative(parts, depth, choices)
    }

    /// Whether no option of one of the parts' alternatives fits the rest.
    fn has_no_alternative<'v>(
        &'v self,
        parts: &Parts<'v>,
        depth: usize,
        choices: &mut Vec<&'v [Value]>,
    ) -> bool {
        let lists = parts.iter().flat_map(|part| [list(part, "anyOf"), list(part, "oneOf")]);
        let lists: Vec<&'v [Value]> = lists.filter(|options| !options.is_empty()).collect();
        for options in lists {
            if choices.len() == MAX_CHOICES || choices.iter().any(|known| std::ptr::eq(*known, options)) {
                continue;
            }
            choices.push(options);
            let found = options.iter().all(|option| match self.parts(&[option], depth + 1) {
                Err(has_false) => has_false,
                Ok(more) => {
                    let together: Parts<'v> = parts.iter().copied().chain(more).collect();
                    self.no_value_fits(&together, depth + 1, choices)
                }
            });
            choices.pop();
            if found {
                return true;
            }
        }
        false
    }

    /// Whether the values that one of the parts lists do not fit the others.
    fn lists_refuted(&self, parts: &Parts<'_>, depth: usize) -> bool {
        let lists = parts.iter().filter_map(|part| self.listed(part));
        lists.min_by_key(Vec::len).is_some_and(|values| {
            let refuted = |value: &Value| parts.iter().any(|part| self.refutes_part(part, value, depth + 1));
            values.len() <= MAX_VALUES && values.into_iter().all(refuted)
        })
    }

    /// All schemas that must be fitted, those of `allOf` and `$ref` too.
    ///
    /// # Errors
    /// True if one of them is `false`, and false if there are too many.
    fn parts<'v>(&'v self, all: &[&'v Value], depth: usize) -> Result<Parts<'v>, bool> {
        let (mut parts, mut todo): (Parts<'v>, Vec<&'v Value>) = (Vec::new(), all.to_vec());
        while let Some(schema) = todo.pop() {
            if depth > MAX_DEPTH || !self.spend(1) {
                return Err(false);
            }
            match schema {
                Value::Bool(false) => return Err(true),
                Value::Object(map) if !parts.iter().any(|part| std::ptr::eq(*part, map)) => {
                    parts.push(map);
                    todo.extend(list(map, "allOf"));
                    let reference = map.get("$ref").and_then(Value::as_str);
                    todo.extend(reference.map(|reference| self.schemas.definition(reference)));
                }
                _ => {}
            }
        }
        Ok(parts)
    }

    /// The schemas that values of a schema must fit, as far as they are known.
    pub(super) fn parts_of<'v>(&'v self, schema: &'v Value) -> Parts<'v> {
        self.parts(&[schema], 0).unwrap_or_default()
    }

    /// Takes some of the work that is left, if there is so much.
    fn spend(&self, work: usize) -> bool {
        let left = self.fuel.get().checked_sub(work);
        self.fuel.set(left.unwrap_or(self.fuel.get()));
        left.is_some()
    }

    /// Whether a text matches a pattern; `None` if that is not known.
    pub(super) fn matches(&self, pattern: &str, text: &str) -> Option<bool> {
        let mut compiled = self.compiled.borrow_mut();
        if !compiled.contains_key(pattern) {
            let found = if self.spend(FUEL_OF_PATTERN) { pattern::compiled(&[pattern], &[]) } else { None };
            compiled.insert(pattern.to_owned(), found);
        }
        let known = compiled.get_mut(pattern)?.as_mut()?;
        self.spend(1).then(|| known.is_match(text)).filter(|_| !known.alpha().has_error())
    }

    /// Whether there is a text that matches all of some patterns and none of others; `None` if that is not known.
    pub(super) fn exists(&self, all: &[&str], none: &[&str]) -> Option<bool> {
        let question = [all, none].map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>());
        if let Some(known) = self.existing.borrow().get(&question) {
            return *known;
        }
        let found = if self.spend(FUEL_OF_PATTERN) { pattern::exists(all, none) } else { None };
        self.existing.borrow_mut().insert(question, found);
        found
    }

    /// A pattern of texts that do not match a pattern, and whether it matches all of them. `None` if none is known.
    pub(super) fn complement(&self, pattern: &str) -> Option<(String, bool)> {
        if let Some(known) = self.complements.borrow().get(pattern) {
            return known.clone();
        }
        let found = if self.spend(FUEL_OF_LANGUAGE) { language::without(&[], &[pattern]) } else { None };
        self.complements.borrow_mut().insert(pattern.to_owned(), found.clone());
        found
    }

    /// The pattern of texts that match all of some patterns and none of others; `Some(None)` if there are
    /// none, and `None` if that is not known.
    pub(super) fn language(&self, all: &[&str], none: &[&str]) -> Option<Option<String>> {
        if self.exists(all, none) == Some(false) {
            return Some(None);
        }
        let found = if self.spend(FUEL_OF_LANGUAGE) { language::without(all, none) } else { None };
        found.filter(|(_, is_whole)| *is_whole).map(|(pattern, _)| Some(pattern))
    }

    /// The schemas that the value of a property must fit.
    fn properties<'v>(&self, part: &'v Map<String, Value>, name: &str) -> Vec<&'v Value> {
        let properties = part.get("properties").and_then(Value::as_object);
        let exact = properties.and_then(|properties| properties.get(name));
        let mut is_known = exact.is_some();
        let mut found: Vec<&Value> = exact.into_iter().collect();
        for (pattern, schema) in named(part, "patternProperties") {
            let matches = self.matches(pattern, name);
            found.extend((matches == Some(true)).then_some(schema));
            is_known |= matches != Some(false);
        }
        found.extend(part.get("additionalProperties").filter(|_| !is_known));
        found
    }

    /// The values that a schema lists.
    fn listed<'v>(&self, part: &'v Map<String, Value>) -> Option<Vec<&'v Value>> {
        part.get("const")
            .map(|value| vec![value])
            .or_else(|| part.get("enum")?.as_array().map(|list| list.iter().collect()))
    }

    /// Whether surely no value of a type fits.
    fn has_none_of<'v>(&'v self, kind: &str, parts: &Parts<'v>, depth: usize) -> bool {
        let types = parts.iter().filter_map(|part| part.get("type"));
        if types.clone().any(|types| !allows(types, kind)) {
            return true;
        }
        match kind {
            "string" => self.has_no_string(parts),
            "number" => {
                let is_integer = types.clone().any(|types| !allows(types, "fraction"));
                has_no_number(parts, is_integer)
            }
            "array" => self.has_no_array(parts, depth),
            "object" => self.has_no_object(parts, depth),
            _ => false,
        }
    }

    fn has_no_string(&self, parts: &Parts<'_>) -> bool {
        let least = parts.iter().filter_map(|part| count(part, "minLength")).max().unwrap_or(0);
        let most = parts.iter().filter_map(|part| count(part, "maxLength")).min();
        if most.is_some_and(|most| most < least) {
            return true;
        }
        // Formats are left out: not everyone checks them.
        let mut patterns: Vec<&str> = parts.iter().filter_map(|part| part.get("pattern")?.as_str()).collect();
        let lengths = pattern::of_lengths(least, most);
        // Longer texts take long to think about.
        if !patterns.is_empty() && (least > 0 || most.is_some()) && most.unwrap_or(least) <= 32 {
            patterns.push(&lengths);
        }
        let excepted = parts.iter().flat_map(|part| list(part, EXCEPT)).filter_map(Value::as_str);
        let excepted: BTreeSet<&str> = excepted.filter(|_| !patterns.is_empty()).collect();
        let has_excepted = !excepted.is_empty();
        let excepted = pattern::of_texts(excepted);
        let excepted = has_excepted.then_some(&*excepted);
        patterns.len() + excepted.iter().len() > 1
            && self.exists(&patterns, excepted.as_slice()) == Some(false)
    }

    fn has_no_array<'v>(&'v self, parts: &Parts<'v>, depth: usize) -> bool {
        let least = parts.iter().filter_map(|part| count(part, "minItems")).max().unwrap_or(0);
        let most = parts.iter().filter_map(|part| count(part, "maxItems")).min();
        let is_impossible = |index: usize| {
            let items =
                parts.iter().filter_map(|part| list(part, "prefixItems").get(index).or(part.get("items")));
            self.none_fits(&items.collect::<Vec<_>>(), depth + 1, &mut Vec::new())
        };
        most.is_some_and(|most| most < least) || (0..least.min(8) as usize).any(is_impossible)
    }

    fn has_no_object<'v>(&'v self, parts: &Parts<'v>, depth: usize) -> bool {
        let mut names: Vec<&str> = parts.iter().flat_map(|part| required(part)).collect();
        names.sort_unstable();
        names.dedup();
        let most = parts.iter().filter_map(|part| count(part, "maxProperties")).min();
        let is_impossible = |name: &str| {
            let schemas: Vec<&'v Value> = parts.iter().flat_map(|part| self.properties(part, name)).collect();
            self.none_fits(&schemas, depth + 1, &mut Vec::new())
        };
        most.is_some_and(|most| most < names.len() as u64) || names.into_iter().any(is_impossible)
    }

    /// Whether a value surely does not fit a schema.
    pub(super) fn refutes(&self, schema: &Value, value: &Value, depth: usize) -> bool {
        match schema {
            Value::Bool(fits) => !fits,
            Value::Object(part) => self.refutes_part(part, value, depth),
            _ => false,
        }
    }

    fn refutes_part(&self, part: &Map<String, Value>, value: &Value, depth: usize) -> bool {
        if depth > MAX_DEPTH || !self.spend(1) {
            return false;
        }
        let any =
            |keyword: &str| list(part, keyword).iter().any(|schema| self.refutes(schema, value, depth + 1));
        let all = |keyword: &str| {
            let options = list(part, keyword);
            !options.is_empty() && options.iter().all(|schema| self.refutes(schema, value, depth + 1))
        };
        let reference = part.get("$ref").and_then(Value::as_str);
        part.get("type").is_some_and(|types| !kinds(value).iter().any(|kind| allows(types, kind)))
            || self
                .listed(part)
                .is_some_and(|values| !values.into_iter().any(|listed| is_equal(listed, value)))
            || reference.is_some_and(|name| self.refutes(self.schemas.definition(name), value, depth + 1))
            || any("allOf")
            || all("anyOf")
            || all("oneOf")
            || self.refutes_content(part, value, depth)
    }

    fn refutes_content(&self, part: &Map<String, Value>, value: &Value, depth: usize) -> bool {
        match value {
            Value::String(text) => {
                let length = text.chars().count() as u64;
                let pattern = part.get("pattern").and_then(Value::as_str);
                count(part, "minLength").is_some_and(|least| length < least)
                    || count(part, "maxLength").is_some_and(|most| length > most)
                    || list(part, EXCEPT).iter().any(|excepted| excepted == text)
                    || pattern.is_some_and(|pattern| self.matches(pattern, text) == Some(false))
            }
            Value::Number(number) => {
                let (number, bounds) = (number.as_f64().unwrap_or(f64::NAN), Bounds::of([part]));
                number < bounds.least.0 || number > bounds.most.0 || bounds.excludes(number)
            }
            Value::Array(items) => {
                let length = items.len() as u64;
                let item = |(index, item): (usize, &Value)| {
                    let schema = list(part, "prefixItems").get(index).or(part.get("items"));
                    schema.is_some_and(|schema| self.refutes(schema, item, depth + 1))
                };
                count(part, "minItems").is_some_and(|least| length < least)
                    || count(part, "maxItems").is_some_and(|most| length > most)
                    || items.iter().enumerate().any(item)
            }
            Value::Object(map) => {
                let property = |(name, value): (&String, &Value)| {
                    self.properties(part, name)
                        .into_iter()
                        .any(|schema| self.refutes(schema, value, depth + 1))
                };
                required(part).any(|name| !map.contains_key(name)) || map.iter().any(property)
            }
            _ => false,
        }
    }

    /// The values that fit a schema, if it has few; more than fit may be among them.
    pub(super) fn values(&self, schema: &Value, depth: usize) -> Option<Vec<Value>> {
        let part = schema.as_object().filter(|_| depth <= MAX_DEPTH)?;
        let inner = |schema: &Value| self.values(schema, depth + 1);
        let options = |keyword: &str| {
            let options = list(part, keyword);
            let values: Option<Vec<Vec<Value>>> = options.iter().map(inner).collect();
            values.filter(|_| !options.is_empty()).map(|values| values.concat())
        };
        let listed = self.listed(part).map(|values| values.into_iter().cloned().collect::<Vec<_>>());
        let reference = part.get("$ref").and_then(Value::as_str);
        let found = listed
            .or_else(|| inner(self.schemas.definition(reference?)))
            .or_else(|| list(part, "allOf").iter().find_map(inner))
            .or_else(|| options("anyOf"))
            .or_else(|| options("oneOf"))
            .or_else(|| of_type(part));
        let mut distinct: Vec<Value> = Vec::new();
        for value in found? {
            if !distinct.iter().any(|known| is_equal(known, &value)) && !self.refutes(schema, &value, 0) {
                distinct.push(value);
            }
        }
        Some(distinct)
    }
}

/// The values of a type that has few.
fn of_type(part: &Map<String, Value>) -> Option<Vec<Value>> {
    let types = match part.get("type")? {
        Value::Array(list) => list.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?,
        kind => vec![kind.as_str()?],
    };
    let mut values = Vec::new();
    for kind in types {
        match kind {
            "null" => values.push(Value::Null),
            "boolean" => values.extend([false.into(), true.into()]),
            "integer" => {
                let bounds = Bounds::of([part]);
                let (least, most) = (bounds.least.0.ceil(), bounds.most.0.floor());
                if most - least > 32.0 {
                    return None;
                }
                values.extend((least as i64..=most as i64).map(Value::from));
            }
            _ => return None,
        }
    }
    Some(values)
}

/// Whether types allow one; a `fraction` is a number that is no integer.
pub(super) fn allows(types: &Value, kind: &str) -> bool {
    let allows = |name: &Value| match name.as_str() {
        Some("number") => matches!(kind, "number" | "integer" | "fraction"),
        Some("integer") => matches!(kind, "number" | "integer"),
        name => name == Some(kind),
    };
    types.as_array().map_or_else(|| allows(types), |list| list.iter().any(allows))
}

/// The types of a value.
fn kinds(value: &Value) -> &'static [&'static str] {
    match value {
        Value::Null => &["null"],
        Value::Bool(_) => &["boolean"],
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => &["integer"],
        Value::Number(_) => &["fraction"],
        Value::String(_) => &["string"],
        Value::Array(_) => &["array"],
        Value::Object(_) => &["object"],
    }
}

/// Whether two values are equal as JSON: 1 and 1.0 are.
pub(super) fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in =
                |(key, value): (&String, &Value)| other.get(key).is_some_and(|other| is_equal(value, other));
            one.len() == other.len() && one.iter().all(is_in)
        }
        (one, other) => one == other,
    }
}

fn has_no_number(parts: &Parts<'_>, is_integer: bool) -> bool {
    let bounds = Bounds::of(parts.iter().copied());
    let (least, most) = (bounds.least.0, bounds.most.0);
    if is_integer {
        let first = if bounds.least.1 && least.fract() == 0.0 { least + 1.0 } else { least.ceil() };
        let last = if bounds.most.1 && most.fract() == 0.0 { most - 1.0 } else { most.floor() };
        return first > last;
    }
    least > most || least == most && (bounds.least.1 || bounds.most.1)
}

/// What numbers are between, and whether the bounds are excluded.
struct Bounds {
    least: (f64, bool),
    most: (f64, bool),
}

impl Bounds {
    fn of<'v>(parts: impl IntoIterator<Item = &'v Map<String, Value>>) -> Bounds {
        let mut bounds = Bounds { least: (f64::NEG_INFINITY, false), most: (f64::INFINITY, false) };
        for part in parts {
            let number = |keyword: &str| part.get(keyword).and_then(Value::as_f64);
            for (bound, is_excluded) in [(number("minimum"), false), (number("exclusiveMinimum"), true)] {
                if let Some(bound) = bound.filter(|bound| (*bound, is_excluded) > bounds.least) {
                    bounds.least = (bound, is_excluded);
                }
            }
            for (bound, is_excluded) in [(number("maximum"), false), (number("exclusiveMaximum"), true)] {
                let is_less = |bound: &f64| *bound < bounds.most.0 || *bound == bounds.most.0 && is_excluded;
                if let Some(bound) = bound.filter(is_less) {
                    bounds.most = (bound, is_excluded);
                }
            }
        }
        bounds
    }

    fn excludes(&self, number: f64) -> bool {
        self.least.1 && number == self.least.0 || self.most.1 && number == self.most.0
    }
}
