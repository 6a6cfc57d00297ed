//! Reads a schema: each keyword is one that constrains, in the form of the newest draft, an annotation, or refused.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::document::{Document, Place};
use super::{
    MADE_OF, MAX_DEPTH, MAX_INTEGER, MAX_SCHEMAS, ORIGIN, TYPES, formats, language, pattern, refuse,
};
use crate::ConstraintError;

/// A schema as it was read.
pub(super) struct Schemas {
    pub(super) root: Value,
    /// Those that references name, by `$ref`.
    pub(super) definitions: HashMap<String, Value>,
}

impl Schemas {
    /// The schema of a reference.
    pub(super) fn definition(&self, reference: &str) -> &Value {
        if reference == "#" { &self.root } else { &self.definitions[reference] }
    }
}

/// Reads a schema and all that its references name.
///
/// # Errors
/// If a keyword is malformed or not supported, or a reference names no schema of the document.
pub(super) fn read(schema: &Value) -> Result<Schemas, ConstraintError> {
    let draft = draft(schema)?;
    let document = Document::new(schema, draft.is_none_or(|draft| draft < 6));
    let mut reader = Reader {
        document: &document,
        draft,
        place: Vec::new(),
        base: document.base(&[]),
        depth: 0,
        count: 0,
        names: HashMap::from([(Vec::new(), "#".to_owned())]),
        todo: Vec::new(),
    };
    let root = reader.schema(schema)?;
    let mut definitions = HashMap::new();
    while let Some((place, name)) = reader.todo.pop() {
        reader.base = document.base(&place);
        reader.place = place;
        let schema = document.at(&reader.place).unwrap_or(&Value::Null);
        definitions.insert(name, reader.schema(schema)?);
    }
    Ok(Schemas { root, definitions })
}

/// The number of a draft before 2019, 2019 or 2020, if a schema names one.
fn draft(schema: &Value) -> Result<Option<u32>, ConstraintError> {
    let Some(name) = schema.get("$schema") else { return Ok(None) };
    let unknown = || refuse("", Some("$schema"), format!("{name} is not a known draft"));
    let text = name.as_str().ok_or_else(unknown)?;
    let path = text.split_once("://").map_or(text, |(_, path)| path).trim_end_matches('#');
    if path.starts_with("iglucentral.com/schemas/com.snowplowanalytics.self-desc/") {
        return Ok(Some(4));
    }
    // `json-schema-org` is a spelling that many published schemas share.
    let path = path.strip_prefix("json-schema.org/").or(path.strip_prefix("json-schema-org/"));
    let path = path.ok_or_else(unknown)?.trim_end_matches('/');
    let (draft, _) = path.rsplit_once('/').unwrap_or((path, ""));
    match draft.strip_prefix("draft-").or(draft.strip_prefix("draft/")) {
        _ if matches!(path, "schema" | "hyper-schema") => Ok(None),
        Some("2020-12" | "next") => Ok(Some(2020)),
        Some("2019-09") => Ok(Some(2019)),
        Some(number @ ("03" | "04" | "05" | "06" | "07")) => Ok(number.parse().ok()),
        _ => Err(unknown()),
    }
}

/// A walk over the schemas of a document.
struct Reader<'a> {
    document: &'a Document<'a>,
    draft: Option<u32>,
    place: Place,
    /// What references are relative to.
    base: String,
    /// How many schemas it is inside.
    depth: usize,
    count: usize,
    /// The names of schemas that references name.
    names: HashMap<Place, String>,
    todo: Vec<(Place, String)>,
}

type Read = Result<(), ConstraintError>;

