//! A schema that is being rewritten.

use serde_json::{Map, Value};

use super::logic::Logic;
use super::reader::add_rule;
use super::{MADE_OF, ORIGIN, refuse};
use crate::ConstraintError;

/// A schema that is being rewritten, and what is around it: schemas that the same value must fit.
pub(super) struct Draft<'v> {
    pub(super) map: Map<String, Value>,
    pub(super) around: &'v [&'v Value],
}

impl Draft<'_> {
    pub(super) fn take(&mut self, keyword: &str) -> Option<Value> {
        self.map.shift_remove(keyword)
    }

    /// Adds a schema that values must fit too, which is made of a keyword.
    pub(super) fn add(&mut self, keyword: &str, mut rule: Value) {
        if let Value::Object(rule) = &mut rule {
            rule.insert(ORIGIN.into(), format!("{}{MADE_OF}{keyword}", self.pointer()).into());
        }
        add_rule(&mut self.map, rule);
    }

    /// The pointer into the request's schema.
    pub(super) fn pointer(&self) -> &str {
        let origin = self.map.get(ORIGIN).and_then(Value::as_str).unwrap_or_default();
        origin.split(MADE_OF).next().unwrap_or_default()
    }

    pub(super) fn refuse(&self, keyword: &str, problem: impl Into<String>) -> ConstraintError {
        refuse(self.pointer(), Some(keyword), problem)
    }

    /// Whether no value fits what is left of the schema, what is around it, and others.
    pub(super) fn excludes(&self, logic: &Logic<'_>, others: &[&Value]) -> bool {
        let own = Value::Object(self.map.clone());
        let all: Vec<&Value> =
            self.around.iter().copied().chain(others.iter().copied()).chain([&own]).collect();
        logic.is_empty(&all)
    }
}
