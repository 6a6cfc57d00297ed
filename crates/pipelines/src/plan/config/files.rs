//! The files that a configuration means: located, sized, fetched and opened.

use std::path::Path;
use std::sync::Arc;

use models::Architecture;
use serde_json::Value;
use sources::{FileSet, HuggingFaceRepo, LocalFiles, ModelRequest, Progress, RepoOptions};
use weights::Weights;

use super::methods::problem;
use super::{PipelineConfig, PipelineEngine};
use crate::Error;

impl PipelineConfig {
    /// `config.json` of the model, read once; or what was given in its place.
    ///
    /// # Errors
    /// If there is none, as with GGUF files, which have their configuration inside; or it is no JSON.
    pub fn huggingface_config(&self) -> Result<Arc<Value>, Error> {
        let read = || {
            let repo = self.repo(&self.huggingface_repo_id)?;
            self.read_config(&repo.download("config.json", self.force_download)?)
        };
        self._huggingface_config.get_or_try(self.huggingface_repo_id.clone(), read)
    }

    /// The same, with the entries that the file leaves out and that the model's family has defaults for.
    ///
    /// # Errors
    /// If the file cannot be read, as for [`PipelineConfig::huggingface_config`], or entries contradict each other.
    pub fn complete_huggingface_config(&self) -> Result<Value, Error> {
        let config = self.huggingface_config()?;
        let names_none = config.get("architectures").is_none() && config.get("model_type").is_none();
        if names_none {
            return Ok(Value::clone(&config));
        }
        Ok(models::Config::complete_hugging_face("config.json", &config.to_string())?)
    }

    /// The repo of the weights: the model's, unless `weight_path` is of another one.
    ///
    /// # Errors
    /// If it is neither here nor on the hub.
    pub fn huggingface_weights_repo(&self) -> Result<HuggingFaceRepo, Error> {
        self.repo(self._weights_repo_id.as_deref().unwrap_or(&self.huggingface_repo_id))
    }

    /// Sets `architecture` to that of `config.json`, if it is not set. Gives what is worth a warning.
    ///
    /// # Errors
    /// If there is no `config.json`, or neither a name in it nor its `model_type` is known.
    pub fn update_architecture(&mut self) -> Result<Vec<String>, Error> {
        if self.architecture.is_some() {
            return Ok(Vec::new());
        }
        let config = self.huggingface_config()?;
        let listed = config.get("architectures").and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&str> = listed.filter_map(Value::as_str).collect();
        let Some(&first) = names.first() else {
            let of_type =
                config.get("model_type").and_then(Value::as_str).and_then(Architecture::from_model_type);
            if let Some(name) = of_type {
                self.architecture = Some(name.to_string());
                return Ok(Vec::new());
            }
            let fix = "config.json names no architecture: name one of those that `peri list` shows";
            return Err(problem("architecture", "none", fix));
        };
        let taken = names.iter().find(|&&name| models::known_name(name).is_some()).unwrap_or(&first);
        self.architecture = Some(taken.to_string());
        let which = if *taken == first {
            "the first is taken".to_string()
        } else {
            format!("{taken} is taken, the first that is known here")
        };
        let several = || format!("config.json names the architectures {}: {which}", names.join(", "));
        Ok(if names.len() > 1 { vec![several()] } else { Vec::new() })
    }

    /// Bytes of the files of `weight_path` or, if it is empty, of those that are meant; `None` where a hub does not say.
    ///
    /// # Errors
    /// If one is neither here nor in its repo.
    pub fn weights_size(&self) -> Result<Option<u64>, Error> {
        Ok(self.clone().locate()?.bytes()?)
    }

    /// Fetches the weights that are not on this machine, with the files next to them, and makes `weight_path` the paths
    /// of all of them.
    ///
    /// # Errors
    /// If there are none in the encoding that is asked for, or they cannot be fetched.
    pub fn download_weights(&mut self) -> Result<(), Error> {
        let files = self.locate()?;
        self.fetch(&files, &|_| ()).map(drop)
    }

    /// Fetches and opens the weights.
    ///
    /// # Errors
    /// As [`PipelineConfig::download_weights`], and if the files are damaged, or of several models.
    pub fn load_weights(&mut self) -> Result<Weights, Error> {
        let files = self.locate()?;
        let local = self.fetch(&files, &|_| ())?;
        self.converted(local.open()?)
    }

    /// Finds the files that are meant; fetches none.
    pub(crate) fn locate(&mut self) -> Result<FileSet, Error> {
        let files = sources::locate(&ModelRequest {
            model: self.huggingface_repo_id.clone(),
            revision: self.revision.clone(),
            weight_path: self.weight_path.clone(),
            encoding: self.quantization_encoding,
            label: self._weights_label.clone(),
            trust_remote_code: self.runs_remote_code(),
            force_download: self.force_download,
            hub: None,
        })?;
        if self.huggingface_repo_id.is_empty() {
            self.huggingface_repo_id = files.model().to_string();
        }
        self._weights_repo_id = files.weights_repo_id().map(str::to_string);
        Ok(files)
    }

    /// Fetches the files that are not on this machine, and sets `weight_path` to the paths of the weights.
    pub(crate) fn fetch(
        &mut self,
        files: &FileSet,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<LocalFiles, Error> {
        let local = files.fetch(progress)?;
        self.weight_path = local.weights.clone();
        Ok(local)
    }

    /// Reads `config.json`, if the files have one, so that it need not be looked for again. If it is damaged, the code
    /// that needs it returns the error.
    pub(crate) fn keep_config(&self, folder: &Path) {
        let path = folder.join("config.json");
        if path.is_file() {
            let read = || self.read_config(&path);
            let _ = self._huggingface_config.get_or_try(self.huggingface_repo_id.clone(), read);
        }
    }

    /// Weights under the names that the architecture knows.
    pub(crate) fn converted(&self, weights: Weights) -> Result<Weights, Error> {
        Ok(match &self._weights_converter {
            Some(converter) => weights.renamed(|name| converter.name(name)).map_err(models::Error::from)?,
            None => weights,
        })
    }

    fn read_config(&self, path: &Path) -> Result<Arc<Value>, Error> {
        let json =
            weights::read_file(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
        let config: Value = weights::from_json(&json).map_err(|error| {
            problem("huggingface_repo_id", &self.huggingface_repo_id, format!("{}: {error}", path.display()))
        })?;
        Ok(Arc::new(config))
    }

    /// Whether the files of a model are to have the code that it brings.
    fn runs_remote_code(&self) -> bool {
        self.trust_remote_code && self.engine == Some(PipelineEngine::HuggingFace)
    }

    fn repo(&self, id: &str) -> Result<HuggingFaceRepo, Error> {
        let own = id == self.huggingface_repo_id;
        let options = RepoOptions {
            trust_remote_code: self.trust_remote_code,
            refresh: self.force_download,
            revision: self.revision.clone().filter(|_| own),
            ..RepoOptions::default()
        };
        Ok(HuggingFaceRepo::open(id, options)?)
    }
}
