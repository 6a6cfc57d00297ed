//! Models as Python's classes hold them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use perihelion::driver;
use perihelion::engine::{self, Error, InferenceSession, TensorSpec};
use perihelion::graph::DeviceRef;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyTuple};

use crate::buffer::{self, Buffer};
use crate::device::Device;
use crate::dtype;
use crate::error::{call_error, load_error};
use crate::owned::Owned;
use crate::registry::MappingRegistry;
use crate::running::{detached, execute_options};

/// Compiled graphs, to be bound to weights.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct CompiledModel(pub(crate) Owned<engine::CompiledModel>);

#[pymethods]
impl CompiledModel {
    #[getter]
    fn target(&self) -> PyResult<String> {
        Ok(self.0.get()?.target())
    }

    fn export_mef(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let compiled = self.0.get()?;
        detached(py, || compiled.export_mef(path))?.map_err(load_error)
    }
}

/// A compiled graph with its weights.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Model(Owned<engine::Model>, Owned<Arc<InferenceSession>>);

/// Name, code of the dtype, and sizes (`None` if they vary) of an input or output.
type Spec = (String, u8, Vec<Option<usize>>);

#[pymethods]
impl Model {
    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(self.0.get()?.name())
    }

    #[getter]
    fn devices(&self) -> PyResult<Vec<Device>> {
        Ok(self.0.get()?.devices().into_iter().map(Device::new).collect())
    }

    #[getter]
    fn input_devices(&self) -> PyResult<Vec<Device>> {
        let model = self.0.get()?;
        Ok(devices_of(&model, model.input_devices()))
    }

    #[getter]
    fn output_devices(&self) -> PyResult<Vec<Device>> {
        let model = self.0.get()?;
        Ok(devices_of(&model, model.output_devices()))
    }

    #[getter]
    fn input_metadata(&self) -> PyResult<Vec<Spec>> {
        Ok(self.0.get()?.input_metadata().iter().map(spec).collect())
    }

    #[getter]
    fn output_metadata(&self) -> PyResult<Vec<Spec>> {
        Ok(self.0.get()?.output_metadata().iter().map(spec).collect())
    }

    #[getter]
    fn kernel_summaries(&self) -> PyResult<Vec<String>> {
        let kernels = self.0.get()?.kernel_summaries().into_iter();
        Ok(kernels.map(|(kernel, steps)| format!("{kernel} × {steps}")).collect())
    }

    fn execute(&self, py: Python<'_>, arguments: &Bound<'_, PyTuple>) -> PyResult<Vec<Buffer>> {
        let (model, start) = (self.0.get()?, Instant::now());
        let specs = model.input_metadata();
        if arguments.len() != specs.len() {
            let (got, expected) = (arguments.len(), specs.len());
            return Err(PyValueError::new_err(format!(
                "Number of inputs ({got}) does not match expected number ({expected}) for model"
            )));
        }
        let inputs = specs.iter().zip(arguments.iter()).enumerate();
        let inputs = inputs.map(|(position, (spec, argument))| input(position, spec, &argument));
        let inputs = inputs.collect::<PyResult<Vec<driver::Buffer>>>()?;
        let options = execute_options(py)?;
        let outputs = detached(py, || model.execute_with(&inputs, &options))?;
        let recorded = self.1.get()?.record_range("Model.execute", "python", start, start.elapsed());
        recorded.map_err(load_error)?;
        outputs.map(buffers).map_err(|error| input_error(model, error, &inputs))
    }

    fn capture(
        &self,
        py: Python<'_>,
        keys: Vec<u64>,
        inputs: Vec<PyRef<'_, Buffer>>,
    ) -> PyResult<Vec<Buffer>> {
        let (model, inputs) = (self.0.get()?, contents(&inputs));
        let outputs = detached(py, || model.capture(&keys, &inputs))?;
        outputs.map(buffers).map_err(|error| input_error(model, error, &inputs))
    }

    fn replay(&self, py: Python<'_>, keys: Vec<u64>, inputs: Vec<PyRef<'_, Buffer>>) -> PyResult<()> {
        let (model, inputs) = (self.0.get()?, contents(&inputs));
        let outputs = detached(py, || model.replay(&keys, &inputs))?;
        outputs.map(drop).map_err(|error| input_error(model, error, &inputs))
    }

    fn debug_verify_replay(
        &self,
        py: Python<'_>,
        keys: Vec<u64>,
        inputs: Vec<PyRef<'_, Buffer>>,
    ) -> PyResult<()> {
        let (model, inputs) = (self.0.get()?, contents(&inputs));
        let outcome = detached(py, || model.debug_verify_replay(&keys, &inputs))?;
        outcome.map_err(|error| input_error(model, error, &inputs))
    }

    fn release_captured_graph(&self, py: Python<'_>, keys: Vec<u64>) -> PyResult<()> {
        let model = self.0.get()?;
        detached(py, || model.release_captured_graph(&keys))?.map_err(call_error)
    }

    fn reload(&self, py: Python<'_>, weights: &Bound<'_, PyMapping>) -> PyResult<()> {
        let (model, weights) = (self.0.get()?, MappingRegistry::new(Some(weights))?);
        weights.finish(detached(py, || model.reload(&weights)))
    }
}

