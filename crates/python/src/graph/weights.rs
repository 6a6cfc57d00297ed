//! Files of weights, as Python's class `Weights` holds them.

use std::path::PathBuf;

use perihelion::driver;
use perihelion::weights::{Error, Weights};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::error::{FileError, driver_error, file_error};
use crate::running::detached;

/// The weights of a model's files.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct WeightFiles(Weights);

/// The code of the dtype, the shape, and the block format. Quantized weights have the dtype and shape of their bytes.
type Spec = (u8, Vec<usize>, Option<String>);

#[pymethods]
impl WeightFiles {
    /// One path may be a folder, an index, or a file of a split set.
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<WeightFiles> {
        let open = || match &paths[..] {
            [path] => Weights::open(path),
            paths => Weights::open_all(paths),
        };
        detached(py, open)?.map(WeightFiles).map_err(weights_error)
    }

    #[getter]
    fn format(&self) -> String {
        self.0.format().to_string().to_lowercase()
    }

    #[getter]
    fn names(&self) -> Vec<&str> {
        self.0.names().collect()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }

    fn spec(&self, name: &str) -> PyResult<Spec> {
        let dtype = self.tensor(name)?.dtype();
        let buffer = self.buffer(name)?;
        let blocks = dtype.is_block().then(|| dtype.name().to_uppercase());
        Ok((buffer.dtype().code(), buffer.shape().to_vec(), blocks))
    }

    /// The elements, or the bytes of quantized ones, in the mapped file.
    fn data(&self, name: &str) -> PyResult<Buffer> {
        self.buffer(name).map(Buffer)
    }
}

impl WeightFiles {
    fn tensor(&self, name: &str) -> PyResult<&driver::Tensor> {
        self.0.get(name).ok_or_else(|| PyKeyError::new_err(name.to_string()))
    }

    fn buffer(&self, name: &str) -> PyResult<driver::Buffer> {
        let tensor = self.tensor(name)?;
        let buffer = driver::Buffer::over_tensor(tensor);
        match tensor.dtype().is_block() {
            true => buffer.view_as(driver::DType::U8).map_err(driver_error),
            false => Ok(buffer),
        }
    }
}

/// The exception for files of weights.
pub(crate) fn weights_error(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Io { path, .. } => file_error(&path, message),
        _ => FileError::new_err(message),
    }
}
