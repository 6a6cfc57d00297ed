//! A Python mapping as the weights of a model.

use std::sync::{Mutex, PoisonError};

use perihelion::driver::Tensor;
use perihelion::engine::{Error, PackError, WeightValue, WeightsRegistry};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::error::load_error;
use crate::{buffer, running};

/// Looks weights up by name, when the engine asks for them. Models hold on to the arrays that they use.
pub(crate) struct MappingRegistry {
    mapping: Option<Py<PyMapping>>,
    names: Vec<String>,
    /// The exception that a look-up raised.
    raised: Mutex<Option<PyErr>>,
}

impl MappingRegistry {
    pub(crate) fn new(mapping: Option<&Bound<'_, PyMapping>>) -> PyResult<MappingRegistry> {
        let names = mapping.map(|mapping| mapping.keys()?.extract()).transpose()?.unwrap_or_default();
        Ok(MappingRegistry { mapping: mapping.map(|m| m.clone().unbind()), names, raised: Mutex::default() })
    }

    /// The result of a call that binds weights. If a look-up raised an exception, the call fails with that: it is the cause
    /// of any error of the engine.
    pub(crate) fn finish<T>(&self, outcome: PyResult<Result<T, Error>>) -> PyResult<T> {
        let raised = || self.raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome?.map_err(|error| raised().unwrap_or_else(|| load_error(error)))
    }

    fn fail(&self, error: PyErr) -> PackError {
        let message = error.to_string();
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        message.into()
    }

    fn find(&self, py: Python<'_>, name: &str) -> PyResult<Option<Result<Tensor, String>>> {
        let Some(mapping) = &self.mapping else { return Ok(None) };
        let mapping = mapping.bind(py);
        if !mapping.contains(name)? {
            return Ok(None);
        }
        let value = mapping.get_item(name)?;
        if let Some(buffer) = buffer::own(&value) {
            return Ok(Some(buffer.as_weight()));
        }
        // Before the array itself: a value that is no array of any library raises AttributeError.
        value.call_method0(intern!(py, "__dlpack_device__"))?;
        let of_weight = |error: PyErr| match error.is_instance_of::<PyValueError>(py) {
            true => PyValueError::new_err(format!("weight `{name}`: {}", error.value(py))),
            false => error,
        };
        Ok(Some(WeightValue::as_weight(&buffer::import(&value, false).map_err(of_weight)?)))
    }
}

impl WeightsRegistry for MappingRegistry {
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
        if running::is_interrupted() {
            return Err("interrupted".to_string().into());
        }
        let found = Python::attach(|py| self.find(py, name)).map_err(|error| self.fail(error))?;
        Ok(found.transpose()?)
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.names.clone())
    }
}
