//! Classifiers as Python's classes `Classifier` and `Reranker` hold them.

use std::sync::Arc;

use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{PipelineConfig, machine};
use perihelion::pipelines::{
    self, ClassificationModel, ClassificationParameters, ClassificationRequest, ClassificationText, Error,
    RerankRequest, Truncate,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::answers::Answers;
use super::config::{Config, all_warnings, fields};
use super::embedder::{counters, named_or_text};
use super::error::{open_error, pipelines_error};
use super::generator::session_for;
use super::progress::Progress;
use super::waiting::wait_for_thread;
use crate::owned::Closable;
use crate::running::detached;
use crate::session::Session;

/// A model that scores texts, and its thread.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Classifier(Closable<pipelines::Classifier>);

/// A text or a pair of texts.
#[derive(FromPyObject)]
enum Text {
    Text(String),
    Pair(String, String),
}

#[pymethods]
impl Classifier {
    #[new]
    #[pyo3(signature = (config, num_threads, session, progress, ranks))]
    fn new(
        py: Python<'_>,
        config: &Config,
        num_threads: usize,
        session: Option<&Session>,
        progress: Option<Py<PyAny>>,
        ranks: bool,
    ) -> PyResult<Classifier> {
        let config = config.get();
        let session = session.map(|session| session.0.get().cloned()).transpose()?;
        let progress = Progress::new(progress);
        let told = progress.clone();
        let classifier = wait_for_thread(py, move || open(&config, num_threads, session, &told))?;
        let classifier = classifier.map_err(open_error)?;
        progress.check()?;
        Ok(Classifier(Closable::new(if ranks { "the reranker" } else { "the classifier" }, classifier)))
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
        let prompt = prompt.map(|prompt| named_or_text(classifier.model().prompts(), prompt));
        let parameters = ClassificationParameters { truncate, prompt, ..ClassificationParameters::default() };
        let request = RerankRequest { query, documents, top_n, parameters };
        detached(py, || Answers::of_documents(classifier, request))
    }

    /// The scores of texts for each label, f32[texts, labels].
    #[pyo3(signature = (texts, activation, truncate))]
    fn classify(
        &self,
        py: Python<'_>,
        texts: Vec<Text>,
        activation: Option<&str>,
        truncate: bool,
    ) -> PyResult<Answers> {
        let classifier = self.0.get()?;
        let activation = activation.map(str::parse).transpose();
        let activation = activation.map_err(|problem| pipelines_error(Error::Request(vec![problem])))?;
        let truncate = truncate.then_some(Truncate::Right);
        let parameters = ClassificationParameters { activation, truncate, ..Default::default() };
        let request = ClassificationRequest::new(texts).with(parameters);
        detached(py, || Answers::of_labels(classifier, request))
    }

    /// The names of the labels.
    #[getter]
    fn labels(&self) -> PyResult<Vec<String>> {
        Ok(self.0.get()?.labels().to_vec())
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
        self.0.close(py, pipelines::Classifier::shutdown)
    }

    /// As `close`, for an object that is gone: of another process, there is nothing to close.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_ours() { self.close(py) } else { Ok(()) }
    }
}

impl From<Text> for ClassificationText {
    fn from(text: Text) -> ClassificationText {
        match text {
            Text::Text(text) => ClassificationText::Text(text),
            Text::Pair(first, second) => ClassificationText::Pair(first, second),
        }
    }
}

fn open(
    config: &PipelineConfig,
    num_threads: usize,
    session: Option<Arc<InferenceSession>>,
    progress: &Progress,
) -> Result<pipelines::Classifier, Error> {
    let plan = config.plan(machine())?.fetch(&|event| progress.fetch(event))?;
    let session = session_for(plan.config(), num_threads, session)?;
    let model = ClassificationModel::from_plan(&session, plan, &mut |event| progress.load(event))?;
    pipelines::Classifier::new(Arc::new(model), &ClassificationParameters::default())
}
