//! Finds the files of a model: on this machine, or in a repository on a hub.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use weights::file_name::index_of_shard;

use crate::file_set::{FileSet, Home, WeightLocation, portable};
use crate::hub::{Hub, WebFile, file_path, is_repo_id};
use crate::name::{ModelName, is_of_hub};
use crate::repo::{HuggingFaceRepo, RepoOptions, Several, Wanted, choose};
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
        if let Some(index) = index_of_shard(name)
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
        let model = choose(&repo, &wanted, Several::Best).map_err(as_field_error)?;
        let passed_over = model.passed_over.iter().map(|file| format!("a file of {repo} is ignored: {file}"));
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
