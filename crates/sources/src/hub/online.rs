//! A repository on a hub at one commit: from the cache, and from the hub on demand.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use weights::WeightFile;

use super::cache::INCOMPLETE;
use super::remote::Remote;
use super::{Hub, ModelInfo, Progress, Repo, RepoFile, Snapshot};
use crate::Error;

/// A repository at the commit that the cache knows or, where it knows none, that the hub names.
pub(crate) struct Online {
    hub: Hub,
    /// As it was asked for: at a branch, perhaps.
    asked: Repo,
    /// At the commit.
    repo: Repo,
    info: OnceLock<ModelInfo>,
}

impl Online {
    /// Looks a repository up: in the cache, or at the hub if the cache does not have it or `refresh` is set.
    pub(crate) fn open(hub: Hub, asked: Repo, refresh: bool) -> Result<Online, Error> {
        let snapshot = hub.snapshot(&asked)?;
        let info = OnceLock::new();
        let commit = match snapshot {
            Some(snapshot) if !refresh || hub.offline => snapshot.commit,
            _ => {
                let found = Remote::for_hub(&hub, asked.id())?.info(&asked)?;
                info.get_or_init(|| found).sha.clone()
            }
        };
        let repo = asked.clone().at(&commit)?;
        Ok(Online { hub, asked, repo, info })
    }

    pub(crate) fn commit(&self) -> &str {
        self.repo.revision()
    }

    pub(crate) fn info(&self) -> Result<&ModelInfo, Error> {
        if let Some(info) = self.info.get() {
            return Ok(info);
        }
        let info = Remote::for_hub(&self.hub, self.repo.id())?.info(&self.repo)?;
        Ok(self.info.get_or_init(|| info))
    }

    /// Whether the network may be used.
    pub(crate) fn can_ask(&self) -> bool {
        cfg!(feature = "hub") && !self.hub.offline
    }

    /// The files in the cache, whole models or not, if the hub was not asked.
    pub(crate) fn cached_files(&self) -> Result<Option<Vec<RepoFile>>, Error> {
        match self.info.get() {
            None => self.snapshot()?.map(|snapshot| snapshot.files()).transpose(),
            Some(_) => Ok(None),
        }
    }

    /// The files on the hub; those in the cache, if the hub must not be asked.
    pub(crate) fn all_files(&self) -> Result<Vec<RepoFile>, Error> {
        match self.snapshot()? {
            Some(snapshot) if !self.can_ask() => snapshot.files(),
            _ => Ok(self.info()?.siblings.clone()),
        }
    }

    /// Whether the hub may be asked, and was not.
    pub(crate) fn may_have_more(&self) -> bool {
        self.can_ask() && self.info.get().is_none()
    }

    /// The error for something that may be on the hub, if the hub cannot be reached.
    pub(crate) fn out_of_reach(&self, what: &str) -> Option<Error> {
        if self.info.get().is_some() {
            return None;
        }
        Remote::for_hub(&self.hub, &self.named(what)).err()
    }

    /// Where the cache has its files, or will have them.
    pub(crate) fn place(&self) -> PathBuf {
        self.hub.cache.join(self.repo.folder()).join("snapshots").join(self.commit())
    }

    pub(crate) fn folder(&self) -> Option<PathBuf> {
        Some(self.snapshot().ok()??.folder)
    }

    pub(crate) fn cached(&self, name: &str) -> Result<Option<PathBuf>, Error> {
        self.snapshot()?.map_or(Ok(None), |snapshot| snapshot.file(name))
    }

    /// Whether the content of a file is here, in this revision or another.
    pub(crate) fn has(&self, name: &str) -> Result<bool, Error> {
        if self.cached(name)?.is_some() {
            return Ok(true);
        }
        let Some((file, blob)) = self.blob(name) else { return Ok(false) };
        Ok(length(&blob).is_some_and(|length| Some(length) == file.size))
    }

    /// The bytes that an interrupted download of a file left, which the next one does not fetch again.
    pub(crate) fn arrived(&self, name: &str) -> u64 {
        let Some((file, blob)) = self.blob(name) else { return 0 };
        let arrived = length(&blob.with_added_extension(INCOMPLETE)).unwrap_or(0);
        if file.size.is_some_and(|size| arrived <= size) { arrived } else { 0 }
    }

    /// A file and the place of its content in the cache, as far as the hub was asked.
    fn blob(&self, name: &str) -> Option<(&RepoFile, PathBuf)> {
        let file = self.info.get()?.siblings.iter().find(|file| file.name == name)?;
        let blobs = self.hub.cache.join(self.repo.folder()).join("blobs");
        Some((file, blobs.join(file.content.as_ref()?)))
    }

    pub(crate) fn size_of(&self, name: &str) -> Result<Option<u64>, Error> {
        let known = self.info.get().and_then(|info| info.siblings.iter().find(|file| file.name == name));
        match known.and_then(|file| file.size) {
            Some(size) => Ok(Some(size)),
            None => Remote::for_hub(&self.hub, &self.named(name))?.size_of(&self.repo, name),
        }
    }

    pub(crate) fn download(
        &self,
        names: &[String],
        force: bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Vec<PathBuf>, Error> {
        let mut paths = Vec::with_capacity(names.len());
        let mut lacking = Vec::new();
        for name in names {
            let cached = self.cached(name)?.filter(|_| !force);
            if cached.is_none() {
                lacking.push(name.as_str());
            }
            paths.push(cached);
        }
        if lacking.is_empty() {
            return Ok(paths.into_iter().flatten().collect());
        }
        let what = if force {
            format!("a newer copy of {}", self.named(lacking[0]))
        } else {
            self.named(lacking[0])
        };
        let remote = Remote::for_hub(&self.hub, &what)?;
        let known = self.info.get().map_or(&[][..], |info| &info.siblings);
        let sizes = known.iter().filter(|file| lacking.contains(&&*file.name)).filter_map(|file| file.size);
        progress(Progress::Started { files: lacking.len(), bytes: sizes.fold(0, u64::saturating_add) });
        let mut fetched =
            remote.download(&self.repo, self.asked.revision(), &lacking, force, progress)?.into_iter();
        Ok(paths.into_iter().filter_map(|cached| cached.or_else(|| fetched.next())).collect())
    }

    /// Files of weights, as they are in the cache; of those it lacks, the headers are fetched, and no more.
    pub(crate) fn header_files(&self, names: &[String]) -> Result<Vec<WeightFile>, Error> {
        let (mut files, mut lacking) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            let cached = self.cached(name)?;
            if cached.is_none() {
                lacking.push(name.as_str());
            }
            files.push(cached);
        }
        let mut fetched = match lacking.first() {
            Some(first) => Remote::for_hub(&self.hub, &self.named(first))?.headers(&self.repo, &lacking)?,
            None => Vec::new(),
        }
        .into_iter();
        let open = |cached: Option<PathBuf>| match cached {
            Some(path) => WeightFile::open(&path),
            None => fetched.next().expect("one for each that is lacking").into_file(),
        };
        Ok(files.into_iter().map(open).collect::<Result<_, _>>()?)
    }

    /// A file's name with its repository, for messages.
    fn named(&self, file: &str) -> String {
        format!("{file} of {}", self.repo)
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        self.hub.snapshot(&self.repo)
    }
}

/// The bytes of a file, if it is there.
fn length(path: &Path) -> Option<u64> {
    path.metadata().ok().filter(|found| found.is_file()).map(|found| found.len())
}
