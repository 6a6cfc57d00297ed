//! Values, types, operands and indices of graphs, as they cross from Python and back.

use perihelion::driver::Tensor;
use perihelion::graph::ops::Attribute;
use perihelion::graph::{self, DeviceRef, Index, Kind, Operand};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyFloat, PyInt, PySlice, PyString, PyTuple};

use super::dim::{Dim, dims};
use crate::buffer;
use crate::dtype;
use crate::error::{axis_error, driver_error};

/// A value of a graph, and its type.
#[pyclass(frozen, eq, hash, module = "perihelion._perihelion", name = "GraphValue")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Value {
    pub(crate) value: graph::Value,
    pub(crate) ty: graph::Type,
}

#[pymethods]
impl Value {
    #[getter]
    fn r#type(&self) -> TypeArgument {
        TypeArgument(self.ty.clone())
    }
}

pub(crate) fn values(values: &[PyRef<'_, Value>]) -> Vec<graph::Value> {
    values.iter().map(|value| value.value).collect()
}

/// A type as Python has it: whether it is a buffer's, code of the dtype, shape, and the accelerator, or -1 for the CPU.
pub(crate) struct TypeArgument(pub(crate) graph::Type);

impl FromPyObject<'_, '_> for TypeArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<TypeArgument> {
        let (is_buffer, code, shape, device): (bool, u8, Vec<PyRef<'_, Dim>>, i64) = object.extract()?;
        let kind = if is_buffer { Kind::Buffer } else { Kind::Tensor };
        let (dtype, shape) = (dtype::from_code(code)?, dims(&shape));
        Ok(TypeArgument(graph::Type { kind, dtype, shape, device: to_device(device)? }))
    }
}

impl<'py> IntoPyObject<'py> for TypeArgument {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ty = self.0;
        let device = match ty.device {
            DeviceRef::Cpu => -1,
            DeviceRef::Gpu(id) => i64::from(id),
        };
        let shape: Vec<Dim> = ty.shape.into_iter().map(Dim).collect();
        (ty.kind == Kind::Buffer, ty.dtype.code(), shape, device).into_pyobject(py)
    }
}

pub(crate) fn to_device(id: i64) -> PyResult<DeviceRef> {
    match id {
        -1 => Ok(DeviceRef::Cpu),
        _ => match u32::try_from(id) {
            Ok(id) => Ok(DeviceRef::Gpu(id)),
            Err(_) => Err(PyValueError::new_err(format!("id: got {id}, expected one below 2**32"))),
        },
    }
}

/// A number that is not negative.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(pub(crate) usize);

impl FromPyObject<'_, '_> for Count {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Count> {
        if object.is_instance_of::<PyInt>() && object.lt(0)? {
            return Err(PyValueError::new_err(format!("got {}, expected at least 0", object.as_any())));
        }
        let count = object.extract::<i64>().map_err(|error| too_large(&object, error));
        Ok(Count(count?.try_into()?))
    }
}

/// An axis; a negative one counts from the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis(pub(crate) isize);

impl FromPyObject<'_, '_> for Axis {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Axis> {
        match object.extract() {
            Ok(axis) => Ok(Axis(axis)),
            Err(_) if object.is_instance_of::<PyInt>() => {
                Err(axis_error(format!("axis: got {}, which no tensor has", object.as_any())))
            }
            Err(error) => Err(error),
        }
    }
}

/// The error of a number that does not fit 64 bits, in place of Python's `OverflowError`.
fn too_large(object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    match object.is_instance_of::<PyInt>() {
        true => PyValueError::new_err(format!("got {object}, expected an integer of 64 bits")),
        false => error,
    }
}

pub(crate) fn counts(counts: Vec<Count>) -> Vec<usize> {
    counts.into_iter().map(|count| count.0).collect()
}

/// A value, a number, or a buffer, which is copied.
pub(crate) struct OperandArgument(pub(crate) Operand);

