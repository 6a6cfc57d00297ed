//! Quantizing a model into a file.

use std::path::PathBuf;
use std::sync::Arc;

use perihelion::models::{Checkpoint, Importance, MIXES, Mix};
use perihelion::pipelines::config::machine;
use perihelion::pipelines::{
    self, AddSpecial, Error, ParseSpecial, Plan, QuantizeOptions, Quantized, measure_importance,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::config::Config;
use super::error::open_error;
use super::generator::new_session;
use super::progress::Progress;
use super::waiting::wait_for_thread;
use crate::logs;

/// Writes a model as a GGUF file. The options are the name of a mix, whether all matrices get the same format, and a text
/// that the model reads first, if any. Returns numbers of weights and bytes,
/// and how many tensors there are of each dtype.
#[pyfunction]
#[pyo3(signature = (config, path, options, num_threads, progress))]
pub(crate) fn quantize<'py>(
    py: Python<'py>,
    config: &Config,
    path: PathBuf,
    options: (String, bool, Option<String>),
    num_threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (to, pure, importance) = options;
    let mix = mix(&to)?;
    let (config, progress) = (config.get(), Progress::new(progress));
    let told = progress.clone();
    let work = move || -> Result<Quantized, Error> {
        let plan = config.plan_or_built_in(machine())?.fetch(&|event| told.fetch(event))?;
        plan.expect_graph("quantize")?;
        let checkpoint = plan.checkpoint().expect("its files are fetched");
        let measure = |text: String| measured(&plan, checkpoint, &text, num_threads, &told);
        let importance = importance.map(measure).transpose()?.map(Arc::new);
        let options = QuantizeOptions { mix, pure, importance };
        let show = &mut |done, total| told.call("quantize", done, total);
        pipelines::quantize(checkpoint, plan.folder(), &options, &path, show)
    };
    let written = wait_for_thread(py, work)?.map_err(open_error)?;
    progress.check()?;
    written.warnings.iter().try_for_each(|warning| logs::warn(py, warning))?;
    let dtypes = written.dtypes.iter().map(|(dtype, count)| (dtype.to_string(), *count));
    let result = PyDict::new(py);
    result.set_item("weights", written.weights)?;
    result.set_item("bytes", written.bytes)?;
    result.set_item("dtypes", dtypes.collect::<std::collections::BTreeMap<_, _>>())?;
    Ok(result)
}

/// The importance of columns, measured while the model reads a text.
fn measured(
    plan: &Plan,
    checkpoint: &Checkpoint,
    text: &str,
    num_threads: usize,
    progress: &Progress,
) -> Result<Importance, Error> {
    /// As `peri quantize` by default.
    const WINDOW: usize = 512;
    let tokens = plan.tokenizer()?.encode(text, AddSpecial::Yes, ParseSpecial::No)?;
    let session = new_session(plan.config(), num_threads)?;
    let show = &mut |done: usize| progress.call("importance", done as u64, tokens.len() as u64);
    measure_importance(&session, checkpoint, &tokens, WINDOW, show)
}

fn mix(name: &str) -> PyResult<&'static Mix> {
    Mix::find(name).ok_or_else(|| {
        let names = MIXES.iter().map(|mix| mix.name).collect::<Vec<_>>().join(", ");
        PyValueError::new_err(format!("to is {name}: give one of {names}"))
    })
}
