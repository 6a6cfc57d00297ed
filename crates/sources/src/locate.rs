//! Finds the files of a model: on this machine, or in a repository on a hub.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use weights::{Format, WeightFile, Weights};

use crate::choose::{Choice, Several, Wanted, choose};
use crate::hub::{Hub, Progress, WebFile, file_path, index_of, is_repo_id, parts_of, sets};
use crate::name::{ModelName, is_of_hub};
use crate::pull::{Beside, CONFIG, PlannedFile, companions};
use crate::repo::{HuggingFaceRepo, RepoOptions};
use crate::{Error, RepoType, SupportedEncoding, WeightsFormat};

/// A request for a model: its name, and the settings that select its files.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// The name, as [`ModelName`] reads it; empty if `weight_path` says all.
    pub model: String,
    /// Branch, tag or commit of a repository; unset, that of the name, or `main`.
    pub revision: Option<String>,
    /// The weights, if not those of the model: files, folders, files of a repository (`org/repo/file`), repositories,
    /// their addresses on the hub, and addresses of files elsewhere (`https://host/x.gguf`), which may demand a digest
    /// (`…#sha256=DIGEST`).
    pub weight_path: Vec<PathBuf>,
    /// Weights in this encoding.
    pub encoding: Option<SupportedEncoding>,
    /// Weights whose files have this label in their names.
    pub label: Option<String>,
    /// Whether code that a repository brings may be run.
    pub trust_remote_code: bool,
    /// Ask for the newest commit, and fetch what is cached already.
    pub force_download: bool,
    /// The hub and its cache; unset, those of the environment.
    pub hub: Option<Hub>,
}

/// The files of a model: its weights, and the files next to them. They need not be on this machine.
#[derive(Debug)]
pub struct FileSet {
    /// The model's name; that of its weights' repository if it has none.
    model: String,
    home: Home,
    weights: Vec<WeightLocation>,
    /// The repository of the weights that are in one.
    repo: Option<Arc<HuggingFaceRepo>>,
    /// The file of that repository that lists which tensor is in which of the others.
    index: Option<String>,
    force_download: bool,
    warnings: Vec<String>,
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
enum Home {
    /// Beside the weights.
    Weights,
    /// In the folder of this file.
    File(PathBuf),
    Repo(Arc<HuggingFaceRepo>),
}

/// Where a file of weights is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WeightLocation {
    /// At a path on this machine.
    Here(PathBuf),
    /// Below the root of the repository.
    InRepo(String),
    /// At an address outside of hubs, or in the cache of what came from there.
    Web(Box<WebFile>),
}

/// Finds the files of a model without downloading them. A hub is asked at most for its list of files and their
/// encodings.
///
/// # Errors
/// If there is no such model, a part of it is missing, or several match.
pub fn locate(request: &ModelRequest) -> Result<FileSet, Error> {
    let mut locator = Locator::new(request)?;
    for path in &request.weight_path {
        locator.add_path(path)?;
    }
    locator.finish()
}

/// The state of a search.
struct Locator<'r> {
    request: &'r ModelRequest,
    /// The model; `None` as long as only weights are named.
    name: Option<ModelName>,
    /// The model's repository or folder, once it was opened.
    home: Option<Arc<HuggingFaceRepo>>,
    set: FileSet,
}

