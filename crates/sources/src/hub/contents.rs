//! What a hub's cache holds in all: repositories, bytes, and what did not arrive whole.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::cache::{INCOMPLETE, MAX_DEPTH};
use super::names::is_commit;
use super::{Hub, is_repo_id, web};
use crate::Error;

/// What names of folders with a repository begin with.
const KINDS: [&str; 3] = ["models--", "datasets--", "spaces--"];
/// What names of folders with a model repository begin with.
const MODELS: &str = "models--";

/// What a cache holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheContents {
    /// Repositories of which there is something.
    pub repos: usize,
    /// Bytes of all files, incomplete ones included.
    pub bytes: u64,
    /// Files that are arriving, or whose download broke off and is resumed by the next one.
    pub incomplete: Vec<PathBuf>,
}

/// A model repository in a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedRepo {
    /// `owner/name`, or `name`.
    pub id: String,
    /// The folder in the cache.
    pub folder: PathBuf,
    /// The commits of which files are in the cache, sorted.
    pub commits: Vec<String>,
    /// Bytes of all files, incomplete ones included. Commits share files.
    pub bytes: u64,
    /// When the newest file arrived.
    pub modified: Option<SystemTime>,
}

impl Hub {
    /// The model repositories in the cache, sorted by id.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub fn repos(&self) -> Result<Vec<CachedRepo>, Error> {
        let mut repos = Vec::new();
        for folder in entries(&self.cache)? {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(id) = name.strip_prefix(MODELS).map(|id| id.replacen("--", "/", 1)) else { continue };
            if is_repo_id(&id) && folder.is_dir() {
                repos.push(CachedRepo::read(id, folder)?);
            }
        }
        repos.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(repos)
    }

    /// The model repository with an id in the cache, if there is one.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub fn cached_repo(&self, id: &str) -> Result<Option<CachedRepo>, Error> {
        Ok(self.repos()?.into_iter().find(|repo| repo.id == id))
    }

    /// Deletes a repository from the cache: all its commits, and downloads that broke off.
    ///
    /// # Errors
    /// If a file cannot be deleted. Some may be deleted already.
    pub fn remove(&self, repo: &CachedRepo) -> Result<(), Error> {
        let name = repo.folder.file_name().unwrap_or_default();
        let locks = self.cache.join(".locks").join(name);
        match fs::remove_dir_all(&locks) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io(&locks)(error)),
            _ => {}
        }
        fs::remove_dir_all(&repo.folder).map_err(Error::io(&repo.folder))
    }

    /// Counts what the cache holds. One that is not there is empty.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn contents(&self) -> Result<CacheContents, Error> {
        let mut contents = CacheContents::default();
        for repo in entries(&self.cache)? {
            let name = repo.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mut files = Vec::new();
            if name.starts_with(web::PREFIX) {
                add_files(&repo, 0, &mut files)?;
            } else if KINDS.iter().any(|kind| name.starts_with(kind)) {
                contents.repos += 1;
                files = stored_files(&repo)?;
            }
            for (file, metadata) in files {
                contents.bytes = contents.bytes.saturating_add(metadata.len());
                if file.extension().is_some_and(|extension| extension == INCOMPLETE) {
                    contents.incomplete.push(file);
                }
            }
        }
        Ok(contents)
    }
}

impl CachedRepo {
    fn read(id: String, folder: PathBuf) -> Result<CachedRepo, Error> {
        let (mut bytes, mut modified) = (0u64, None);
        for (_, metadata) in stored_files(&folder)? {
            bytes = bytes.saturating_add(metadata.len());
            modified = modified.max(metadata.modified().ok());
        }
        let commits = entries(&folder.join("snapshots"))?;
        let commits =
            commits.iter().filter_map(|path| path.file_name()?.to_str()).filter(|name| is_commit(name));
        let commits = commits.map(str::to_string).collect();
        Ok(CachedRepo { id, folder, commits, bytes, modified })
    }
}

/// The files of a repository that take space: its blobs, and the files in its snapshots, which are copies where a system
/// has no links. A file under several names is listed once.
fn stored_files(repo: &Path) -> Result<Vec<(PathBuf, Metadata)>, Error> {
    let mut files = Vec::new();
    add_files(&repo.join("blobs"), 0, &mut files)?;
    // A folder of a commit, and folders in it.
    add_files(&repo.join("snapshots"), MAX_DEPTH + 1, &mut files)?;
    let mut known = HashSet::new();
    files.retain(|(_, metadata)| identity(metadata).is_none_or(|identity| known.insert(identity)));
    Ok(files)
}

