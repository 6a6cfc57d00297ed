//! JSON schemas: what can be enforced, and what llguidance reads of it.
//!
//! llguidance leaves out keywords that no draft knows and takes some schemas that it does not enforce to the letter. So
//! every keyword is looked at here first: it is handed on, is known to be an annotation, or is refused.

use std::collections::HashSet;

use regex_syntax::hir::HirKind;
use serde_json::{Map, Value, json};

use super::ConstraintError;
use super::formats::{self, Format};

/// Schemas inside schemas.
const MAX_DEPTH: usize = 64;
/// Schemas in all.
const MAX_SCHEMAS: usize = 10_000;
/// The most bytes of a schema.
const MAX_BYTES: usize = 1 << 20;
/// Larger integers are not exact as floating-point numbers, which llguidance computes with.
const MAX_INTEGER: u64 = 1 << 53;

/// Keywords that llguidance enforces, without those that hold schemas.
const ENFORCED: [&str; 17] = [
    "const",
    "enum",
    "type",
    "required",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "$ref",
];
/// Keywords whose values are schemas, lists of schemas, and schemas by name.
const OF_SCHEMA: [&str; 3] = ["additionalProperties", "additionalItems", "items"];
const OF_LIST: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
const OF_MAP: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords that describe and do not constrain.
const ANNOTATIONS: [&str; 14] = [
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "$comment",
    "$anchor",
    "$vocabulary",
];
/// Drafts whose keywords mean the same, or have an older form that llguidance knows by its shape.
const DRAFTS: [&str; 5] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
];
/// Between the parts of JSON: nothing, a space, or a line break and an indentation.
const WHITESPACE: &str = r" |\n[ \t]{0,32}";
/// Each character of a string has one spelling, so that keys which differ as JSON differ as strings.
const ESCAPES: &str = "nrbtf\\\"";

/// What llguidance compiles for a schema.
///
/// # Errors
/// If a part of it cannot be enforced, with the pointer to it.
pub(super) fn prepare(schema: &Value) -> Result<Value, ConstraintError> {
    let mut walk = Walk::default();
    let mut prepared = walk.schema(schema)?;
    let bytes = schema.to_string().len();
    if bytes > MAX_BYTES {
        return Err(walk.refuse(None, format!("the schema has {bytes} bytes; the limit is {MAX_BYTES}")));
    }
    walk.check_references()?;
    if let Value::Object(map) = &mut prepared {
        let options = json!({ "whitespace_pattern": WHITESPACE, "json_allowed_escapes": ESCAPES });
        map.insert("x-guidance".into(), options);
    } else if prepared == Value::Bool(true) {
        return prepare(&json!({ "anyOf": [{}] }));
    }
    Ok(prepared)
}

/// The schemas directly in a schema, each with its place.
pub(super) fn children(schema: &Value) -> Vec<(Vec<String>, &Value)> {
    let mut found = Vec::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        match value {
            Value::Object(map) if OF_MAP.contains(&&**key) => {
                found.extend(map.iter().map(|(name, value)| (vec![key.clone(), name.clone()], value)));
            }
            Value::Array(list) if OF_LIST.contains(&&**key) => {
                let place = |index: usize| vec![key.clone(), index.to_string()];
                found.extend(list.iter().enumerate().map(|(index, value)| (place(index), value)));
            }
            Value::Object(_) if OF_SCHEMA.contains(&&**key) => found.push((vec![key.clone()], value)),
            _ => {}
        }
    }
    found
}

/// A pattern whose spaces are those of ECMAScript; Rust's are others.
fn of_ecmascript(pattern: &str) -> String {
    const SPACES: &str =
        r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}";
    let (mut written, mut characters) = (String::new(), pattern.chars());
    while let Some(c) = characters.next() {
        let escaped = if c == '\\' { characters.next() } else { None };
        match escaped {
            Some('s') => written.push_str(&format!("[{SPACES}]")),
            Some('S') => written.push_str(&format!("[^{SPACES}]")),
            other => written.extend([Some(c), other].into_iter().flatten()),
        }
    }
    written
}

/// Whether a byte is a control character that has no escape in [`ESCAPES`].
fn is_unwritable(byte: u8) -> bool {
    byte == 0x7f || byte < 0x20 && !matches!(byte, 8 | b'\t' | b'\n' | 12 | b'\r')
}

/// Whether the value of a keyword is schemas.
pub(super) fn holds_schemas(keyword: &str) -> bool {
    OF_SCHEMA.contains(&keyword) || OF_LIST.contains(&keyword) || OF_MAP.contains(&keyword)
}

/// Whether a keyword constrains.
pub(super) fn constrains(keyword: &str) -> bool {
    let defines = matches!(keyword, "$defs" | "definitions");
    keyword == "format" || ENFORCED.contains(&keyword) || holds_schemas(keyword) && !defines
}

/// A JSON pointer.
pub(super) fn pointer(segments: &[String]) -> String {
    segments.iter().map(|segment| format!("/{}", segment.replace('~', "~0").replace('/', "~1"))).collect()
}

