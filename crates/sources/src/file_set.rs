//! The files of a model, which need not be on this machine: what they are called, whether they are here, how to fetch them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weights::file_name::{index_of_shard, shard_sets, shards_of};
use weights::{Format, WeightFile, Weights};

use crate::companions::{CONFIG, Companions};
use crate::hub::{Progress, WebFile};
use crate::named::WEIGHTS_SUFFIXES;
use crate::pull::PlannedFile;
use crate::repo::HuggingFaceRepo;
use crate::{Error, RepoType, SupportedEncoding, WeightsFormat};

/// The files of a model: its weights, and the files next to them. They need not be on this machine.
#[derive(Debug)]
pub struct FileSet {
    /// The model's name; that of its weights' repository if it has none.
    pub(crate) model: String,
    pub(crate) home: Home,
    pub(crate) weights: Vec<WeightLocation>,
    /// The repository of the weights that are in one.
    pub(crate) repo: Option<Arc<HuggingFaceRepo>>,
    /// The file of that repository that lists which tensor is in which of the others.
    pub(crate) index: Option<String>,
    pub(crate) force_download: bool,
    pub(crate) warnings: Vec<String>,
}

/// The files of a model on this machine.
#[derive(Debug, Clone)]
pub struct LocalFiles {
    /// The weights.
    pub weights: Vec<PathBuf>,
    /// The folder with configuration and tokenizer, for weights that carry none.
    pub folder: PathBuf,
}

/// Where a model's configuration and tokenizer are.
#[derive(Debug)]
pub(crate) enum Home {
    /// Beside the weights.
    Weights,
    /// In the folder of this file.
    File(PathBuf),
    Repo(Arc<HuggingFaceRepo>),
}

/// Where a file of weights is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WeightLocation {
    /// At a path on this machine.
    Here(PathBuf),
    /// Below the root of the repository.
    InRepo(String),
    /// At an address outside of hubs, or in the cache of what came from there.
    Web(Box<WebFile>),
}

impl FileSet {
    /// The model's name: a path, or `owner/name`.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The repository of the weights, if it is another one than the model's.
    pub fn weights_repo_id(&self) -> Option<&str> {
        self.repo.as_ref().map(|repo| repo.repo_id()).filter(|id| *id != self.model)
    }

    /// What is worth a warning.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The commit of the weights, if they are of a repository on a hub.
    pub fn commit(&self) -> Option<&str> {
        self.repo.as_ref()?.commit()
    }

    /// Whether some weights are of a hub or of another server, so that they can be fetched again.
    pub fn are_of_network(&self) -> bool {
        let is_web = |place: &WeightLocation| matches!(place, WeightLocation::Web(_));
        self.commit().is_some() || self.weights.iter().any(is_web)
    }

    /// The files of weights: names, sizes, and whether they are here.
    ///
    /// # Errors
    /// If one is not there.
    pub fn files(&self) -> Result<Vec<PlannedFile>, Error> {
        let file = |place: &WeightLocation| match place {
            WeightLocation::InRepo(name) => {
                let repo = self.repo();
                PlannedFile::from_repo(repo, name.clone(), repo.size_of(name)?)
            }
            WeightLocation::Web(file) => Ok(PlannedFile {
                name: file.to_string(),
                size: Some(file.bytes()?),
                cached: file.is_here()?,
                arrived: file.arrived(),
            }),
            WeightLocation::Here(path) => {
                let metadata = path.metadata().map_err(Error::io(path))?;
                let (name, size) = (path.display().to_string(), Some(metadata.len()));
                Ok(PlannedFile { name, size, cached: true, arrived: 0 })
            }
        };
        self.weights.iter().map(file).collect()
    }

    /// The bytes of the weights; `None` where a hub does not say.
    ///
    /// # Errors
    /// As [`FileSet::files`].
    pub fn bytes(&self) -> Result<Option<u64>, Error> {
        Ok(self.files()?.iter().try_fold(0_u64, |sum, file| Some(sum.saturating_add(file.size?))))
    }

