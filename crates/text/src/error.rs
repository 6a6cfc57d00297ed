//! Why a tokenizer, a chat template or a constraint cannot be built or used.

use std::fmt;
use std::path::PathBuf;

/// Why a tokenizer, a chat template or a constraint cannot be built or used. Each message says what, where, and the facts that
/// disagree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },

    /// A file of weights that holds a tokenizer cannot be opened, or its metadata has the wrong type.
    #[error(transparent)]
    Weights(#[from] weights::Error),

    /// A tokenizer cannot be built from its file.
    #[error("tokenizer {origin}: {problem}")]
    Tokenizer {
        /// The file, or the format of the metadata.
        origin: String,
        /// The problem.
        problem: String,
    },

    /// The tokenizer has no ids for a text.
    #[error("encode: {0}")]
    Encode(String),

    /// Declared tools, or the choice among them, are not as they must be.
    #[error("{field}: {problem}")]
    Tools {
        /// The field, as in `tools[1].function.name`.
        field: String,
        /// The problem.
        problem: String,
    },

    /// A chat template cannot be read or rendered.
    #[error("chat template {name}: {problem}")]
    ChatTemplate {
        /// The template's name; `default` if it has none.
        name: String,
        /// The problem, and where it is.
        problem: String,
    },

    /// The chat template cannot make a prompt of this conversation.
    #[error("chat template {name} cannot render this conversation: {}{problem}", message_place(*.index))]
    ChatUnfit {
        /// The template's name; `default` if it has none.
        name: String,
        /// The message at fault, from 0, if one is.
        index: Option<usize>,
        /// The mismatch, and where it is in the template.
        problem: String,
    },

    /// A message of a conversation is not as it must be.
    #[error("messages[{index}]{field}: {problem}")]
    ChatMessage {
        /// The message, from 0.
        index: usize,
        /// The part of it, as in `.content[1]`; empty for all of it.
        field: String,
        /// The problem.
        problem: String,
    },

    /// The chat template itself refuses this conversation.
    #[error("the model's chat template refuses this conversation: {}{message}", message_place(*.index))]
    ChatRefused {
        /// The message at fault, from 0, if one is.
        index: Option<usize>,
        /// The template's own words.
        message: String,
    },

    /// A constraint cannot be enforced.
    #[error(transparent)]
    Constraint(Box<ConstraintError>),
}

impl From<ConstraintError> for Error {
    fn from(error: ConstraintError) -> Self {
        Error::Constraint(Box::new(error))
    }
}

impl Error {
    /// [`Error::Tokenizer`] from a file's name and a problem in it.
    pub fn tokenizer(origin: impl ToString, problem: impl ToString) -> Self {
        Error::Tokenizer { origin: origin.to_string(), problem: problem.to_string() }
    }

    /// The error of a conversation without its first `count` messages, which its author has not written. An error of one of
    /// these names no message.
    #[must_use]
    pub fn without_first_messages(self, count: usize) -> Self {
        match self {
            Error::ChatUnfit { name, index, problem } => {
                Error::ChatUnfit { name, index: index.and_then(|index| index.checked_sub(count)), problem }
            }
            Error::ChatRefused { index, message } => {
                Error::ChatRefused { index: index.and_then(|index| index.checked_sub(count)), message }
            }
            Error::ChatMessage { index, field, problem } => {
                Error::ChatMessage { index: index.saturating_sub(count), field, problem }
            }
            other => other,
        }
    }
}

/// The place of a message at the start of a problem.
fn message_place(index: Option<usize>) -> String {
    index.map(|index| format!("messages[{index}]: ")).unwrap_or_default()
}

/// Why a constraint cannot be enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConstraintError {
    /// The kind of constraint: [`crate::Constraint::name`].
    pub constraint: &'static str,
    /// In a schema, the JSON pointer to the subschema that has the problem; empty for the whole schema.
    pub pointer: Option<String>,
    /// In a schema, the keyword that has the problem, if one does.
    pub keyword: Option<String>,
    /// The problem.
    pub problem: String,
}

impl ConstraintError {
    pub(crate) fn new(constraint: &'static str, problem: impl Into<String>) -> ConstraintError {
        ConstraintError { constraint, pointer: None, keyword: None, problem: problem.into() }
    }
}

impl fmt::Display for ConstraintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.constraint)?;
        match self.pointer.as_deref() {
            None => {}
            Some("") => f.write_str(" at its root")?,
            Some(pointer) => write!(f, " at {pointer}")?,
        }
        if let Some(keyword) = &self.keyword {
            write!(f, ", keyword `{keyword}`")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ConstraintError {}
