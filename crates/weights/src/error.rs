//! Errors of weight files and of their metadata.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Format;

/// Why weights could not be opened, or a metadata value could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Neither the content nor the name of a file says what it is.
    #[error("{}: neither GGUF, safetensors nor PyTorch: starts with {}", path.display(), start.escape_ascii())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its first bytes, at most eight.
        start: Vec<u8>,
    },
    /// The name of a file promises one format and its content is another.
    #[error("{}: named like a {name} file, but the content is {content}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// The format its name promises.
        name: Format,
        /// The format of its content.
        content: Format,
    },
    /// A file breaks the rules of its own format.
    #[error("{}: malformed {format}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The format it is in.
        format: Format,
        /// The rule, where it was broken, and by what.
        what: String,
    },
    /// A file is well formed and uses something Perihelion does not read.
    #[error("{}: {what}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The feature that is not supported.
        what: String,
    },
    /// A pickle asks for something other than tensors. Nothing of it was run.
    #[error("{}: refused: the pickle uses `{global}`, but only tensors and containers of tensors are allowed", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The Python object it names.
        global: String,
    },
    /// There is not the memory for what is decompressed.
    #[error("{}: {source}", path.display())]
    OutOfMemory {
        /// The file.
        path: PathBuf,
        /// How much was asked for.
        source: Box<tensor::Error>,
    },
    /// Two tensors have one name.
    #[error("tensor `{name}` is in {} and again in {}", first.display(), second.display())]
    DuplicateTensor {
        /// The name.
        name: String,
        /// The file that has it first.
        first: PathBuf,
        /// The file that has it again.
        second: PathBuf,
    },
    /// Two tensors of one checkpoint mean the same weight.
    #[error("tensors `{first}` and `{second}` are both `{canonical}`")]
    AmbiguousName {
        /// The name of Perihelion's own.
        canonical: String,
        /// One name in the file.
        first: String,
        /// The other name in the file.
        second: String,
    },
    /// A configuration says that weights were quantized in a way that is not read.
    #[error("{source_name}: {what}")]
    Quantization {
        /// The file.
        source_name: String,
        /// The key, what it says, and what is read.
        what: String,
    },
    /// A folder holds no file with weights.
    #[error("{}: no .gguf, .safetensors or PyTorch file in this folder", path.display())]
    NoWeights {
        /// The folder.
        path: PathBuf,
    },
    /// A folder holds several models.
    #[error("{}: several models, name one of them: {}", path.display(), candidates.join(", "))]
    SeveralModels {
        /// The folder.
        path: PathBuf,
        /// The file names.
        candidates: Vec<String>,
    },
    /// A metadata key is absent.
    #[error("metadata lacks `{key}`, {expected}")]
    MissingKey {
        /// The key.
        key: String,
        /// The type asked for.
        expected: &'static str,
    },
    /// A metadata value is of another type.
    #[error("metadata `{key}`: expected {expected}, found {found}")]
    WrongType {
        /// The key.
        key: String,
        /// The type asked for.
        expected: &'static str,
        /// The type and, if short, the value in the file.
        found: String,
    },
    /// A metadata value does not fit the type asked for.
    #[error("metadata `{key}`: {value} is out of range for {expected}")]
    OutOfRange {
        /// The key, with an index for an array: `key[3]`.
        key: String,
        /// The type asked for.
        expected: &'static str,
        /// The value in the file.
        value: String,
    },
    /// A string in the metadata is not UTF-8. An array that is read as [`Strings`](crate::Strings) keeps its bytes.
    #[error("metadata `{key}`: not UTF-8: {}", bytes.escape_ascii())]
    NotUtf8 {
        /// The key, with an index for an array: `tokenizer.ggml.tokens[17]`.
        key: String,
        /// The first bytes, at most 32.
        bytes: Vec<u8>,
    },
}

impl Error {
    pub(crate) fn quantization(source_name: &str, what: String) -> Error {
        Error::Quantization { source_name: source_name.to_string(), what }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        |source| Error::Io { path: path.to_path_buf(), source }
    }
}

/// An error of a reader, before the file's name is added.
#[derive(Debug)]
pub(crate) enum Problem {
    Malformed(String),
    Unsupported(String),
    Refused(String),
    Memory(tensor::Error),
}

impl Problem {
    pub(crate) fn at(self, path: &Path, format: Format) -> Error {
        let path = path.to_path_buf();
        match self {
            Problem::Malformed(what) => Error::Malformed { path, format, what },
            Problem::Unsupported(what) => Error::Unsupported { path, what },
            Problem::Refused(global) => Error::Refused { path, global },
            Problem::Memory(source) => Error::OutOfMemory { path, source: source.into() },
        }
    }
}

/// `Err(Problem::Malformed(format!(…)))`.
macro_rules! malformed {
    ($($message:tt)*) => { Err($crate::error::Problem::Malformed(format!($($message)*))) };
}

/// `Err(Problem::Unsupported(format!(…)))`.
macro_rules! unsupported {
    ($($message:tt)*) => { Err($crate::error::Problem::Unsupported(format!($($message)*))) };
}

pub(crate) use {malformed, unsupported};

/// Bytes of a name as they go into a message: escaped, and cut short.
pub(crate) fn excerpt(bytes: &[u8]) -> impl fmt::Display + '_ {
    bytes[..bytes.len().min(64)].escape_ascii()
}
