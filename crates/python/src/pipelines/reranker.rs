//! Rerankers as Python's class `Reranker` holds them.

use std::sync::Arc;

use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{PipelineConfig, machine};
use perihelion::pipelines::{
    ClassificationParameters, Classifier, EmbeddingPrompt, Error, RerankRequest, Truncate,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::answers::Answers;
use super::config::{Config, all_warnings, fields};
use super::embedder::counters;
use super::error::{open_error, pipelines_error};
use super::generator::session_for;
use super::waiting::wait_for_thread;
use crate::owned::Closable;
use crate::running::detached;
use crate::session::Session;

/// A model that ranks, and its thread.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Reranker(Closable<Classifier>);

#[pymethods]
impl Reranker {
    #[new]
    #[pyo3(signature = (config, num_threads, session))]
    fn new(
        py: Python<'_>,
        config: &Config,
        num_threads: usize,
        session: Option<&Session>,
    ) -> PyResult<Reranker> {
        let config = config.get();
        let session = session.map(|session| session.0.get().cloned()).transpose()?;
        let classifier = wait_for_thread(py, move || open(&config, num_threads, session))?;
        Ok(Reranker(Closable::new("the reranker", classifier.map_err(open_error)?)))
    }

    /// The fields of the configuration as they were decided, as JSON.
    fn config(&self) -> PyResult<String> {
        Ok(fields(self.0.get()?.model().plan().config()))
    }

    /// Warnings about the configuration.
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(all_warnings(self.0.get()?.model().plan()))
    }

    /// The indices and scores of the documents, best first. `prompt` is the name of a prompt of the model's files, if
    /// there is such a prompt, or else a text.
    #[pyo3(signature = (query, documents, top_n, prompt, truncate))]
    fn rank(
        &self,
        py: Python<'_>,
        query: String,
        documents: Vec<String>,
        top_n: Option<usize>,
        prompt: Option<String>,
        truncate: bool,
    ) -> PyResult<Answers> {
        let classifier = self.0.get()?;
        let truncate = truncate.then_some(Truncate::Right);
        let prompt = prompt.map(|prompt| match classifier.model().prompts().contains_key(&prompt) {
            true => EmbeddingPrompt::Named(prompt),
            false => EmbeddingPrompt::Text(prompt),
        });
        let parameters = ClassificationParameters { truncate, prompt, ..ClassificationParameters::default() };
        let request = RerankRequest { query, documents, top_n, parameters };
        detached(py, || Answers::of_documents(classifier, request))
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
        self.0.close(py, Classifier::shutdown)
    }

    /// As `close`, for an object that is gone: of another process, there is nothing to close.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_ours() { self.close(py) } else { Ok(()) }
    }
}

fn open(
    config: &PipelineConfig,
    num_threads: usize,
    session: Option<Arc<InferenceSession>>,
) -> Result<Classifier, Error> {
    let plan = config.plan(machine())?;
    let session = session_for(plan.config(), num_threads, session)?;
    Classifier::from_plan(&session, plan)
}
