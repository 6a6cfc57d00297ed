//! Objects: properties that depend on others, how many there are, and those that nothing else looks at.

use serde_json::{Map, Value, json};

use super::choices::is_anything;
use super::draft::Draft;
use super::logic::Logic;
use super::{count, list, named, required};
use crate::ConstraintError;

/// The most alternatives that come of a count.
const MAX_OPTIONS: usize = 256;

type Outcome = Result<(), ConstraintError>;

/// `dependentRequired` and `dependentSchemas`: a property is not there, or the rest holds.
pub(super) fn dependents(draft: &mut Draft<'_>) {
    for keyword in ["dependentRequired", "dependentSchemas"] {
        let Some(Value::Object(dependents)) = draft.take(keyword) else { continue };
        for (name, value) in dependents {
            let rule = match &value {
                Value::Array(names) if names.is_empty() => continue,
                Value::Array(names) => json!({ "required": names }),
                schema if is_anything(schema) => continue,
                schema => schema.clone(),
            };
            let is_there = required(&draft.map).any(|known| known == name);
            let absent = json!({ "properties": { (name): false } });
            draft.add(
                keyword,
                if is_there { json!({ "allOf": [rule] }) } else { json!({ "anyOf": [absent, rule] }) },
            );
        }
    }
}

/// `minProperties` and `maxProperties` beside properties that may be left out: as alternatives of those.
pub(super) fn counts(logic: &Logic<'_>, draft: &mut Draft<'_>) -> Outcome {
    let (least, most) = (count(&draft.map, "minProperties"), count(&draft.map, "maxProperties"));
    if least.is_none() && most.is_none() {
        return Ok(());
    }
    let around = draft.around.iter().filter_map(|schema| schema.as_object());
    let mut needed: Vec<String> = around.chain([&draft.map]).flat_map(required).map(str::to_owned).collect();
    needed.sort_unstable();
    needed.dedup();
    let possible = named(&draft.map, "properties").filter(|(_, schema)| !logic.is_empty(&[*schema]));
    let names = possible.map(|(name, _)| name.clone());
    let optional: Vec<String> = names.filter(|name| !needed.contains(name)).collect();
    let is_closed = draft.map.get("additionalProperties") == Some(&Value::Bool(false))
        && named(&draft.map, "patternProperties").all(|(_, schema)| *schema == Value::Bool(false));
    let optional: Vec<&str> = optional.iter().map(String::as_str).collect();
    let choice = Choice { optional, needed: needed.len() as u64, is_closed };
    let least = least.filter(|least| *least > choice.needed);
    let most = most.filter(|most| !is_closed || *most < choice.needed + choice.optional.len() as u64);
    let is_plain = least.is_none_or(|least| is_closed || least == choice.needed + 1);
    if choice.optional.is_empty() && is_plain {
        return Ok(());
    }
    draft.take("minProperties");
    draft.take("maxProperties");
    let rules = [
        ("minProperties", least, least.and_then(|least| choice.at_least(least))),
        ("maxProperties", most, most.and_then(|most| choice.at_most(most))),
    ];
    for (keyword, count, rule) in rules {
        match (count, rule) {
            (None, _) => {}
            (Some(_), Some(rule)) => draft.add(keyword, rule),
            (Some(count), None) => {
                let is_beyond =
                    keyword == "minProperties" && choice.optional.len() as u64 + choice.needed < count;
                let problem = if is_beyond {
                    "at most one more can be asked for"
                } else {
                    "there are too many choices of others"
                };
                let problem = format!("{count} with {} required properties: {problem}", needed.len());
                return Err(draft.refuse(keyword, problem));
            }
        }
    }
    Ok(())
}

/// The properties of an object, of which some are chosen.
struct Choice<'a> {
    optional: Vec<&'a str>,
    /// How many must be there.
    needed: u64,
    is_closed: bool,
}

