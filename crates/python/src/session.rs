//! Sessions as Python's class `InferenceSession` holds them.

use std::path::PathBuf;
use std::sync::Arc;

use perihelion::engine::{AssertLevel, CompileOptions, Extensions, InferenceSession};
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::debug::DebugConfig;
use crate::device::{self, Device};
use crate::error::load_error;
use crate::graph::{self, GraphBuilder};
use crate::model::{CompiledModel, Model};
use crate::registry::MappingRegistry;
use crate::running::detached;

/// Compiles graphs and makes models of them.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Session(pub(crate) Arc<InferenceSession>);

#[pymethods]
impl Session {
    #[new]
    fn new(
        py: Python<'_>,
        devices: Vec<PyRef<'_, Device>>,
        num_threads: usize,
        extensions: Vec<PathBuf>,
    ) -> PyResult<Session> {
        let mut devices: Vec<_> = devices.iter().map(|device| Arc::clone(&device.0)).collect();
        if !devices.iter().any(|device| device.is_host()) {
            devices.push(device::cpu().0);
        }
        let build = || {
            let builder = InferenceSession::builder().devices(devices).num_threads(num_threads);
            builder.custom_extensions(Extensions::load_all(extensions)?).build()
        };
        detached(py, build)?.map(|session| Session(Arc::new(session))).map_err(load_error)
    }

    #[getter]
    fn devices(&self) -> Vec<Device> {
        self.0.devices().iter().map(|device| Device(Arc::clone(device))).collect()
    }

    #[getter]
    fn debug(&self) -> DebugConfig {
        DebugConfig(Some(Arc::clone(&self.0)))
    }

    fn compile(&self, py: Python<'_>, path: PathBuf, extensions: Vec<PathBuf>) -> PyResult<CompiledModel> {
        let compile = || self.0.compile_with(&path, &options(extensions)?);
        detached(py, compile)?.map(CompiledModel).map_err(load_error)
    }

    fn compile_graphs(
        &self,
        py: Python<'_>,
        graphs: Vec<PyRef<'_, GraphBuilder>>,
        extensions: Vec<PathBuf>,
    ) -> PyResult<CompiledModel> {
        let module = graph::module(&graphs)?;
        let compile = || self.0.compile_with(&module, &options(extensions)?);
        detached(py, compile)?.map(CompiledModel).map_err(load_error)
    }

    fn init(
        &self,
        py: Python<'_>,
        compiled: &CompiledModel,
        weights: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Model> {
        let weights = MappingRegistry::new(weights)?;
        let model = detached(py, || self.0.init(&compiled.0, &weights));
        finish(&weights, model).map(Model)
    }

    fn init_all(
        &self,
        py: Python<'_>,
        compiled: &CompiledModel,
        weights: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Vec<(String, Model)>> {
        let weights = MappingRegistry::new(weights)?;
        let models = detached(py, || self.0.init_all(&compiled.0, &weights));
        Ok(finish(&weights, models)?.into_iter().map(|(name, model)| (name, Model(model))).collect())
    }

    fn load(
        &self,
        py: Python<'_>,
        path: PathBuf,
        extensions: Vec<PathBuf>,
        weights: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Model> {
        let weights = MappingRegistry::new(weights)?;
        let model = detached(py, || self.0.load_with(&path, &weights, &options(extensions)?));
        finish(&weights, model).map(Model)
    }

    fn load_all(
        &self,
        py: Python<'_>,
        path: PathBuf,
        extensions: Vec<PathBuf>,
        weights: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Vec<(String, Model)>> {
        let weights = MappingRegistry::new(weights)?;
        let models = detached(py, || self.0.load_all_with(&path, &weights, &options(extensions)?));
        Ok(finish(&weights, models)?.into_iter().map(|(name, model)| (name, Model(model))).collect())
    }

    fn set_debug_print_options(
        &self,
        style: &str,
        precision: usize,
        output_directory: Option<PathBuf>,
    ) -> PyResult<()> {
        self.0.set_debug_print_options(style, precision, output_directory.as_deref()).map_err(load_error)
    }

    fn set_mojo_assert_level(&self, level: &str) -> PyResult<()> {
        self.0.set_mojo_assert_level(level.parse::<AssertLevel>().map_err(load_error)?);
        Ok(())
    }

    fn set_mojo_log_level(&self, level: &str) -> PyResult<()> {
        self.0.set_mojo_log_level(level).map_err(load_error)
    }

    fn set_split_k_reduction_precision(&self, precision: &str) -> PyResult<()> {
        self.0.set_split_k_reduction_precision(precision).map_err(load_error)
    }

    fn gpu_profiling(&self, mode: &str) -> PyResult<()> {
        self.0.gpu_profiling(mode).map_err(load_error)
    }

    fn use_fi_topk_kernel(&self, mode: &str) {
        self.0.use_fi_topk_kernel(mode);
    }

    fn use_old_top_k_kernel(&self, mode: &str) {
        self.0.use_old_top_k_kernel(mode);
    }

    fn enable_per_tensor_fp8_quantize(&self, mode: &str) {
        self.0.enable_per_tensor_fp8_quantize(mode);
    }

    /// The settings of the next compile that differ from the defaults, as plans print them.
    fn settings(&self) -> String {
        self.0.kernel_settings().to_string()
    }
}

fn options(extensions: Vec<PathBuf>) -> Result<CompileOptions, perihelion::engine::Error> {
    Ok(CompileOptions { custom_extensions: Extensions::load_all(extensions)?, ..CompileOptions::default() })
}

/// The result of a call that binds weights. If a look-up raised an exception, the call fails with that.
pub(crate) fn finish<T>(
    weights: &MappingRegistry,
    outcome: PyResult<Result<T, perihelion::engine::Error>>,
) -> PyResult<T> {
    outcome?.map_err(|error| weights.raised().unwrap_or_else(|| load_error(error)))
}
