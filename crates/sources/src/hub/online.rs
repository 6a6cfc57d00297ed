//! A repository on a hub at one commit: from the cache, and from the hub on demand.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use weights::{QuantizationConfig, WeightFile};

use super::cache::INCOMPLETE;
use super::remote::Remote;
use super::shards::{is_complete, sets};
use super::{Hub, ModelInfo, Progress, Repo, RepoFile, Snapshot};
use crate::{Error, SupportedEncoding, WeightsFormat};

/// The largest `config.json` that is looked at.
const MAX_CONFIG: u64 = 1 << 20;

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
                let found = Remote::of(&hub, asked.id())?.info(&asked)?;
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
        let info = Remote::of(&self.hub, self.repo.id())?.info(&self.repo)?;
        Ok(self.info.get_or_init(|| info))
    }

    /// Whether the network may be used.
    pub(crate) fn can_ask(&self) -> bool {
        cfg!(feature = "hub") && !self.hub.offline
    }

    /// The files in the cache, if they are a model whose parts are all there and the hub was not asked anyway; else
    /// those on the hub.
    pub(crate) fn files(&self) -> Result<Vec<RepoFile>, Error> {
        match self.cached_model()? {
            Some(files) if self.info.get().is_none() => Ok(files),
            _ => self.all_files(),
        }
    }

    /// Whether [`Online::files`] are those in the cache.
    pub(crate) fn lists_the_cache(&self) -> Result<bool, Error> {
        Ok(self.info.get().is_none() && self.cached_model()?.is_some())
    }

    /// The files on the hub; those in the cache, if the hub must not be asked.
    pub(crate) fn all_files(&self) -> Result<Vec<RepoFile>, Error> {
        match self.snapshot()? {
            Some(snapshot) if !self.can_ask() => snapshot.files(),
            _ => Ok(self.info()?.siblings.clone()),
        }
    }

    /// The files on the hub if it was asked, else those in the cache, be they a whole model or not.
    pub(crate) fn known_files(&self) -> Result<Vec<RepoFile>, Error> {
        match (self.info.get(), self.snapshot()?) {
            (None, Some(snapshot)) => snapshot.files(),
            _ => self.all_files(),
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
        Remote::of(&self.hub, &self.named(what)).err()
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
            None => Remote::of(&self.hub, &self.named(name))?.size_of(&self.repo, name),
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
        let remote = Remote::of(&self.hub, &what)?;
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
            Some(first) => Remote::of(&self.hub, &self.named(first))?.headers(&self.repo, &lacking)?,
            None => Vec::new(),
        }
        .into_iter();
        let open = |cached: Option<PathBuf>| match cached {
            Some(path) => WeightFile::open(&path),
            None => fetched.next().expect("one for each that is lacking").into_file(),
        };
        Ok(files.into_iter().map(open).collect::<Result<_, _>>()?)
    }

    /// The encoding of files that are not here: what the hub says of safetensors, what the name of a GGUF file
    /// suggests, what `config.json` says of the rest.
    pub(crate) fn guess_encoding(
        &self,
        format: WeightsFormat,
        name: &str,
    ) -> Result<Option<SupportedEncoding>, Error> {
        match format {
            WeightsFormat::Gguf => Ok(SupportedEncoding::guess_from_file_name(name)),
            WeightsFormat::Safetensors if !self.can_ask() => self.configured_encoding(),
            WeightsFormat::Safetensors => {
                let most = self.info()?.safetensors.iter().max_by_key(|(_, elements)| **elements);
                match most.map(|(dtype, _)| dtype.as_str()) {
                    // Codes of 4 bits, eight to a word; whose they are, the configuration says.
                    _ if self.info()?.safetensors.contains_key("I32") => self.configured_encoding(),
                    Some("F32") => Ok(Some(SupportedEncoding::Float32)),
                    Some("F16") => Ok(Some(SupportedEncoding::Float16)),
                    Some("BF16") => Ok(Some(SupportedEncoding::Bfloat16)),
                    Some(_) => Ok(None),
                    None => self.configured_encoding(),
                }
            }
            WeightsFormat::Pytorch => self.configured_encoding(),
        }
    }

    /// The dtype, or the encoding of the quantization, in `config.json`.
    fn configured_encoding(&self) -> Result<Option<SupportedEncoding>, Error> {
        let name = "config.json".to_string();
        let path = match self.cached(&name)? {
            Some(path) => path,
            None if self.can_ask() && self.info()?.siblings.iter().any(|file| file.name == name) => {
                self.download(std::slice::from_ref(&name), false, &|_| ())?.remove(0)
            }
            None => return Ok(None),
        };
        if path.metadata().map_err(Error::io(&path))?.len() > MAX_CONFIG {
            return Ok(None);
        }
        let text = std::fs::read(&path).map_err(Error::io(&path))?;
        let config: serde_json::Value = weights::from_json(&text)
            .map_err(|error| Error::Cache { path: path.clone(), problem: error.to_string() })?;
        match QuantizationConfig::from_hugging_face("config.json", &config.to_string()) {
            Ok(Some(found)) => return Ok(SupportedEncoding::from_dtype(found.dtype())),
            Ok(None) => {}
            Err(refusal) => {
                return Err(Error::UnknownEncoding { file: name, problem: refusal.to_string() });
            }
        }
        let dtype = ["dtype", "torch_dtype"].iter().find_map(|key| config.get(key)?.as_str());
        Ok(dtype.and_then(|dtype| dtype.trim_start_matches("torch.").parse().ok()))
    }

    /// A file's name with its repository, for messages.
    fn named(&self, file: &str) -> String {
        format!("{file} of {}", self.repo)
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        self.hub.snapshot(&self.repo)
    }

    /// The files in the cache, if there are weights among them and all sets are whole.
    fn cached_model(&self) -> Result<Option<Vec<RepoFile>>, Error> {
        let Some(snapshot) = self.snapshot()? else { return Ok(None) };
        let files = snapshot.files()?;
        let weights = files.iter().map(|file| file.name.as_str());
        let sets = sets(weights.filter(|name| WeightsFormat::from_file_name(name).is_some()));
        let whole = !sets.is_empty() && sets.iter().all(|set| is_complete(set));
        Ok(whole.then_some(files))
    }
}

/// The bytes of a file, if it is there.
fn length(path: &Path) -> Option<u64> {
    path.metadata().ok().filter(|found| found.is_file()).map(|found| found.len())
}
