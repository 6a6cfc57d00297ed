//! Rewrites schemas as they were read into the keywords that llguidance enforces.

use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::logic::Logic;
use super::reader::Schemas;
use super::{
    EXCEPT, MAX_DEPTH, MAX_INTEGER, arrays, choices, formats, list, names, objects, pattern, refuse,
};
use crate::ConstraintError;

/// The most schemas that come of a document.
const MAX_REWRITTEN: usize = 60_000;

/// Rewrites all schemas of a document into one, with its definitions. If answers are followed, that keeps items unique.
///
/// # Errors
/// If one of them asks for what cannot be enforced.
pub(super) fn rewrite(schemas: &Schemas, is_followed: bool) -> Result<Value, ConstraintError> {
    let mut rewriter = Rewriter { logic: Logic::new(schemas), is_followed, count: 0, depth: 0 };
    let mut root = rewriter.schema(&schemas.root, &[])?;
    let mut definitions: Vec<(&String, &Value)> = schemas.definitions.iter().collect();
    definitions.sort_by_key(|(name, _)| *name);
    let mut rewritten = Map::new();
    for (name, schema) in definitions {
        let name = name.rsplit('/').next().unwrap_or_default();
        rewritten.insert(name.to_owned(), rewriter.schema(schema, &[])?);
    }
    if let (Value::Object(root), false) = (&mut root, rewritten.is_empty()) {
        root.insert("$defs".into(), rewritten.into());
    }
    Ok(root)
}

pub(super) struct Rewriter<'a> {
    pub(super) logic: Logic<'a>,
    is_followed: bool,
    count: usize,
    depth: usize,
}

impl Rewriter<'_> {
    fn schema(&mut self, schema: &Value, around: &[&Value]) -> Result<Value, ConstraintError> {
        let Value::Object(map) = schema else { return Ok(schema.clone()) };
        let mut draft = Draft { map: map.clone(), around };
        self.count += 1;
        self.depth += 1;
        if self.count > MAX_REWRITTEN || self.depth > 2 * MAX_DEPTH {
            let problem = format!("more than {MAX_REWRITTEN} schemas come of its choices");
            return Err(refuse(draft.pointer(), None, problem));
        }
        choices::conditions(&self.logic, &mut draft)?;
        choices::negations(&self.logic, &mut draft)?;
        objects::unevaluated(&self.logic, &mut draft)?;
        objects::dependents(&mut draft);
        names::patterns(&self.logic, &mut draft)?;
        names::names(&self.logic, &mut draft)?;
        objects::counts(&self.logic, &mut draft)?;
        arrays::contains(&self.logic, &mut draft)?;
        arrays::distinct(&self.logic, &mut draft, self.is_followed)?;
        choices::one_of(&self.logic, &mut draft)?;
        values(&mut draft);
        let rewritten = self.inner(draft)?;
        self.depth -= 1;
        Ok(rewritten)
    }

    /// Rewrites the schemas in a schema.
    fn inner(&mut self, draft: Draft<'_>) -> Result<Value, ConstraintError> {
        let own = Value::Object(draft.map.clone());
        let around: Vec<&Value> = draft.around.iter().copied().chain([&own]).collect();
        let mut rewritten = Map::new();
        for (keyword, value) in draft.map {
            let value = match (&*keyword, value) {
                ("allOf" | "anyOf", Value::Array(schemas)) => self.list(&schemas, &around)?,
                ("prefixItems", Value::Array(items)) => self.list(&items, &[])?,
                ("properties" | "patternProperties", Value::Object(schemas)) => {
                    let schemas =
                        schemas.iter().map(|(name, schema)| Ok((name.clone(), self.schema(schema, &[])?)));
                    Value::Object(schemas.collect::<Result<_, ConstraintError>>()?)
                }
                ("additionalProperties" | "items", value) => self.schema(&value, &[])?,
                (_, value) => value,
            };
            rewritten.insert(keyword, value);
        }
        Ok(Value::Object(rewritten))
    }

    fn list(&mut self, schemas: &[Value], around: &[&Value]) -> Result<Value, ConstraintError> {
        let schemas = schemas.iter().map(|schema| self.schema(schema, around));
        Ok(Value::Array(schemas.collect::<Result<_, _>>()?))
    }
}

/// Formats, texts that are left out, and multiples within the numbers that are exact.
fn values(draft: &mut Draft<'_>) {
    if let Some(format) = draft.take("format") {
        match format.as_str().and_then(formats::lookup) {
            Some(formats::Format::Known(name)) => _ = draft.map.insert("format".into(), name.into()),
            Some(formats::Format::Pattern(pattern, most)) => {
                let mut rule = json!({ "pattern": pattern });
                if let Some(most) = most {
                    rule["maxLength"] = most.into();
                }
                draft.add("format", rule);
            }
            None => {}
        }
    }
    if let Some(Value::Array(texts)) = draft.take(EXCEPT) {
        let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
        draft.add("not", json!({ "pattern": pattern::except(&texts) }));
    }
    if draft.map.contains_key("multipleOf") {
        // Programs that read larger numbers as floating-point numbers would find others.
        draft.add("multipleOf", json!({ "minimum": -(MAX_INTEGER as i64), "maximum": MAX_INTEGER }));
    }
    if list(&draft.map, "allOf").is_empty() {
        draft.take("allOf");
    }
}
