//! Where the weights of a model are: files on this machine, or files of a repo that are fetched.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use weights::{Format, WeightFile, Weights};

use super::PipelineConfig;
use super::methods::problem;
use crate::Error;
use crate::config::{HuggingFaceRepo, RepoOptions, SupportedEncoding, WeightsFormat};
use crate::hub::{self, Progress};

/// What a model needs beside its weights, as far as its repo has it.
const BESIDE_WEIGHTS: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
];

impl PipelineConfig {
    /// `config.json` of the model, read once.
    ///
    /// # Errors
    /// If there is none, as with GGUF files, which have their configuration inside; or it is no JSON.
    pub fn huggingface_config(&self) -> Result<Arc<Value>, Error> {
        let read = || {
            let path = self.model_repo()?.download("config.json", self.force_download)?;
            let json = std::fs::read(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
            let config: Value = serde_json::from_slice(&json).map_err(|error| {
                problem(
                    "huggingface_repo_id",
                    &self.huggingface_repo_id,
                    format!("{}: {error}", path.display()),
                )
            })?;
            Ok::<_, Error>(Arc::new(config))
        };
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
        self.architecture = Some(first.to_string());
        let several =
            || format!("config.json names the architectures {}: the first is taken", names.join(", "));
        Ok(if names.len() > 1 { vec![several()] } else { Vec::new() })
    }

    /// Bytes of the files of `weight_path`; `None` where a hub does not say.
    ///
    /// # Errors
    /// If one is neither here nor in its repo.
    pub fn weights_size(&self) -> Result<Option<u64>, Error> {
        let mut repo = None;
        let mut sum = Some(0_u64);
        for path in &self.weight_path {
            let size = match path.metadata() {
                Ok(metadata) if metadata.is_file() => Some(metadata.len()),
                _ => {
                    let repo = match &mut repo {
                        Some(repo) => repo,
                        none => none.insert(self.huggingface_weights_repo()?),
                    };
                    repo.size_of(&portable(path))?
                }
            };
            sum = sum.zip(size).map(|(sum, size)| sum.saturating_add(size));
        }
        Ok(sum)
    }

    /// Fetches the weights that are not on this machine, and makes `weight_path` the paths of all of them.
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
        self.locate_weights()?;
        // Of a file that is not there, that is told when it is opened.
        if self.is_file() {
            return Ok(());
        }
        if self.weight_path.iter().all(|path| path.exists()) {
            return Ok(());
        }
        let repo = self.huggingface_weights_repo()?;
        let start = Instant::now();
        tracing::info!("fetching {} files of {repo}", self.weight_path.len());
        let (here, missing): (Vec<&PathBuf>, Vec<&PathBuf>) =
            self.weight_path.iter().partition(|path| path.exists());
        let names: Vec<String> = missing.iter().map(|path| portable(path)).collect();
        let fetched = repo.download_all(&names, self.force_download, progress)?;
        self.weight_path = here.into_iter().cloned().chain(fetched).collect();
        tracing::info!("fetched in {:.1} s", start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Makes `weight_path` the files of the weights, of which those of a hub need not be here; fetches none.
    ///
    /// # Errors
    /// If there are none in the encoding that is asked for, or the hub cannot be asked.
    pub fn locate_weights(&mut self) -> Result<(), Error> {
        self.place_weights()?;
        if self.weight_path.is_empty() {
            self.choose_weights()?;
        }
        Ok(())
    }

    /// Fetches and opens the weights.
    ///
    /// # Errors
    /// As [`PipelineConfig::download_weights`], and if the files are damaged, or of several models.
    pub fn load_weights(&mut self) -> Result<Weights, Error> {
        self.download_weights()?;
        let opened = match &self.weight_path[..] {
            [one] => Weights::open(one),
            [first, ..] if self.weights_format()? == WeightsFormat::Gguf => Weights::open(first),
            several => Weights::open_all(several),
        };
        let weights = self.converted(opened.map_err(models::Error::from)?)?;
        if weights.format() == Format::Gguf && self.weight_path.len() > weights.files().len() {
            return Err(self.several_models());
        }
        Ok(weights)
    }

    /// The weights of which only headers are here, if they have such, and the folder with `config.json`, fetched unless
    /// they carry their configuration.
    pub(super) fn headers(&self) -> Result<Option<(Weights, PathBuf)>, Error> {
        let (here, missing): (Vec<&PathBuf>, Vec<&PathBuf>) =
            self.weight_path.iter().partition(|path| path.exists());
        let names: Vec<String> = missing.iter().map(|path| portable(path)).collect();
        let format = self.weights_format()?;
        match format {
            WeightsFormat::Pytorch => return Ok(None),
            WeightsFormat::Gguf if here.len() + hub::sets(names.iter().map(String::as_str)).len() > 1 => {
                return Err(self.several_models());
            }
            _ => {}
        }
        let here = here.iter().map(|path| WeightFile::open(path).map_err(models::Error::from));
        let mut files = here.collect::<Result<Vec<_>, _>>()?;
        files.extend(self.huggingface_weights_repo()?.header_files(&names)?);
        let weights = Weights::of_files(files).map_err(models::Error::from)?;
        let folder = match format {
            WeightsFormat::Gguf => PathBuf::new(),
            _ => parent(&self.model_repo()?.download("config.json", self.force_download)?),
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

    /// The folder with the configuration and the tokenizer of a model whose weights carry none, fetched.
    pub(super) fn folder(&self) -> Result<PathBuf, Error> {
        let model = Path::new(&self.huggingface_repo_id);
        if self.huggingface_repo_id.is_empty() {
            return Ok(self.weight_path.first().map_or_else(PathBuf::new, |path| parent(path)));
        }
        if model.is_dir() || self.is_file() {
            return Ok(if model.is_dir() { model.to_path_buf() } else { parent(model) });
        }
        let repo = self.model_repo()?;
        let mut names = Vec::new();
        for name in BESIDE_WEIGHTS {
            if repo.file_exists(name)? {
                names.push(name.to_string());
            }
        }
        let paths = repo.download_all(&names, self.force_download, &|_| ())?;
        Ok(paths.first().map(|path| parent(path)).or_else(|| repo.folder()).unwrap_or_default())
    }

    /// Finds out what each of `weight_path` means: a file here, a file of another repo, or one of the model's.
    fn place_weights(&mut self) -> Result<(), Error> {
        let model = PathBuf::from(&self.huggingface_repo_id);
        let mut placed = Vec::new();
        for path in std::mem::take(&mut self.weight_path) {
            if path.exists() {
                placed.push(path);
            } else if !self.huggingface_repo_id.is_empty() && model.is_dir() && model.join(&path).exists() {
                placed.push(model.join(path));
            } else if let Some((repo, file)) = repo_and_file(&path) {
                placed.push(if self.is_of(&repo, &file)? { file } else { path });
            } else if self.huggingface_repo_id.is_empty()
                && hub::is_repo_id(&portable(&path))
                && !is_weights(&path)
            {
                // A repo by itself: its weights are looked for.
                self.huggingface_repo_id = portable(&path);
            } else {
                placed.push(path);
            }
        }
        if self.huggingface_repo_id.is_empty()
            && let Some(repo) = &self._weights_repo_id
        {
            self.huggingface_repo_id = repo.clone();
        }
        self.weight_path = placed;
        let lost = self.weight_path.iter().find(|path| !path.exists());
        let local = model.exists() || self.huggingface_repo_id.is_empty();
        match lost {
            Some(path) if local && self._weights_repo_id.is_none() => {
                let source = std::io::Error::from(std::io::ErrorKind::NotFound);
                Err(Error::Read { path: path.clone(), source })
            }
            _ => Ok(()),
        }
    }

    /// Whether a file is of a repo; if that is not the model's, it becomes the repo of the weights.
    fn is_of(&mut self, repo: &str, file: &Path) -> Result<bool, Error> {
        if repo == self.huggingface_repo_id || self._weights_repo_id.as_deref() == Some(repo) {
            return Ok(true);
        }
        let exists = self.repo(repo).and_then(|repo| Ok(repo.file_exists(&portable(file))?));
        // Where the model has a place of its own, a repo that does not exist is a folder in it.
        let exists = if self.huggingface_repo_id.is_empty() { exists? } else { exists.unwrap_or(false) };
        if exists {
            self._weights_repo_id = Some(repo.to_string());
        }
        Ok(exists)
    }

    /// The weights of the model itself, in the encoding that is asked for, or else the only one or the best.
    fn choose_weights(&mut self) -> Result<(), Error> {
        let model = PathBuf::from(&self.huggingface_repo_id);
        if self.is_file() || model.is_dir() && self.quantization_encoding.is_none() {
            self.weight_path = vec![model];
            return Ok(());
        }
        let repo = self.model_repo()?;
        let there = repo.supported_encodings()?;
        if repo.weight_files()?.is_empty() {
            return Err(repo.without_weights().into());
        }
        let Some(encoding) = self.quantization_encoding.or_else(|| preferred(&there)) else {
            let why = repo.problem()?.map_or_else(String::new, |problem| format!(" ({problem})"));
            let fix =
                format!("it has no weights in an encoding that runs{why}: name another one, or weight_path");
            return Err(problem("huggingface_repo_id", &self.huggingface_repo_id, fix));
        };
        let alternate = match encoding {
            SupportedEncoding::Float32 => Some(SupportedEncoding::Bfloat16),
            SupportedEncoding::Bfloat16 => Some(SupportedEncoding::Float32),
            _ => None,
        };
        let Some((_, files)) = repo.files_for_encoding(encoding, None, alternate)?.into_iter().next() else {
            let names: Vec<&str> = there.iter().map(|encoding| encoding.name()).collect();
            let fix = format!("{repo} has {}: give one of these, or name weight_path", names.join(", "));
            return Err(problem("quantization_encoding", encoding, fix));
        };
        // Files in the other of the two load as well, and say themselves which it is.
        if alternate.is_some_and(|alternate| !there.contains(&encoding) && there.contains(&alternate)) {
            self.quantization_encoding = alternate;
        }
        self.weight_path = files;
        if model.is_dir() {
            self.weight_path.iter_mut().for_each(|file| *file = model.join(&*file));
        }
        Ok(())
    }

    fn model_repo(&self) -> Result<HuggingFaceRepo, Error> {
        self.repo(&self.huggingface_repo_id)
    }

    fn repo(&self, id: &str) -> Result<HuggingFaceRepo, Error> {
        let options = RepoOptions { trust_remote_code: self.trust_remote_code, ..RepoOptions::default() };
        Ok(HuggingFaceRepo::open(id, options)?)
    }

    /// Whether the model is a file, or is meant to be one, rather than a folder or a repo.
    fn is_file(&self) -> bool {
        let model = Path::new(&self.huggingface_repo_id);
        model.is_file()
            || !model.is_dir() && (is_weights(model) || !hub::is_repo_id(&self.huggingface_repo_id))
    }
}

/// The encoding to take where several are there: the first of these, which are small and good.
fn preferred(there: &[SupportedEncoding]) -> Option<SupportedEncoding> {
    use SupportedEncoding::{Bfloat16, Float32, Q4_0, Q4K, Q6K};
    let order = [Q4K, Q6K, Q4_0, Bfloat16, Float32];
    match there {
        [only] => Some(*only),
        _ => order.into_iter().find(|encoding| there.contains(encoding)).or_else(|| there.first().copied()),
    }
}

/// `org/name/folder/file` → `org/name` and `folder/file`.
fn repo_and_file(path: &Path) -> Option<(String, PathBuf)> {
    let mut parts = path.components();
    let mut word = || match parts.next() {
        Some(Component::Normal(word)) => word.to_str().map(str::to_string),
        _ => None,
    };
    let repo = format!("{}/{}", word()?, word()?);
    let file = parts.as_path();
    (hub::is_repo_id(&repo) && !file.as_os_str().is_empty()).then(|| (repo, file.to_path_buf()))
}

fn is_weights(path: &Path) -> bool {
    WeightsFormat::of_file_name(path).is_some()
}

/// The name of a file in a repo.
fn portable(path: &Path) -> String {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_path_buf()
}
