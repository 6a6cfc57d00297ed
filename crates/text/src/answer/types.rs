//! The types that a JSON Schema allows, with its references and unions followed.

use std::collections::HashSet;
use std::ops::{BitAnd, BitOr};

use serde_json::{Map, Value, json};

/// Types of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

/// Keywords that say nothing about what is valid.
pub(super) const NOTES: [&str; 10] = [
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "$schema",
    "$id",
];
/// Keywords that hold definitions.
pub(super) const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The names of types, in the order in which [`Types::names`] gives them.
const NAMES: [(&str, Types); 7] = [
    ("string", Types::STRING),
    ("number", Types::NUMBER),
    ("integer", Types::INTEGER),
    ("boolean", Types::BOOLEAN),
    ("array", Types::ARRAY),
    ("object", Types::OBJECT),
    ("null", Types::NULL),
];
/// References and unions inside one another that are followed.
const MAX_DEPTH: usize = 32;
/// Schemas that are looked at to find the types of one: unions of unions grow fast.
const MAX_STEPS: usize = 500;

impl Types {
    pub(super) const NONE: Types = Types(0);
    pub(super) const STRING: Types = Types(1);
    pub(super) const INTEGER: Types = Types(2);
    /// Integers, and numbers with a fraction.
    pub(super) const NUMBER: Types = Types(2 | 4);
    pub(super) const BOOLEAN: Types = Types(8);
    pub(super) const ARRAY: Types = Types(16);
    pub(super) const OBJECT: Types = Types(32);
    pub(super) const NULL: Types = Types(64);
    pub(super) const ALL: Types = Types(127);

    /// The types that a part of the schema `root` allows. All, if it does not tell.
    pub(super) fn from_schema(root: &Value, schema: &Value) -> Types {
        Walk { root, steps: 0 }.types(schema, 0)
    }

    /// The types that the schema `root` of a tool allows an argument.
    pub(super) fn from_argument(root: &Value, key: &str) -> Types {
        Walk { root, steps: 0 }.argument(root, key, 0).unwrap_or(Types::ALL)
    }

    /// The type of a value.
    pub(super) fn from_value(value: &Value) -> Types {
        match value {
            Value::String(_) => Types::STRING,
            Value::Number(number) if number.is_f64() => Types::NUMBER,
            Value::Number(_) => Types::INTEGER,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
            Value::Null => Types::NULL,
        }
    }

    /// Whether a value of one of these types may be one of the others. `1.0` is an integer.
    pub(super) fn meets(self, other: Types) -> bool {
        self & other != Types::NONE
    }

    /// The others of these types.
    pub(super) fn without(self, other: Types) -> Types {
        Types(self.0 & !other.0)
    }

    /// The names, as few as possible.
    pub(super) fn names(self) -> Vec<&'static str> {
        let is_number = self & Types::NUMBER == Types::NUMBER;
        let is_here = |(name, own): &(&str, Types)| *own & self == *own && !(is_number && *name == "integer");
        NAMES.into_iter().filter(is_here).map(|(name, _)| name).collect()
    }

    /// Each of the types alone.
    pub(super) fn each(self) -> impl Iterator<Item = Types> {
        self.names().into_iter().map(Types::named)
    }

    /// The schema of these types and nothing else.
    pub(super) fn schema(self) -> Value {
        match &self.names()[..] {
            _ if self == Types::ALL || self == Types::NONE => json!({}),
            [only] => json!({ "type": only }),
            names => json!({ "type": names }),
        }
    }

    /// The types of this name, which may be one that other languages give them.
    fn named(name: &str) -> Types {
        let own = NAMES.iter().find(|(own, _)| *own == name);
        own.map_or_else(
            || match name {
                "str" | "text" => Types::STRING,
                "int" => Types::INTEGER,
                "float" | "double" => Types::NUMBER,
                "bool" => Types::BOOLEAN,
                "list" | "tuple" => Types::ARRAY,
                "dict" | "map" => Types::OBJECT,
                _ => Types::ALL,
            },
            |(_, types)| *types,
        )
    }
}

impl BitAnd for Types {
    type Output = Types;
    fn bitand(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }
}

impl BitOr for Types {
    type Output = Types;
    fn bitor(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }
}

