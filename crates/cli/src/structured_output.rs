//! Flags for structured output: a JSON schema, an expression, a grammar, or choices.

use std::path::PathBuf;

use anyhow::Context;
use pipelines::Constraint;

use crate::exit::Usage;

/// The structure of answers; at most one is given.
#[derive(clap::Args)]
#[group(multiple = false)]
pub(crate) struct StructuredOutputFlags {
    /// Generate JSON that the schema in FILE accepts
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    json_schema: Option<PathBuf>,
    /// Generate a text that matches the whole expression
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true, hide_short_help = true)]
    regex: Option<String>,
    /// Generate a text of the grammar in FILE, in GBNF or Lark
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    grammar: Option<PathBuf>,
    /// Generate one of these texts; repeatable
    #[arg(long = "choice", value_name = "TEXT", allow_hyphen_values = true, hide_short_help = true)]
    choices: Vec<String>,
}

impl StructuredOutputFlags {
    /// The constraint, if a flag gives one.
    ///
    /// # Errors
    /// If a file cannot be read, or is not JSON.
    pub(crate) fn constraint(&self) -> anyhow::Result<Option<Constraint>> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(if let Some(path) = &self.json_schema {
            let schema = Constraint::json_schema(&read(path)?);
            Some(schema.map_err(|error| Usage(format!("{}: {}", path.display(), error.problem)))?)
        } else if let Some(path) = &self.grammar {
            Some(Constraint::grammar(&read(path)?))
        } else if let Some(expression) = &self.regex {
            Some(Constraint::Regex(expression.as_str().into()))
        } else {
            (!self.choices.is_empty()).then(|| Constraint::choice(self.choices.clone()))
        })
    }
}
