//! A repository of model files: a folder, a file, or a repository on a hub.

mod models;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use weights::file_name::are_one_set;
use weights::{WeightFile, Weights};

pub use self::models::{FilesByFormat, Wanted};
pub(crate) use self::models::{ModelFiles, Several, choose};
use crate::hub::{Hub, MAX_DEPTH, ModelInfo, Online, Progress, Repo, RepoFile, file_path, list_files};
use crate::named::WEIGHTS_SUFFIXES;
use crate::{Error, ModelName, RepoType, WeightsFormat, nearest};

/// A repository of model files.
///
/// On a hub, what the cache holds is used as it is, and no request is made for it; what it lacks is fetched, at the
/// commit that the cache knows. `peri pull` asks for the newest commit.
pub struct HuggingFaceRepo {
    repo_id: String,
    /// A file or folder that is meant, below the root.
    inside: Option<String>,
    /// A label of the files that are meant, or an encoding.
    label: Option<String>,
    trust_remote_code: bool,
    place: RepoLocation,
    /// Once they were looked into.
    models: OnceLock<Vec<ModelFiles>>,
}

/// How to open a repository; the default is what [`HuggingFaceRepo::new`] does.
#[derive(Debug, Clone, Default)]
pub struct RepoOptions {
    /// Whether code that the repository brings may be run. None ever is; the setting is kept for those who ask.
    pub trust_remote_code: bool,
    /// Where the repository is; unset, it is local if there is such a path.
    pub repo_type: Option<RepoType>,
    /// Branch, tag or commit; unset, `main`.
    pub revision: Option<String>,
    /// The hub and its cache; unset, those of the environment.
    pub hub: Option<Hub>,
    /// Whether to ask the hub for the newest commit, whatever the cache has.
    pub refresh: bool,
}

enum RepoLocation {
    /// A folder, or one file in it.
    Local {
        root: PathBuf,
        file: Option<String>,
    },
    Online(Box<Online>),
}

impl HuggingFaceRepo {
    /// The repository of a path on this machine or, if there is none, of a name on the hub, as [`ModelName`] reads it.
    ///
    /// # Errors
    /// If neither exists, or the hub cannot be asked and its cache does not know the name.
    pub fn new(repo_id: impl Into<String>) -> Result<HuggingFaceRepo, Error> {
        HuggingFaceRepo::open(repo_id, RepoOptions::default())
    }

    /// As [`HuggingFaceRepo::new`], with options.
    ///
    /// # Errors
    /// As [`HuggingFaceRepo::new`].
    pub fn open(repo_id: impl Into<String>, options: RepoOptions) -> Result<HuggingFaceRepo, Error> {
        let text = repo_id.into();
        let name = match options.repo_type {
            Some(RepoType::Local) => ModelName::Path(PathBuf::from(text)),
            Some(RepoType::Online) => ModelName::from_hub(&text)?,
            None => ModelName::parse(&text)?,
        };
        HuggingFaceRepo::from_name(name, options)
    }

    /// As [`HuggingFaceRepo::open`], of a name that was parsed.
    ///
    /// # Errors
    /// As [`HuggingFaceRepo::new`], and if the options have another revision than the name.
    pub fn from_name(name: ModelName, options: RepoOptions) -> Result<HuggingFaceRepo, Error> {
        let name = match &options.revision {
            Some(revision) => name.at(revision)?,
            None => name,
        };
        let (repo_id, place) = match &name {
            ModelName::Path(path) => (path.display().to_string(), RepoLocation::local(path)?),
            ModelName::Repo(name) => {
                (name.repo.id().to_string(), RepoLocation::online(name.repo.clone(), &options)?)
            }
        };
        let trust_remote_code = options.trust_remote_code;
        let (inside, label) = match name {
            ModelName::Path(_) => (None, None),
            ModelName::Repo(name) => (name.file, name.label),
        };
        Ok(HuggingFaceRepo { repo_id, inside, label, trust_remote_code, place, models: OnceLock::new() })
    }

    /// The path that was given, or the name on the hub: `owner/name`.
    pub fn repo_id(&self) -> &str {
        &self.repo_id
    }

    /// Whether another one has the same files.
    pub(crate) fn is(&self, other: &HuggingFaceRepo) -> bool {
        self.repo_id == other.repo_id && self.commit() == other.commit()
    }

    /// The file or folder below the root that the name means, if it means one.
    pub(crate) fn inside(&self) -> Option<&str> {
        self.inside.as_deref()
    }

    /// The label of files, or the encoding, that the name asks for.
    pub(crate) fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Where it is.
    pub fn repo_type(&self) -> RepoType {
        match self.place {
            RepoLocation::Local { .. } => RepoType::Local,
            RepoLocation::Online(_) => RepoType::Online,
        }
    }