impl Reader<'_> {
    fn is_draft_3(&self) -> bool {
        self.draft == Some(3)
    }

    fn refuse(&self, keyword: &str, problem: impl Into<String>) -> ConstraintError {
        refuse(&pointer(&self.place), Some(keyword), problem)
    }

    /// The schema at a place below this one.
    fn at(&mut self, segments: &[&str], schema: &Value) -> Result<Value, ConstraintError> {
        let length = self.place.len();
        self.place.extend(segments.iter().map(ToString::to_string));
        self.depth += 1;
        let schema = self.schema(schema)?;
        self.depth -= 1;
        self.place.truncate(length);
        Ok(schema)
    }

    fn schema(&mut self, schema: &Value) -> Result<Value, ConstraintError> {
        self.count += 1;
        if self.count > MAX_SCHEMAS || self.depth > MAX_DEPTH {
            let problem =
                format!("more than {MAX_SCHEMAS} schemas, or more than {MAX_DEPTH} inside each other");
            return Err(refuse(&pointer(&self.place), None, problem));
        }
        let map = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(map) => map,
            _ => return Err(refuse(&pointer(&self.place), None, "a schema is an object, true or false")),
        };
        let base = self.document.base(&self.place);
        let outer = std::mem::replace(&mut self.base, base);
        let mut read = Map::new();
        read.insert(ORIGIN.into(), pointer(&self.place).into());
        for (keyword, value) in map {
            self.keyword(keyword, value, map, &mut read)?;
        }
        self.base = outer;
        Ok(Value::Object(read))
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &Value,
        map: &Map<String, Value>,
        read: &mut Map<String, Value>,
    ) -> Read {
        let value = match keyword {
            "type" => self.types(value)?,
            "const" | "enum" => self.values(keyword, value)?,
            "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties"
            | "minContains" | "maxContains" => self.count(keyword, value)?,
            "minimum" | "maximum" => self.number(keyword, value)?,
            "multipleOf" => self.multiple(keyword, value)?,
            "divisibleBy" if self.is_draft_3() => self.multiple(keyword, value)?,
            "exclusiveMinimum" | "exclusiveMaximum" => return self.exclusive(keyword, value, map, read),
            "pattern" => return self.pattern(value, read),
            "format" => match value.as_str().filter(|name| formats::lookup(name).is_some()) {
                Some(_) => value.clone(),
                None => return Ok(()),
            },
            "$ref" => return self.reference(value, read),
            "$recursiveRef" | "$dynamicRef" => return Err(self.refuse(keyword, "not supported")),
            "additionalProperties"
            | "propertyNames"
            | "contains"
            | "not"
            | "if"
            | "then"
            | "else"
            | "unevaluatedProperties"
            | "unevaluatedItems" => self.at(&[keyword], value)?,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => return self.schemas(keyword, value, read),
            "properties" | "patternProperties" | "dependentSchemas" => {
                return self.schemas_by_name(keyword, value, read);
            }
            "items" | "additionalItems" => return self.items(keyword, value, map, read),
            "required" => return self.required(value, read),
            "dependentRequired" | "dependencies" => return self.dependencies(keyword, value, read),
            "uniqueItems" => match value {
                Value::Bool(true) => value.clone(),
                _ => return Ok(()),
            },
            "extends" | "disallow" if self.is_draft_3() => return Err(self.refuse(keyword, "not supported")),
            "x-guidance" => return Err(self.refuse(keyword, "not supported")),
            // No draft knows it, or it describes.
            _ => return Ok(()),
        };
        let keyword = if keyword == "divisibleBy" { "multipleOf" } else { keyword };
        read.insert(keyword.to_owned(), value);
        Ok(())
    }

    fn types(&self, value: &Value) -> Result<Value, ConstraintError> {
        let list = match value {
            Value::String(_) => std::slice::from_ref(value),
            Value::Array(list) => list,
            _ => return Err(self.refuse("type", "not the name of a type or a list of them")),
        };
        for kind in list {
            let name = kind.as_str().unwrap_or_default();
            if self.is_draft_3() && name == "any" {
                return Ok(TYPES.into());
            }
            if name != "integer" && !TYPES.contains(&name) {
                let name = kind.as_str().map_or_else(|| kind.to_string(), str::to_owned);
                return Err(self.refuse("type", format!("Invalid type: {name}")));
            }
        }
        Ok(value.clone())
    }

    fn values(&self, keyword: &str, value: &Value) -> Result<Value, ConstraintError> {
        if keyword == "enum" && !value.is_array() {
            return Err(self.refuse(keyword, "not a list of values"));
        }
        self.check_exact(keyword, value)?;
        Ok(value.clone())
    }

    /// Checks that all numbers of a value are exact in floating point, and that its strings can be written.
    fn check_exact(&self, keyword: &str, value: &Value) -> Read {
        match value {
            Value::Array(list) => list.iter().try_for_each(|value| self.check_exact(keyword, value)),
            Value::Object(map) => map.values().try_for_each(|value| self.check_exact(keyword, value)),
            Value::Number(number) => {
                let size = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
                if size.is_none_or(|size| size <= MAX_INTEGER) {
                    return Ok(());
                }
                Err(self.refuse(keyword, format!("{number} is beyond ±{MAX_INTEGER}, not supported")))
            }
            Value::String(text) if text.bytes().any(pattern::is_unwritable) => {
                Err(self.refuse(keyword, "control characters are not supported"))
            }
            _ => Ok(()),
        }
    }

    fn count(&self, keyword: &str, value: &Value) -> Result<Value, ConstraintError> {
        let whole = value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..1e15).contains(number));
        let count = value.as_u64().or(whole.map(|number| number as u64));
        count.map(Value::from).ok_or_else(|| self.refuse(keyword, format!("{value} is not a count")))
    }

    fn number(&self, keyword: &str, value: &Value) -> Result<Value, ConstraintError> {
        if !value.is_number() {
            return Err(self.refuse(keyword, format!("{value} is not a number")));
        }
        self.check_exact(keyword, value)?;
        Ok(value.clone())
    }

    fn multiple(&self, keyword: &str, value: &Value) -> Result<Value, ConstraintError> {
        if value.as_f64().is_none_or(|number| number <= 0.0) {
            return Err(self.refuse(keyword, format!("{value} is not a positive number")));
        }
        self.number(keyword, value)
    }

    /// A bound that is excluded; in draft 4, whether the bound beside it is.
    fn exclusive(
        &self,
        keyword: &str,
        value: &Value,
        map: &Map<String, Value>,
        read: &mut Map<String, Value>,
    ) -> Read {
        let bound = if keyword == "exclusiveMinimum" { "minimum" } else { "maximum" };
        let value = match (value, map.get(bound)) {
            (Value::Bool(true), Some(bound)) => bound,
            (Value::Bool(_), _) => return Ok(()),
            _ => value,
        };
        read.insert(keyword.to_owned(), self.number(keyword, value)?);
        Ok(())
    }

    fn pattern(&self, value: &Value, read: &mut Map<String, Value>) -> Read {
        let text = value.as_str().ok_or_else(|| self.refuse("pattern", "not a text"))?;
        let found = pattern::read(text).map_err(|problem| self.refuse("pattern", problem))?;
        let mut all = found.all.into_iter();
        if let Some(first) = all.next() {
            read.insert("pattern".into(), first.into());
        }
        let none =
            found.none.into_iter().map(|pattern| json!({ "not": { "type": "string", "pattern": pattern } }));
        for mut rule in all.map(|pattern| json!({ "pattern": pattern })).chain(none) {
            rule[ORIGIN] = format!("{}{MADE_OF}pattern", pointer(&self.place)).into();
            add_rule(read, rule);
        }
        Ok(())
    }

    fn reference(&mut self, value: &Value, read: &mut Map<String, Value>) -> Read {
        let refused = |problem: &str| self.refuse("$ref", problem);
        let reference = value.as_str().ok_or_else(|| refused("not a reference"))?;
        let place = self.document.resolve(&self.base, reference).map_err(|problem| refused(&problem))?;
        let name = self.names.get(&place).cloned().unwrap_or_else(|| {
            let name = format!("#/$defs/d{}", self.names.len());
            self.names.insert(place.clone(), name.clone());
            self.todo.push((place, name.clone()));
            name
        });
        read.insert("$ref".into(), name.into());
        Ok(())
    }

    fn schemas(&mut self, keyword: &str, value: &Value, read: &mut Map<String, Value>) -> Read {
        let Value::Array(list) = value else { return Err(self.refuse(keyword, "not a list of schemas")) };
        if keyword == "prefixItems" && self.draft.is_some_and(|draft| draft < 2020) {
            return Err(
                self.refuse(keyword, "the schema's draft does not know it; there it is a list of `items`")
            );
        }
        let schemas = list.iter().enumerate();
        let schemas = schemas.map(|(index, schema)| self.at(&[keyword, &index.to_string()], schema));
        let schemas: Vec<Value> = schemas.collect::<Result<_, _>>()?;
        if keyword == "allOf" {
            schemas.into_iter().for_each(|schema| add_rule(read, schema));
        } else {
            read.insert(keyword.to_owned(), schemas.into());
        }
        Ok(())
    }

    fn schemas_by_name(&mut self, keyword: &str, value: &Value, read: &mut Map<String, Value>) -> Read {
        let Value::Object(schemas) = value else {
            return Err(self.refuse(keyword, "not an object of schemas"));
        };
        let mut found = Map::new();
        for (name, schema) in schemas {
            let key = if keyword == "patternProperties" { self.name_pattern(name)? } else { name.clone() };
            let schema_read = self.at(&[keyword, name], schema)?;
            found.insert(key, schema_read);
            // Draft 3 said so of the property, where later drafts list the names.
            if keyword == "properties" && schema.get("required") == Some(&Value::Bool(true)) {
                add_required(read, name);
            }
        }
        read.insert(keyword.to_owned(), found.into());
        Ok(())
    }

    fn name_pattern(&self, text: &str) -> Result<String, ConstraintError> {
        let refused = |problem: String| self.refuse("patternProperties", problem);
        let found = pattern::read(text).map_err(refused)?;
        if let ([pattern], []) = (&found.all[..], &found.none[..]) {
            return Ok(pattern.clone());
        }
        let [all, none] =
            [&found.all, &found.none].map(|list| list.iter().map(String::as_str).collect::<Vec<_>>());
        match language::without(&all, &none) {
            Some((pattern, true)) => Ok(pattern),
            _ => Err(refused(format!("look-ahead in /{text}/ is not supported for names"))),
        }
    }

    /// The items of arrays, all or those after a list.
    fn items(
        &mut self,
        keyword: &str,
        value: &Value,
        map: &Map<String, Value>,
        read: &mut Map<String, Value>,
    ) -> Read {
        let is_list = matches!(map.get("items"), Some(Value::Array(_)));
        match (keyword, value) {
            ("items", Value::Array(list)) => {
                let items = list.iter().enumerate();
                let items = items.map(|(index, schema)| self.at(&["items", &index.to_string()], schema));
                let items: Vec<Value> = items.collect::<Result<_, _>>()?;
                read.insert("prefixItems".into(), items.into());
            }
            ("additionalItems", _) if !is_list => {}
            _ => _ = read.insert("items".into(), self.at(&[keyword], value)?),
        }
        Ok(())
    }

    fn required(&self, value: &Value, read: &mut Map<String, Value>) -> Read {
        match value {
            // Of the property, in draft 3.
            Value::Bool(_) => {}
            _ => self.texts("required", value)?.into_iter().for_each(|name| add_required(read, name)),
        }
        Ok(())
    }

    fn texts<'v>(&self, keyword: &str, value: &'v Value) -> Result<Vec<&'v str>, ConstraintError> {
        let texts = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        texts.ok_or_else(|| self.refuse(keyword, "not a list of names"))
    }

    fn dependencies(&mut self, keyword: &str, value: &Value, read: &mut Map<String, Value>) -> Read {
        let Value::Object(map) = value else { return Err(self.refuse(keyword, "not an object")) };
        for (name, value) in map {
            let (kept, value) = match value {
                Value::Array(_) => {
                    self.texts(keyword, value)?;
                    ("dependentRequired", value.clone())
                }
                Value::String(_) => ("dependentRequired", json!([value])),
                _ if keyword == "dependentRequired" => {
                    return Err(self.refuse(keyword, "not a list of names"));
                }
                _ => ("dependentSchemas", self.at(&[keyword, name], value)?),
            };
            let entry = read.entry(kept).or_insert_with(|| json!({}));
            if let Value::Object(dependencies) = entry {
                dependencies.insert(name.clone(), value);
            }
        }
        Ok(())
    }
}

/// Adds a schema that values must fit too.
pub(super) fn add_rule(schema: &mut Map<String, Value>, rule: Value) {
    if let Value::Array(rules) = schema.entry("allOf").or_insert_with(|| json!([])) {
        rules.push(rule);
    }
}

fn add_required(schema: &mut Map<String, Value>, name: &str) {
    if let Value::Array(names) = schema.entry("required").or_insert_with(|| json!([]))
        && !names.iter().any(|known| known == name)
    {
        names.push(name.into());
    }
}

/// A JSON pointer.
fn pointer(segments: &[String]) -> String {
    segments.iter().map(|segment| format!("/{}", segment.replace('~', "~0").replace('/', "~1"))).collect()
}
