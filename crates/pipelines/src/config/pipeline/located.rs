//! Which files the weights of a model are, and where: on this machine, or in a repo from which they can be fetched.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use sources::{
    Choice, HuggingFaceRepo, PlannedFile, Progress, RepoType, Several, Wanted, WeightsFormat, choose,
};
use weights::WeightFile;

use super::PipelineConfig;
use super::methods::problem;
use crate::Error;

/// The files of weights that are meant; they need not be here.
#[derive(Debug, Default)]
pub(super) struct Located {
    places: Vec<Place>,
    /// The repo of the places that are in one.
    repo: Option<Arc<HuggingFaceRepo>>,
    /// The file of that repo that lists which tensor is in which of the others.
    index: Option<String>,
    /// What is worth a warning.
    pub(super) warnings: Vec<String>,
}

/// Where a file of weights is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// At a path on this machine.
    Here(PathBuf),
    /// Below the root of the repo.
    InRepo(String),
}

impl Located {
    /// The repo of those that are in one.
    pub(super) fn repo(&self) -> Option<&HuggingFaceRepo> {
        self.repo.as_deref()
    }

    /// Names, sizes, and whether they are here.
    pub(super) fn files(&self) -> Result<Vec<PlannedFile>, Error> {
        let file = |place: &Place| match place {
            Place::InRepo(name) => {
                let repo = self.repo.as_ref().expect("such places have a repo");
                let (size, cached) = (repo.size_of(name)?, repo.cached(name)?.is_some());
                Ok(PlannedFile { name: name.clone(), size, cached })
            }
            Place::Here(path) => {
                let metadata =
                    path.metadata().map_err(|source| Error::Read { path: path.clone(), source })?;
                Ok(PlannedFile { name: path.display().to_string(), size: Some(metadata.len()), cached: true })
            }
        };
        self.places.iter().map(file).collect()
    }

    /// Whether all of them are on this machine.
    pub(super) fn are_here(&self) -> Result<bool, Error> {
        let Some(repo) = &self.repo else { return Ok(true) };
        for name in self.names() {
            if repo.cached(name)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The format that the name of the first promises.
    pub(super) fn format(&self) -> Option<WeightsFormat> {
        WeightsFormat::of_file_name(match self.places.first()? {
            Place::Here(path) => path,
            Place::InRepo(name) => Path::new(name),
        })
    }

    /// What `weight_path` says to mean them: paths, and `org/repo/file`.
    pub(super) fn weight_path(&self) -> Vec<PathBuf> {
        let repo = self.repo.as_ref().map_or("", |repo| repo.repo_id());
        let path = |place: &Place| match place {
            Place::Here(path) => path.clone(),
            Place::InRepo(name) => Path::new(repo).join(name),
        };
        self.places.iter().map(path).collect()
    }

    /// The paths of all, once those that lack were fetched.
    pub(super) fn fetch(
        &self,
        force: bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Vec<PathBuf>, Error> {
        let mut names: Vec<String> = self.names().map(str::to_string).collect();
        names.extend(self.index.clone());
        let fetched = match &self.repo {
            Some(repo) => repo.download_all(&names, force, progress)?,
            None => Vec::new(),
        };
        let mut fetched = fetched.into_iter();
        let path = |place: &Place| match place {
            Place::Here(path) => path.clone(),
            Place::InRepo(_) => fetched.next().expect("a path for each name"),
        };
        Ok(self.places.iter().map(path).collect())
    }

    /// The files, open: of those that are not on this machine, the headers.
    pub(super) fn header_files(&self) -> Result<Vec<WeightFile>, Error> {
        let names: Vec<String> = self.names().map(str::to_string).collect();
        let fetched = match &self.repo {
            Some(repo) => repo.header_files(&names)?,
            None => Vec::new(),
        };
        let mut fetched = fetched.into_iter();
        let open = |place: &Place| match place {
            Place::Here(path) => Ok(WeightFile::open(path).map_err(models::Error::from)?),
            Place::InRepo(_) => Ok(fetched.next().expect("a file for each name")),
        };
        self.places.iter().map(open).collect()
    }

    /// The names without their folders.
    pub(super) fn file_names(&self) -> impl Iterator<Item = &str> {
        self.places.iter().filter_map(|place| match place {
            Place::Here(path) => path.file_name()?.to_str(),
            Place::InRepo(name) => name.rsplit('/').next(),
        })
    }

    /// Those that are in the repo.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.places.iter().filter_map(|place| match place {
            Place::Here(_) => None,
            Place::InRepo(name) => Some(name.as_str()),
        })
    }

