//! Everything that is wrong with a configuration.

use crate::Error;
use crate::error::InvalidField;

/// Everything that is wrong, each with its value and what to give instead.
#[derive(Debug, Default)]
pub(crate) struct Problems(pub(crate) Vec<InvalidField>);

impl Problems {
    /// Notes a problem.
    pub(crate) fn add(&mut self, field: &'static str, value: impl ToString, fix: impl Into<String>) {
        self.0.push(InvalidField { field, value: value.to_string(), fix: fix.into() });
    }

    /// All of these, and an error that came of looking for the model.
    pub(crate) fn and(mut self, model: &str, error: Error) -> Error {
        match error {
            Error::Config(more) => self.0.extend(more),
            error if self.0.is_empty() => return error,
            error => self.add("huggingface_repo_id", model, error.to_string()),
        }
        Error::Config(self.0)
    }

    /// Notes a problem unless all is well.
    pub(super) fn expect(&mut self, good: bool, field: &'static str, value: impl ToString, fix: &str) {
        if !good {
            self.add(field, value, fix);
        }
    }
}
