//! Configurations as Python's class `PipelineConfig` makes them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use perihelion::pipelines::config::{
    FIELDS, Layers, Origin, PipelineConfig, SupportedEncoding, UseCase, WeightsConverter, machine,
};
use perihelion::pipelines::{Error, Plan, set_python};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Map, Value};

use super::error::pipelines_error;
use super::repo::Repo;
use super::waiting::wait_for_thread;

/// A configuration, made of the fields of Python's.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Config(Mutex<PipelineConfig>);

#[pymethods]
impl Config {
    /// `fields` are names and values, as JSON. `converter.convert(name)` gives a tensor another name, or `None`.
    /// `config_json` takes the place of the file.
    #[new]
    #[pyo3(signature = (fields, weights_repo_id, converter, config_json))]
    fn new(
        fields: &str,
        weights_repo_id: Option<String>,
        converter: Option<Py<PyAny>>,
        config_json: Option<&str>,
    ) -> PyResult<Config> {
        let mut config = read(fields)?.map_err(pipelines_error)?;
        if let Some(json) = config_json {
            let given: Map<String, Value> = serde_json::from_str(json)
                .map_err(|error| PyValueError::new_err(format!("_huggingface_config: {error}")))?;
            config._huggingface_config = Arc::new(Value::Object(given)).into();
        }
        config._weights_repo_id = weights_repo_id;
        config._weights_converter = converter.map(|converter| {
            WeightsConverter::new(move |name| Python::attach(|py| convert(py, &converter, name)))
        });
        Ok(Config(Mutex::new(config)))
    }

    /// Checks everything, and gives warnings.
    fn validate(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let config = self.get();
        let validate = move || {
            let plan = config.plan_or_built_in(machine())?;
            plan.memory()?;
            Ok(all_warnings(&plan))
        };
        wait_for_thread(py, validate)?.map_err(pipelines_error)
    }

    /// All fields as they are decided, as JSON, and warnings.
    fn resolve(&self, py: Python<'_>) -> PyResult<(String, Vec<String>)> {
        let config = self.get();
        let plan =
            wait_for_thread(py, move || config.plan_or_built_in(machine()))?.map_err(pipelines_error)?;
        Ok((fields(plan.config()), plan.warnings().to_vec()))
    }

    /// `config.json`, with the defaults of the model's family.
    fn huggingface_config(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, |config| config.complete_huggingface_config().map(|json| json.to_string()))
    }

    /// The architecture that the model's files name, and warnings.
    fn update_architecture(&self, py: Python<'_>) -> PyResult<(Option<String>, Vec<String>)> {
        self.ask(py, |config| {
            let warnings = config.update_architecture()?;
            Ok((config.architecture.clone(), warnings))
        })
    }

    fn weights_size(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.ask(py, |config| config.weights_size())
    }

    /// The paths of the weights on this machine, and the repository that they are of, if it is not the model's.
    fn download_weights(&self, py: Python<'_>) -> PyResult<(Vec<PathBuf>, Option<String>)> {
        self.ask(py, |config| {
            config.download_weights()?;
            Ok((config.weight_path.clone(), config._weights_repo_id.clone()))
        })
    }

    fn weights_format(&self) -> PyResult<&'static str> {
        self.get().weights_format().map(|format| format.name()).map_err(pipelines_error)
    }

    fn weights_repo(&self, py: Python<'_>) -> PyResult<Repo> {
        self.ask(py, |config| config.huggingface_weights_repo().map(Repo::from))
    }

    fn dtype(&self) -> PyResult<u8> {
        self.get().dtype().map(|dtype| dtype.code()).map_err(pipelines_error)
    }

    fn short_name(&self) -> String {
        self.get().short_name()
    }
}

impl Config {
    pub(crate) fn get(&self) -> PipelineConfig {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut PipelineConfig) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let mut config = self.get();
        wait_for_thread(py, move || question(&mut config))?.map_err(pipelines_error)
    }
}

/// The name that a converter gives a tensor. An exception is shown, and the tensor keeps its name.
fn convert(py: Python<'_>, converter: &Py<PyAny>, name: &str) -> Option<String> {
    let converted = converter.call_method1(py, "convert", (name,)).and_then(|name| name.extract(py));
    converted.unwrap_or_else(|error| {
        error.write_unraisable(py, Some(converter.bind(py)));
        None
    })
}

/// Warnings about a configuration, those about memory included.
pub(super) fn all_warnings(plan: &Plan) -> Vec<String> {
    let of_memory = plan.memory().map_or(&[][..], |memory| &memory.warnings);
    [plan.warnings(), of_memory].concat()
}

/// The fields with a value, as JSON.
pub(super) fn fields(config: &PipelineConfig) -> String {
    let values = FIELDS.iter().map(|field| (field.name.to_string(), field.value(config)));
    Value::Object(values.collect()).to_string()
}

/// The configuration of some fields, or all that is wrong with them.
fn read(fields: &str) -> PyResult<Result<PipelineConfig, Error>> {
    let fields: Map<String, Value> =
        serde_json::from_str(fields).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let (mut layers, mut wrong) = (Layers::default(), Vec::new());
    for (name, value) in fields {
        match layers.set(&name, &value, Origin::Argument) {
            Err(Error::Config(problems)) => wrong.extend(problems),
            Err(error) => return Ok(Err(error)),
            Ok(()) => (),
        }
    }
    Ok(if wrong.is_empty() { Ok(layers.config().clone()) } else { Err(Error::Config(wrong)) })
}

/// Has the engine `huggingface` start the interpreter that runs this module, unless a configuration names another one.
pub(crate) fn name_interpreter(py: Python<'_>) -> PyResult<()> {
    let executable: Option<PathBuf> = py.import("sys")?.getattr("executable")?.extract()?;
    // A program that embeds Python may not name one.
    if let Some(executable) = executable.filter(|path| !path.as_os_str().is_empty()) {
        set_python(executable);
    }
    Ok(())
}

/// Name, other names, and help of each field.
#[pyfunction]
pub(crate) fn config_fields() -> Vec<(&'static str, Vec<&'static str>, &'static str)> {
    FIELDS.iter().map(|field| (field.name, field.aliases.to_vec(), field.help())).collect()
}

/// The fields whose defaults for a use differ from those of a configuration, as JSON.
#[pyfunction]
pub(crate) fn config_defaults(use_case: &str) -> PyResult<String> {
    let use_case: UseCase = use_case.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
    let (config, plain) = (use_case.config(), PipelineConfig::default());
    let fields = FIELDS.iter().map(|field| (field, field.value(&config)));
    let differing = fields.filter(|(field, value)| *value != field.value(&plain));
    Ok(Value::Object(differing.map(|(field, value)| (field.name.to_string(), value)).collect()).to_string())
}

/// Name and code of the dtype of each encoding.
#[pyfunction]
pub(crate) fn encodings() -> Vec<(&'static str, u8)> {
    SupportedEncoding::ALL.iter().map(|encoding| (encoding.name(), encoding.dtype().code())).collect()
}

/// The encoding that the name of a file promises.
#[pyfunction]
pub(crate) fn encoding_of_name(name: &str) -> Option<&'static str> {
    SupportedEncoding::parse_from_file_name(name).map(SupportedEncoding::name)
}
