//! Debug settings as Python's class `DebugConfig` holds them.

use std::sync::Arc;

use perihelion::engine::{self, AssertLevel, InferenceSession, LogLevel, PrintStyle, UninitializedReadMode};
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
        let (get, _) = flag(name)?;
        Ok(get(self.config()?))
    }

    fn set_flag(&self, name: &str, on: bool) -> PyResult<()> {
        let (_, set) = flag(name)?;
        set(self.config()?, on);
        Ok(())
    }

    /// The name or path that an option is set to, as it was written, if it is.
    fn text(&self, name: &str) -> PyResult<Option<String>> {
        let config = self.config()?;
        let known = match name {
            "uninitialized_read_mode" => {
                config.uninitialized_read_mode().map(|mode| mode.value().to_string())
            }
            "op_log_level" => config.op_log_level().map(|level| level.value().to_string()),
            "assert_level" => config.assert_level().map(|level| level.value().to_string()),
            "ir_output_dir" => config.ir_output_dir().map(|path| path.to_string_lossy().into_owned()),
            "print_style" => return Ok(config.print_style().map(|style| style.to_string())),
            _ => return Err(unknown(name)),
        };
        Ok(config.text(name).or(known))
    }

    /// Sets an option to a name or path; the empty one unsets it.
    fn set_text(&self, name: &str, value: &str) -> PyResult<()> {
        let config = self.config()?;
        let unset: Option<fn(&engine::DebugConfig)> = match name {
            "op_log_level" => Some(engine::DebugConfig::unset_op_log_level),
            "assert_level" => Some(engine::DebugConfig::unset_assert_level),
            "ir_output_dir" => Some(engine::DebugConfig::unset_ir_output_dir),
            _ => None,
        };
        if let (Some(unset), "") = (unset, value) {
            unset(config);
            return Ok(());
        }
        let member = value.to_uppercase();
        let option = match name {
            "uninitialized_read_mode" => {
                // A session refuses an unknown mode if the check is on.
                match value.parse::<UninitializedReadMode>() {
                    Ok(mode) => config.set_uninitialized_read_mode(mode),
                    Err(_) => config.unset_uninitialized_read_mode(),
                }
                "uninitialized_read_mode"
            }
            "op_log_level" => {
                config.set_op_log_level(member.parse::<LogLevel>().map_err(load_error)?);
                "op_log_level"
            }
            "assert_level" => {
                config.set_assert_level(member.parse::<AssertLevel>().map_err(load_error)?);
                "assert_level"
            }
            "ir_output_dir" => {
                config.set_ir_output_dir(value);
                "ir_output_dir"
            }
            "print_style" => {
                config.set_print_style(member.parse::<PrintStyle>().map_err(load_error)?);
                "print_style"
            }
            _ => return Err(unknown(name)),
        };
        config.set_text(option, value);
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

/// How a flag is read and set.
type Flag = (fn(&engine::DebugConfig) -> bool, fn(&engine::DebugConfig, bool));

fn flag(name: &str) -> PyResult<Flag> {
    use engine::DebugConfig as Config;
    Ok(match name {
        "nan_check" => (Config::nan_check, Config::set_nan_check),
        "uninitialized_read_check" => {
            (Config::uninitialized_read_check, Config::set_uninitialized_read_check)
        }
        "device_sync_mode" => (Config::device_sync_mode, Config::set_device_sync_mode),
        "stack_trace_on_error" => (Config::stack_trace_on_error, Config::set_stack_trace_on_error),
        "stack_trace_on_crash" => (Config::stack_trace_on_crash, Config::set_stack_trace_on_crash),
        "source_tracebacks" => (Config::source_tracebacks, Config::set_source_tracebacks),
        "pre_jit" => (Config::pre_jit, Config::set_pre_jit),
        _ => return Err(unknown(name)),
    })
}

fn unknown(name: &str) -> PyErr {
    PyAttributeError::new_err(format!("there is no debug option `{name}`"))
}
