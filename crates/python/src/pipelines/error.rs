//! Errors of pipelines as Python's exceptions, with their messages unchanged.

use std::io;
use std::path::Path;

use perihelion::models;
use perihelion::pipelines::error::InvalidField;
use perihelion::pipelines::{Error, OutOfMemory as Memory, TextError};
use perihelion::sources;
use perihelion::weights;
use pyo3::exceptions::{
    PyConnectionError, PyFileNotFoundError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::error::{FileError, OutOfMemory, load_error, system_code, system_error};

pyo3::create_exception!(
    perihelion,
    ConfigError,
    PyValueError,
    "A configuration that cannot be. `problems` lists all that is wrong: field, value, and what to give instead."
);
pyo3::create_exception!(
    perihelion,
    PromptTooLong,
    PyValueError,
    "A prompt or text of more `tokens` than the `limit` of the model."
);

/// Default attributes of exceptions, for errors that have only a message.
pub(crate) fn add_attributes(py: Python<'_>) -> PyResult<()> {
    let memory = py.get_type::<OutOfMemory>();
    memory.setattr("needed", py.None())?;
    memory.setattr("free", py.None())?;
    memory.setattr("suggestions", PyList::empty(py))?;
    py.get_type::<ConfigError>().setattr("problems", PyList::empty(py))?;
    let too_long = py.get_type::<PromptTooLong>();
    too_long.setattr("tokens", 0)?;
    too_long.setattr("limit", 0)
}

/// The exception for a model, its files, a request or a step.
pub(crate) fn pipelines_error(error: Error) -> PyErr {
    raise(&error, error.to_string())
}

/// The exception for one of several prompts; the message says which.
pub(crate) fn prompt_error(error: Error, index: usize, count: usize) -> PyErr {
    let message = error.to_string();
    raise(&error, if count > 1 { format!("prompt {} of {count}: {message}", index + 1) } else { message })
}

/// The exception for an error, with another message.
pub(crate) fn raise(error: &Error, message: String) -> PyErr {
    match error {
        Error::Config(problems) => with_problems(ConfigError::new_err(message), problems),
        Error::UnknownField(_) | Error::ConfigFile { .. } | Error::Environment { .. } | Error::Several(_) => {
            ConfigError::new_err(message)
        }
        Error::Sampling(problems) | Error::Request(problems) | Error::Embedder(problems) => {
            with_problems(PyValueError::new_err(message), problems)
        }
        Error::PromptTooLong { tokens, limit }
        | Error::PromptBeyondMaxLength { tokens, limit }
        | Error::TextTooLong { tokens, limit, .. } => {
            with(PromptTooLong::new_err(message), [("tokens", *tokens), ("limit", *limit)])
        }
        Error::PairTooLong { first, second, around, limit, .. } => {
            let tokens = first + second + around;
            with(PromptTooLong::new_err(message), [("tokens", tokens), ("limit", *limit)])
        }
        Error::OutOfMemory(memory) => out_of_memory(memory, message),
        Error::Source(error) => source(error, message),
        Error::Weights(error) => weights_error(error, message),
        Error::Model(models::Error::Weights(error)) => weights_error(error, message),
        Error::Model(models::Error::Memory(_)) => OutOfMemory::new_err(message),
        Error::Text(error) => text(error, message),
        Error::Read { path, source } => io_error(source, path, message),
        Error::Engine(error) if error.is_out_of_memory() => OutOfMemory::new_err(message),
        // An exception of the program's own callable, as it is.
        Error::LogitsProcessor(error) => match error.downcast_ref::<PyErr>() {
            Some(error) => Python::attach(|py| error.clone_ref(py)),
            None => PyRuntimeError::new_err(message),
        },
        Error::Stopped { .. }
        | Error::Busy { .. }
        | Error::Defect(_)
        | Error::NoCandidate { .. }
        | Error::Worker { .. }
        | Error::WorkerEnded { .. } => PyRuntimeError::new_err(message),
        Error::GenerationConfig { .. } | Error::Embedding { .. } | Error::Classifier { .. } => {
            FileError::new_err(message)
        }
        _ => PyValueError::new_err(message),
    }
}

/// The exception for opening a model, which includes making its session.
pub(crate) fn open_error(error: Error) -> PyErr {
    match error {
        Error::Engine(error) => load_error(error),
        error => pipelines_error(error),
    }
}

fn source(error: &sources::Error, message: String) -> PyErr {
    use sources::Error;
    match error {
        Error::Field { field, value, fix } => {
            with(ConfigError::new_err(message), [("problems", vec![(*field, value.clone(), fix.clone())])])
        }
        Error::Gated { .. } => PyPermissionError::new_err(message),
        Error::MissingRepo { .. }
        | Error::MissingRevision { .. }
        | Error::MissingFile { .. }
        | Error::MissingPart { .. }
        | Error::NoWeights { .. }
        | Error::Offline { .. }
        | Error::NoDownloads { .. } => PyFileNotFoundError::new_err(message),
        Error::RateLimited { .. }
        | Error::Network { .. }
        | Error::Untrusted { .. }
        | Error::Protocol { .. }
        | Error::WrongDigest { .. } => PyConnectionError::new_err(message),
        Error::DiskFull { .. } | Error::Escapes { .. } => PyOSError::new_err(message),
        Error::Cache { .. } | Error::Contradiction { .. } | Error::UnknownEncoding { .. } => {
            FileError::new_err(message)
        }
        Error::Io { path, source } => io_error(source, path, message),
        Error::Weights(error) => weights_error(error, message),
        _ => PyValueError::new_err(message),
    }
}

fn weights_error(error: &weights::Error, message: String) -> PyErr {
    match error {
        weights::Error::Io { path, source } => io_error(source, path, message),
        weights::Error::OutOfMemory { .. } => OutOfMemory::new_err(message),
        _ => FileError::new_err(message),
    }
}

fn text(error: &TextError, message: String) -> PyErr {
    match error {
        TextError::Read { path, source } => io_error(source, path, message),
        TextError::Weights(error) => weights_error(error, message),
        TextError::Tokenizer { .. } => FileError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

/// An error of the system as Python's exception for its code.
fn io_error(error: &io::Error, path: &Path, message: String) -> PyErr {
    match error.kind() {
        io::ErrorKind::OutOfMemory => OutOfMemory::new_err(message),
        _ if system_code(error).is_some() => system_error(error, path),
        _ => PyOSError::new_err(message),
    }
}

fn out_of_memory(memory: &Memory, message: String) -> PyErr {
    Python::attach(|py| {
        let error = OutOfMemory::new_err(message);
        let value = error.value(py);
        let set = || -> PyResult<()> {
            value.setattr("needed", memory.needed())?;
            value.setattr("free", memory.free())?;
            value.setattr("suggestions", [memory.suggestion()])
        };
        set().err().unwrap_or(error)
    })
}

fn with_problems(error: PyErr, problems: &[InvalidField]) -> PyErr {
    let problems: Vec<_> = problems.iter().map(|p| (p.field, p.value.clone(), p.fix.clone())).collect();
    with(error, [("problems", problems)])
}

/// The exception with attributes.
fn with<T, const COUNT: usize>(error: PyErr, attributes: [(&str, T); COUNT]) -> PyErr
where
    T: for<'py> IntoPyObject<'py>,
{
    Python::attach(|py| {
        let value = error.value(py);
        let set = attributes.into_iter().try_for_each(|(name, attribute)| value.setattr(name, attribute));
        set.err().unwrap_or(error)
    })
}