    /// Adds a file, and those that are parts of the same set; none of them twice.
    fn add(&mut self, place: Place) {
        let parts = match &place {
            Place::InRepo(name) => sources::parts_of(name).into_iter().map(Place::InRepo).collect(),
            Place::Here(path) => match path.file_name().and_then(|name| name.to_str()) {
                Some(name) => sources::parts_of(name)
                    .iter()
                    .map(|part| Place::Here(path.with_file_name(part)))
                    .collect(),
                None => vec![place],
            },
        };
        for part in parts {
            if !self.places.iter().any(|place| place.is(&part)) {
                self.places.push(part);
            }
        }
    }

    /// Adds a file of a repo. All must be of one.
    fn add_of(&mut self, repo: Arc<HuggingFaceRepo>, name: &str) -> Result<(), Error> {
        if let Some(index) = sources::index_of(name)
            && (repo.cached(&index)?.is_some() || repo.cached(name)?.is_none() && repo.file_exists(&index)?)
        {
            self.index = Some(index);
        }
        match &self.repo {
            Some(other) if other.repo_id() != repo.repo_id() => {
                let fix = format!("give files of one repo: others are of {other}");
                return Err(problem("weight_path", format!("{repo}/{name}"), fix));
            }
            Some(_) => {}
            None => self.repo = Some(repo),
        }
        self.add(Place::InRepo(name.to_string()));
        Ok(())
    }

    /// Adds the model of a place that is meant.
    fn choose(&mut self, repo: Arc<HuggingFaceRepo>, config: &PipelineConfig) -> Result<(), Error> {
        let wanted = Wanted { encoding: config.quantization_encoding, ..Wanted::default() };
        let Choice { model, passed_over } = choose(&repo, &wanted, Several::Best).map_err(in_words)?;
        let passed_over = passed_over.iter().map(|file| format!("a file of {repo} does not count: {file}"));
        self.warnings.extend(passed_over);
        match (repo.repo_type(), repo.folder()) {
            (RepoType::Local, Some(root)) => {
                self.places.extend(model.files.iter().map(|name| Place::Here(root.join(name))));
            }
            _ => {
                self.places.extend(model.files.into_iter().map(Place::InRepo));
                self.index = model.index;
                self.repo = Some(repo);
            }
        }
        Ok(())
    }
}

impl Place {
    /// Whether it is the same file, whatever links lead to it.
    fn is(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Here(one), Place::Here(other)) => {
                one == other
                    || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
            }
            _ => self == other,
        }
    }
}

impl PipelineConfig {
    /// Finds the files that are meant: those of `weight_path`, or else the model's own. Fetches none.
    pub(super) fn locate(&mut self) -> Result<Located, Error> {
        check_is_no_address("huggingface_repo_id", &self.huggingface_repo_id)?;
        let mut located = Located::default();
        for path in self.weight_path.clone() {
            self.locate_file(&path, &mut located)?;
        }
        if self.huggingface_repo_id.is_empty()
            && let Some(repo) = &self._weights_repo_id
        {
            self.huggingface_repo_id = repo.clone();
        }
        if located.places.is_empty() {
            if self.is_file() {
                located.add(Place::Here(PathBuf::from(&self.huggingface_repo_id)));
            } else {
                located.choose(self.model_repo()?.into(), self)?;
            }
        }
        Ok(located)
    }