impl CompiledModel {
    pub(crate) fn new(compiled: engine::CompiledModel) -> CompiledModel {
        CompiledModel(Owned::new("the compiled model", compiled))
    }
}

impl Model {
    pub(crate) fn new(model: engine::Model, session: &Owned<Arc<InferenceSession>>) -> Model {
        Model(Owned::new("the model", model), session.clone())
    }
}

/// The exception for a call. If an input has the wrong type, the message has the reference's wording.
fn input_error(model: &engine::Model, error: Error, inputs: &[driver::Buffer]) -> PyErr {
    match &error {
        Error::Graph(_) => {
            let specs = model.input_metadata().iter().zip(inputs).enumerate();
            match specs.into_iter().find(|(_, (spec, input))| !fits(spec, input)) {
                Some((position, (spec, input))) => PyValueError::new_err(format!(
                    "Input at position {position}: Buffer of type {} does not match expected type {} ({error})",
                    described(input.shape().iter(), input.dtype()),
                    described(&spec.ty.shape, spec.ty.dtype),
                )),
                None => call_error(error),
            }
        }
        // In use, unless no call could take the buffer.
        Error::Input { position, .. } => match inputs.get(*position) {
            Some(input) if input.is_contiguous() && !input.is_read_only() => {
                PyRuntimeError::new_err(error.to_string())
            }
            _ => PyValueError::new_err(error.to_string()),
        },
        _ => call_error(error),
    }
}

/// An argument as the input that it stands for.
fn input(position: usize, spec: &TensorSpec, argument: &Bound<'_, PyAny>) -> PyResult<driver::Buffer> {
    let py = argument.py();
    if let Some(buffer) = buffer::own(argument) {
        return Ok(buffer);
    }
    let of_input = |error: PyErr| match error.is_instance_of::<PyValueError>(py) {
        true => PyValueError::new_err(format!("Input at position {position}: {}", error.value(py))),
        false => error,
    };
    if buffer::is_array(argument)? || argument.hasattr(intern!(py, "__dlpack__"))? {
        return buffer::import(argument, false).map_err(of_input);
    }
    match buffer::to_scalar(argument) {
        Ok(scalar) => buffer::scalar_buffer(spec.ty.dtype, scalar).map(|buffer| buffer.0).map_err(of_input),
        Err(_) => {
            let given = argument.get_type().name()?;
            Err(PyValueError::new_err(format!(
                "Input at position {position}: got {given}, expected a Buffer, an array with __dlpack__, or a number"
            )))
        }
    }
}

/// Whether dtype, rank and known sizes match.
fn fits(spec: &TensorSpec, input: &driver::Buffer) -> bool {
    let sizes = || spec.ty.shape.iter().zip(input.shape().iter());
    spec.ty.dtype == input.dtype()
        && spec.ty.shape.len() == input.rank()
        && sizes().all(|(dim, &size)| dim.as_static().is_none_or(|expected| expected == size))
}

/// `[(6), f32]`.
fn described<D: ToString>(dims: impl IntoIterator<Item = D>, dtype: driver::DType) -> String {
    let dims: Vec<String> = dims.into_iter().map(|dim| dim.to_string()).collect();
    format!("[({}), {}]", dims.join(", "), dtype::tag(dtype))
}

fn spec(spec: &TensorSpec) -> Spec {
    let dims = spec.ty.shape.iter().map(|dim| dim.as_static()).collect();
    (spec.name.clone(), spec.ty.dtype.code(), dims)
}

fn contents(buffers: &[PyRef<'_, Buffer>]) -> Vec<driver::Buffer> {
    buffers.iter().map(|buffer| buffer.0.clone()).collect()
}

fn buffers(buffers: Vec<driver::Buffer>) -> Vec<Buffer> {
    buffers.into_iter().map(Buffer).collect()
}

/// The devices of a model that types name.
fn devices_of(model: &engine::Model, named: Vec<DeviceRef>) -> Vec<Device> {
    let devices = model.devices();
    let find = |named: DeviceRef| {
        let is_meant = |device: &&Arc<dyn driver::Device>| match named {
            DeviceRef::Cpu => device.is_host(),
            DeviceRef::Gpu(id) => !device.is_host() && u32::try_from(device.id()) == Ok(id),
        };
        Device::new(Arc::clone(
            devices.iter().find(is_meant).expect("it runs on the devices that its types name"),
        ))
    };
    named.into_iter().map(find).collect()
}
