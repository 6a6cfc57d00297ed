//! The native module of the Python package: handles on buffers, devices, graphs, sessions and models.
//!
//! It holds no logic: the classes that users see are Python (`python/perihelion`), the work is the Rust crates'.

mod buffer;
mod debug;
mod device;
mod dlpack;
mod dtype;
mod error;
mod graph;
mod logs;
mod model;
mod owned;
mod pipelines;
mod protocol;
mod registry;
mod running;
mod server;
mod session;

use std::ffi::OsString;

use pyo3::prelude::*;

/// The native part of `perihelion`.
#[pymodule(gil_used = false)]
mod _perihelion {
    use super::*;

    #[pymodule_export]
    use super::buffer::{Buffer, load_max_buffer, mmap};
    #[pymodule_export]
    use super::debug::DebugConfig;
    #[pymodule_export]
    use super::device::{
        Device, accelerator, accelerator_count, cpu, devices_exist, load_devices, scan_available_devices,
    };
    #[pymodule_export]
    use super::dtype::{dtypes, float_info};
    #[pymodule_export]
    use super::error::{CompilationStopped, FileError, InternalError, OutOfMemory};
    #[pymodule_export]
    use super::graph::{
        Dim, GraphBuilder, KernelLibrary, Region, Value, WeightFiles, block_parameters, shard,
    };
    #[pymodule_export]
    use super::model::{CompiledModel, Model};
    #[pymodule_export]
    use super::pipelines::{
        Answers, Classifier, Config, ConfigError, Embedder, Generator, PromptTooLong, Repo, Turn, Wakeups,
        config_defaults, config_fields, encoding_of_name, encodings, quantize, stop_attaching,
    };
    #[pymodule_export]
    use super::server::Server;
    #[pymodule_export]
    use super::session::Session;

    /// Runs the `peri` command with these arguments, the first of which is its name, and returns its exit code.
    #[pyfunction]
    fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| cli::run(&arguments, owned::return_memory))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        running::keep_panics_quiet();
        owned::count_forks(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        pipelines::add_attributes(module.py())?;
        module.add("AxisError", error::axis_error_type(module.py())?)?;
        pipelines::name_interpreter(module.py())?;
        module.add("BufferProtocol", protocol::make(module.py())?)?;
        #[cfg(feature = "panics")]
        module.setattr("_panic", wrap_pyfunction!(running::_panic, module)?)?;
        Ok(())
    }
}
