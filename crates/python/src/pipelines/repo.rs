//! Repositories as Python's class `HuggingFaceRepo` holds them.

use std::path::PathBuf;
use std::sync::Arc;

use perihelion::sources::{Error, HuggingFaceRepo, ModelInfo, RepoOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::error::pipelines_error;
use super::waiting::wait_for_thread;

/// A repository of model files.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Repo(Arc<HuggingFaceRepo>);

/// Files by the name of their format.
type ByFormat<T> = Vec<(&'static str, Vec<T>)>;

#[pymethods]
impl Repo {
    #[new]
    #[pyo3(signature = (repo_id, trust_remote_code, repo_type))]
    fn new(
        py: Python<'_>,
        repo_id: String,
        trust_remote_code: bool,
        repo_type: Option<&str>,
    ) -> PyResult<Repo> {
        let repo_type = repo_type.map(str::parse).transpose();
        let repo_type = repo_type.map_err(|error| pipelines_error(Error::from(error).into()))?;
        let options = RepoOptions { trust_remote_code, repo_type, ..RepoOptions::default() };
        let repo = wait_for_thread(py, || HuggingFaceRepo::open(repo_id, options))?;
        repo.map(Repo::from).map_err(|error| pipelines_error(error.into()))
    }

    #[getter]
    fn repo_id(&self) -> &str {
        self.0.repo_id()
    }

    #[getter]
    fn repo_type(&self) -> &'static str {
        self.0.repo_type().name()
    }

    #[getter]
    fn trust_remote_code(&self) -> bool {
        self.0.trust_remote_code()
    }

    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = self.ask(py, |repo| repo.info().cloned())?;
        info_dict(py, info)
    }

    fn weight_files(&self, py: Python<'_>) -> PyResult<ByFormat<String>> {
        self.ask(py, |repo| {
            Ok(repo.weight_files()?.into_iter().map(|(format, files)| (format.name(), files)).collect())
        })
    }

    fn supported_encodings(&self, py: Python<'_>) -> PyResult<Vec<&'static str>> {
        self.ask(py, |repo| Ok(repo.supported_encodings()?.into_iter().map(|one| one.name()).collect()))
    }

    #[pyo3(signature = (encoding, weights_format, alternate_encoding))]
    fn files_for_encoding(
        &self,
        py: Python<'_>,
        encoding: String,
        weights_format: Option<String>,
        alternate_encoding: Option<String>,
    ) -> PyResult<ByFormat<PathBuf>> {
        self.ask(py, move |repo| {
            let format = weights_format.map(|name| name.parse()).transpose()?;
            let alternate = alternate_encoding.map(|name| name.parse()).transpose()?;
            let files = repo.files_for_encoding(encoding.parse()?, format, alternate)?;
            Ok(files.into_iter().map(|(format, files)| (format.name(), files)).collect())
        })
    }

    fn encoding_for_file(&self, py: Python<'_>, file: PathBuf) -> PyResult<&'static str> {
        self.ask(py, move |repo| repo.encoding_for_file(file).map(|encoding| encoding.name()))
    }

    fn file_exists(&self, py: Python<'_>, filename: String) -> PyResult<bool> {
        self.ask(py, move |repo| repo.file_exists(&filename))
    }

    fn size_of(&self, py: Python<'_>, filename: String) -> PyResult<Option<u64>> {
        self.ask(py, move |repo| repo.size_of(&filename))
    }

    fn download(&self, py: Python<'_>, filename: String, force_download: bool) -> PyResult<PathBuf> {
        self.ask(py, move |repo| repo.download(&filename, force_download))
    }
}

impl Repo {
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&HuggingFaceRepo) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let repo = Arc::clone(&self.0);
        wait_for_thread(py, move || question(&repo))?.map_err(|error| pipelines_error(error.into()))
    }
}

impl From<HuggingFaceRepo> for Repo {
    fn from(repo: HuggingFaceRepo) -> Repo {
        Repo(Arc::new(repo))
    }
}

fn info_dict(py: Python<'_>, info: ModelInfo) -> PyResult<Bound<'_, PyDict>> {
    let files: Vec<_> = info.siblings.into_iter().map(|file| (file.name, file.size)).collect();
    let dict = PyDict::new(py);
    dict.set_item("id", info.id)?;
    dict.set_item("sha", info.sha)?;
    dict.set_item("private", info.private)?;
    dict.set_item("gated", info.gated)?;
    dict.set_item("last_modified", info.last_modified)?;
    dict.set_item("pipeline_tag", info.pipeline_tag)?;
    dict.set_item("library_name", info.library_name)?;
    dict.set_item("tags", info.tags)?;
    dict.set_item("downloads", info.downloads)?;
    dict.set_item("likes", info.likes)?;
    dict.set_item("architectures", info.architectures)?;
    dict.set_item("safetensors", info.safetensors)?;
    dict.set_item("siblings", files)?;
    Ok(dict)
}
