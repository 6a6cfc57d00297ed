//! The files of a model, fetched and opened: its weights, and what stands beside them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use sources::{Beside, CONFIG, HuggingFaceRepo, Progress, RepoOptions, WeightsFormat};
use weights::{Format, Weights};

use super::PipelineConfig;
use super::check::native;
use super::located::Located;
use super::methods::problem;
use crate::Error;

impl PipelineConfig {
    /// `config.json` of the model, read once.
    ///
    /// # Errors
    /// If there is none, as with GGUF files, which have their configuration inside; or it is no JSON.
    pub fn huggingface_config(&self) -> Result<Arc<Value>, Error> {
        let read = || self.read_config(&self.model_repo()?.download(CONFIG, self.force_download)?);
        self._huggingface_config.get_or_try(self.huggingface_repo_id.clone(), read)
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
    /// If there is no `config.json`, or it names none.
    pub fn update_architecture(&mut self) -> Result<Vec<String>, Error> {
        if self.architecture.is_some() {
            return Ok(Vec::new());
        }
        let config = self.huggingface_config()?;
        let listed = config.get("architectures").and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&str> = listed.filter_map(Value::as_str).collect();
        let Some(&first) = names.first() else {
            let fix = "config.json names no architecture: name one of those that `peri list` shows";
            return Err(problem("architecture", "none", fix));
        };
        let taken = names.iter().find(|&&name| native().any(|known| known == name)).unwrap_or(&first);
        self.architecture = Some(taken.to_string());
        let which = match *taken == first {
            true => "the first is taken".to_string(),
            false => format!("{taken} is taken, the first that is known here"),
        };
        let several = || format!("config.json names the architectures {}: {which}", names.join(", "));
        Ok(if names.len() > 1 { vec![several()] } else { Vec::new() })
    }

    /// Bytes of the files of `weight_path` or, if it is empty, of those that are meant; `None` where a hub does not say.
    ///
    /// # Errors
    /// If one is neither here nor in its repo.
    pub fn weights_size(&self) -> Result<Option<u64>, Error> {
        let files = self.clone().locate()?.files()?;
        Ok(files.iter().try_fold(0_u64, |sum, file| Some(sum.saturating_add(file.size?))))
    }

    /// Fetches the weights that are not on this machine, with what stands beside them, and makes `weight_path` the paths
    /// of all of them.
    ///
    /// # Errors
    /// If there are none in the encoding that is asked for, or they cannot be fetched.
    pub fn download_weights(&mut self) -> Result<(), Error> {
        self.download_weights_with(&|_| ())
    }

    /// As [`PipelineConfig::download_weights`], telling how far it is.
    ///
    /// # Errors
    /// As there.
    pub fn download_weights_with(&mut self, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<(), Error> {
        self.fetch(progress).map(drop)
    }

    /// Fetches and opens the weights.
    ///
    /// # Errors
    /// As [`PipelineConfig::download_weights`], and if the files are damaged, or of several models.
    pub fn load_weights(&mut self) -> Result<Weights, Error> {
        self.download_weights()?;
        self.open_files()
    }

    /// Fetches the model. Gives the folder with the configuration and the tokenizer, for weights that carry none, and
    /// what is worth a warning.
    pub(super) fn fetch(
        &mut self,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<(PathBuf, Vec<String>), Error> {
        let located = self.locate()?;
        // First, so that where weights are, the rest is: what is not there then need not be asked for.
        let folder = self.fetch_beside(&located)?;
        let start = Instant::now();
        self.weight_path = located.fetch(self.force_download, progress)?;
        tracing::info!(
            "{} files of weights after {:.1} s",
            self.weight_path.len(),
            start.elapsed().as_secs_f64()
        );
        Ok((folder, located.warnings))
    }

    /// Opens the files of `weight_path`, which are here.
    pub(super) fn open_files(&self) -> Result<Weights, Error> {
        let opened = match (&self.weight_path[..], index_beside(&self.weight_path)) {
            (_, Some(index)) => Weights::open(&index),
            ([one], None) => Weights::open(one),
            ([first, ..], None) if self.weights_format()? == WeightsFormat::Gguf => Weights::open(first),
            (several, None) => Weights::open_all(several),
        };
        let weights = self.converted(opened.map_err(models::Error::from)?)?;
        if weights.format() == Format::Gguf && self.weight_path.len() > weights.files().len() {
            return Err(self.several_models());
        }
        Ok(weights)
    }

    /// The weights of which only headers are here, if they have such, and the folder with `config.json`, fetched unless
    /// they carry their configuration.
    pub(super) fn headers(&self, located: &Located) -> Result<Option<(Weights, PathBuf)>, Error> {
        let format = self.weights_format()?;
        match format {
            WeightsFormat::Pytorch => return Ok(None),
            WeightsFormat::Gguf if sources::sets(located.file_names()).len() > 1 => {
                return Err(self.several_models());
            }
            _ => {}
        }
        let weights = Weights::of_files(located.header_files()?).map_err(models::Error::from)?;
        let folder = match format {
            WeightsFormat::Gguf => self.model_repo()?.place(),
            _ => parent(&self.model_repo()?.download(CONFIG, self.force_download)?),
        };
        Ok(Some((self.converted(weights)?, folder)))
    }

    /// Weights under the names that the architecture knows.
    fn converted(&self, weights: Weights) -> Result<Weights, Error> {
        Ok(match &self._weights_converter {
            Some(converter) => weights.renamed(|name| converter.name(name)).map_err(models::Error::from)?,
            None => weights,
        })
    }

    fn several_models(&self) -> Error {
        let names: Vec<String> = self.weight_path.iter().map(|path| path.display().to_string()).collect();
        problem("weight_path", names.join(", "), "these GGUF files are several models: give one")
    }

    /// Fetches what stands beside the weights, and gives the folder that it is in.
    fn fetch_beside(&self, located: &Located) -> Result<PathBuf, Error> {
        let model = Path::new(&self.huggingface_repo_id);
        if self.huggingface_repo_id.is_empty() {
            return Ok(located.weight_path().first().map_or_else(PathBuf::new, |path| parent(path)));
        }
        if model.is_dir() {
            return Ok(model.to_path_buf());
        }
        if self.is_file() {
            return Ok(parent(model));
        }
        let opened;
        let (repo, is_own) = match located.repo() {
            Some(repo) if repo.repo_id() == self.huggingface_repo_id => (repo, true),
            _ => {
                opened = self.model_repo()?;
                (&opened, false)
            }
        };
        let carried = located.format() == Some(WeightsFormat::Gguf);
        let beside = if is_own && carried { Beside::Settings } else { Beside::Everything };
        let lacks_config = !carried && repo.cached(CONFIG)?.is_none();
        let ask = self.force_download || lacks_config || is_own && !located.are_here()?;
        let names = sources::companions(repo, beside, ask)?;
        if !carried && !names.iter().any(|name| name == CONFIG) {
            return Err(repo.missing(CONFIG).into());
        }
        repo.download_all(&names, self.force_download, &|_| ())?;
        let folder = repo.place();
        if !carried {
            // Now, so that it is not fetched again; that it is damaged is told by those who need it.
            let read = || self.read_config(&folder.join(CONFIG));
            let _ = self._huggingface_config.get_or_try(self.huggingface_repo_id.clone(), read);
        }
        Ok(folder)
    }

    fn read_config(&self, path: &Path) -> Result<Arc<Value>, Error> {
        let json =
            weights::read_file(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
        let config: Value = serde_json::from_slice(&json).map_err(|error| {
            problem("huggingface_repo_id", &self.huggingface_repo_id, format!("{}: {error}", path.display()))
        })?;
        Ok(Arc::new(config))
    }

    pub(super) fn model_repo(&self) -> Result<HuggingFaceRepo, Error> {
        self.repo(&self.huggingface_repo_id)
    }

    pub(super) fn repo(&self, id: &str) -> Result<HuggingFaceRepo, Error> {
        let options = RepoOptions {
            trust_remote_code: self.trust_remote_code,
            refresh: self.force_download,
            ..RepoOptions::default()
        };
        Ok(HuggingFaceRepo::open(id, options)?)
    }

    /// Whether the model is a file, or is meant to be one, rather than a folder or a repo.
    pub(super) fn is_file(&self) -> bool {
        let model = Path::new(&self.huggingface_repo_id);
        model.is_file()
            || !model.is_dir() && (is_weights(model) || !sources::is_repo_id(&self.huggingface_repo_id))
    }
}

/// The index of the sharded checkpoint that files are of: the one that is named after them, or one that lists them.
fn index_beside(files: &[PathBuf]) -> Option<PathBuf> {
    let name = files.first()?.file_name()?.to_str()?;
    let named = sources::index_of(name).map(|index| files[0].with_file_name(index));
    if let Some(index) = named.filter(|index| index.is_file()) {
        return Some(index);
    }
    let mut lists = ["model.safetensors", "pytorch_model.bin"]
        .iter()
        .map(|usual| files[0].with_file_name(format!("{usual}.index.json")));
    let is_of = |index: &PathBuf| {
        index.is_file()
            && weights::shards(index).is_ok_and(|shards| {
                shards.len() == files.len() && shards.iter().all(|shard| files.contains(shard))
            })
    };
    lists.find(is_of)
}

/// Whether a path has the suffix of a format.
fn is_weights(path: &Path) -> bool {
    WeightsFormat::of_file_name(path).is_some()
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_path_buf()
}
