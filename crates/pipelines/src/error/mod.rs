//! What can go wrong in a pipeline: names, numbers and paths, and no types of the modules that find it.

mod out_of_memory;
mod queue_unit;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use self::out_of_memory::{Fitting, OutOfMemory};
pub use self::queue_unit::QueueUnit;

/// What can go wrong in a pipeline. Each message says what, where, and the facts that disagree; `Debug` prints it too, so
/// that `main` shows it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },

    /// A model's files, and where they come from.
    #[error(transparent)]
    Source(sources::Error),

    /// A file of weights, or its metadata.
    #[error(transparent)]
    Weights(#[from] weights::Error),

    /// The model's tokenizer or chat template, or a text that one of them refuses.
    #[error(transparent)]
    Text(#[from] text::Error),

    /// A model whose files ask for embeddings that cannot be made.
    #[error("{origin}: {problem}")]
    Embedding {
        /// The file, the format of the metadata, or the architecture.
        origin: String,
        /// What is wrong, or missing.
        problem: String,
    },

    /// A classifier whose files ask for scores that cannot be made.
    #[error("{origin}: {problem}")]
    Classifier {
        /// The file, or the format of the metadata.
        origin: String,
        /// The problem.
        problem: String,
    },

    /// A decoder whose files do not say how to make embeddings.
    #[error(
        "{architecture} generates text, and its files name no pooling for embeddings: choose a pooling, or use a text generator"
    )]
    NoPooling {
        /// The architecture.
        architecture: String,
    },

    /// A classifier, where a model was wanted that embeds.
    #[error("{architecture} is a classifier: it scores texts, and makes no embeddings; use a classifier")]
    NotForEmbeddings {
        /// The architecture.
        architecture: String,
    },

    /// A classifier of several labels, which have no order.
    #[error("{architecture} scores {labels} labels: ranking needs a model with one label; classify instead")]
    NotARanker {
        /// The architecture.
        architecture: String,
        /// How many labels it has.
        labels: usize,
    },

    /// An encoder or a classifier, where a model was wanted that writes.
    #[error("{architecture} {}", not_writing(*.is_classifier))]
    NotForText {
        /// The architecture.
        architecture: String,
        /// Whether it scores texts; else it makes embeddings.
        is_classifier: bool,
    },

    /// Options of an embedder or a classifier, or parameters of a request to it, that do not fit the model; all of them
    /// are listed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Embedder(Vec<InvalidField>),

    /// A text without tokens, which has no embedding.
    #[error("text {index} (counted from 0) has no tokens")]
    EmptyText {
        /// Which of the texts.
        index: usize,
    },

    /// A text of more tokens than a model embeds.
    #[error(
        "text {index} (counted from 0) has {tokens} tokens, but the model takes at most {limit}: shorten or truncate it"
    )]
    TextTooLong {
        /// Which of the texts.
        index: usize,
        /// Its tokens, those around it included.
        tokens: usize,
        /// The most that the model takes.
        limit: usize,
    },

    /// A pair of texts with more tokens than a model scores.
    #[error(
        "pair {index} (counted from 0) has {first} + {second} tokens and {around} around them, but the model takes at most \
         {limit}: shorten or truncate it"
    )]
    PairTooLong {
        /// Which of the pairs.
        index: usize,
        /// Tokens of the first text.
        first: usize,
        /// Tokens of the second.
        second: usize,
        /// Tokens that the model wants around them.
        around: usize,
        /// The most that the model takes.
        limit: usize,
    },

    /// A token type that the model does not have: its tokenizer is of another model.
    #[error("the tokenizer gives a token of a pair the type {token_type}, but the model has {known} types")]
    TokenType {
        /// The type.
        token_type: u32,
        /// How many the model has.
        known: u32,
    },

    /// A checkpoint that cannot be quantized, or a file that cannot be written.
    #[error("quantize: {0}")]
    Quantize(String),

    /// The model's files.
    #[error(transparent)]
    Model(#[from] models::Error),

    /// The model cannot be compiled, bound or run.
    #[error(transparent)]
    Engine(#[from] engine::Error),

    /// The model does not fit into memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),

    /// A sequence that the cache could never hold.
    #[error(transparent)]
    TooLong(#[from] TooLong),

    /// A cache without room for one sequence.
    #[error(
        "the cache holds {tokens} tokens, but the {strategy} strategy reserves {reserved} for each sequence: use a larger cache, a smaller max_length, or the paged strategy"
    )]
    CacheTooSmall {
        /// The name of the strategy, which reserves.
        strategy: &'static str,
        /// Tokens that the cache holds.
        tokens: usize,
        /// Tokens that each sequence may grow to.
        reserved: usize,
    },

    /// A cache of more pages than can be numbered.
    #[error(
        "a cache of {pages} pages of {page_size} tokens is too large: it can have at most 4294967295 pages"
    )]
    TooManyPages {
        /// Pages asked for.
        pages: usize,
        /// Tokens in each.
        page_size: usize,
    },

    /// A prompt without tokens.
    #[error("the prompt is empty, and the model has no beginning-of-text token")]
    EmptyPrompt,

    /// A prompt that leaves no room for an answer.
    #[error(
        "the prompt has {tokens} tokens, but the model's context is {limit} tokens, at least one of them for the answer: shorten the prompt"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// The model's context length.
        limit: usize,
    },

    /// A prompt that leaves no room for an answer within `max_length`, which is less than the model's context.
    #[error(
        "the prompt has {tokens} tokens, but max_length is {limit} for prompt and answer together: shorten the prompt or raise max_length"
    )]
    PromptBeyondMaxLength {
        /// Tokens of the prompt.
        tokens: usize,
        /// `max_length`.
        limit: usize,
    },

    /// A prompt with more bytes than tokens of the model's length can stand for, which is not made tokens.
    #[error(
        "the prompt has {bytes} bytes, but {limit} tokens are the most for prompt and answer together and stand for at most {most} bytes: shorten it"
    )]
    PromptTooLarge {
        /// Bytes of the prompt.
        bytes: usize,
        /// Bytes of the longest prompt.
        most: usize,
        /// Tokens of the longest prompt.
        limit: usize,
    },

    /// A prompt token that the model does not have.
    #[error("token {token} is beyond the model's vocabulary of {vocab}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Rows of the embedding.
        vocab: usize,
    },

    /// A `generation_config.json` that is none.
    #[error("{}: {problem}; mend or remove the file", path.display())]
    GenerationConfig {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        problem: String,
    },

    /// Sampling parameters outside their ranges; all of them are listed.
    #[error("sampling parameters: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Sampling(Vec<InvalidField>),

    /// A configuration that cannot be; all that is wrong with it is listed.
    #[error("configuration: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<InvalidField>),

    /// A file of settings that cannot be read as such.
    #[error("{}:{line}:{column}: {problem}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong there.
        problem: String,
        /// The field, if it is one's value that is wrong.
        field: Option<Box<InvalidField>>,
    },

    /// Several settings that cannot be, of files, the environment and the command line.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Error>),

    /// An environment variable with a value that its field cannot have.
    #[error("{variable} is `{value}`: {expected}")]
    Environment {
        /// The variable.
        variable: String,
        /// The field that it sets.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: String,
    },

    /// A name that no field of the configuration has.
    #[error(transparent)]
    UnknownField(#[from] UnknownField),

    /// A request with fields outside their ranges; all of them are listed.
    #[error("request: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Request(Vec<InvalidField>),

    /// A conversation for a model that has no template for conversations.
    #[error("the model has no chat template: give a text, or a template of your own")]
    NoChatTemplate,

    /// A thread with a model that no longer runs.
    #[error("the {name} has ended: {reason}")]
    Stopped {
        /// Which: a text generator, or an embedder.
        name: &'static str,
        /// Why.
        reason: String,
    },

    /// A queue of requests that is full; the request was not taken.
    #[error("the {name} has {waiting} {unit} waiting and takes at most {limit}: try again {}", later(*.retry_after))]
    Busy {
        /// Which: a text generator, or an embedder.
        name: &'static str,
        /// How many wait.
        waiting: usize,
        /// Of what.
        unit: QueueUnit,
        /// How many may wait.
        limit: usize,
        /// When there may be room, as far as can be told from how fast others started.
        retry_after: Option<Duration>,
    },

    /// A request that waited too long for its start.
    #[error(
        "the request did not start within its queue_timeout of {limit:?}: try again later, or allow more"
    )]
    QueueTimeout {
        /// How long it was to wait.
        limit: Duration,
    },

    /// A request that took too long.
    #[error("the request did not end within its timeout of {limit:?}: ask for fewer tokens, or allow more")]
    Timeout {
        /// How long it was to take.
        limit: Duration,
    },

    /// An answer that was given up because its stream was not read.
    #[error("the answer was dropped because it was not read for {limit:?}")]
    NotRead {
        /// How long it was kept.
        limit: Duration,
    },

    /// A model that the engine `huggingface` cannot load or run.
    #[error("engine huggingface ({python}): {problem}")]
    Worker {
        /// The interpreter.
        python: String,
        /// What it says.
        problem: String,
    },

    /// The process of the engine `huggingface` has ended.
    #[error("engine huggingface: its process has ended: {end}")]
    WorkerEnded {
        /// The exit status of the process, and the last line that it wrote on standard error.
        end: String,
    },

    /// Something that only models with a graph can do.
    #[error("{what} needs a graph, and the engine huggingface has none: use the engine max for this")]
    NoGraph {
        /// What was asked for.
        what: &'static str,
    },

    /// A defect of ours that one sequence came upon.
    #[error("internal error while generating a token: {0}")]
    Defect(String),

    /// A request's processor of logits that failed.
    #[error("the logits processor failed: {0}")]
    LogitsProcessor(Box<dyn std::error::Error + Send + Sync>),

    /// Logits that leave no token to choose.
    #[error("sampler: no token to choose: each of the {vocab_size} logits is NaN, -inf, or forbidden")]
    NoCandidate {
        /// The number of logits.
        vocab_size: usize,
    },
}

