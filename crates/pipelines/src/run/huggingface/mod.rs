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

use std::path::PathBuf;
use std::sync::OnceLock;

#[cfg(unix)]
pub(crate) use model::TransformersModel;
#[cfg(unix)]
pub(crate) use runner::TransformersRunner;
#[cfg(not(unix))]
pub(crate) use unsupported::{TransformersModel, TransformersRunner};

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