impl Choice<'_> {
    /// Alternatives of objects with at least so many properties. At most one of them is not listed: such names may come
    /// twice.
    fn at_least(&self, least: u64) -> Option<Value> {
        let more = usize::try_from(least - self.needed).ok()?;
        let mut options: Vec<Value> = Vec::new();
        if more == 1 {
            // The first that is there: no object has two.
            for (at, name) in self.optional.iter().enumerate() {
                let absent = self.optional[..at].iter().map(|name| ((*name).to_owned(), false.into()));
                options.push(json!({ "required": [name], "properties": absent.collect::<Map<_, _>>() }));
            }
        } else {
            options.extend(self.choose(more)?.into_iter().map(|names| json!({ "required": names })));
        }
        if !self.is_closed {
            for names in self.choose(more - 1)? {
                let absent = self.absent(&names);
                options.push(json!({ "required": names, "properties": absent, "minProperties": least }));
            }
        }
        if options.is_empty() && !self.is_closed { None } else { alternatives(options) }
    }

    /// Alternatives of objects with at most so many properties.
    fn at_most(&self, most: u64) -> Option<Value> {
        if self.optional.is_empty() || most <= self.needed && self.is_closed {
            return Some(json!({ "properties": self.absent(&[]), "maxProperties": most }));
        }
        let more =
            usize::try_from(most.saturating_sub(self.needed)).unwrap_or(usize::MAX).min(self.optional.len());
        if self.is_closed {
            let options =
                self.choose(more)?.into_iter().map(|names| json!({ "properties": self.absent(&names) }));
            return alternatives(options.collect());
        }
        let mut options = Vec::new();
        for more in 0..=more {
            let chosen = self.choose(more)?.into_iter();
            options.extend(chosen.map(|names| {
                let absent = self.absent(&names);
                json!({ "required": names, "properties": absent, "maxProperties": most })
            }));
        }
        alternatives(options)
    }

    /// A schema of properties that are not among the chosen ones.
    fn absent(&self, chosen: &[&str]) -> Map<String, Value> {
        let others = self.optional.iter().filter(|name| !chosen.contains(name));
        others.map(|name| ((*name).to_owned(), false.into())).collect()
    }

    /// All choices of some of the properties that may be left out; `None` if they are too many.
    fn choose(&self, some: usize) -> Option<Vec<Vec<&str>>> {
        let mut chosen: Vec<Vec<&str>> = vec![Vec::new()];
        let mut ends = vec![0];
        for _ in 0..some {
            let mut longer = Vec::new();
            let mut longer_ends = Vec::new();
            for (names, end) in chosen.iter().zip(&ends) {
                for (at, name) in self.optional.iter().enumerate().skip(*end) {
                    longer.push(names.iter().copied().chain([*name]).collect());
                    longer_ends.push(at + 1);
                }
            }
            if longer.len() > MAX_OPTIONS {
                return None;
            }
            (chosen, ends) = (longer, longer_ends);
        }
        Some(chosen)
    }
}

fn alternatives(mut options: Vec<Value>) -> Option<Value> {
    match options.len() {
        0 => Some(
            json!({ "type": super::TYPES.into_iter().filter(|kind| *kind != "object").collect::<Vec<_>>() }),
        ),
        1 => options.pop().map(|option| json!({ "allOf": [option] })),
        2..=MAX_OPTIONS => Some(json!({ "anyOf": options })),
        _ => None,
    }
}

/// `unevaluatedProperties` and `unevaluatedItems`: as additional ones, where it is plain which others there are.
pub(super) fn unevaluated(logic: &Logic<'_>, draft: &mut Draft<'_>) -> Outcome {
    for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
        let Some(schema) = draft.take(keyword).filter(|schema| !is_anything(schema)) else { continue };
        let mut known = Evaluated::default();
        if !known.collect(logic, &draft.map, 0) {
            return Err(draft.refuse(keyword, "beside alternatives with properties or items, not supported"));
        }
        match keyword {
            "unevaluatedItems" if !known.has_items => {
                let items = vec![Value::Bool(true); known.num_items];
                draft.add(keyword, json!({ "prefixItems": items, "items": schema }));
            }
            "unevaluatedProperties" if !known.has_additional => {
                let rule = json!({ "properties": known.properties, "patternProperties": known.patterns, "additionalProperties": schema });
                draft.add(keyword, rule);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The properties and items that schemas look at.
#[derive(Default)]
struct Evaluated {
    properties: Map<String, Value>,
    patterns: Map<String, Value>,
    has_additional: bool,
    num_items: usize,
    has_items: bool,
}

impl Evaluated {
    /// Adds those of a schema. Returns whether no others can be looked at.
    fn collect(&mut self, logic: &Logic<'_>, map: &Map<String, Value>, depth: usize) -> bool {
        self.properties.extend(named(map, "properties").map(|(name, _)| (name.clone(), true.into())));
        self.patterns
            .extend(named(map, "patternProperties").map(|(pattern, _)| (pattern.clone(), true.into())));
        self.has_additional |=
            map.contains_key("additionalProperties") || map.contains_key("unevaluatedProperties");
        self.num_items = self.num_items.max(list(map, "prefixItems").len());
        self.has_items |= map.contains_key("items") || map.contains_key("unevaluatedItems");
        let reference = map.get("$ref").and_then(Value::as_str).map(|name| logic.schemas.definition(name));
        let all = list(map, "allOf").iter().chain(reference);
        let choices = ["anyOf", "oneOf"].into_iter().flat_map(|keyword| list(map, keyword));
        let others = ["if", "then", "else"].into_iter().filter_map(|keyword| map.get(keyword));
        let dependents = named(map, "dependentSchemas").map(|(_, schema)| schema);
        depth < 16
            && choices.chain(others).chain(dependents).all(|schema| self.adds_nothing(logic, schema, depth))
            && all.filter_map(Value::as_object).all(|schema| self.collect(logic, schema, depth + 1))
    }

    /// Whether an alternative looks at nothing that is not known, so that it does not matter which is taken.
    fn adds_nothing(&self, logic: &Logic<'_>, schema: &Value, depth: usize) -> bool {
        let mut own = Evaluated::default();
        let is_plain = schema.as_object().is_none_or(|map| own.collect(logic, map, depth + 1));
        let is_known = own.properties.keys().all(|name| self.properties.contains_key(name));
        is_plain
            && is_known
            && own.patterns.is_empty()
            && !own.has_additional
            && !own.has_items
            && own.num_items <= self.num_items
    }
}
