//! Embedders as Python's class `Embedder` holds them.

use std::collections::BTreeMap;
use std::sync::Arc;

use perihelion::driver;
use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{PipelineConfig, machine};
use perihelion::pipelines::{
    self, BatchStatus, EmbeddingModel, EmbeddingParameters, EmbeddingPrompt, EmbeddingRequest, EmbeddingText,
    Error, Pooling, Truncate,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::answers::Answers;
use super::config::{Config, all_warnings, fields};
use super::error::{open_error, pipelines_error};
use super::generator::session_for;
use super::progress::Progress;
use super::waiting::wait_for_thread;
use crate::buffer::Buffer;
use crate::owned::Closable;
use crate::running::detached;
use crate::session::Session;

/// A model that embeds, and its thread.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Embedder(Closable<pipelines::Embedder>);

/// A text, or its tokens.
#[derive(FromPyObject)]
enum Text {
    Text(String),
    Tokens(Vec<u32>),
}

#[pymethods]
impl Embedder {
    #[new]
    #[pyo3(signature = (config, num_threads, pooling, session, progress))]
    fn new(
        py: Python<'_>,
        config: &Config,
        num_threads: usize,
        pooling: Option<&str>,
        session: Option<&Session>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Embedder> {
        let (config, pooling) = (config.get(), named_pooling(pooling)?);
        let session = session.map(|session| session.0.get().cloned()).transpose()?;
        let progress = Progress::new(progress);
        let told = progress.clone();
        let embedder = wait_for_thread(py, move || open(&config, num_threads, pooling, session, &told))?;
        let embedder = embedder.map_err(open_error)?;
        progress.check()?;
        Ok(Embedder(Closable::new("the embedder", embedder)))
    }

    /// The fields of the configuration as they were decided, as JSON.
    fn config(&self) -> PyResult<String> {
        Ok(fields(self.0.get()?.model().plan().config()))
    }

    /// Warnings about the configuration.
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(all_warnings(self.0.get()?.model().plan()))
    }

    /// The vectors of texts, as one buffer; `vectors` are their dimensions, whether they have the length 1, and the pooling.
    /// `prompt` is the name of a prompt of the model's files, if there is such a
    /// prompt, or else a text.
    #[pyo3(signature = (texts, vectors, prompt, truncate))]
    fn embed(
        &self,
        py: Python<'_>,
        texts: Vec<Text>,
        vectors: (Option<usize>, Option<bool>, Option<String>),
        prompt: Option<String>,
        truncate: bool,
    ) -> PyResult<Answers> {
        let (dimensions, normalize, pooling) = vectors;
        let (embedder, pooling) = (self.0.get()?, named_pooling(pooling.as_deref())?);
        let parameters = EmbeddingParameters {
            pooling,
            normalize,
            dimensions,
            truncate: truncate.then_some(Truncate::Right),
            prompt: prompt.map(|prompt| named_or_text(embedder.model().prompts(), prompt)),
            ..EmbeddingParameters::default()
        };
        let request = EmbeddingRequest::new(texts).with(parameters);
        detached(py, || Answers::of_texts(embedder, request))
    }

    /// The tokens of a text, and the hidden state of each, f32[tokens, width].
    #[pyo3(signature = (text, prompt, truncate))]
    fn hidden_states(
        &self,
        py: Python<'_>,
        text: Text,
        prompt: Option<String>,
        truncate: bool,
    ) -> PyResult<(Vec<u32>, Buffer)> {
        let embedder = self.0.get()?;
        let parameters = EmbeddingParameters {
            truncate: truncate.then_some(Truncate::Right),
            prompt: prompt.map(|prompt| named_or_text(embedder.model().prompts(), prompt)),
            ..EmbeddingParameters::default()
        };
        let compute = move || embedder.hidden_states(&text.into(), &parameters);
        let (tokens, states) = wait_for_thread(py, compute)?.map_err(pipelines_error)?;
        let shape = [tokens.len(), states.len() / tokens.len().max(1)];
        Ok((tokens, Buffer(driver::Buffer::from_slice(shape, &states))))
    }

    #[getter]
    fn dimensions(&self) -> PyResult<usize> {
        Ok(self.0.get()?.dimensions())
    }

    #[getter]
    fn max_length(&self) -> PyResult<usize> {
        Ok(self.0.get()?.max_length())
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters(py, self.0.get()?.status().map_err(pipelines_error)?)
    }

    /// Cancels all requests, ends the thread and frees the memory.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.close(py, pipelines::Embedder::shutdown)
    }

    /// As `close`, for an object that is gone: of another process, there is nothing to close.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_ours() { self.close(py) } else { Ok(()) }
    }
}

pub(super) fn counters(py: Python<'_>, status: BatchStatus) -> PyResult<Bound<'_, PyDict>> {
    let counters = PyDict::new(py);
    counters.set_item("waiting", status.waiting)?;
    counters.set_item("batches", status.batches)?;
    counters.set_item("texts", status.texts)?;
    counters.set_item("tokens", status.tokens)?;
    Ok(counters)
}

impl From<Text> for EmbeddingText {
    fn from(text: Text) -> EmbeddingText {
        match text {
            Text::Text(text) => EmbeddingText::Text(text),
            Text::Tokens(tokens) => EmbeddingText::Tokens(tokens),
        }
    }
}

/// A way of pooling by its name.
fn named_pooling(name: Option<&str>) -> PyResult<Option<Pooling>> {
    let pooling = name.map(str::parse).transpose();
    pooling.map_err(|problem| pipelines_error(Error::Embedder(vec![problem])))
}

/// A prompt of the model's files if it has that name, or else the text.
pub(super) fn named_or_text(prompts: &BTreeMap<String, String>, prompt: String) -> EmbeddingPrompt {
    if prompts.contains_key(&prompt) { EmbeddingPrompt::Named(prompt) } else { EmbeddingPrompt::Text(prompt) }
}

fn open(
    config: &PipelineConfig,
    num_threads: usize,
    pooling: Option<Pooling>,
    session: Option<Arc<InferenceSession>>,
    progress: &Progress,
) -> Result<pipelines::Embedder, Error> {
    // The built-in model has no pooling of its own, so it embeds only if one is given.
    let plan = match pooling {
        Some(_) => config.plan_or_built_in(machine())?,
        None => config.plan(machine())?,
    };
    let plan = plan.fetch(&|event| progress.fetch(event))?;
    let session = session_for(plan.config(), num_threads, session)?;
    let model = EmbeddingModel::from_plan(&session, plan, &mut |event| progress.load(event))?;
    let parameters = EmbeddingParameters { pooling, ..EmbeddingParameters::default() };
    pipelines::Embedder::new(Arc::new(model), &parameters)
}
