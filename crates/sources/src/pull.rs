//! Downloads models: which files a model needs, and fetching the missing ones.

use std::path::PathBuf;

use regex::Regex;

use crate::choose::{Several, Wanted, choose};
use crate::hub::{Hub, Progress};
use crate::repo::{HuggingFaceRepo, ModelFiles};
use crate::{Error, WeightsFormat};

/// The configuration of a model whose weights do not contain it.
pub(crate) const CONFIG: &str = "config.json";

/// The files to download from a repository, and which of them are cached.
#[derive(Debug)]
pub struct Pull {
    repo: HuggingFaceRepo,
    files: Vec<PlannedFile>,
    /// How many of the last ones are the weights of one model.
    weights: usize,
    force_download: bool,
}

/// A file to download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// The path below the root.
    pub name: String,
    /// The size in bytes, where the hub says it.
    pub size: Option<u64>,
    /// Whether its content is on this machine, in this revision or another.
    pub cached: bool,
    /// The bytes that an interrupted download left. They are not fetched again.
    pub arrived: u64,
}

impl PlannedFile {
    /// A file of a repository.
    pub(crate) fn of(repo: &HuggingFaceRepo, name: String, size: Option<u64>) -> Result<PlannedFile, Error> {
        let (cached, arrived) = (repo.has(&name)?, repo.arrived(&name));
        Ok(PlannedFile { name, size, cached, arrived })
    }

    /// The bytes to fetch unless the file is cached, if its size is known.
    pub fn missing(&self) -> Option<u64> {
        Some(self.size?.saturating_sub(self.arrived))
    }
}

impl Pull {
    /// Decides which files to download; downloads no weights.
    ///
    /// # Errors
    /// If the repository has no match, or several.
    pub fn plan(repo: HuggingFaceRepo, wanted: &Wanted) -> Result<Pull, Error> {
        let (names, weights) = if wanted.files.is_empty() {
            let model = choose(&repo, wanted, Several::Refuse)?.model;
            (names(&repo, &model, wanted.force_download)?, model.files.len())
        } else {
            (matching(&repo, &wanted.files)?, 0)
        };
        let known = if wanted.files.is_empty() { repo.known_files()? } else { repo.all_files()? };
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            let size = known.iter().find(|file| file.name == name).and_then(|file| file.size);
            files.push(PlannedFile::of(&repo, name, size)?);
        }
        Ok(Pull { repo, files, weights, force_download: wanted.force_download })
    }

    /// The repository.
    pub fn repo(&self) -> &HuggingFaceRepo {
        &self.repo
    }

    /// The files.
    pub fn files(&self) -> &[PlannedFile] {
        &self.files
    }

    /// The bytes of those that have to be fetched, as far as the hub says.
    pub fn bytes(&self) -> u64 {
        let lacking = self.files.iter().filter(|file| self.force_download || !file.cached);
        lacking.filter_map(PlannedFile::missing).fold(0, u64::saturating_add)
    }

    /// Compares the bytes to fetch with the space on the disk of a hub's cache.
    ///
    /// # Errors
    /// If the disk has too little space.
    pub fn check_space(&self, hub: &Hub) -> Result<(), Error> {
        match hub.free_space() {
            Some(available) if available < self.bytes() => {
                Err(Error::DiskFull { path: hub.cache.clone(), needed: self.bytes(), available })
            }
            _ => Ok(()),
        }
    }

    /// Downloads missing files; returns the paths of all, in the order of [`Pull::files`]. Weights come last: if they
    /// are in the cache, everything else is.
    ///
    /// # Errors
    /// If a download fails; complete files stay in the cache.
    pub fn fetch(&self, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Vec<PathBuf>, Error> {
        let names: Vec<String> = self.files.iter().map(|file| file.name.clone()).collect();
        let (beside, weights) = names.split_at(names.len() - self.weights);
        let mut paths = self.repo.download_all(beside, self.force_download, progress)?;
        paths.extend(self.repo.download_all(weights, self.force_download, progress)?);
        Ok(paths)
    }
}

