//! Sessions as Python's class `InferenceSession` holds them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perihelion::engine::{
    self, AssertLevel, CompileOptions, Extensions, InferenceSession, Target, UninitializedReadMode,
};
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::debug::DebugConfig;
use crate::device::{self, Device};
use crate::error::load_error;
use crate::graph::{self, GraphBuilder};
use crate::model::{CompiledModel, Model};
use crate::owned::Owned;
use crate::registry::MappingRegistry;
use crate::running::detached;

/// Compiles graphs and makes models of them.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Session(pub(crate) Owned<Arc<InferenceSession>>);

#[pymethods]
impl Session {
    #[new]
    fn new(
        py: Python<'_>,
        devices: Vec<PyRef<'_, Device>>,
        num_threads: usize,
        extensions: Vec<PathBuf>,
    ) -> PyResult<Session> {
        let mut devices = devices.iter().map(|device| device.get()).collect::<PyResult<Vec<_>>>()?;
        if !devices.iter().any(|device| device.is_host()) {
            devices.push(device::cpu().get()?);
        }
        expect_read_mode(engine::DebugConfig::process())?;
        let build = || {
            let builder = InferenceSession::builder().devices(devices).num_threads(num_threads);
            builder.custom_extensions(Extensions::load_all(extensions)?).build()
        };
        let session = detached(py, build)?.map_err(load_error)?;
        Ok(Session(Owned::new("the session", Arc::new(session))))
    }

    #[getter]
    fn devices(&self) -> PyResult<Vec<Device>> {
        Ok(self.0.get()?.devices().iter().cloned().map(Device::new).collect())
    }

    #[getter]
    fn debug(&self) -> DebugConfig {
        DebugConfig(Some(self.0.clone()))
    }

    fn compile(
        &self,
        py: Python<'_>,
        path: PathBuf,
        extensions: Vec<PathBuf>,
        target: Option<&str>,
    ) -> PyResult<CompiledModel> {
        let (session, target) = (self.0.get()?, parse_target(target)?);
        let compile = || session.compile_with(&path, &CompileOptions { target, ..options(extensions)? });
        detached(py, compile)?.map(CompiledModel::new).map_err(load_error)
    }

    fn compile_graphs(
        &self,
        py: Python<'_>,
        graphs: Vec<PyRef<'_, GraphBuilder>>,
        extensions: Vec<PathBuf>,
        target: Option<&str>,
    ) -> PyResult<CompiledModel> {
        let module = graph::module(&graphs)?;
        let (session, target) = (self.0.get()?, parse_target(target)?);
        let compile = || session.compile_with(&module, &CompileOptions { target, ..options(extensions)? });
        detached(py, compile)?.map(CompiledModel::new).map_err(load_error)
    }