impl FromPyObject<'_, '_> for OperandArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<OperandArgument> {
        if let Ok(value) = object.cast::<Value>() {
            return Ok(OperandArgument(Operand::Value(value.get().value)));
        }
        if let Ok(value) = object.cast::<PyBool>() {
            return Ok(OperandArgument(Operand::Bool(value.is_true())));
        }
        if object.is_instance_of::<PyInt>() {
            let operand = match (object.extract::<i64>(), object.extract::<u64>()) {
                (Ok(number), _) => Operand::Int(number),
                (_, Ok(number)) => Operand::Tensor(Tensor::scalar(number)),
                _ => {
                    return Err(PyValueError::new_err(format!(
                        "no dtype holds the integer {}",
                        object.as_any()
                    )));
                }
            };
            return Ok(OperandArgument(operand));
        }
        if let Ok(value) = object.cast::<PyFloat>() {
            return Ok(OperandArgument(Operand::Float(value.value())));
        }
        match buffer::own(&object) {
            Some(buffer) => Ok(OperandArgument(Operand::Tensor(buffer.to_tensor().map_err(driver_error)?))),
            None => Err(unexpected("operand", &object, "a value of a graph, a number or an array")),
        }
    }
}

/// An index into a tensor: an integer, a value, `None`, `...`, a slice, or a tuple of a slice of values and its size.
pub(crate) struct IndexArgument(pub(crate) Index);

impl FromPyObject<'_, '_> for IndexArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<IndexArgument> {
        if object.is_none() {
            return Ok(IndexArgument(Index::NewAxis));
        }
        if object.is_instance_of::<PyEllipsis>() {
            return Ok(IndexArgument(Index::Ellipsis));
        }
        if let Ok(value) = object.cast::<Value>() {
            return Ok(IndexArgument(Index::AtValue(value.get().value)));
        }
        if let Ok((slice, dim)) = object.extract::<(Bound<'_, PySlice>, PyRef<'_, Dim>)>() {
            let end = |name| -> PyResult<Option<graph::Value>> {
                let end: Option<PyRef<'_, Value>> = slice.getattr(name)?.extract()?;
                Ok(end.map(|value| value.value))
            };
            let (start, stop, step) = (end("start")?, end("stop")?, end("step")?);
            return Ok(IndexArgument(Index::Span { start, stop, step, out_dim: dim.0.clone() }));
        }
        if let Ok(slice) = object.cast::<PySlice>() {
            let end = |name| end_of_slice(&slice.getattr(name)?);
            let step = end("step")?.unwrap_or(1);
            return Ok(IndexArgument(Index::Range { start: end("start")?, stop: end("stop")?, step }));
        }
        if object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>() {
            let too_large = || PyIndexError::new_err(format!("index {} is out of range", object.as_any()));
            return object.extract().map(|index| IndexArgument(Index::At(index))).map_err(|_| too_large());
        }
        Err(unexpected("index", &object, "an integer, a slice, None, ... or a value of a graph"))
    }
}

/// An end of a slice. Those beyond 64 bits are the ends of the axis, as all that lie outside of it.
fn end_of_slice(end: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if end.is_none() {
        return Ok(None);
    }
    if !end.is_instance_of::<PyInt>() {
        let expected = "an integer; ends that are tensors take the size: (slice(start, stop), size)";
        return Err(unexpected("index: an end of a slice", end, expected));
    }
    match end.extract() {
        Ok(end) => Ok(Some(end)),
        Err(_) => Ok(Some(if end.lt(0)? { i64::MIN } else { i64::MAX })),
    }
}

/// A parameter of a custom op: a bool, a number, text, integers, or a tuple of the code of a dtype.
pub(crate) struct Parameter(pub(crate) Attribute);

impl FromPyObject<'_, '_> for Parameter {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Parameter> {
        let attribute = if let Ok(value) = object.cast::<PyBool>() {
            Attribute::Bool(value.is_true())
        } else if object.is_instance_of::<PyInt>() {
            Attribute::Int(object.extract()?)
        } else if let Ok(value) = object.cast::<PyFloat>() {
            Attribute::Float(value.value())
        } else if let Ok(text) = object.cast::<PyString>() {
            Attribute::Text(text.to_string())
        } else if let Ok((code,)) = object.extract::<(u8,)>() {
            Attribute::DType(dtype::from_code(code)?)
        } else if let Ok(integers) = object.extract::<Vec<i64>>() {
            Attribute::Ints(integers)
        } else {
            return Err(unexpected("parameter", &object, "a bool, an int, a float, a str or a DType"));
        };
        Ok(Parameter(attribute))
    }
}

fn unexpected(parameter: &str, object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    match object.get_type().name() {
        Ok(given) => PyTypeError::new_err(format!("{parameter}: got {given}, expected {expected}")),
        Err(error) => error,
    }
}
