//! Buffers as Python's class `Buffer` holds them.

use std::path::PathBuf;

use perihelion::driver::{self, DType, Error, Index, MAX_RANK, MapMode, Scalar, Shape};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyCapsule, PyDict, PyFloat, PyInt, PySlice, PyTuple, PyType};
use pyo3::{IntoPyObjectExt, intern};

use crate::device::Device;
use crate::error::driver_error;
use crate::running::{detached, guarded};
use crate::{dlpack, dtype};

/// An array in host memory.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Buffer(pub(crate) driver::Buffer);

#[pymethods]
impl Buffer {
    /// Without a device, on the host.
    #[staticmethod]
    #[pyo3(signature = (code, shape, device, pinned))]
    fn zeros(
        py: Python<'_>,
        code: u8,
        shape: Vec<i64>,
        device: Option<&Device>,
        pinned: bool,
    ) -> PyResult<Buffer> {
        let (dtype, shape) = (dtype::from_code(code)?, to_shape(&shape)?);
        let device = device.map(Device::get).transpose()?.filter(|device| !device.is_host());
        let make = || match (&device, pinned) {
            (Some(device), _) => driver::Buffer::zeros_on(device.allocator(), dtype, shape),
            (None, true) => driver::Buffer::pinned(dtype, shape),
            (None, false) => driver::Buffer::try_zeros(dtype, shape),
        };
        detached(py, make)?.map(Buffer).map_err(driver_error)
    }

    #[staticmethod]
    fn scalar(code: u8, value: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        scalar_buffer(dtype::from_code(code)?, to_scalar(value)?)
    }

    /// A buffer over the memory of an array that has `__dlpack__`. `copy` is as for Python's `Buffer.from_dlpack`.
    #[staticmethod]
    #[pyo3(signature = (array, copy))]
    fn from_dlpack(py: Python<'_>, array: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Buffer> {
        let shared = import(array, copy == Some(false))?;
        let is_copied = copy.unwrap_or(shared.is_read_only());
        if is_copied {
            detached(py, || shared.copy())?.map(Buffer).map_err(driver_error)
        } else {
            Ok(Buffer(shared))
        }
    }

    fn dlpack<'py>(&self, py: Python<'py>, versioned: bool) -> PyResult<Bound<'py, PyCapsule>> {
        dlpack::export(py, &self.0, versioned)
    }

    /// The interface that NumPy makes an array of. The array keeps this object, and with it the memory.
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let buffer = &self.0;
        let typestr = dtype::type_string(buffer.dtype()).ok_or_else(|| {
            PyValueError::new_err(format!(
                "NumPy has no dtype for {}; view the buffer as integers",
                buffer.dtype()
            ))
        })?;
        let address = buffer.to_dlpack().map_err(driver_error)?.tensor().data.addr();
        let interface = PyDict::new(py);
        interface.set_item(intern!(py, "version"), 3)?;
        interface.set_item(intern!(py, "typestr"), typestr)?;
        interface.set_item(intern!(py, "shape"), PyTuple::new(py, &buffer.shape()[..])?)?;
        if !buffer.is_contiguous() {
            let size = buffer.element_size() as isize;
            let strides = buffer.strides().iter().map(|stride| stride * size).collect::<Vec<isize>>();
            interface.set_item(intern!(py, "strides"), PyTuple::new(py, strides)?)?;
        }
        interface.set_item(intern!(py, "data"), (address, buffer.is_read_only()))?;
        Ok(interface)
    }

    #[getter]
    fn dtype(&self) -> u8 {
        self.0.dtype().code()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.shape()[..])
    }

    #[getter]
    fn num_elements(&self) -> usize {
        self.0.num_elements()
    }

    #[getter]
    fn element_size(&self) -> usize {
        self.0.element_size()
    }

    #[getter]
    fn is_host(&self) -> bool {
        self.0.is_host()
    }

    #[getter]
    fn is_contiguous(&self) -> bool {
        self.0.is_contiguous()
    }

    #[getter]
    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    #[getter]
    fn pinned(&self) -> bool {
        self.0.is_pinned()
    }

    fn slice(&self, indices: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let indices = to_indices(indices)?;
        if indices.len() > self.0.rank() {
            let (got, rank, shape) = (indices.len(), self.0.rank(), Box::new(*self.0.shape()));
            let error = Error::IndexCount { got, expected: format!("at most {rank}"), shape };
            return Err(PyIndexError::new_err(error.to_string()));
        }
        self.0.slice(&indices).map(Buffer).map_err(driver_error)
    }

    fn set(&self, indices: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let positions = to_indices(indices)?.into_iter().map(|index| match index {
            Index::At(position) => Ok(position),
            Index::Range { .. } => Err(PyValueError::new_err(format!(
                "assignment sets one element, got a slice; expected {} integers",
                self.0.rank()
            ))),
        });
        let positions = positions.collect::<PyResult<Vec<isize>>>()?;
        self.0.set(&positions, to_scalar(value)?).map_err(driver_error)
    }

    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let count = self.0.num_elements();
        if count != 1 {
            let shape = Box::new(*self.0.shape());
            return Err(driver_error(Error::NotOneElement { shape, count }));
        }
        match self.0.get(&[0; MAX_RANK][..self.0.rank()]).map_err(driver_error)? {
            Scalar::Bool(value) => value.into_bound_py_any(py),
            Scalar::Int(value) => value.into_bound_py_any(py),
            Scalar::UInt(value) => value.into_bound_py_any(py),
            Scalar::Float(value) => value.into_bound_py_any(py),
        }
    }

    /// The bytes as another dtype, with the shape that follows if none is given.
    #[pyo3(signature = (code, shape))]
    fn view(&self, code: u8, shape: Option<Vec<i64>>) -> PyResult<Buffer> {
        let dtype = dtype::from_code(code)?;
        let view = match shape {
            Some(shape) => self.0.view(dtype, to_shape(&shape)?),
            None => self.0.view_as(dtype),
        };
        view.map(Buffer).map_err(driver_error)
    }

    fn copy(&self, py: Python<'_>) -> PyResult<Buffer> {
        detached(py, || self.0.copy())?.map(Buffer).map_err(driver_error)
    }

    /// The elements on a device: the same buffer if it is there.
    fn to(&self, py: Python<'_>, device: &Device) -> PyResult<Buffer> {
        let device = device.get()?;
        detached(py, || self.0.to(device.allocator()))?.map(Buffer).map_err(driver_error)
    }

    /// The id of the accelerator that the memory is of; -1 for the host.
    #[getter]
    fn device_id(&self) -> i32 {
        let device = self.0.device();
        if device.is_host() { -1 } else { device.id() }
    }

    fn inplace_copy_from(&self, py: Python<'_>, source: &Buffer) -> PyResult<()> {
        detached(py, || self.0.inplace_copy_from(&source.0))?.map_err(driver_error)
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.0.to_string())
    }
}