    /// Whether all weights are on this machine.
    ///
    /// # Errors
    /// If a name leads out of the cache, or that cannot be read.
    pub fn are_here(&self) -> Result<bool, Error> {
        for place in &self.weights {
            let is_here = match place {
                WeightLocation::Here(_) => true,
                WeightLocation::InRepo(name) => self.repo().cached(name)?.is_some(),
                WeightLocation::Web(file) => file.is_here()?,
            };
            if !is_here {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The encoding of weights that are not on this machine, as far as something says it.
    pub fn expected_encoding(&self) -> Option<SupportedEncoding> {
        let name = self.names().next()?;
        self.repo().encoding_for_file(name).ok()
    }

    /// What `weight_path` says to mean the weights: paths, also of files that are still to come, and `org/repo/file`.
    pub fn weight_path(&self) -> Vec<PathBuf> {
        let repo = self.repo.as_ref().map_or("", |repo| repo.repo_id());
        let path = |place: &WeightLocation| match place {
            WeightLocation::Here(path) => path.clone(),
            WeightLocation::InRepo(name) => Path::new(repo).join(name),
            WeightLocation::Web(file) => file.path(),
        };
        self.weights.iter().map(path).collect()
    }

    /// `config.json`, fetched if need be; `None` if the model is weights alone, or one file.
    ///
    /// # Errors
    /// If there is none, or it cannot be fetched.
    pub fn config_json(&self) -> Result<Option<PathBuf>, Error> {
        match &self.home {
            Home::Repo(repo) => {
                let name = self.config_name(repo)?;
                Ok(Some(repo.download(&name, self.force_download)?))
            }
            Home::Weights | Home::File(_) => Ok(None),
        }
    }

    /// The weights, without values where only headers were downloaded, and the folder with `config.json`, which is
    /// downloaded for formats other than GGUF, with what says of later stages (`modules.json`). `None` for PyTorch files, which have no header.
    ///
    /// # Errors
    /// If the files are of several models, damaged, or cannot be fetched.
    pub fn headers(&self) -> Result<Option<(Weights, PathBuf)>, Error> {
        let format = weights_format(&self.weight_path())?;
        match format {
            WeightsFormat::Pytorch => return Ok(None),
            WeightsFormat::Gguf if shard_sets(self.file_names()).len() > 1 => {
                return Err(several_models(&self.weight_path()));
            }
            _ => {}
        }
        let weights = Weights::from_shards(self.header_files()?, self.index()?.as_deref())?;
        let folder = match (format, &self.home) {
            (WeightsFormat::Gguf, Home::Repo(repo)) => repo.place(),
            (WeightsFormat::Gguf, _) => self.folder_of_paths(),
            _ => {
                self.fetch_modules()?;
                self.config_json()?.as_deref().map_or_else(|| self.folder_of_paths(), parent)
            }
        };
        Ok(Some((weights, folder)))
    }

    /// Downloads the configurations of the later stages of a model, and the templates among its files.
    fn fetch_modules(&self) -> Result<(), Error> {
        let Home::Repo(repo) = &self.home else { return Ok(()) };
        let config = self.config_name(repo)?;
        let folder = config.rsplit_once('/').map_or("", |(folder, _)| folder);
        let names = repo.companions(Companions::Modules, true, folder)?;
        repo.download_all(&names, self.force_download, &|_| ()).map(drop)
    }

    /// Downloads missing files, weights last: if the weights are in the cache, everything else is.
    ///
    /// # Errors
    /// If something is not there or cannot be fetched; what has arrived stays.
    pub fn fetch(&self, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<LocalFiles, Error> {
        let folder = self.fetch_beside()?;
        let mut names: Vec<String> = self.names().map(str::to_string).collect();
        names.extend(self.index.clone());
        let fetched = match &self.repo {
            Some(repo) => repo.download_all(&names, self.force_download, progress)?,
            None => Vec::new(),
        };
        let mut fetched = fetched.into_iter();
        let path = |place: &WeightLocation| match place {
            WeightLocation::Here(path) => Ok(path.clone()),
            WeightLocation::InRepo(_) => Ok(fetched.next().expect("a path for each name")),
            WeightLocation::Web(file) => file.fetch(self.force_download, progress),
        };
        Ok(LocalFiles { weights: self.weights.iter().map(path).collect::<Result<_, _>>()?, folder })
    }

    /// Downloads configuration and tokenizer; returns their folder.
    fn fetch_beside(&self) -> Result<PathBuf, Error> {
        let repo = match &self.home {
            Home::Weights | Home::File(_) => return Ok(self.folder_of_paths()),
            Home::Repo(repo) => repo,
        };
        let carried = self.format() == Some(WeightsFormat::Gguf);
        let config = self.config_name(repo)?;
        let inner = config.rsplit_once('/').map_or("", |(folder, _)| folder);
        if repo.repo_type() == RepoType::Local {
            return Ok(below(&repo.place(), inner));
        }
        let is_own = self.repo.as_ref().is_some_and(|weights| weights.is(repo));
        let companions = if is_own && carried { Companions::Settings } else { Companions::All };
        let lacks_config = !carried && repo.cached(&config)?.is_none();
        let ask = self.force_download || lacks_config || is_own && !self.are_here()?;
        let names = repo.companions(companions, ask, inner)?;
        if !carried && !names.contains(&config) {
            return Err(repo.missing(&config));
        }
        repo.download_all(&names, self.force_download, &|_| ())?;
        Ok(below(&repo.place(), inner))
    }

    /// The name of `config.json`: in the folder of the weights if there is one, else at the top level.
    fn config_name(&self, home: &Arc<HuggingFaceRepo>) -> Result<String, Error> {
        let first = match (&self.weights.first(), &self.repo) {
            (Some(WeightLocation::InRepo(name)), Some(repo)) if repo.is(home) => name.clone(),
            (Some(WeightLocation::Here(path)), _) if home.repo_type() == RepoType::Local => {
                path.strip_prefix(home.place()).map(portable).unwrap_or_default()
            }
            _ => String::new(),
        };
        if let Some((folder, _)) = first.rsplit_once('/')
            && self.format() != Some(WeightsFormat::Gguf)
        {
            let inner = format!("{folder}/{CONFIG}");
            if home.cached(&inner)?.is_some() || home.cached(CONFIG)?.is_none() && home.file_exists(&inner)? {
                return Ok(inner);
            }
        }
        Ok(CONFIG.to_string())
    }

    /// The format that the name of the first promises.
    fn format(&self) -> Option<WeightsFormat> {
        WeightsFormat::from_file_name(self.weight_path().first()?)
    }

    /// The folder of the model's file, or of the weights.
    fn folder_of_paths(&self) -> PathBuf {
        match &self.home {
            Home::File(path) => parent(path),
            _ => self.weight_path().first().map_or_else(PathBuf::new, |path| parent(path)),
        }
    }

    /// Opens the files; of remote ones, only the headers.
    fn header_files(&self) -> Result<Vec<WeightFile>, Error> {
        let names: Vec<String> = self.names().map(str::to_string).collect();
        let fetched = match &self.repo {
            Some(repo) => repo.header_files(&names)?,
            None => Vec::new(),
        };
        let mut fetched = fetched.into_iter();
        let open = |place: &WeightLocation| match place {
            WeightLocation::Here(path) => Ok(WeightFile::open(path)?),
            WeightLocation::InRepo(_) => Ok(fetched.next().expect("a file for each name")),
            WeightLocation::Web(file) => file.header(),
        };
        self.weights.iter().map(open).collect()
    }

    /// The index of the weights, if they have one on this machine.
    fn index(&self) -> Result<Option<PathBuf>, Error> {
        match (&self.repo, &self.index) {
            (Some(repo), Some(index)) => repo.cached(index),
            (Some(_), None) => Ok(None),
            (None, _) => Ok(index_beside(&self.weight_path())),
        }
    }

    fn repo(&self) -> &HuggingFaceRepo {
        self.repo.as_ref().expect("files in a repository have one")
    }

    /// The names without their folders.
    fn file_names(&self) -> impl Iterator<Item = &str> {
        self.weights.iter().filter_map(|place| match place {
            WeightLocation::Here(path) => path.file_name()?.to_str(),
            WeightLocation::InRepo(name) => name.rsplit('/').next(),
            WeightLocation::Web(file) => Some(file.name()),
        })
    }

    /// Those that are in the repository.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.weights.iter().filter_map(|place| match place {
            WeightLocation::Here(_) | WeightLocation::Web(_) => None,
            WeightLocation::InRepo(name) => Some(name.as_str()),
        })
    }

    /// Adds a file, and those that are parts of the same set; none of them twice.
    pub(crate) fn add(&mut self, place: WeightLocation) {
        let parts = match &place {
            WeightLocation::InRepo(name) => shards_of(name).into_iter().map(WeightLocation::InRepo).collect(),
            WeightLocation::Web(_) => vec![place],
            WeightLocation::Here(path) => match path.file_name().and_then(|name| name.to_str()) {
                Some(name) => shards_of(name)
                    .iter()
                    .map(|part| WeightLocation::Here(path.with_file_name(part)))
                    .collect(),
                None => vec![place],
            },
        };
        for part in parts {
            if !self.weights.iter().any(|place| place.is(&part)) {
                self.weights.push(part);
            }
        }
    }
}

impl LocalFiles {
    /// Opens the weights: maps them, and reads their headers.
    ///
    /// # Errors
    /// If the files are damaged, or of several models.
    pub fn open(&self) -> Result<Weights, Error> {
        let weights = match (&self.weights[..], index_beside(&self.weights)) {
            (several, Some(index)) => {
                let files = several.iter().map(|path| WeightFile::open(path));
                Weights::from_shards(files.collect::<Result<_, _>>()?, Some(&index))
            }
            ([one], None) => Weights::open(one),
            ([first, ..], None) if weights_format(&self.weights)? == WeightsFormat::Gguf => {
                Weights::open(first)
            }
            (several, None) => Weights::open_all(several),
        }?;
        if weights.format() == Format::Gguf && self.weights.len() > weights.files().len() {
            return Err(several_models(&self.weights));
        }
        Ok(weights)
    }
}

impl WeightLocation {
    /// Whether it is the same file, whatever links lead to it.
    fn is(&self, other: &WeightLocation) -> bool {
        match (self, other) {
            (WeightLocation::Here(one), WeightLocation::Here(other)) => {
                one == other
                    || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
            }
            _ => self == other,
        }
    }
}

/// The format that all paths have by their suffixes.
///
/// # Errors
/// If a suffix is unknown, or there are several formats.
pub fn weights_format(paths: &[PathBuf]) -> Result<WeightsFormat, Error> {
    let wrong = |fix: &str| Err(Error::Field { field: "weight_path", value: listed(paths), fix: fix.into() });
    let formats: Vec<_> = paths.iter().map(WeightsFormat::from_file_name).collect();
    match formats.first() {
        _ if formats.contains(&None) => wrong(&format!("give files that end in {WEIGHTS_SUFFIXES}")),
        Some(Some(first)) if formats.iter().all(|format| format == &Some(*first)) => Ok(*first),
        Some(_) => wrong("give files of one format"),
        None => Err(Error::Field {
            field: "weight_path",
            value: "empty".to_string(),
            fix: "set it, or ask the resolved configuration".to_string(),
        }),
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn several_models(paths: &[PathBuf]) -> Error {
    let fix = "these GGUF files are several models: give the files of one".to_string();
    Error::Field { field: "weight_path", value: listed(paths), fix }
}

/// The index of a sharded checkpoint: the one named after its files, or one that lists them.
fn index_beside(files: &[PathBuf]) -> Option<PathBuf> {
    let name = files.first()?.file_name()?.to_str()?;
    let named = index_of_shard(name).map(|index| files[0].with_file_name(index));
    if let Some(index) = named.filter(|index| index.is_file()) {
        return Some(index);
    }
    let formats = [Format::Safetensors, Format::PyTorch];
    let mut indexes = formats.map(|format| files[0].with_file_name(format.default_index())).into_iter();
    let is_of = |index: &PathBuf| {
        index.is_file()
            && weights::shards(index).is_ok_and(|shards| {
                files.iter().all(|file| shards.contains(file))
                    && shards.iter().all(|shard| files.contains(shard) || !shard.is_file())
            })
    };
    indexes.find(is_of)
}

/// The name of a file in a repository.
pub(crate) fn portable(path: &Path) -> String {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

/// A folder in another one; that itself, if the name is empty.
fn below(root: &Path, folder: &str) -> PathBuf {
    if folder.is_empty() { root.to_path_buf() } else { root.join(folder) }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_path_buf()
}