    /// Whether code that the repository brings may be run.
    pub fn trust_remote_code(&self) -> bool {
        self.trust_remote_code
    }

    /// The commit, of a repository on a hub.
    pub fn commit(&self) -> Option<&str> {
        match &self.place {
            RepoLocation::Local { .. } => None,
            RepoLocation::Online(online) => Some(online.commit()),
        }
    }

    /// What the hub says of the repository; asked once.
    ///
    /// # Errors
    /// If the repository is local, or the hub cannot be asked.
    pub fn info(&self) -> Result<&ModelInfo, Error> {
        match &self.place {
            RepoLocation::Local { .. } => {
                Err(Error::NotOnline { repo: self.repo_id.clone(), what: "the model's info" })
            }
            RepoLocation::Online(online) => online.info(),
        }
    }

    /// The size of a file in bytes. `None` where the hub does not say.
    ///
    /// # Errors
    /// If there is no such file, or the hub cannot be asked.
    pub fn size_of(&self, filename: &str) -> Result<Option<u64>, Error> {
        file_path(filename)?;
        if let Some(path) = self.cached(filename)? {
            return Ok(Some(path.metadata().map_err(Error::io(&path))?.len()));
        }
        match &self.place {
            RepoLocation::Local { .. } => Err(self.missing(filename)),
            RepoLocation::Online(online) => online.size_of(filename),
        }
    }

    /// Whether there is such a file, here or on the hub.
    ///
    /// # Errors
    /// If the name leads out of the repository, or the hub cannot be asked.
    pub fn file_exists(&self, filename: &str) -> Result<bool, Error> {
        file_path(filename)?;
        if self.cached(filename)?.is_some() {
            return Ok(true);
        }
        match &self.place {
            RepoLocation::Local { .. } => Ok(false),
            RepoLocation::Online(online) => Ok(online.all_files()?.iter().any(|file| file.name == filename)),
        }
    }

    /// A file on this machine: as it is in a local repository; else from the cache, fetched if it is not there or
    /// `force_download` is set.
    ///
    /// # Errors
    /// If there is no such file, or it cannot be fetched.
    pub fn download(&self, filename: &str, force_download: bool) -> Result<PathBuf, Error> {
        let paths = self.download_all(&[filename.to_string()], force_download, &|_| ())?;
        Ok(paths.into_iter().next().expect("a path for each name"))
    }

    /// As [`HuggingFaceRepo::download`], for several files, up to eight of them at once; the paths in their order.
    ///
    /// # Errors
    /// As [`HuggingFaceRepo::download`]; files that have arrived stay.
    pub fn download_all(
        &self,
        filenames: &[String],
        force_download: bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Vec<PathBuf>, Error> {
        match &self.place {
            RepoLocation::Local { .. } => {
                let local = |name: &String| self.cached(name)?.ok_or_else(|| self.missing(name));
                filenames.iter().map(local).collect()
            }
            RepoLocation::Online(online) => online.download(filenames, force_download, progress),
        }
    }

    /// The weights of files that belong together: names, dtypes, shapes and metadata. Of files that are not on this
    /// machine, the headers are fetched and no more, so that [`Weights::has_values`] is false.
    ///
    /// # Errors
    /// If a file is not there, has no header (PyTorch), is damaged, or cannot be fetched.
    pub fn headers(&self, filenames: &[String]) -> Result<Weights, Error> {
        Ok(Weights::from_files(self.header_files(filenames)?)?)
    }

    /// The files of [`HuggingFaceRepo::headers`].
    pub(crate) fn header_files(&self, filenames: &[String]) -> Result<Vec<WeightFile>, Error> {
        match &self.place {
            RepoLocation::Local { .. } => {
                let paths = self.download_all(filenames, false, &|_| ())?;
                paths.iter().map(|path| Ok(WeightFile::open(path)?)).collect()
            }
            RepoLocation::Online(online) => online.header_files(filenames),
        }
    }

    /// Where a file is on this machine, if it is.
    ///
    /// # Errors
    /// If the name leads out of the repository.
    pub fn cached(&self, filename: &str) -> Result<Option<PathBuf>, Error> {
        let path = file_path(filename)?;
        match &self.place {
            RepoLocation::Local { root, file } => {
                let path = root.join(path);
                let listed = file.as_deref().is_none_or(|only| belongs_to(filename, only));
                Ok(Some(path).filter(|path| listed && path.is_file()))
            }
            RepoLocation::Online(online) => online.cached(filename),
        }
    }

    /// Whether any of the files is not on this machine.
    pub(crate) fn lacks(&self, filenames: &[String]) -> Result<bool, Error> {
        let paths: Vec<_> = filenames.iter().map(|name| self.cached(name)).collect::<Result<_, _>>()?;
        Ok(paths.contains(&None))
    }

    /// Whether the content of a file is on this machine, in this revision or another.
    ///
    /// # Errors
    /// If the name leads out of the repository.
    pub(crate) fn has(&self, filename: &str) -> Result<bool, Error> {
        match &self.place {
            RepoLocation::Local { .. } => Ok(self.cached(filename)?.is_some()),
            RepoLocation::Online(online) => online.has(filename),
        }
    }

    /// The bytes that an interrupted download of a file left.
    pub(crate) fn arrived(&self, filename: &str) -> u64 {
        match &self.place {
            RepoLocation::Local { .. } => 0,
            RepoLocation::Online(online) => online.arrived(filename),
        }
    }

    /// The names and sizes of its files; of a repository on a hub, those in the cache, if they are a whole model.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn files(&self) -> Result<Vec<RepoFile>, Error> {
        match &self.place {
            RepoLocation::Local { root, file } => {
                let depth = if file.is_some() { 0 } else { MAX_DEPTH };
                let mut files = list_files(root, depth)?;
                files.retain(|found| file.as_deref().is_none_or(|only| belongs_to(&found.name, only)));
                Ok(files)
            }
            RepoLocation::Online(online) => self.cached_model()?.map_or_else(|| online.all_files(), Ok),
        }
    }

