//! Whether and how long a model reasons before it answers, as requests ask for it.

use serde_json::{Map, Value};

use crate::Error;
use crate::error::InvalidField;

/// The reasoning settings of a request.
#[derive(Debug, Clone)]
pub struct Thinking {
    /// The field that says it.
    pub(super) field: &'static str,
    is_on: bool,
    effort: Option<String>,
    /// The field of the effort, if it is another.
    pub(super) effort_field: Option<&'static str>,
    /// The most tokens of the reasoning.
    pub(super) budget: Option<usize>,
}

/// Degrees of effort, as templates and APIs name them.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

impl Thinking {
    /// Reasoning that a field turns on or off.
    pub fn new(field: &'static str, is_on: bool) -> Thinking {
        Thinking { field, is_on, effort: None, effort_field: None, budget: None }
    }

    /// The same with so many tokens at most.
    #[must_use]
    pub fn within(self, budget: Option<usize>) -> Thinking {
        Thinking { budget, ..self }
    }

    /// Reasoning with an effort; `none` turns it off.
    ///
    /// # Errors
    /// If the effort has another name.
    pub fn with_effort(field: &'static str, effort: &str) -> Result<Thinking, Error> {
        if !EFFORTS.contains(&effort) {
            let (value, fix) = (format!("`{effort}`"), format!("give {}", EFFORTS.join(", ")));
            return Err(Error::Request(vec![InvalidField { field, value, fix }]));
        }
        let is_on = effort != "none";
        Ok(Thinking { effort: is_on.then(|| effort.to_string()), ..Thinking::new(field, is_on) })
    }

    /// The same with the effort of another field. Reasoning that is off stays off.
    #[must_use]
    pub fn and_effort(self, effort: Thinking) -> Thinking {
        let Thinking { field, effort, .. } = effort;
        Thinking { effort: effort.filter(|_| self.is_on), effort_field: Some(field), ..self }
    }

    /// The fields that say it.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static str> {
        [Some(self.field), self.effort_field].into_iter().flatten()
    }

    /// Sets the variables of chat templates that reasoning depends on, unless the request sets them itself.
    pub(super) fn set(&self, variables: &mut Map<String, Value>) {
        self.set_switches(variables);
        if let Some(effort) = &self.effort {
            variables.entry("reasoning_effort").or_insert_with(|| effort.clone().into());
            // Kimi K3's, which knows fewer.
            let own = match &effort[..] {
                "minimal" => "low",
                "xhigh" => "max",
                other => other,
            };
            variables.entry("thinking_effort").or_insert_with(|| own.into());
        }
    }

    /// Sets those that turn reasoning on and off, and bound it.
    pub(super) fn set_switches(&self, variables: &mut Map<String, Value>) {
        let mut set = |name: &str, value: Value| {
            variables.entry(name).or_insert(value);
        };
        set("enable_thinking", self.is_on.into());
        set("thinking", self.is_on.into());
        if let Some(budget) = self.budget {
            set("thinking_budget", budget.into());
        }
    }
}