    /// Finds out what one of `weight_path` means: a file here, a file of another repo, or one of the model's.
    fn locate_file(&mut self, path: &Path, located: &mut Located) -> Result<(), Error> {
        let model = PathBuf::from(&self.huggingface_repo_id);
        let in_model = model.is_dir().then(|| model.join(path));
        if let Some(path) =
            [Some(path.to_path_buf()), in_model].into_iter().flatten().find(|path| path.exists())
        {
            if path.is_dir() {
                return located.choose(self.repo(&path.to_string_lossy())?.into(), self);
            }
            located.add(Place::Here(path));
            return Ok(());
        }
        check_is_no_address("weight_path", &path.to_string_lossy())?;
        if let Some((repo, file)) = repo_and_file(path)
            && let Some(repo) = self.repo_with(&repo, &file, path, located)?
        {
            return located.add_of(repo, &file);
        }
        let name = portable(path);
        let is_weights = WeightsFormat::of_file_name(path).is_some();
        if self.huggingface_repo_id.is_empty() && sources::is_repo_id(&name) && !is_weights {
            // A repo by itself: its weights are looked for.
            self.huggingface_repo_id = name;
            return Ok(());
        }
        if let Some(repo) = self.own_repo(located)?.filter(|_| sources::file_path(&name).is_ok()) {
            let exists = repo.file_exists(&name)?;
            return if exists { located.add_of(repo, &name) } else { Err(repo.missing(&name).into()) };
        }
        if model.is_dir() && sources::file_path(&name).is_ok() {
            return Err(self.model_repo()?.missing(&name).into());
        }
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        Err(Error::Read { path: path.to_path_buf(), source })
    }

    /// The repo of a name, which has the file; none if it is the model's own repo that has a file of the whole `path`.
    fn repo_with(
        &mut self,
        repo: &str,
        file: &str,
        path: &Path,
        located: &Located,
    ) -> Result<Option<Arc<HuggingFaceRepo>>, Error> {
        let opened = self.repo_unless_open(repo, located);
        if let Ok(opened) = &opened
            && opened.file_exists(file)?
        {
            if repo != self.huggingface_repo_id {
                self._weights_repo_id = Some(repo.to_string());
            }
            return Ok(Some(Arc::clone(opened)));
        }
        if let Some(own) = self.own_repo(located)?
            && own.repo_id() != repo
            && own.file_exists(&portable(path))?
        {
            return Ok(None);
        }
        Err(opened?.missing(file).into())
    }

    /// The repo that names in `weight_path` are of, if that is on a hub.
    fn own_repo(&self, located: &Located) -> Result<Option<Arc<HuggingFaceRepo>>, Error> {
        let id = self._weights_repo_id.as_deref().unwrap_or(&self.huggingface_repo_id);
        if !sources::is_repo_id(id) || Path::new(id).exists() {
            return Ok(None);
        }
        Ok(Some(self.repo_unless_open(id, located)?))
    }

    fn repo_unless_open(&self, id: &str, located: &Located) -> Result<Arc<HuggingFaceRepo>, Error> {
        match &located.repo {
            Some(repo) if repo.repo_id() == id => Ok(Arc::clone(repo)),
            _ => Ok(self.repo(id)?.into()),
        }
    }
}

/// An encoding that is not there is that field's problem.
fn in_words(error: sources::Error) -> Error {
    match error {
        sources::Error::MissingEncoding { repo, encoding, encodings } => {
            let names: Vec<&str> = encodings.iter().map(|encoding| encoding.name()).collect();
            let there = if names.is_empty() { "none that runs".to_string() } else { names.join(", ") };
            let fix = format!("{repo} has {there}: give one of these, or name weight_path");
            problem("quantization_encoding", encoding, fix)
        }
        error => error.into(),
    }
}

/// Says no to what is for browsers, and how the same is said here.
fn check_is_no_address(field: &'static str, text: &str) -> Result<(), Error> {
    let Some((scheme, rest)) = text.split_once("://") else { return Ok(()) };
    if !["http", "https", "hf"].iter().any(|other| scheme.eq_ignore_ascii_case(other)) {
        return Ok(());
    }
    // https://hub/org/name/resolve/main/file
    let parts: Vec<&str> = rest.split('/').skip(usize::from(!scheme.eq_ignore_ascii_case("hf"))).collect();
    let meant = match &parts[..] {
        [owner, name] => Some(format!("{owner}/{name}")),
        [owner, name, "resolve" | "blob" | "raw", _, file @ ..] => {
            Some(format!("{owner}/{name}/{}", file.join("/")))
        }
        _ => None,
    };
    let meant = meant.map_or_else(String::new, |meant| format!(", such as {meant}"));
    let fix = format!("addresses are not taken: give a path, or the name of a repo and a file in it{meant}");
    Err(problem(field, text, fix))
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
    (sources::is_repo_id(&repo) && !file.is_empty()).then_some((repo, file))
}

/// The name of a file in a repo.
fn portable(path: &Path) -> String {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

#[cfg(all(test, feature = "hub"))]
mod hub_tests;
#[cfg(test)]
mod tests;