/// A buffer over a part of a file. `mode` is one of NumPy's: `c`, `r`, `r+`.
#[pyfunction]
pub(crate) fn mmap(
    py: Python<'_>,
    path: PathBuf,
    code: u8,
    shape: Vec<i64>,
    mode: &str,
    offset: u64,
) -> PyResult<Buffer> {
    let (dtype, shape) = (dtype::from_code(code)?, to_shape(&shape)?);
    let mode: MapMode = mode.parse().map_err(driver_error)?;
    detached(py, || driver::Buffer::mmap(path, dtype, shape, offset, mode))?.map(Buffer).map_err(driver_error)
}

/// The tensor of a `.max` file.
#[pyfunction]
pub(crate) fn load_max_buffer(py: Python<'_>, path: PathBuf) -> PyResult<Buffer> {
    detached(py, || driver::load_max_buffer(path))?.map(Buffer).map_err(driver_error)
}

/// Another library's array as a buffer that shares its memory, if its library can; with `share`, it must.
pub(crate) fn import(array: &Bound<'_, PyAny>, share: bool) -> PyResult<driver::Buffer> {
    let from_dlpack = |tensor| driver::Buffer::from_dlpack(tensor).map_err(driver_error);
    let error = match dlpack::import(array, share) {
        Ok(tensor) => return from_dlpack(tensor),
        Err(error) => error,
    };
    let Some((bytes, dtype)) = carried(array)? else { return Err(error) };
    let shape: Vec<i64> = array.getattr(intern!(array.py(), "shape"))?.extract()?;
    from_dlpack(dlpack::import(&bytes, share)?)?.view(dtype, to_shape(&shape)?).map_err(driver_error)
}

/// An array of NumPy with a dtype of ml_dtypes, which it does not export, as its bytes and what they are.
fn carried<'py>(array: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, DType)>> {
    let py = array.py();
    if !is_array(array)? {
        return Ok(None);
    }
    let name: String = array.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "name"))?.extract()?;
    let dtype = name.replace("float", "f").replace('_', "").parse::<DType>();
    match dtype {
        Ok(dtype) if dtype == DType::BF16 || dtype.is_float8() => {
            let carrier = if dtype == DType::BF16 { "uint16" } else { "uint8" };
            Ok(Some((array.call_method1(intern!(py, "view"), (carrier,))?, dtype)))
        }
        _ => Ok(None),
    }
}