impl<'r> Locator<'r> {
    fn new(request: &'r ModelRequest) -> Result<Locator<'r>, Error> {
        let model = request.model.trim();
        let mut name = if model.is_empty() { None } else { Some(ModelName::parse(&request.model)?) };
        if let (Some(revision), Some(named)) = (&request.revision, &name) {
            name = Some(named.clone().at(revision)?);
        }
        let set = FileSet {
            model: name.as_ref().map_or_else(String::new, ToString::to_string),
            home: Home::Weights,
            weights: Vec::new(),
            repo: None,
            index: None,
            force_download: request.force_download,
            warnings: Vec::new(),
        };
        Ok(Locator { request, name, home: None, set })
    }

    /// Resolves one path of `weight_path`: a local file, a file of another repository, or one of the model's.
    fn add_path(&mut self, path: &Path) -> Result<(), Error> {
        if let Some(address) = address(path) {
            if !is_of_hub(&address) {
                let file = WebFile::new(&self.hub()?, &address)?;
                file.parts().into_iter().for_each(|part| self.set.add(WeightLocation::Web(Box::new(part))));
                return Ok(());
            }
            let name = ModelName::parse(&address).map_err(|error| match error {
                Error::Field { value, fix, .. } => Error::Field { field: "weight_path", value, fix },
                other => other,
            });
            return self.add_repo(name?);
        }
        let model = self.folder();
        let in_model = model.as_ref().map(|model| model.join(path));
        if let Some(path) =
            [Some(path.to_path_buf()), in_model].into_iter().flatten().find(|path| path.exists())
        {
            if path.is_dir() {
                let repo = self.open(ModelName::Path(path))?;
                return self.choose(repo);
            }
            self.set.add(WeightLocation::Here(path));
            return Ok(());
        }
        if let Some((repo, file)) = repo_and_file(path)
            && let Some(repo) = self.repo_with(&repo, &file, path)?
        {
            return self.add_of(repo, &file);
        }
        let name = portable(path);
        if let ModelName::Repo(named) = ModelName::parse(&path.to_string_lossy())?
            && (self.name.is_none() || named.repo.id() != name)
        {
            return self.add_repo(ModelName::Repo(named));
        }
        if let Some(repo) = self.own_repo()?.filter(|_| file_path(&name).is_ok()) {
            let exists = repo.file_exists(&name)?;
            return if exists { self.add_of(repo, &name) } else { Err(repo.missing(&name)) };
        }
        if model.is_some() && file_path(&name).is_ok() {
            return Err(self.home()?.missing(&name));
        }
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        Err(Error::Io { path: path.to_path_buf(), source })
    }

    /// Adds the weights of a repository, or the one file that its name selects.
    fn add_repo(&mut self, name: ModelName) -> Result<(), Error> {
        let repo = self.open(name.clone())?;
        if self.name.is_none() {
            self.set.model = repo.repo_id().to_string();
            (self.name, self.home) = (Some(name), Some(Arc::clone(&repo)));
        }
        match repo.inside().map(str::to_string).filter(|file| WeightsFormat::from_file_name(file).is_some()) {
            Some(file) if repo.file_exists(&file)? => self.add_of(repo, &file),
            Some(file) => Err(repo.missing(&file)),
            None => self.choose(repo),
        }
    }

    /// All weights, and where the rest of the model is.
    fn finish(mut self) -> Result<FileSet, Error> {
        if self.set.weights.is_empty() {
            match &self.name {
                Some(ModelName::Path(path)) if !path.is_dir() => {
                    self.set.add(WeightLocation::Here(path.clone()));
                }
                _ => {
                    let home = self.home()?;
                    self.choose(home)?;
                }
            }
        }
        self.set.home = match (&self.name, &self.set.repo) {
            (Some(ModelName::Path(path)), _) if !path.is_dir() => Home::File(path.clone()),
            (Some(_), _) => Home::Repo(self.home()?),
            (None, Some(repo)) => {
                self.set.model = repo.repo_id().to_string();
                Home::Repo(Arc::clone(repo))
            }
            (None, None) => Home::Weights,
        };
        Ok(self.set)
    }

    /// Adds a file of a repository. All must be of one.
    fn add_of(&mut self, repo: Arc<HuggingFaceRepo>, name: &str) -> Result<(), Error> {
        if let Some(index) = index_of(name)
            && (repo.cached(&index)?.is_some() || repo.cached(name)?.is_none() && repo.file_exists(&index)?)
        {
            self.set.index = Some(index);
        }
        match &self.set.repo {
            Some(other) if !other.is(&repo) => {
                return Err(Error::Field {
                    field: "weight_path",
                    value: format!("{repo}/{name}"),
                    fix: format!("give files of one repository: the others are in {other}"),
                });
            }
            Some(_) => {}
            None => self.set.repo = Some(repo),
        }
        self.set.add(WeightLocation::InRepo(name.to_string()));
        Ok(())
    }

    /// Chooses one model of a repository and adds its weights.
    fn choose(&mut self, repo: Arc<HuggingFaceRepo>) -> Result<(), Error> {
        let ModelRequest { encoding, label, .. } = self.request;
        let wanted = Wanted { encoding: *encoding, label: label.clone(), ..Wanted::default() };
        let Choice { model, passed_over } = choose(&repo, &wanted, Several::Best).map_err(as_field_error)?;
        let passed_over = passed_over.iter().map(|file| format!("a file of {repo} is ignored: {file}"));
        self.set.warnings.extend(passed_over);
        match (repo.repo_type(), repo.folder()) {
            (RepoType::Local, Some(root)) => {
                self.set.weights.extend(model.files.iter().map(|name| WeightLocation::Here(root.join(name))));
            }
            _ => {
                self.set.weights.extend(model.files.into_iter().map(WeightLocation::InRepo));
                self.set.index = model.index;
                self.set.repo = Some(repo);
            }
        }
        Ok(())
    }

    /// Opens the repository that has the file, or `None` if the whole `path` is a file of the model's own repository.
    fn repo_with(
        &mut self,
        repo: &str,
        file: &str,
        path: &Path,
    ) -> Result<Option<Arc<HuggingFaceRepo>>, Error> {
        let name = ModelName::parse(repo)?;
        let opened = match &self.set.repo {
            Some(opened) if opened.repo_id() == repo => Ok(Arc::clone(opened)),
            _ if self.is_own(repo) => self.home(),
            _ => self.open(name),
        };
        if let Ok(opened) = &opened
            && opened.file_exists(file)?
        {
            return Ok(Some(Arc::clone(opened)));
        }
        if !self.is_own(repo)
            && let Some(own) = self.own_repo()?
            && own.file_exists(&portable(path))?
        {
            return Ok(None);
        }
        Err(opened?.missing(file))
    }

    /// The repository that names in `weight_path` are of, if that is on a hub.
    fn own_repo(&mut self) -> Result<Option<Arc<HuggingFaceRepo>>, Error> {
        if let Some(repo) = &self.set.repo {
            return Ok(Some(Arc::clone(repo)));
        }
        match &self.name {
            Some(ModelName::Repo(_)) => self.home().map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the model is the repository of an id.
    fn is_own(&self, id: &str) -> bool {
        let repo = self.name.as_ref().and_then(ModelName::repo);
        repo.is_some_and(|name| name.repo.id() == id)
    }

    /// The model's folder on this machine, if it is one.
    fn folder(&self) -> Option<PathBuf> {
        match &self.name {
            Some(ModelName::Path(path)) => Some(path.clone()).filter(|path| path.is_dir()),
            _ => None,
        }
    }

    /// The model's own repository or folder.
    fn home(&mut self) -> Result<Arc<HuggingFaceRepo>, Error> {
        if let Some(home) = &self.home {
            return Ok(Arc::clone(home));
        }
        let home = self.open(self.name.clone().unwrap_or_else(|| ModelName::Path(PathBuf::new())))?;
        self.home = Some(Arc::clone(&home));
        Ok(home)
    }

    fn hub(&self) -> Result<Hub, Error> {
        self.request.hub.clone().map_or_else(Hub::from_env, Ok)
    }

    fn open(&self, name: ModelName) -> Result<Arc<HuggingFaceRepo>, Error> {
        let options = RepoOptions {
            trust_remote_code: self.request.trust_remote_code,
            refresh: self.request.force_download,
            hub: self.request.hub.clone(),
            ..RepoOptions::default()
        };
        Ok(Arc::new(HuggingFaceRepo::from_name(name, options)?))
    }
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
                PlannedFile::of(repo, name.clone(), repo.size_of(name)?)
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
            WeightsFormat::Gguf if sets(self.file_names()).len() > 1 => {
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
        let names = companions(repo, Beside::Modules, true, folder)?;
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
        let beside = if is_own && carried { Beside::Settings } else { Beside::Everything };
        let lacks_config = !carried && repo.cached(&config)?.is_none();
        let ask = self.force_download || lacks_config || is_own && !self.are_here()?;
        let names = companions(repo, beside, ask, inner)?;
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
        WeightsFormat::from_file_name(match self.weights.first()? {
            WeightLocation::Here(path) => path,
            WeightLocation::InRepo(name) => Path::new(name),
            WeightLocation::Web(file) => Path::new(file.name()),
        })
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
    fn add(&mut self, place: WeightLocation) {
        let parts = match &place {
            WeightLocation::InRepo(name) => parts_of(name).into_iter().map(WeightLocation::InRepo).collect(),
            WeightLocation::Web(_) => vec![place],
            WeightLocation::Here(path) => match path.file_name().and_then(|name| name.to_str()) {
                Some(name) => parts_of(name)
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
        _ if formats.contains(&None) => {
            wrong("give files that end in .gguf, .safetensors, .bin, .pt or .pth")
        }
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
    let named = index_of(name).map(|index| files[0].with_file_name(index));
    if let Some(index) = named.filter(|index| index.is_file()) {
        return Some(index);
    }
    let mut lists = ["model.safetensors", "pytorch_model.bin"]
        .iter()
        .map(|usual| files[0].with_file_name(format!("{usual}.index.json")));
    let is_of = |index: &PathBuf| {
        index.is_file()
            && weights::shards(index).is_ok_and(|shards| {
                files.iter().all(|file| shards.contains(file))
                    && shards.iter().all(|shard| files.contains(shard) || !shard.is_file())
            })
    };
    lists.find(is_of)
}

/// Reports a missing encoding as a problem of the field `quantization_encoding`.
fn as_field_error(error: Error) -> Error {
    match error {
        Error::MissingEncoding { repo, encoding, encodings } => {
            let names: Vec<&str> = encodings.iter().map(|encoding| encoding.name()).collect();
            let there = if names.is_empty() { "none that runs".to_string() } else { names.join(", ") };
            let fix = format!("{repo} has {there}: give one of these, or name weight_path");
            Error::Field { field: "quantization_encoding", value: encoding.to_string(), fix }
        }
        error => error,
    }
}

/// `org/name/folder/file` → `org/name` and `folder/file`.
fn repo_and_file(path: &Path) -> Option<(String, String)> {
    let mut parts = path.components();
    let mut word = || match parts.next() {
        Some(Component::Normal(word)) => word.to_str().map(str::to_string),
        _ => None,
    };
    let repo = format!("{}/{}", word()?, word()?);
    let file = portable(parts.as_path());
    // `hf.co/org/name` is an address.
    let is_address = matches!(ModelName::parse(&path.to_string_lossy()), Ok(ModelName::Repo(_)) | Err(_));
    (is_repo_id(&repo) && !file.is_empty() && !is_address).then_some((repo, file))
}

/// The address that a path is, also if a path type has taken one of its slashes.
fn address(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let rest =
        |scheme: &str| text.strip_prefix(scheme)?.strip_prefix(":/").map(|rest| rest.trim_start_matches('/'));
    ["https", "http"].iter().find_map(|scheme| Some(format!("{scheme}://{}", rest(scheme)?)))
}

/// The name of a file in a repository.
fn portable(path: &Path) -> String {
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