/// Adds the files in a folder, and in those below it down to a depth. Links are left out: they lead to blobs.
fn add_files(folder: &Path, depth: usize, files: &mut Vec<(PathBuf, Metadata)>) -> Result<(), Error> {
    for path in entries(folder)? {
        // A file that was moved meanwhile has no size.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() && depth > 0 {
            add_files(&path, depth - 1, files)?;
        } else if metadata.is_file() {
            files.push((path, metadata));
        }
    }
    Ok(())
}

/// The device and number of a file, by which names for one file are known.
#[cfg(unix)]
fn identity(metadata: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<(u64, u64)> {
    None
}

/// The paths in a folder, sorted; none if it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(Error::io(folder))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(Error::io(folder))?.path());
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cache_holds_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::offline(folder.path().join("hub"));
        assert_eq!(hub.contents().unwrap(), CacheContents::default());
        let blobs = hub.cache.join("models--ada--tiny/blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::create_dir_all(hub.cache.join("models--ada--other/refs")).unwrap();
        fs::create_dir_all(hub.cache.join(".locks/models--ada--tiny")).unwrap();
        fs::write(blobs.join("one"), "12345").unwrap();
        fs::write(blobs.join("two.incomplete"), "123").unwrap();
        let contents = hub.contents().unwrap();
        assert_eq!((contents.repos, contents.bytes), (2, 8));
        assert_eq!(contents.incomplete, [blobs.join("two.incomplete")]);
    }

    /// As without links, on file systems and in copies that have none, and as if some files were copied later.
    #[test]
    fn files_of_snapshots_count_once_whether_links_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::offline(folder.path().join("hub"));
        let repo = hub.cache.join("models--ada--tiny");
        let commits =
            ["0123456789abcdef0123456789abcdef01234567", "1123456789abcdef0123456789abcdef01234567"];
        let bytes = |expected: u64| {
            let repos = hub.repos().unwrap();
            assert_eq!((repos[0].bytes, hub.contents().unwrap().bytes), (expected, expected));
            assert!(repos[0].modified.is_some());
        };
        for commit in commits {
            fs::create_dir_all(repo.join("snapshots").join(commit).join("1_Pooling")).unwrap();
        }
        let file = |commit: usize, name: &str| repo.join("snapshots").join(commits[commit]).join(name);
        fs::write(file(0, "config.json"), "12345").unwrap();
        fs::write(file(0, "1_Pooling/config.json"), "123").unwrap();
        bytes(8);
        fs::create_dir_all(repo.join("blobs")).unwrap();
        fs::write(repo.join("blobs/one"), "1234567890").unwrap();
        bytes(18);
        #[cfg(unix)]
        for (commit, name) in [(0, "model.gguf"), (1, "model.gguf"), (1, "1_Pooling/config.json")] {
            let target = if name.contains('/') { "../../../blobs/one" } else { "../../blobs/one" };
            std::os::unix::fs::symlink(target, file(commit, name)).unwrap();
        }
        #[cfg(unix)]
        fs::hard_link(file(0, "config.json"), file(1, "config.json")).unwrap();
        bytes(18);
    }

    #[test]
    fn model_repos_are_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::offline(folder.path().join("hub"));
        assert_eq!(hub.repos().unwrap(), []);
        let repo = hub.cache.join("models--ada--tiny");
        let commit = "0123456789abcdef0123456789abcdef01234567";
        fs::create_dir_all(repo.join("blobs")).unwrap();
        fs::create_dir_all(repo.join("snapshots").join(commit)).unwrap();
        fs::create_dir_all(hub.cache.join("datasets--ada--text/blobs")).unwrap();
        fs::create_dir_all(hub.cache.join(".locks/models--ada--tiny")).unwrap();
        fs::write(repo.join("blobs/one"), "12345").unwrap();
        fs::create_dir_all(hub.cache.join("models--gpt2")).unwrap();
        let repos = hub.repos().unwrap();
        let ids: Vec<&str> = repos.iter().map(|repo| &repo.id[..]).collect();
        assert_eq!(ids, ["ada/tiny", "gpt2"]);
        assert_eq!((repos[0].bytes, &repos[0].commits[..]), (5, &[commit.to_string()][..]));
        assert!(repos[0].modified.is_some() && repos[1].modified.is_none());
        hub.remove(&repos[0]).unwrap();
        assert!(!repo.exists() && !hub.cache.join(".locks/models--ada--tiny").exists());
        assert_eq!(hub.repos().unwrap().len(), 1);
    }
}