    fn init(
        &self,
        py: Python<'_>,
        compiled: &CompiledModel,
        weights: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Model> {
        let (session, compiled) = (self.0.get()?, compiled.0.get()?);
        let weights = MappingRegistry::new(weights)?;
        let model = detached(py, || session.init(compiled, &weights));
        weights.finish(model).map(|model| Model::new(model, &self.0))
    }

    fn init_all(
        &self,
        py: Python<'_>,
        compiled: &CompiledModel,
        weights: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Vec<(String, Model)>> {
        let (session, compiled) = (self.0.get()?, compiled.0.get()?);
        let weights = MappingRegistry::new(weights)?;
        let models = detached(py, || session.init_all(compiled, &weights));
        Ok(weights
            .finish(models)?
            .into_iter()
            .map(|(name, model)| (name, Model::new(model, &self.0)))
            .collect())
    }

    fn load(
        &self,
        py: Python<'_>,
        path: PathBuf,
        extensions: Vec<PathBuf>,
        weights: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Model> {
        let session = self.0.get()?;
        let weights = MappingRegistry::new(weights)?;
        let model = detached(py, || session.load_with(&path, &weights, &options(extensions)?));
        weights.finish(model).map(|model| Model::new(model, &self.0))
    }

    fn load_all(
        &self,
        py: Python<'_>,
        path: PathBuf,
        extensions: Vec<PathBuf>,
        weights: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Vec<(String, Model)>> {
        let session = self.0.get()?;
        let weights = MappingRegistry::new(weights)?;
        let models = detached(py, || session.load_all_with(&path, &weights, &options(extensions)?));
        Ok(weights
            .finish(models)?
            .into_iter()
            .map(|(name, model)| (name, Model::new(model, &self.0)))
            .collect())
    }

    fn set_debug_print_options(
        &self,
        style: &str,
        precision: usize,
        output_directory: Option<PathBuf>,
    ) -> PyResult<()> {
        self.0
            .get()?
            .set_debug_print_options(style, precision, output_directory.as_deref())
            .map_err(load_error)
    }

    fn set_mojo_assert_level(&self, level: &str) -> PyResult<()> {
        self.0.get()?.set_mojo_assert_level(level.parse::<AssertLevel>().map_err(load_error)?);
        Ok(())
    }

    fn set_mojo_log_level(&self, level: &str) -> PyResult<()> {
        self.0.get()?.set_mojo_log_level(level).map_err(load_error)
    }

    fn set_split_k_reduction_precision(&self, precision: &str) -> PyResult<()> {
        self.0.get()?.set_split_k_reduction_precision(precision).map_err(load_error)
    }

    fn gpu_profiling(&self, mode: &str) -> PyResult<()> {
        self.0.get()?.gpu_profiling(mode).map_err(load_error)
    }

    /// Adds a range to the trace that began `ago` seconds before now, if calls are measured in detail.
    fn record_range(&self, name: &str, ago: f64, seconds: f64) -> PyResult<()> {
        record_range(self.0.get()?, name, ago, seconds)
    }

    fn use_fi_topk_kernel(&self, mode: &str) -> PyResult<()> {
        self.0.get()?.use_fi_topk_kernel(mode);
        Ok(())
    }

    fn use_old_top_k_kernel(&self, mode: &str) -> PyResult<()> {
        self.0.get()?.use_old_top_k_kernel(mode);
        Ok(())
    }

    fn enable_per_tensor_fp8_quantize(&self, mode: &str) -> PyResult<()> {
        self.0.get()?.enable_per_tensor_fp8_quantize(mode);
        Ok(())
    }

    /// The settings of the next compile that differ from the defaults, as plans print them.
    fn settings(&self) -> PyResult<String> {
        Ok(self.0.get()?.kernel_settings().to_string())
    }
}

/// Adds a range that began `ago` seconds before now to a session's trace, if calls are measured in detail.
pub(crate) fn record_range(session: &InferenceSession, name: &str, ago: f64, seconds: f64) -> PyResult<()> {
    let durations = [ago, seconds].map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let [ago, duration] = durations;
    let now = Instant::now();
    let start = now.checked_sub(ago).unwrap_or(now);
    session.record_range(name, "python", start, duration).map_err(load_error)
}

/// Refuses an unknown mode of the check of uninitialized reads if the check is on.
fn expect_read_mode(config: &engine::DebugConfig) -> PyResult<()> {
    match config.text("uninitialized_read_mode") {
        Some(mode) if !mode.is_empty() && config.uninitialized_read_check() => {
            mode.parse::<UninitializedReadMode>().map(drop).map_err(load_error)
        }
        _ => Ok(()),
    }
}

fn parse_target(text: Option<&str>) -> PyResult<Option<Target>> {
    text.map(str::parse).transpose().map_err(load_error)
}

fn options(extensions: Vec<PathBuf>) -> Result<CompileOptions, perihelion::engine::Error> {
    Ok(CompileOptions { custom_extensions: Extensions::load_all(extensions)?, ..CompileOptions::default() })
}