/// The schema that a schema stands for: a reference, or a union of one, next to nothing but notes.
pub(super) fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_DEPTH {
        let mut keys = schema
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| !NOTES.contains(&&key[..]) && !DEFINITIONS.contains(&&key[..]));
        let (Some((key, value)), None) = (keys.next(), keys.next()) else { break };
        let next = match (&key[..], value) {
            ("$ref", Value::String(place)) => target(root, place),
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) if parts.len() == 1 => parts.first(),
            _ => None,
        };
        let Some(next) = next else { break };
        schema = next;
    }
    schema
}

/// The schema of the arguments that a schema declares, with their types alone. Every format can write it.
pub(super) fn bare_arguments(root: &Value) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    let mut walk = Walk { root, steps: 0 };
    walk.arguments(root, true, 0, &mut properties, &mut required);
    let mut seen = HashSet::new();
    required.retain(|name: &String| properties.contains_key(name) && seen.insert(name.clone()));
    let mut bare = json!({ "type": "object", "required": required, "properties": properties });
    match root.get("additionalProperties") {
        Some(others @ Value::Bool(_)) => bare["additionalProperties"] = others.clone(),
        Some(others @ Value::Object(_)) => {
            bare["additionalProperties"] = Types::from_schema(root, others).schema();
        }
        _ => {}
    }
    bare
}

/// The schema at a place of the schema `root`.
fn target<'a>(root: &'a Value, place: &str) -> Option<&'a Value> {
    root.pointer(place.strip_prefix('#')?)
}

/// A bounded walk through the parts of a schema.
struct Walk<'a> {
    root: &'a Value,
    steps: usize,
}

impl<'a> Walk<'a> {
    fn is_over(&mut self, depth: usize) -> bool {
        self.steps += 1;
        self.steps > MAX_STEPS || depth > MAX_DEPTH
    }

    fn types(&mut self, schema: &'a Value, depth: usize) -> Types {
        let Value::Object(own) = schema else {
            return if schema == &Value::Bool(false) { Types::NONE } else { Types::ALL };
        };
        if self.is_over(depth) {
            return Types::ALL;
        }
        let mut types = match &schema["type"] {
            Value::String(name) => Types::named(name),
            Value::Array(names) if !names.is_empty() => {
                let named = names.iter().map(|name| name.as_str().map_or(Types::ALL, Types::named));
                named.fold(Types::NONE, BitOr::bitor)
            }
            _ => Types::ALL,
        };
        if own.get("nullable") == Some(&Value::Bool(true)) {
            types = types | Types::NULL;
        }
        if let Value::Array(values) = &schema["enum"] {
            types = types & values.iter().map(Types::from_value).fold(Types::NONE, BitOr::bitor);
        }
        if let Some(only) = own.get("const") {
            types = types & Types::from_value(only);
        }
        for part in self.parts(schema) {
            types = types & self.types(part, depth + 1);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(choices) = schema[key].as_array().filter(|choices| !choices.is_empty()) {
                let choices = choices.iter().map(|choice| self.types(choice, depth + 1));
                types = types & choices.fold(Types::NONE, BitOr::bitor);
            }
        }
        types
    }

    /// The types of an argument; `None` if it is not declared.
    fn argument(&mut self, schema: &'a Value, key: &str, depth: usize) -> Option<Types> {
        if self.is_over(depth) {
            return None;
        }
        let own = schema["properties"].get(key).map(|schema| self.types(schema, depth + 1));
        let parts: Vec<&Value> = self.parts(schema).chain(choices(schema)).collect();
        let declared = parts.into_iter().filter_map(|part| self.argument(part, key, depth + 1));
        let declared = own.into_iter().chain(declared.collect::<Vec<_>>()).reduce(BitOr::bitor);
        let others = schema.get("additionalProperties").filter(|others| others.is_object());
        declared.or_else(|| others.map(|others| self.types(others, depth + 1)))
    }

    /// Adds the arguments that a schema declares; those of choices are never required.
    fn arguments(
        &mut self,
        schema: &'a Value,
        is_certain: bool,
        depth: usize,
        properties: &mut Map<String, Value>,
        required: &mut Vec<String>,
    ) {
        if self.is_over(depth) {
            return;
        }
        for (name, own) in schema["properties"].as_object().into_iter().flatten() {
            let types = Types::from_schema(self.root, own).schema();
            let known = properties.entry(name.clone()).or_insert_with(|| types.clone());
            if *known != types {
                *known = json!({});
            }
        }
        let names = schema["required"].as_array().into_iter().flatten().filter(|_| is_certain);
        required.extend(names.filter_map(Value::as_str).map(str::to_owned));
        for part in self.parts(schema) {
            self.arguments(part, is_certain, depth + 1, properties, required);
        }
        for choice in choices(schema) {
            self.arguments(choice, false, depth + 1, properties, required);
        }
    }

