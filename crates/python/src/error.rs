//! Rust's errors as Python's exceptions, with their messages unchanged.

use std::fs::File;
use std::io;
use std::path::Path;

use perihelion::driver::Error as DriverError;
use perihelion::engine::Error;
use perihelion::graph;
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

pyo3::create_exception!(perihelion, FileError, PyValueError, "A file is damaged, or of another kind.");
pyo3::create_exception!(
    perihelion,
    CompilationStopped,
    PyRuntimeError,
    "Compiling stopped once all passes had run, as the debug option `pre_jit` asks."
);
pyo3::create_exception!(
    perihelion,
    InternalError,
    PyRuntimeError,
    "A bug in Perihelion. The process goes on; please report the message."
);
pyo3::create_exception!(
    perihelion,
    OutOfMemory,
    PyMemoryError,
    "The system refuses the memory that a model or an array needs."
);

/// `AxisError`, whose two bases `create_exception` does not know.
static AXIS_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The class `AxisError`, made once.
pub(crate) fn axis_error_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let make = || {
        let bases = (py.get_type::<PyValueError>(), py.get_type::<PyIndexError>());
        let members = PyDict::new(py);
        members.set_item("__module__", "perihelion")?;
        members.set_item("__doc__", "A tensor has no such axis.")?;
        let class = py.get_type::<PyType>().call1(("AxisError", bases, members))?;
        PyResult::Ok(class.cast_into::<PyType>()?.unbind())
    };
    AXIS_ERROR.get_or_try_init(py, make).map(|class| class.bind(py))
}

/// The exception for an axis that a tensor lacks.
pub(crate) fn axis_error(message: String) -> PyErr {
    Python::attach(|py| match axis_error_type(py) {
        Ok(class) => PyErr::from_type(class.clone(), (message,)),
        Err(error) => error,
    })
}

/// The exception for an array or its file.
pub(crate) fn driver_error(error: DriverError) -> PyErr {
    let message = error.to_string();
    match error {
        DriverError::File { path, .. } => file_error(&path, message),
        DriverError::Index { .. } => PyIndexError::new_err(message),
        DriverError::Busy(_) => PyRuntimeError::new_err(message),
        DriverError::OutOfMemory { .. } | DriverError::Memory { .. } => OutOfMemory::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

/// The exception for a session, a compile, an init or its weights.
pub(crate) fn load_error(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        _ if error.is_out_of_memory() => OutOfMemory::new_err(message),
        Error::Driver(error) => driver_error(error),
        Error::CompilationStopped { .. } => CompilationStopped::new_err(message),
        Error::MissingWeight { .. }
        | Error::Weight { .. }
        | Error::UnknownWeights { .. }
        | Error::NotOneModel { .. }
        | Error::Placement { .. }
        | Error::Setting { .. } => PyValueError::new_err(message),
        Error::Write { path, .. } => write_error(&path, message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// The exception for a graph. Its message has no location: Python's traceback shows the place in the source.
pub(crate) fn graph_error(error: graph::Error) -> PyErr {
    let error = error.without_location();
    match error {
        graph::Error::Axis { .. } => axis_error(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// The exception for a call of a model.
pub(crate) fn call_error(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        _ if error.is_out_of_memory() => OutOfMemory::new_err(message),
        Error::Driver(error) => driver_error(error),
        Error::Graph(_)
        | Error::Arguments { .. }
        | Error::Capture { .. }
        | Error::Rebind { .. }
        | Error::Step { .. }
        | Error::TooLarge { .. } => PyValueError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// The system's exception if the file cannot be read, else `FileError`: the file is damaged.
pub(crate) fn file_error(path: &Path, message: String) -> PyErr {
    let readable = path.metadata().and_then(|metadata| match metadata.is_dir() {
        true => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        false if metadata.is_file() => File::open(path).map(drop),
        false => Ok(()),
    });
    match readable {
        Err(error) => system_error(&error, path),
        Ok(()) => FileError::new_err(message),
    }
}

/// The system's exception if the folder does not exist, else an `OSError` with the message.
fn write_error(path: &Path, message: String) -> PyErr {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.map(Path::metadata) {
        Some(Err(error)) => system_error(&error, path),
        _ => PyOSError::new_err(message),
    }
}

/// The system's code of an error, also of one that Rust's library made.
pub(crate) fn system_code(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or(match error.kind() {
        io::ErrorKind::NotFound => Some(libc::ENOENT),
        io::ErrorKind::PermissionDenied => Some(libc::EACCES),
        io::ErrorKind::IsADirectory => Some(libc::EISDIR),
        io::ErrorKind::NotADirectory => Some(libc::ENOTDIR),
        _ => None,
    })
}

/// `OSError(errno, text, filename)`, which Python makes a `FileNotFoundError` or another subclass.
pub(crate) fn system_error(error: &io::Error, path: &Path) -> PyErr {
    match system_code(error) {
        Some(code) => PyOSError::new_err((code, error.kind().to_string(), path.to_path_buf())),
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}