/// One field outside its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: {fix}")]
#[non_exhaustive]
pub struct InvalidField {
    /// The field's name.
    pub field: &'static str,
    /// Its value, printed.
    pub value: String,
    /// What to give instead.
    pub fix: String,
}

/// A name that no field has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no field `{name}`{}", .nearest.map_or_else(String::new, |name| format!(": did you mean `{name}`?")))]
pub struct UnknownField {
    /// The name.
    pub name: String,
    /// The name most like it.
    pub nearest: Option<&'static str>,
}

/// Why a sequence can never run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sequence may grow to {max_tokens} tokens, but the KV cache holds {capacity}: ask for fewer new tokens or a larger cache"
)]
pub struct TooLong {
    /// Tokens the sequence may need.
    pub max_tokens: usize,
    /// Tokens that the cache holds of one sequence.
    pub capacity: usize,
}

impl TooLong {
    /// Checks that a cache which holds `capacity` tokens of a sequence could hold one that may grow to `max_tokens`.
    pub(crate) fn check(tokens: usize, max_tokens: usize, capacity: usize) -> Result<(), TooLong> {
        // The last token is never run, so it needs no room.
        let needed = max_tokens.max(tokens + 1) - 1;
        if needed > capacity { Err(TooLong { max_tokens, capacity }) } else { Ok(()) }
    }
}

