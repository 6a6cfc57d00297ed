//! The form that the text of an answer has to have.

use pipelines::Constraint;
use serde_json::Value;

/// A constraint, and the field that gives it.
#[derive(Debug, Clone)]
pub(crate) struct OutputFormat {
    pub(crate) field: &'static str,
    pub(crate) constraint: Constraint,
}

/// A schema, or the text of one.
pub(crate) fn schema_constraint(schema: Value) -> Constraint {
    let parsed = schema.as_str().and_then(|text| serde_json::from_str(text).ok());
    Constraint::JsonSchema(parsed.unwrap_or(schema).into())
}
