//! From the name of a model to its files on this machine: which files it takes, and fetching those that lack.

use std::path::PathBuf;

use regex::Regex;

use crate::choose::{Several, choose};
use crate::hub::Progress;
use crate::repo::{HuggingFaceRepo, ModelFiles, RepoOptions};
use crate::{Error, SupportedEncoding, WeightsFormat};

/// The file that says what a model is, where its weights do not.
pub(crate) const CONFIG: &str = "config.json";

/// What is wanted of a repository. The default is its one model, with configuration and tokenizer.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Weights in this encoding.
    pub encoding: Option<SupportedEncoding>,
    /// Weights whose files have this label in their names, such as `Q4_K_M`; unset, the one of the repository's name.
    pub label: Option<String>,
    /// Weights in this format.
    pub format: Option<WeightsFormat>,
    /// These files and no others: names, or patterns with `*` (any characters) and `?` (any one).
    pub files: Vec<String>,
    /// Fetch even what is there.
    pub force_download: bool,
}

/// Which files are wanted of a repository, and which of them are here.
#[derive(Debug)]
pub struct Pull {
    repo: HuggingFaceRepo,
    files: Vec<PlannedFile>,
    /// The weights among them, if they are one model's.
    model: Option<ModelFiles>,
    force_download: bool,
}

/// A file that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// The path below the root.
    pub name: String,
    /// The size in bytes, where the hub says it.
    pub size: Option<u64>,
    /// Whether its content is on this machine, in this revision or another.
    pub cached: bool,
}

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalModel {
    /// The folder with its configuration and tokenizer.
    pub folder: PathBuf,
    /// The weights, as `Weights::open` takes them: a file, any one of a split set, or the index of a sharded one.
    pub weights: PathBuf,
    /// All its files.
    pub files: Vec<PathBuf>,
}

/// The files of the model at a path or of a name on the hub, fetched if they are not here.
///
/// # Errors
/// If there is no such model, it is not clear which of several is meant, or it cannot be fetched.
pub fn resolve(
    model: &str,
    options: RepoOptions,
    wanted: &Wanted,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<LocalModel, Error> {
    let pull = Pull::plan(HuggingFaceRepo::open(model, options)?, wanted)?;
    let paths = pull.fetch(progress)?;
    pull.local_model(paths)
}

impl Pull {
    /// Finds out which files it takes; fetches none of the weights.
    ///
    /// # Errors
    /// If the repository does not have what is wanted, or has it several times.
    pub fn plan(repo: HuggingFaceRepo, wanted: &Wanted) -> Result<Pull, Error> {
        let (names, model) = match wanted.files.is_empty() {
            true => {
                let model = choose(&repo, wanted, Several::Refuse)?.model;
                (names(&repo, &model, wanted.force_download)?, Some(model))
            }
            false => (matching(&repo, &wanted.files)?, None),
        };
        let known = if wanted.files.is_empty() { repo.known_files()? } else { repo.all_files()? };
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            let cached = repo.has(&name)?;
            let size = known.iter().find(|file| file.name == name).and_then(|file| file.size);
            files.push(PlannedFile { name, size, cached });
        }
        Ok(Pull { repo, files, model, force_download: wanted.force_download })
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
        lacking.filter_map(|file| file.size).fold(0, u64::saturating_add)
    }

    /// Fetches what lacks, and gives the paths of all, in the order of the files. Weights come last: where they are, the
    /// rest of the model is.
    ///
    /// # Errors
    /// If something cannot be fetched; what has arrived stays.
    pub fn fetch(&self, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Vec<PathBuf>, Error> {
        let names: Vec<String> = self.files.iter().map(|file| file.name.clone()).collect();
        let weights = self.model.as_ref().map_or(0, |model| model.files.len());
        let (beside, weights) = names.split_at(names.len() - weights);
        let mut paths = self.repo.download_all(beside, self.force_download, progress)?;
        paths.extend(self.repo.download_all(weights, self.force_download, progress)?);
        Ok(paths)
    }

    /// The model that was fetched.
    fn local_model(self, files: Vec<PathBuf>) -> Result<LocalModel, Error> {
        let lost = || Error::NoWeights { repo: self.repo.to_string() };
        let path = |name: &str| {
            let index = self.files.iter().position(|file| file.name == name)?;
            files.get(index).cloned()
        };
        let model = self.model.as_ref().ok_or_else(lost)?;
        let index = model.index.as_deref().and_then(path);
        let weights = index.or_else(|| path(&model.files[0])).ok_or_else(lost)?;
        let folder = self.repo.folder().ok_or_else(lost)?;
        Ok(LocalModel { folder, weights, files })
    }
}

/// The names of what stands beside a model's weights, then of the weights.
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

/// What a model needs of the files beside its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Configuration, tokenizer and templates.
    Everything,
    /// What says how tokens are best drawn: GGUF files carry the rest.
    Settings,
}

impl Beside {
    /// What weights need of the place that they are from.
    pub(crate) fn of(format: WeightsFormat) -> Beside {
        if format == WeightsFormat::Gguf { Beside::Settings } else { Beside::Everything }
    }

    fn has(self, name: &str) -> bool {
        match self {
            Beside::Settings => [CONFIG, "generation_config.json"].contains(&name),
            Beside::Everything => is_beside_weights(name),
        }
    }
}

/// The names of what stands beside the weights, at the top level and in `folder`: what the hub has if `ask` is set, else
/// what is here. Weights are fetched after it, so that where they are and `config.json` is, nothing else is missing.
pub(crate) fn companions(
    repo: &HuggingFaceRepo,
    beside: Beside,
    ask: bool,
    folder: &str,
) -> Result<Vec<String>, Error> {
    let files = if ask { repo.all_files()? } else { repo.known_files()? };
    let in_folder = |name: &str| {
        let inner = name.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        inner.is_some_and(|inner| beside.has(inner))
    };
    let is_beside = |name: &String| beside.has(name) || !folder.is_empty() && in_folder(name);
    Ok(files.into_iter().map(|file| file.name).filter(is_beside).collect())
}

/// Whether a file is configuration, tokenizer or template, which a model without its own needs.
pub fn is_beside_weights(name: &str) -> bool {
    let suffixes = [".json", ".model", ".jinja", ".tiktoken"];
    let texts = ["merges.txt", "vocab.txt"];
    match name.rsplit_once('/') {
        None if name.ends_with(".index.json") => false,
        None => texts.contains(&name) || suffixes.iter().any(|suffix| name.ends_with(suffix)),
        // The later stages of an encoder: `1_Pooling`.
        Some((folder, file)) => {
            file == "config.json" && folder.starts_with(|first: char| first.is_ascii_digit())
        }
    }
}

/// The files that names and patterns stand for; each must stand for some.
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
