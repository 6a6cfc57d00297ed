//! Downloads models: which files a model needs, and fetching the missing ones.

use std::path::PathBuf;

use regex::Regex;

use crate::Error;
use crate::companions::{CONFIG, Companions};
use crate::hub::{Hub, Progress};
use crate::repo::{HuggingFaceRepo, ModelFiles, Several, Wanted, choose};

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
    pub(crate) fn from_repo(
        repo: &HuggingFaceRepo,
        name: String,
        size: Option<u64>,
    ) -> Result<PlannedFile, Error> {
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
            let model = choose(&repo, wanted, Several::Refuse)?;
            (names(&repo, &model, wanted.force_download)?, model.files.len())
        } else {
            (matching(&repo, &wanted.files)?, 0)
        };
        let known = if wanted.files.is_empty() { repo.known_files()? } else { repo.all_files()? };
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            let size = known.iter().find(|file| file.name == name).and_then(|file| file.size);
            files.push(PlannedFile::from_repo(&repo, name, size)?);
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
    let companions = Companions::for_format(model.format);
    let lacks_config = companions == Companions::All && repo.cached(CONFIG)?.is_none();
    let ask = force || lacks_config | repo.lacks(&model.files)?;
    let mut names = repo.companions(companions, ask, model.folder())?;
    names.extend(model.index.clone());
    names.sort();
    names.extend(model.files.iter().cloned());
    Ok(names)
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
