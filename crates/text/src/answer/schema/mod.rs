//! Arguments of a tool as rules of a grammar, in the syntax of a format.

mod literals;
mod tagged;

use std::collections::HashMap;

use serde_json::{Value, json};

use super::formats::{Syntax, ToolFormat};
use super::tool::Tool;
use super::types::{DEFINITIONS, NOTES, Types, resolved};
use super::writer::{FREE, Writer};
use crate::Error;

/// Writes the arguments of a tool.
pub(super) struct Arguments<'a> {
    format: &'static ToolFormat,
    tool: &'a Tool,
    /// The schema's place in the request.
    field: String,
    /// The rules of values, by the address of their schemas, which live as long as the tool.
    rules: HashMap<*const Value, String>,
    /// Schemas that were entered, and those that were not left.
    steps: usize,
    depth: usize,
}

/// The members of an object.
struct Members<'a> {
    /// Name, schema and necessity of each.
    properties: Vec<(&'a str, &'a Value, bool)>,
    /// The schema of members of any name. Those are written only if none is declared.
    others: Option<&'a Value>,
}

/// Keywords of an object whose arguments are written one by one.
const OBJECT: [&str; 7] =
    ["type", "properties", "required", "additionalProperties", "nullable", DEFINITIONS[0], DEFINITIONS[1]];
/// Keywords of a text that is not in quotes of JSON.
const STRING: [&str; 4] = ["type", "nullable", "minLength", "maxLength"];
/// Keywords of a value that is one of several.
const CHOICE: [&str; 4] = ["type", "nullable", "enum", "const"];
/// Keywords of a type that is all that a schema tells.
const BARE: [&str; 2] = ["type", "nullable"];
/// The schema of any value.
static ANY: Value = Value::Null;
/// Schemas inside one another.
const MAX_DEPTH: usize = 48;
/// Schemas that are written for one tool.
const MAX_STEPS: usize = 10_000;

