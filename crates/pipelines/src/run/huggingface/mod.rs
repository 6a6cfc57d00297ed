//! The engine `huggingface`: models that have no graph here, run by Transformers in a Python process of their own.
//!
//! Scheduler, sampler, grammars and everything else are the same as for our own models: a [`TransformersRunner`] takes the
//! place of the runner of a graph. Each sequence runs by itself, its prompt at once and every later token alone, so its
//! logits have the same bits whatever else runs.

#[cfg(unix)]
mod model;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod runner;
#[cfg(not(unix))]
mod unsupported;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tensor::DType;

#[cfg(unix)]
pub(crate) use model::TransformersModel;
#[cfg(unix)]
pub(crate) use runner::TransformersRunner;
#[cfg(not(unix))]
pub(crate) use unsupported::{TransformersModel, TransformersRunner};

/// A model for a process to load, and how.
pub(crate) struct LoadOptions<'a> {
    /// The interpreter; without one, the one that loaded this library, or `python3`.
    pub(crate) python: Option<&'a Path>,
    /// The folder of the model's files.
    pub(crate) folder: &'a Path,
    pub(crate) architecture: &'a str,
    /// Whether it is to predict tokens; else it gives hidden states.
    pub(crate) writes: bool,
    /// The dtype that its weights are cast to.
    pub(crate) dtype: Option<DType>,
    /// Whether code of the model's files may run.
    pub(crate) trust_remote_code: bool,
    /// Threads to compute with.
    pub(crate) threads: usize,
}

/// The interpreter that runs this program, if one does.
static RUNNING: OnceLock<PathBuf> = OnceLock::new();

/// Names the Python interpreter that loaded this library. The engine `huggingface` starts it unless a configuration names
/// another one. Only the first call counts.
pub fn set_python(interpreter: PathBuf) {
    let _ = RUNNING.set(interpreter);
}

/// The interpreter of a configuration that leaves it open.
#[cfg(unix)]
fn default_python() -> PathBuf {
    RUNNING.get().cloned().unwrap_or_else(|| "python3".into())
}
