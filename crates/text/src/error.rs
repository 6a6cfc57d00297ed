//! Why a tokenizer, a chat template or a constraint cannot be built or used.

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
    #[error("chat template {name} cannot render this conversation: {problem}")]
    ChatUnfit {
        /// The template's name; `default` if it has none.
        name: String,
        /// The mismatch, and where it is in the template.
        problem: String,
    },

    /// A message of a conversation is not as it must be.
    #[error("{place}: {problem}")]
    ChatMessage {
        /// The message, from 0.
        index: usize,
        /// The field, as in `messages[2].content[1]`.
        place: String,
        /// The problem.
        problem: String,
    },

    /// The chat template itself refuses this conversation.
    #[error("the model's chat template refuses this conversation: {message}")]
    ChatRefused {
        /// The template's own words.
        message: String,
    },

    /// A constraint cannot be enforced.
    #[error(transparent)]
    Constraint(Box<crate::ConstraintError>),
}

impl From<crate::ConstraintError> for Error {
    fn from(error: crate::ConstraintError) -> Self {
        Error::Constraint(Box::new(error))
    }
}

impl Error {
    /// [`Error::Tokenizer`] from a file's name and a problem in it.
    pub fn tokenizer(origin: impl ToString, problem: impl ToString) -> Self {
        Error::Tokenizer { origin: origin.to_string(), problem: problem.to_string() }
    }
}
