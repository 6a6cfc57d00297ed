//! Debug settings as Python's class `DebugConfig` holds them.

use std::sync::Arc;

use perihelion::engine::{self, AssertLevel, InferenceSession, LogLevel, PrintStyle};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;

use crate::error::load_error;
use crate::owned::Owned;

/// The debug options of one session or, without one, of the process.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct DebugConfig(pub(crate) Option<Owned<Arc<InferenceSession>>>);

#[pymethods]
impl DebugConfig {
    /// The settings of the process.
    #[new]
    fn new() -> DebugConfig {
        DebugConfig(None)
    }

    fn flag(&self, name: &str) -> PyResult<bool> {
        let config = self.config()?;
        Ok(match name {
            "nan_check" => config.nan_check(),
            "uninitialized_read_check" => config.uninitialized_read_check(),
            "device_sync_mode" => config.device_sync_mode(),
            "stack_trace_on_error" => config.stack_trace_on_error(),
            "stack_trace_on_crash" => config.stack_trace_on_crash(),
            "source_tracebacks" => config.source_tracebacks(),
            _ => return Err(unknown(name)),
        })
    }

    fn set_flag(&self, name: &str, on: bool) -> PyResult<()> {
        let config = self.config()?;
        match name {
            "nan_check" => config.set_nan_check(on),
            "uninitialized_read_check" => config.set_uninitialized_read_check(on),
            "device_sync_mode" => config.set_device_sync_mode(on),
            "stack_trace_on_error" => config.set_stack_trace_on_error(on),
            "stack_trace_on_crash" => config.set_stack_trace_on_crash(on),
            "source_tracebacks" => config.set_source_tracebacks(on),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// The name or path that an option is set to, if it is.
    fn text(&self, name: &str) -> PyResult<Option<String>> {
        let config = self.config()?;
        Ok(match name {
            "op_log_level" => config.op_log_level().map(|level| level.value().to_string()),
            "assert_level" => config.assert_level().map(|level| level.value().to_string()),
            "ir_output_dir" => config.ir_output_dir().map(|path| path.to_string_lossy().into_owned()),
            "print_style" => config.print_style().map(|style| style.to_string()),
            _ => return Err(unknown(name)),
        })
    }

    fn set_text(&self, name: &str, value: &str) -> PyResult<()> {
        let config = self.config()?;
        let member = value.to_uppercase();
        match name {
            "op_log_level" => config.set_op_log_level(member.parse::<LogLevel>().map_err(load_error)?),
            "assert_level" => config.set_assert_level(member.parse::<AssertLevel>().map_err(load_error)?),
            "ir_output_dir" => config.set_ir_output_dir(value),
            "print_style" => config.set_print_style(member.parse::<PrintStyle>().map_err(load_error)?),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn turn_on_sensible_mode(&self) -> PyResult<()> {
        self.config()?.sensible_mode();
        Ok(())
    }

    fn reset(&self) -> PyResult<()> {
        self.config()?.reset();
        Ok(())
    }
}

impl DebugConfig {
    fn config(&self) -> PyResult<&engine::DebugConfig> {
        match &self.0 {
            Some(session) => Ok(session.get()?.debug()),
            None => Ok(engine::DebugConfig::process()),
        }
    }
}

fn unknown(name: &str) -> PyErr {
    PyAttributeError::new_err(format!("there is no debug option `{name}`"))
}