    /// The names and sizes of its files; of a repository on a hub all that the hub has, if it may be asked.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn all_files(&self) -> Result<Vec<RepoFile>, Error> {
        match &self.place {
            RepoLocation::Local { .. } => self.files(),
            RepoLocation::Online(online) => online.all_files(),
        }
    }

    /// The folder its files are in: of a repository on a hub, the snapshot in the cache, if there is one.
    pub fn folder(&self) -> Option<PathBuf> {
        match &self.place {
            RepoLocation::Local { root, .. } => Some(root.clone()),
            RepoLocation::Online(online) => online.folder(),
        }
    }

    /// The folder its files are in, or will be.
    pub(crate) fn place(&self) -> PathBuf {
        match &self.place {
            RepoLocation::Local { root, .. } => root.clone(),
            RepoLocation::Online(online) => online.place(),
        }
    }

    /// The error for a missing file.
    pub(crate) fn missing(&self, file: &str) -> Error {
        if let Some(error) = self.out_of_reach(file) {
            return error;
        }
        let files = self.known_files().unwrap_or_default();
        let nearest = nearest(file, files.iter().map(|file| file.name.as_str())).map(str::to_string);
        Error::MissingFile { repo: self.repo_id.clone(), file: file.to_string(), nearest }
    }

    /// The files that are known without another request.
    pub(crate) fn known_files(&self) -> Result<Vec<RepoFile>, Error> {
        match &self.place {
            RepoLocation::Local { .. } => self.files(),
            RepoLocation::Online(online) => online.cached_files()?.map_or_else(|| online.all_files(), Ok),
        }
    }

    /// Whether a hub may be asked for more files than those that are known.
    pub(crate) fn may_have_more(&self) -> bool {
        matches!(&self.place, RepoLocation::Online(online) if online.may_have_more())
    }

    /// The error for something that may be on a hub, if the hub cannot be reached.
    pub(crate) fn out_of_reach(&self, what: &str) -> Option<Error> {
        match &self.place {
            RepoLocation::Local { .. } => None,
            RepoLocation::Online(online) => online.out_of_reach(what),
        }
    }
}

impl RepoLocation {
    fn local(path: &Path) -> Result<RepoLocation, Error> {
        let metadata = path.metadata().map_err(Error::io(path))?;
        if metadata.is_dir() {
            return Ok(RepoLocation::Local { root: path.to_path_buf(), file: None });
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if WeightsFormat::from_file_name(name).is_none() {
            let problem = format!("not a folder or weights file ({WEIGHTS_SUFFIXES})");
            return Err(Error::UnknownEncoding { file: path.display().to_string(), problem });
        }
        let root = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(RepoLocation::Local { root: root.to_path_buf(), file: Some(name.to_string()) })
    }

    fn online(repo: Repo, options: &RepoOptions) -> Result<RepoLocation, Error> {
        let hub = options.hub.clone().map_or_else(Hub::from_env, Ok)?;
        Ok(RepoLocation::Online(Box::new(Online::open(hub, repo, options.refresh)?)))
    }
}

impl fmt::Display for HuggingFaceRepo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.repo_id)
    }
}

impl fmt::Debug for HuggingFaceRepo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.repo_id)
    }
}

/// Whether a file is the one that the repository consists of, a part of the same set, or next to it without being
/// weights (configuration, tokenizer).
fn belongs_to(name: &str, only: &str) -> bool {
    name == only || WeightsFormat::from_file_name(name).is_none() || are_one_set(name, only)
}

#[cfg(test)]
mod tests;