/// Adds a schema that values must fit too.
fn add_rule(schema: &mut Map<String, Value>, rule: Value) {
    let all = schema.entry("allOf").or_insert_with(|| json!([]));
    all.as_array_mut().expect("a list of schemas").push(rule);
}

/// A walk over all schemas of a schema.
#[derive(Default)]
struct Walk {
    /// Where it is.
    pointer: Vec<String>,
    /// How many schemas that is inside.
    depth: usize,
    /// Where schemas are, without escapes.
    schemas: HashSet<String>,
    /// Where references are, and to what.
    references: Vec<(Vec<String>, String)>,
    /// A schema inside that has an identifier of its own.
    identified: Option<Vec<String>>,
}

impl Walk {
    fn refuse(&self, keyword: Option<&str>, problem: impl Into<String>) -> ConstraintError {
        ConstraintError {
            pointer: Some(pointer(&self.pointer)),
            keyword: keyword.map(str::to_owned),
            ..ConstraintError::new("json_schema", problem)
        }
    }

    /// The schema at a place below this one.
    fn at(&mut self, segments: [&str; 2], schema: &Value) -> Result<Value, ConstraintError> {
        let place = self.pointer.len();
        self.pointer.extend(segments.iter().filter(|segment| !segment.is_empty()).map(ToString::to_string));
        self.depth += 1;
        let schema = self.schema(schema)?;
        self.depth -= 1;
        self.pointer.truncate(place);
        Ok(schema)
    }

