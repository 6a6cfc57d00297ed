//! Embedders as Python's class `Embedder` holds them.

use std::sync::Arc;

use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{PipelineConfig, machine};
use perihelion::pipelines::{
    self, BatchStatus, EmbeddingParameters, EmbeddingPrompt, EmbeddingRequest, EmbeddingText, Error, Truncate,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::answers::Answers;
use super::config::{Config, all_warnings, fields};
use super::error::{open_error, pipelines_error};
use super::generator::session_for;
use super::waiting::wait_for_thread;
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
    #[pyo3(signature = (config, num_threads, session))]
    fn new(
        py: Python<'_>,
        config: &Config,
        num_threads: usize,
        session: Option<&Session>,
    ) -> PyResult<Embedder> {
        let config = config.get();
        let session = session.map(|session| session.0.get().cloned()).transpose()?;
        let embedder = wait_for_thread(py, move || open(&config, num_threads, session))?;
        Ok(Embedder(Closable::new("the embedder", embedder.map_err(open_error)?)))
    }

    /// The fields of the configuration as they were decided, as JSON.
    fn config(&self) -> PyResult<String> {
        Ok(fields(self.0.get()?.model().plan().config()))
    }

    /// Warnings about the configuration.
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(all_warnings(self.0.get()?.model().plan()))
    }

    /// The vectors of texts, as one buffer. `prompt` is the name of a prompt of the model's files, if there is such a
    /// prompt, or else a text.
    #[pyo3(signature = (texts, dimensions, normalize, prompt, truncate))]
    fn embed(
        &self,
        py: Python<'_>,
        texts: Vec<Text>,
        dimensions: Option<usize>,
        normalize: Option<bool>,
        prompt: Option<String>,
        truncate: bool,
    ) -> PyResult<Answers> {
        let embedder = self.0.get()?;
        let prompt = prompt.map(|prompt| match embedder.model().prompts().contains_key(&prompt) {
            true => EmbeddingPrompt::Named(prompt),
            false => EmbeddingPrompt::Text(prompt),
        });
        let parameters = EmbeddingParameters {
            normalize,
            dimensions,
            truncate: truncate.then_some(Truncate::Right),
            prompt,
            ..EmbeddingParameters::default()
        };
        let request = EmbeddingRequest::new(texts).with(parameters);
        detached(py, || Answers::of_texts(embedder, request))
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

fn open(
    config: &PipelineConfig,
    num_threads: usize,
    session: Option<Arc<InferenceSession>>,
) -> Result<pipelines::Embedder, Error> {
    let plan = config.plan(machine())?;
    let session = session_for(plan.config(), num_threads, session)?;
    pipelines::Embedder::from_plan(&session, plan)
}