impl<'a> Arguments<'a> {
    /// The arguments of `tool`, whose schema stands at `field` of the request.
    pub(super) fn new(format: &'static ToolFormat, tool: &'a Tool, field: String) -> Arguments<'a> {
        Arguments { format, tool, field, rules: HashMap::new(), steps: 0, depth: 0 }
    }

    /// The terms of the arguments, without what stands around them.
    ///
    /// # Errors
    /// [`Error::Tools`] names the keyword that cannot be enforced.
    pub(super) fn write(mut self, writer: &mut Writer<'_>) -> Result<String, Error> {
        let (root, field) = (&self.tool.parameters, self.field.clone());
        if !self.types(root).meets(Types::OBJECT) {
            return Err(problem(&field, "type", "does not allow an object, as arguments are"));
        }
        match &self.format.syntax {
            Syntax::Object | Syntax::Named(_) => Ok(json_rule(&without_others(root))),
            Syntax::Tagged(tags) => self.tagged(tags, root, &field, writer),
            Syntax::Literals(literals) => {
                let separator = if literals.quote.is_empty() { ", " } else { "," };
                self.members(literals, (root, &field), separator, writer)
            }
        }
    }

    fn types(&self, schema: &'a Value) -> Types {
        Types::from_schema(&self.tool.parameters, schema)
    }

    fn resolved(&self, schema: &'a Value) -> &'a Value {
        resolved(&self.tool.parameters, schema)
    }

    /// The members of an object's schema.
    fn object(&self, schema: &'a Value, place: &str) -> Result<Members<'a>, Error> {
        let schema = self.resolved(schema);
        only(schema, &OBJECT, place)?;
        let declared = schema["properties"].as_object();
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let is_undeclared = |key: &&&str| declared.is_none_or(|own| !own.contains_key(**key));
        if let Some(key) = required.iter().find(is_undeclared) {
            return Err(problem(place, "required", &format!("names {key:?}, which is not declared")));
        }
        let properties = declared.into_iter().flatten();
        let properties: Vec<_> =
            properties.map(|(key, own)| (&key[..], own, required.contains(&&key[..]))).collect();
        let others = match schema.get("additionalProperties") {
            _ if !properties.is_empty() => None,
            Some(Value::Bool(false)) => None,
            Some(others @ Value::Object(_)) => Some(others),
            _ => Some(&ANY),
        };
        Ok(Members { properties, others })
    }

    /// Whether the choices of a union exclude each other where they must.
    fn check_union(&self, key: &str, choices: &'a [Value], place: &str) -> Result<(), Error> {
        let mut seen = Types::NONE;
        for types in choices.iter().map(|choice| self.types(choice)) {
            if key == "oneOf" && seen.meets(types) {
                return Err(problem(place, key, "has choices of one type, of which one at most may hold"));
            }
            seen = seen | types;
        }
        Ok(())
    }

    /// Enters a schema: recursion is bounded, and so is what unions of unions become.
    fn enter(&mut self, place: &str) -> Result<(), Error> {
        (self.steps, self.depth) = (self.steps + 1, self.depth + 1);
        if self.steps > MAX_STEPS || self.depth > MAX_DEPTH {
            return Err(problem(place, "type", "is nested too deeply for this model's format of calls"));
        }
        Ok(())
    }

    /// A part of the schema with the definitions that it may refer to.
    fn with_definitions(&self, schema: &Value) -> Value {
        let mut whole = if schema.is_null() { json!({}) } else { schema.clone() };
        if !has_reference(schema) {
            return whole;
        }
        for key in DEFINITIONS {
            if let (Some(own), Some(definitions)) = (whole.as_object_mut(), self.tool.parameters.get(key)) {
                own.entry(key).or_insert_with(|| definitions.clone());
            }
        }
        whole
    }
}

/// The place of a property.
fn place_of(place: &str, key: &str) -> String {
    format!("{place}/properties/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The values of which a schema's is one.
fn choice(schema: &Value) -> Option<Vec<&Value>> {
    let only = schema.as_object().and_then(|own| own.get("const"));
    only.map(|only| vec![only]).or_else(|| Some(schema["enum"].as_array()?.iter().collect()))
}

/// The keyword and the schemas of which a schema's value fits one.
fn union(schema: &Value) -> Option<(&'static str, &[Value])> {
    ["anyOf", "oneOf"].into_iter().find_map(|key| Some((key, &schema[key].as_array()?[..])))
}

/// The texts that a schema's bounds allow, as a regular expression.
fn text_pattern(schema: &Value) -> String {
    let bound = |key: &str| schema[key].as_u64();
    match (bound("minLength"), bound("maxLength")) {
        (None, None) => FREE.to_owned(),
        (least, most) => {
            let most = most.map_or_else(String::new, |most| most.to_string());
            format!("(?s:.{{{},{most}}})", least.unwrap_or(0))
        }
    }
}

/// The schema of an object with declared members and no word about others, which it then may not have: functions do not
/// take arguments that they do not declare.
fn without_others(schema: &Value) -> Value {
    let declared = schema["properties"].as_object().filter(|own| !own.is_empty());
    let needs_others = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|name| name.as_str().is_none_or(|name| declared.is_none_or(|own| !own.contains_key(name))));
    let says = schema.get("additionalProperties").is_some() || only(schema, &OBJECT, "").is_err();
    let is_closed = declared.is_some() && !needs_others && !says;
    let mut schema = schema.clone();
    if is_closed {
        schema["additionalProperties"] = json!(false);
    }
    schema
}

/// A rule of JSON.
fn json_rule(schema: &Value) -> String {
    format!("%json {}", if schema.is_null() { json!({}) } else { schema.clone() })
}

fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(own) => own.contains_key("$ref") || own.values().any(has_reference),
        Value::Array(items) => items.iter().any(has_reference),
        _ => false,
    }
}

/// Checks that a schema has no keywords but these and notes.
fn only(schema: &Value, keywords: &[&str], place: &str) -> Result<(), Error> {
    let own = schema.as_object().into_iter().flatten().map(|(key, _)| &key[..]);
    match own.into_iter().find(|key| !keywords.contains(key) && !NOTES.contains(key)) {
        Some(key) => Err(problem(place, key, "cannot be enforced in this model's format of calls")),
        None => Ok(()),
    }
}

fn problem(place: &str, keyword: &str, problem: &str) -> Error {
    Error::Tools { field: place.to_owned(), problem: format!("`{keyword}` {problem}") }
}