    fn schema(&mut self, schema: &Value) -> Result<Value, ConstraintError> {
        self.schemas.insert(self.pointer.iter().map(|segment| format!("/{segment}")).collect());
        if self.schemas.len() > MAX_SCHEMAS || self.depth > MAX_DEPTH {
            let problem =
                format!("more than {MAX_SCHEMAS} schemas, or more than {MAX_DEPTH} inside each other");
            return Err(self.refuse(None, problem));
        }
        let map = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(map) => map,
            _ => return Err(self.refuse(None, "a schema is an object, true or false")),
        };
        let mut prepared = Map::new();
        for (keyword, value) in map {
            if let Some(value) = self.keyword(keyword, value)? {
                prepared.insert(keyword.clone(), value);
            }
        }
        self.check_properties(map)?;
        self.check_draft(map)?;
        if let Some(format) = map.get("format") {
            self.format(map, format, &mut prepared)?;
        }
        if map.contains_key("multipleOf") {
            // Programs that read larger numbers as floating-point numbers would find others.
            add_rule(&mut prepared, json!({ "minimum": -(MAX_INTEGER as i64), "maximum": MAX_INTEGER }));
        }
        Ok(Value::Object(prepared))
    }

    /// What is handed on of a keyword.
    fn keyword(&mut self, keyword: &str, value: &Value) -> Result<Option<Value>, ConstraintError> {
        match (keyword, value) {
            (_, Value::Array(list)) if OF_LIST.contains(&keyword) => {
                let schemas = list.iter().enumerate();
                let schemas = schemas.map(|(index, schema)| self.at([keyword, &index.to_string()], schema));
                return Ok(Some(Value::Array(schemas.collect::<Result<_, _>>()?)));
            }
            (_, Value::Object(schemas)) if OF_MAP.contains(&keyword) => {
                if keyword == "patternProperties" {
                    schemas.keys().try_for_each(|pattern| self.check_pattern(keyword, pattern))?;
                }
                let schema =
                    |(name, schema): (&String, &Value)| Ok((name.clone(), self.at([keyword, name], schema)?));
                return Ok(Some(Value::Object(schemas.iter().map(schema).collect::<Result<_, _>>()?)));
            }
            _ if OF_SCHEMA.contains(&keyword) => return self.at([keyword, ""], value).map(Some),
            _ if OF_LIST.contains(&keyword) => {
                return Err(self.refuse(Some(keyword), "not a list of schemas"));
            }
            _ if OF_MAP.contains(&keyword) => {
                return Err(self.refuse(Some(keyword), "not an object of schemas"));
            }
            ("pattern", Value::String(pattern)) => {
                self.check_pattern(keyword, pattern)?;
                return Ok(Some(of_ecmascript(pattern).into()));
            }
            ("$ref", value) => self.reference(value)?,
            ("$id" | "id", Value::String(_)) => {
                if !self.pointer.is_empty() {
                    self.identified.get_or_insert_with(|| self.pointer.clone());
                }
                return Ok(None);
            }
            ("format" | "$schema", _) | ("uniqueItems", Value::Bool(false)) => return Ok(None),
            _ if ENFORCED.contains(&keyword) => self.check_value(keyword, value)?,
            _ if ANNOTATIONS.contains(&keyword) => return Ok(None),
            _ if keyword.starts_with("x-") && keyword != "x-guidance" => return Ok(None),
            _ => return Err(self.refuse(Some(keyword), "not supported")),
        }
        Ok(Some(value.clone()))
    }

    /// Notes a reference within the document.
    fn reference(&mut self, value: &Value) -> Result<(), ConstraintError> {
        let refuse = |problem: &str| Err(self.refuse(Some("$ref"), format!("{value}: {problem}")));
        let Some(pointer) = value.as_str().and_then(|reference| reference.strip_prefix('#')) else {
            return refuse("only references within the schema (`#/...`) are supported");
        };
        if pointer.contains(['~', '%']) {
            return refuse("escapes in references are not supported");
        }
        self.references.push((self.pointer.clone(), pointer.to_owned()));
        Ok(())
    }

    /// Checks that references are to schemas that were looked at.
    fn check_references(&mut self) -> Result<(), ConstraintError> {
        for (from, to) in std::mem::take(&mut self.references) {
            self.pointer = from;
            if !self.schemas.contains(&to) {
                return Err(self.refuse(Some("$ref"), format!("there is no schema at `#{to}`")));
            }
            if let Some(identified) = self.identified.take() {
                self.pointer = identified;
                return Err(self.refuse(Some("$id"), "changes what `$ref` means, which is not supported"));
            }
        }
        Ok(())
    }

    /// Checks the numbers of a keyword.
    fn check_value(&self, keyword: &str, value: &Value) -> Result<(), ConstraintError> {
        match (keyword, value) {
            ("multipleOf", number) if number.as_f64().is_none_or(|number| number <= 0.0) => {
                Err(self.refuse(Some(keyword), format!("{number} is not a positive number")))
            }
            (
                "const" | "enum" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"
                | "multipleOf",
                _,
            ) => self.check_exact(keyword, value),
            _ => Ok(()),
        }
    }

    /// Checks that a pattern has no literal characters that [`ESCAPES`] cannot write: llguidance would leave them out.
    fn check_pattern(&self, keyword: &str, pattern: &str) -> Result<(), ConstraintError> {
        // Errors of syntax are llguidance's to report.
        let Ok(parsed) = regex_syntax::parse(pattern) else { return Ok(()) };
        let mut parts = vec![&parsed];
        while let Some(part) = parts.pop() {
            if let HirKind::Literal(literal) = part.kind()
                && literal.0.iter().any(|&byte| is_unwritable(byte))
            {
                return Err(self.refuse(Some(keyword), "control characters are not supported"));
            }
            parts.extend(part.kind().subs());
        }
        Ok(())
    }

    /// Checks that all numbers of a value are exact in floating point, and that its strings can be written.
    fn check_exact(&self, keyword: &str, value: &Value) -> Result<(), ConstraintError> {
        match value {
            Value::Array(list) => list.iter().try_for_each(|value| self.check_exact(keyword, value)),
            Value::Object(map) => map.values().try_for_each(|value| self.check_exact(keyword, value)),
            Value::Number(number) => {
                let size = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
                if size.is_none_or(|size| size <= MAX_INTEGER) {
                    return Ok(());
                }
                Err(self.refuse(Some(keyword), format!("{number} is beyond ±{MAX_INTEGER}, not supported")))
            }
            Value::String(text) if text.bytes().any(is_unwritable) => {
                Err(self.refuse(Some(keyword), "control characters are not supported"))
            }
            _ => Ok(()),
        }
    }

    /// Properties that the schema does not name may come twice, so that they cannot be counted.
    fn check_properties(&self, map: &Map<String, Value>) -> Result<(), ConstraintError> {
        let required = map.get("required").and_then(Value::as_array).map_or(0, |required| {
            let mut names: Vec<&str> = required.iter().filter_map(Value::as_str).collect();
            names.sort_unstable();
            names.dedup();
            names.len()
        });
        let least = map.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
        if least > required as u64 + 1 {
            let problem =
                format!("{least} with {required} required properties: at most one more can be asked for");
            return Err(self.refuse(Some("minProperties"), problem));
        }
        Ok(())
    }

    /// Checks the draft, and that no keyword has another meaning in it.
    fn check_draft(&self, map: &Map<String, Value>) -> Result<(), ConstraintError> {
        let Some(draft) = map.get("$schema") else { return Ok(()) };
        let name = draft.as_str().unwrap_or_default().trim_end_matches('#');
        if !DRAFTS.contains(&name) {
            return Err(self.refuse(Some("$schema"), format!("{draft} is not a known draft")));
        }
        Ok(())
    }

    /// Enforces a format if the value can be a string: formats say nothing of other values.
    fn format(
        &self,
        map: &Map<String, Value>,
        format: &Value,
        prepared: &mut Map<String, Value>,
    ) -> Result<(), ConstraintError> {
        let is_string = match map.get("type") {
            Some(Value::String(kind)) => kind == "string",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
            _ => true,
        };
        if !is_string {
            return Ok(());
        }
        let found = format.as_str().and_then(formats::lookup);
        let Some(found) = found else {
            let problem = format!("{format} is not supported; supported are {}", formats::names());
            return Err(self.refuse(Some("format"), problem));
        };
        match found {
            Format::Known => {
                prepared.insert("format".into(), format.clone());
            }
            Format::Pattern(pattern, most) => {
                let mut rule = json!({ "pattern": pattern });
                if let Some(most) = most {
                    rule["maxLength"] = most.into();
                }
                add_rule(prepared, rule);
            }
        }
        Ok(())
    }
}
