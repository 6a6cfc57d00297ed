//! From the name of a model to its files on this machine: which files it takes, and fetching those that lack.

use std::path::PathBuf;

use regex::Regex;

use super::shards::index_of;
use super::{HubError, Progress};
use crate::config::{HuggingFaceRepo, ModelFiles, RepoOptions, SupportedEncoding, WeightsFormat};

/// What is wanted of a repository. The default is its one model, with configuration and tokenizer.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Weights in this encoding.
    pub encoding: Option<SupportedEncoding>,
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
    /// The files of weights among them, if they are one model's.
    weights: Vec<String>,
    force_download: bool,
}

/// A file that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// The path below the root.
    pub name: String,
    /// The size in bytes, where the hub says it.
    pub size: Option<u64>,
    /// Whether it is on this machine.
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
) -> Result<LocalModel, HubError> {
    let pull = Pull::plan(HuggingFaceRepo::open(model, options)?, wanted)?;
    let paths = pull.fetch(progress)?;
    pull.local_model(paths)
}

impl Pull {
    /// Finds out which files it takes; fetches none of the weights.
    ///
    /// # Errors
    /// If the repository does not have what is wanted, or has it several times.
    pub fn plan(repo: HuggingFaceRepo, wanted: &Wanted) -> Result<Pull, HubError> {
        let (names, weights) = match wanted.files.is_empty() {
            true => model_files(&repo, wanted)?,
            false => (matching(&repo, &wanted.files)?, Vec::new()),
        };
        let known = if wanted.files.is_empty() { repo.files()? } else { repo.all_files()? };
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            let cached = repo.cached(&name)?.is_some();
            let size = known.iter().find(|file| file.name == name).and_then(|file| file.size);
            files.push(PlannedFile { name, size, cached });
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
        lacking.filter_map(|file| file.size).fold(0, u64::saturating_add)
    }

    /// Fetches what lacks, and gives the paths of all, in the order of the files.
    ///
    /// # Errors
    /// If something cannot be fetched; what has arrived stays.
    pub fn fetch(&self, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Vec<PathBuf>, HubError> {
        let names: Vec<String> = self.files.iter().map(|file| file.name.clone()).collect();
        self.repo.download_all(&names, self.force_download, progress)
    }

    /// The model that was fetched.
    fn local_model(self, files: Vec<PathBuf>) -> Result<LocalModel, HubError> {
        let lost = || HubError::NoWeights { repo: self.repo.to_string() };
        let path = |name: &str| {
            let index = self.files.iter().position(|file| file.name == name)?;
            files.get(index).cloned()
        };
        let first = self.weights.first().ok_or_else(lost)?;
        let weights =
            index_of(first).and_then(|index| path(&index)).or_else(|| path(first)).ok_or_else(lost)?;
        let folder = self.repo.folder().ok_or_else(lost)?;
        Ok(LocalModel { folder, weights, files })
    }
}

/// The files of the one model that is meant: what stands beside the weights, then the weights. And those alone.
fn model_files(repo: &HuggingFaceRepo, wanted: &Wanted) -> Result<(Vec<String>, Vec<String>), HubError> {
    let model = choose(repo, wanted)?;
    let index = index_of(&model.files[0]);
    let beside = |name: &str| match model.format {
        // A GGUF file carries its configuration and tokenizer.
        WeightsFormat::Gguf => ["config.json", "generation_config.json"].contains(&name),
        _ => is_beside_weights(name) || index.as_deref() == Some(name),
    };
    let mut files = repo.files()?;
    if model.format != WeightsFormat::Gguf && !files.iter().any(|file| file.name == "config.json") {
        // The cache may have the weights alone.
        files = repo.all_files()?;
    }
    let mut names: Vec<String> =
        files.into_iter().map(|file| file.name).filter(|name| beside(name)).collect();
    names.extend(model.files.iter().cloned());
    Ok((names, model.files))
}

/// The model that is meant: of the encoding and format that are wanted; else safetensors, GGUF, PyTorch, in this order.
fn choose(repo: &HuggingFaceRepo, wanted: &Wanted) -> Result<ModelFiles, HubError> {
    let fits = |model: &ModelFiles| {
        wanted.encoding.is_none_or(|encoding| model.encoding == Some(encoding))
            && wanted.format.is_none_or(|format| model.format == format)
    };
    let all = repo.models_with(&fits)?;
    let mut models: Vec<&ModelFiles> = all.iter().filter(|model| fits(model)).collect();
    let name = repo.to_string();
    let Some(first) = models.first() else {
        // It may be the one that is wanted.
        if let Some((file, problem)) =
            all.iter().find_map(|model| Some((&model.files[0], model.problem.clone()?)))
        {
            return Err(HubError::UnknownEncoding { file: file.clone(), problem });
        }
        return Err(match wanted.encoding {
            Some(encoding) if !all.is_empty() => {
                HubError::MissingEncoding { repo: name, encoding, encodings: encodings(all.iter()) }
            }
            _ => repo.without_weights(),
        });
    };
    let format = first.format;
    models.retain(|model| model.format == format);
    let encodings = encodings(models.iter().copied());
    let mut usual = models.iter().filter(|model| is_usual(model));
    match (models.as_slice(), usual.next(), usual.next()) {
        ([only], ..) => Ok((*only).clone()),
        (_, Some(usual), None) if format != WeightsFormat::Gguf || encodings.len() < 2 => {
            Ok((*usual).clone())
        }
        _ if encodings.len() > 1 => Err(HubError::SeveralEncodings { repo: name, encodings }),
        _ => {
            let files = models.iter().map(|model| model.files[0].clone()).collect();
            Err(HubError::SeveralFiles { repo: name, files })
        }
    }
}

/// Whether a model has the usual name of its format, or is the usual one of the mixtures that one encoding has
/// (`q4_k_s`, `q4_k_m`, `q4_k_l`).
fn is_usual(model: &ModelFiles) -> bool {
    let name = model.files[0].to_ascii_lowercase();
    let begins = |starts: [&str; 2]| starts.iter().any(|start| name.starts_with(start));
    match model.format {
        WeightsFormat::Safetensors => begins(["model.safetensors", "model-0"]),
        WeightsFormat::Pytorch => begins(["pytorch_model.bin", "pytorch_model-0"]),
        WeightsFormat::Gguf => name.contains("_k_m"),
    }
}

fn encodings<'a>(models: impl Iterator<Item = &'a ModelFiles>) -> Vec<SupportedEncoding> {
    let mut encodings: Vec<_> = models.filter_map(|model| model.encoding).collect();
    encodings.sort();
    encodings.dedup();
    encodings
}

/// Whether a file is configuration, tokenizer or template, which a model without its own needs.
fn is_beside_weights(name: &str) -> bool {
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
fn matching(repo: &HuggingFaceRepo, wanted: &[String]) -> Result<Vec<String>, HubError> {
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