/// A setting that names no files is a problem of the configuration.
impl From<sources::Error> for Error {
    fn from(error: sources::Error) -> Error {
        match error {
            sources::Error::Field { field, value, fix } => {
                Error::Config(vec![InvalidField { field, value, fix }])
            }
            error => Error::Source(error),
        }
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Whether a file that the model's weights are mapped from has changed: it must be loaded again.
    pub fn is_file_changed(&self) -> bool {
        matches!(self, Error::Engine(error) if error.is_file_changed())
    }

    /// Whether the process that runs the model has ended: it must be loaded again.
    pub fn is_worker_ended(&self) -> bool {
        matches!(self, Error::WorkerEnded { .. })
    }

    /// An error that several requests may have got: as it is if none of them holds it any more, and else what it says.
    pub fn owned(error: Arc<Error>) -> Error {
        Arc::try_unwrap(error).unwrap_or_else(|shared| match &*shared {
            Error::Defect(problem) => Error::Defect(problem.clone()),
            Error::Worker { python, problem } => {
                Error::Worker { python: python.clone(), problem: problem.clone() }
            }
            Error::WorkerEnded { end } => Error::WorkerEnded { end: end.clone() },
            other => Error::Defect(other.to_string()),
        })
    }

    /// All that went wrong, if anything did.
    ///
    /// # Errors
    /// These: as they are where there is one, else together.
    pub fn check_all(mut errors: Vec<Error>) -> Result<(), Error> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Error::Several(errors)),
        }
    }

    pub(crate) fn embedding(origin: impl ToString, problem: impl ToString) -> Self {
        Error::Embedding { origin: origin.to_string(), problem: problem.to_string() }
    }

    /// A complaint about what a classifier's files ask for.
    pub(crate) fn classifier(origin: impl ToString, problem: impl ToString) -> Error {
        Error::Classifier { origin: origin.to_string(), problem: problem.to_string() }
    }
}

/// What an encoder makes, and with what.
fn not_writing(is_classifier: bool) -> &'static str {
    if is_classifier {
        "is a classifier: it scores texts and writes none; use a classifier"
    } else {
        "is an encoder: it makes embeddings, not text; use an embedder"
    }
}

/// When to try again, in words.
fn later(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(|| "later".into(), |time| format!("in {} s", time.as_secs_f64().ceil().max(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_worker_reads_the_same_for_every_request() {
        let ended = || Error::WorkerEnded { end: "signal: 9 (SIGKILL)".to_string() };
        let shared = Arc::new(ended());
        let first = Error::owned(Arc::clone(&shared));
        assert!(first.is_worker_ended(), "{first}");
        assert_eq!(
            (first.to_string(), Error::owned(shared).to_string()),
            (ended().to_string(), ended().to_string())
        );
    }
}