/// The buffer in an object of Python's class `Buffer`, or a native one.
pub(crate) fn own(object: &Bound<'_, PyAny>) -> Option<driver::Buffer> {
    if let Ok(native) = object.cast::<Buffer>() {
        return Some(native.get().0.clone());
    }
    // Looking up an attribute that NumPy's arrays do not have takes longer than asking for their type.
    if is_array(object).unwrap_or(false) {
        return None;
    }
    let native = object.getattr_opt(intern!(object.py(), "_native")).ok()??;
    native.cast::<Buffer>().ok().map(|native| native.get().0.clone())
}

/// Whether the object is an array of NumPy, not of a subclass.
pub(crate) fn is_array(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(object.get_type().is(ARRAY.import(object.py(), "numpy", "ndarray")?))
}

pub(crate) fn scalar_buffer(dtype: DType, value: Scalar) -> PyResult<Buffer> {
    guarded(|| driver::Buffer::full(dtype, Shape::SCALAR, value))?.map(Buffer).map_err(driver_error)
}

/// The value of a Python number, of a NumPy scalar, or of a buffer of one element.
pub(crate) fn to_scalar(value: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    if let Some(scalar) = python_number(value)? {
        return Ok(scalar);
    }
    if let Some(item) = value.getattr_opt(intern!(value.py(), "item"))?
        && let Some(scalar) = python_number(&item.call0()?)?
    {
        return Ok(scalar);
    }
    let given = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("value: got {given}, expected a number")))
}

fn python_number(value: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(value.is_true())));
    }
    if let Ok(value) = value.cast::<PyInt>() {
        // Between the two, there is no integer that one of them holds.
        return match value.extract::<i64>() {
            Ok(value) => Ok(Some(Scalar::Int(value))),
            Err(_) => match value.extract::<u64>() {
                Ok(value) => Ok(Some(Scalar::UInt(value))),
                Err(_) => Err(PyValueError::new_err(format!("no dtype holds the integer {value}"))),
            },
        };
    }
    Ok(value.cast::<PyFloat>().ok().map(|value| Scalar::Float(value.value())))
}

/// Sizes of axes, none of them negative.
pub(crate) fn to_shape(sizes: &[i64]) -> PyResult<Shape> {
    let fail = |reason: String| PyValueError::new_err(format!("shape {sizes:?}: {reason}"));
    let sized =
        sizes.iter().map(|&size| usize::try_from(size).map_err(|_| fail(format!("{size} is negative"))));
    let sized = sized.collect::<PyResult<Vec<usize>>>()?;
    Shape::try_new(&sized).ok_or_else(|| fail(format!("{} axes, the most are {MAX_RANK}", sizes.len())))
}

/// An integer, a slice, or a tuple of them.
fn to_indices(indices: &Bound<'_, PyAny>) -> PyResult<Vec<Index>> {
    match indices.cast::<PyTuple>() {
        Ok(indices) => indices.iter().map(|index| to_index(&index)).collect(),
        Err(_) => Ok(vec![to_index(indices)?]),
    }
}

fn to_index(index: &Bound<'_, PyAny>) -> PyResult<Index> {
    if let Ok(slice) = index.cast::<PySlice>() {
        let bound = |name| {
            let value = slice.getattr(name)?;
            if value.is_none() { Ok(None) } else { clipped(&value).map(Some) }
        };
        let py = slice.py();
        let step = bound(intern!(py, "step"))?.unwrap_or(1);
        if step == 0 {
            return Err(PyValueError::new_err("the step of a slice is 0"));
        }
        return Ok(Index::Range {
            start: bound(intern!(py, "start"))?,
            end: bound(intern!(py, "stop"))?,
            step,
        });
    }
    if !index.is_instance_of::<PyBool>()
        && let Ok(position) = index.call_method0(intern!(index.py(), "__index__"))
    {
        return Ok(Index::At(clipped(&position)?));
    }
    let given = index.get_type().name()?;
    Err(PyTypeError::new_err(format!("index: got {given}, expected an integer, a slice, or a tuple of them")))
}

/// An integer, or the end of the range of `isize` that it lies beyond: that is outside of every axis too.
fn clipped(value: &Bound<'_, PyAny>) -> PyResult<isize> {
    let value = value.call_method0(intern!(value.py(), "__index__"))?;
    match value.extract::<isize>() {
        Ok(value) => Ok(value),
        Err(_) => Ok(if value.lt(0)? { isize::MIN } else { isize::MAX }),
    }
}