    /// The schemas that must hold besides a schema's own keywords.
    fn parts(&self, schema: &'a Value) -> impl Iterator<Item = &'a Value> + use<'a> {
        let reference = schema["$ref"].as_str().and_then(|place| target(self.root, place));
        reference.into_iter().chain(schema["allOf"].as_array().into_iter().flatten())
    }
}

/// The schemas of which one must hold.
fn choices(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf"].into_iter().flat_map(|key| schema[key].as_array().into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, expected: &[&str]) {
        let root = json!({
            "properties": {"a": schema},
            "$defs": {
                "Code": {"type": "string", "enum": ["1", "2"]},
                "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop"}, {"type": "null"}]},
                "a/b": {"type": "boolean"},
            },
        });
        assert_eq!(Types::from_argument(&root, "a").names(), expected, "{root}");
    }

    #[test]
    fn types_follow_references_and_unions() {
        const ALL: [&str; 6] = ["string", "number", "boolean", "array", "object", "null"];
        check(json!({"type": "string"}), &["string"]);
        check(json!({"type": ["null", "integer"]}), &["integer", "null"]);
        check(json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), &["string", "null"]);
        check(json!({"oneOf": [{"$ref": "#/$defs/Code"}, {"const": 5}]}), &["string", "integer"]);
        check(json!({"$ref": "#/$defs/Code", "description": "x"}), &["string"]);
        check(json!({"$ref": "#/$defs/a~1b"}), &["boolean"]);
        check(json!({"allOf": [{"$ref": "#/$defs/Code"}], "default": "1"}), &["string"]);
        check(json!({"allOf": [{"type": ["string", "null"]}, {"type": ["null", "array"]}]}), &["null"]);
        check(json!({"enum": ["a", null]}), &["string", "null"]);
        check(json!({"enum": [1, 1.5]}), &["number"]);
        check(json!({"type": "string", "enum": ["5", "6"]}), &["string"]);
        check(json!({"type": "string", "nullable": true}), &["string", "null"]);
        check(json!({"type": "str"}), &["string"]);
        check(json!({"type": "number", "minimum": 1}), &["number"]);
        check(json!({"type": "number", "allOf": [{"type": "integer"}]}), &["integer"]);
        for unknown in [json!({}), json!(true), json!({"type": "any"}), json!({"$ref": "https://a.b/c"})] {
            check(unknown, &ALL);
        }
        check(json!({"$ref": "#/$defs/Loop"}), &ALL);
        check(json!(false), &[]);
    }

    #[test]
    fn arguments_are_found_in_all_parts_of_a_schema() {
        let root = json!({
            "$ref": "#/$defs/Base", "required": ["c", "lost"],
            "allOf": [{"properties": {"c": {"type": "array", "items": {"type": "string"}, "minItems": 1}}}],
            "anyOf": [{"properties": {"d": {}}, "required": ["d"]}, {"properties": {"a": {"type": "null"}}}],
            "$defs": {"Base": {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}, "required": ["a"]}},
        });
        assert_eq!(
            bare_arguments(&root),
            json!({"type": "object", "required": ["c", "a"],
                   "properties": {"a": {}, "c": {"type": "array"}, "d": {}}})
        );
        assert_eq!(Types::from_argument(&root, "a").names(), ["string", "null"]);
        for odd in [json!({}), json!(null), json!({"properties": [], "required": true}), json!({"$ref": "#"})]
        {
            assert_eq!(bare_arguments(&odd), json!({"type": "object", "required": [], "properties": {}}));
        }
    }

    #[test]
    fn a_reference_next_to_notes_is_followed() {
        let root = json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"type": "null"}, "c": {"$ref": "#/$defs/c"}}});
        let check = |schema: Value, expected: Value| assert_eq!(*resolved(&root, &schema), expected);
        check(json!({"$ref": "#/$defs/a", "title": "x"}), json!({"type": "null"}));
        check(json!({"$ref": "#/$defs/a", "minLength": 1}), json!({"$ref": "#/$defs/a", "minLength": 1}));
        check(json!({"$ref": "#/$defs/c"}), json!({"$ref": "#/$defs/c"}));
        check(json!({"$ref": "#/$defs/missing"}), json!({"$ref": "#/$defs/missing"}));
    }
}