/// The names of the files next to a model's weights, then of the weights.
fn names(repo: &HuggingFaceRepo, model: &ModelFiles, force: bool) -> Result<Vec<String>, Error> {
    let beside = Beside::of(model.format);
    let mut ask = force || beside == Beside::Everything && repo.cached(CONFIG)?.is_none();
    for name in &model.files {
        ask |= repo.cached(name)?.is_none();
    }
    let mut names = companions(repo, beside, ask, model.folder())?;
    names.extend(model.index.clone());
    names.sort();
    names.extend(model.files.iter().cloned());
    Ok(names)
}

/// Which files a model needs besides its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Configuration, tokenizer and templates.
    Everything,
    /// Only the sampling defaults: GGUF files contain the rest.
    Settings,
    /// Only the later stages of a model, which say what it is for.
    Modules,
}

impl Beside {
    /// The files that weights of a format need.
    pub(crate) fn of(format: WeightsFormat) -> Beside {
        if format == WeightsFormat::Gguf { Beside::Settings } else { Beside::Everything }
    }

    fn has(self, name: &str) -> bool {
        match self {
            Beside::Settings => [CONFIG, "generation_config.json"].contains(&name),
            Beside::Everything => is_beside_weights(name),
            Beside::Modules => {
                let has_weights = name.ends_with(".safetensors") || name.ends_with(".bin");
                name == "modules.json" || name.contains('/') && is_beside_weights(name) && !has_weights
            }
        }
    }
}

/// The names of files other than weights, at the top level and in `folder`: those on the hub if `ask` is set, else the
/// cached ones. They are downloaded before the weights, so weights in the cache mean that nothing else is missing.
pub(crate) fn companions(
    repo: &HuggingFaceRepo,
    beside: Beside,
    ask: bool,
    folder: &str,
) -> Result<Vec<String>, Error> {
    let files = if ask {
        repo.all_files()?
    } else if repo.trust_remote_code() {
        // Code may be missing, of a model whose weights were downloaded without it.
        repo.all_files().or_else(|_| repo.known_files())?
    } else {
        repo.known_files()?
    };
    let in_folder = |name: &str| {
        let inner = name.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        inner.is_some_and(|inner| beside.has(inner))
    };
    let is_code = |name: &str| repo.trust_remote_code() && name.ends_with(".py");
    let is_beside =
        |name: &String| beside.has(name) || is_code(name) || !folder.is_empty() && in_folder(name);
    Ok(files.into_iter().map(|file| file.name).filter(is_beside).collect())
}

/// Whether a file is configuration, tokenizer or template.
pub fn is_beside_weights(name: &str) -> bool {
    let suffixes = [".json", ".model", ".jinja", ".tiktoken"];
    let texts = ["merges.txt", "vocab.txt"];
    match name.rsplit_once('/') {
        None if name.ends_with(".index.json") => false,
        None => texts.contains(&name) || suffixes.iter().any(|suffix| name.ends_with(suffix)),
        Some(("additional_chat_templates", file)) => file.ends_with(".jinja"),
        // The later stages of a model: `1_Pooling`.
        Some((folder, file)) => {
            let files = ["config.json", "model.safetensors", "pytorch_model.bin"];
            files.contains(&file) && folder.starts_with(|first: char| first.is_ascii_digit())
        }
    }
}

/// The files that names and patterns match; each must match at least one.
fn matching(repo: &HuggingFaceRepo, wanted: &[String]) -> Result<Vec<String>, Error> {
    let files = repo.all_files()?;
    let mut found: Vec<String> = Vec::new();
    for pattern in wanted {
        let expression = regex::escape(pattern).replace(r"\*", ".*").replace(r"\?", ".");
        let expression = Regex::new(&format!("^(?s:{expression})$"));
        let expression = expression.map_err(|_| repo.missing(pattern))?;
        let mut names =
            files.iter().map(|file| &file.name).filter(|name| expression.is_match(name)).peekable();
        if names.peek().is_none() {
            return Err(repo.missing(pattern));
        }
        found.extend(names.cloned());
    }
    found.sort();
    found.dedup();
    Ok(found)
}
