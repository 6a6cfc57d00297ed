//! Answers of a given form: JSON schemas, regular expressions, choices and grammars, as masks over the vocabulary.
//!
//! A [`Constraint`] is the source. A [`GrammarCompiler`] compiles it for one tokenizer into a [`Grammar`], which any number
//! of sequences share; each has a [`Matcher`] that says which tokens may come next. The automata are llguidance's.
//!
//! Whatever cannot be enforced is an error when it is compiled. No keyword of a schema that constrains is ignored.

mod cache;
mod compiler;
mod gbnf;
mod lark;
mod matcher;
mod regex;
mod schema;
mod unique;
mod vocabulary;

#[cfg(test)]
mod bombs;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

pub use compiler::{Grammar, GrammarCompiler};
pub use lark::token_as_lark;
pub use matcher::{Matcher, TokenMask};

use crate::{ConstraintError, Tokenizer};

/// The form that an answer must have, as its author wrote it. Clones are cheap.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Constraint {
    /// JSON that a schema accepts: JSON Schema, draft 2020-12, and the older forms of its keywords. Keywords and formats
    /// that no draft knows are annotations. Keywords that constrain in ways that cannot be enforced are errors, such as
    /// `not` with a format, or references to other documents. `format` is enforced. Properties come in the order of the
    /// schema. Items of `uniqueItems` are compared while they are written; inside of [`Constraint::Lark`], they are
    /// supported if they have few values. With `"x-guidance": {"whitespace_flexible": false}` at the root of the schema,
    /// there is no white space between the parts.
    JsonSchema(Arc<Value>),
    /// Any JSON object.
    JsonObject,
    /// A text that a regular expression matches from its start to its end, in the syntax of the crate `regex`, without
    /// look-around and word boundaries.
    Regex(Arc<str>),
    /// One of these texts.
    Choice(Arc<[String]>),
    /// A grammar in [llguidance's variant of Lark](https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md):
    /// rules, terminals, `%json { schema }`, and tokens of the vocabulary such as `<|name|>`.
    Lark(Arc<str>),
    /// A grammar in [GBNF](https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md), whose first rule is
    /// `root`.
    Gbnf(Arc<str>),
}

impl Constraint {
    /// JSON that a schema accepts.
    ///
    /// # Errors
    /// If the text is not JSON, with the line and column.
    pub fn json_schema(text: &str) -> Result<Constraint, ConstraintError> {
        let schema = serde_json::from_str::<Value>(text);
        let schema =
            schema.map_err(|error| ConstraintError::new("json_schema", format!("not JSON: {error}")))?;
        Ok(Constraint::JsonSchema(Arc::new(schema)))
    }

    /// A grammar in either notation: GBNF if it defines a rule with `::=`, Lark otherwise.
    pub fn grammar(text: &str) -> Constraint {
        if gbnf::is_gbnf(text) { Constraint::Gbnf(text.into()) } else { Constraint::Lark(text.into()) }
    }

    /// One of several texts.
    pub fn choice<T: Into<String>>(options: impl IntoIterator<Item = T>) -> Constraint {
        Constraint::Choice(options.into_iter().map(Into::into).collect())
    }

    /// Writes the constraint as a Lark grammar, which another grammar can include. Compiling that reports rules that cannot be
    /// enforced.
    ///
    /// # Errors
    /// If it is a grammar that is malformed.
    pub fn to_lark(&self, tokenizer: &Tokenizer) -> Result<String, ConstraintError> {
        Ok(match self {
            Constraint::JsonSchema(schema) => format!("start: %json {schema}"),
            Constraint::JsonObject => "start: %json {\"type\": \"object\"}".to_owned(),
            Constraint::Regex(expression) => regex::to_lark(expression),
            Constraint::Choice(options) => regex::to_lark(&regex::of_choice(options)?),
            Constraint::Lark(grammar) => grammar.to_string(),
            Constraint::Gbnf(grammar) => gbnf::to_lark(grammar, tokenizer)?,
        })
    }

    /// The name of its kind, as requests write it.
    pub const fn name(&self) -> &'static str {
        match self {
            Constraint::JsonSchema(_) => "json_schema",
            Constraint::JsonObject => "json_object",
            Constraint::Regex(_) => "regex",
            Constraint::Choice(_) => "choice",
            Constraint::Lark(_) | Constraint::Gbnf(_) => "grammar",
        }
    }

    /// What identifies it among compiled grammars.
    fn digest(&self) -> [u8; 32] {
        let source = match self {
            Constraint::JsonSchema(schema) => schema.to_string(),
            Constraint::JsonObject => String::new(),
            Constraint::Regex(text) | Constraint::Lark(text) | Constraint::Gbnf(text) => text.to_string(),
            Constraint::Choice(options) => Value::from(options.to_vec()).to_string(),
        };
        let notation = if let Constraint::Gbnf(_) = self { "gbnf" } else { self.name() };
        *blake3::hash(format!("{notation}\n{source}").as_bytes()).as_bytes()
    }
}
