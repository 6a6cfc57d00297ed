//! Dims as Python's class `Dim` holds them.

use perihelion::graph;
use pyo3::exceptions::{PyValueError, PyZeroDivisionError};
use pyo3::prelude::*;

use crate::error::graph_error;

/// The size of an axis: a number, a symbol, or an expression of both.
#[pyclass(frozen, eq, hash, module = "perihelion._perihelion")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Dim(pub(crate) graph::Dim);

#[pymethods]
impl Dim {
    #[staticmethod]
    fn number(number: i64) -> Dim {
        Dim(graph::Dim::integer(number))
    }

    #[staticmethod]
    fn symbol(name: &str) -> PyResult<Dim> {
        match graph::Dim::is_identifier(name) {
            true => Ok(Dim(graph::Dim::symbol(name))),
            false => Err(PyValueError::new_err(format!("value: got {name:?}, expected an identifier"))),
        }
    }

    /// A dim from its text.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Dim> {
        let mut ty: graph::Type = format!("f32[{text}]").parse().map_err(graph_error)?;
        Ok(Dim(ty.shape.swap_remove(0)))
    }

    /// The number, if there are no symbols.
    #[getter]
    fn as_number(&self) -> Option<i64> {
        self.0.as_integer()
    }

    /// The name of a lone symbol.
    #[getter]
    fn as_symbol(&self) -> Option<&str> {
        self.0.as_symbol()
    }

    /// The names of all symbols, in order of appearance.
    #[getter]
    fn symbols(&self) -> Vec<&str> {
        self.0.symbols()
    }

    fn add(&self, other: &Dim) -> Dim {
        Dim(&self.0 + &other.0)
    }

    fn sub(&self, other: &Dim) -> Dim {
        Dim(&self.0 - &other.0)
    }

    fn mul(&self, other: &Dim) -> Dim {
        Dim(&self.0 * &other.0)
    }

    fn floor_div(&self, other: &Dim) -> PyResult<Dim> {
        match other.0.as_integer() {
            Some(0) => Err(PyZeroDivisionError::new_err(format!("{} // 0", self.0))),
            _ => Ok(Dim(self.0.floor_div(&other.0))),
        }
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

pub(crate) fn dims(shape: &[PyRef<'_, Dim>]) -> Vec<graph::Dim> {
    shape.iter().map(|dim| dim.0.clone()).collect()
}
