//! The cache of a hub on this machine, in the layout that Hugging Face's own tools share:
//!
//! ```text
//! models--owner--name/refs/main                 the commit a branch or tag stood for
//! models--owner--name/snapshots/COMMIT/FILE     a link to the content
//! models--owner--name/blobs/ETAG                the content, under its digest
//! .locks/models--owner--name/ETAG.lock          held while the content arrives
//! ```

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::names::{file_path, is_commit};
use super::{Hub, Repo};
use crate::Error;

/// The extension of downloads that have not ended.
pub(super) const INCOMPLETE: &str = "incomplete";

/// The longest file that states a commit; the id and a line's end.
const MAX_REF: u64 = 64;
/// Repositories with more files are taken for damage.
const MAX_FILES: usize = 100_000;
/// Folders deeper than this are not looked into.
pub(crate) const MAX_DEPTH: usize = 4;

/// The files of one commit, as far as they were downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The commit.
    pub commit: String,
    /// The folder.
    pub folder: PathBuf,
    cache: PathBuf,
}

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepoFile {
    /// The path below the root, with `/` between folders.
    pub name: String,
    /// The size in bytes, where it is known.
    pub size: Option<u64>,
    /// The name of its content in the cache, where a hub said it.
    pub content: Option<String>,
}

impl Hub {
    /// What the cache has of a repository at its revision, if it has anything.
    ///
    /// # Errors
    /// If the cache cannot be read, or was tampered with.
    pub fn snapshot(&self, repo: &Repo) -> Result<Option<Snapshot>, Error> {
        let folder = self.cache.join(repo.folder());
        let revision = repo.revision();
        let reference = folder.join("refs").join(file_path(revision)?);
        let commit = match read_ref(&reference)? {
            Some(commit) => commit,
            None if is_commit(revision) => revision.to_string(),
            None => return Ok(None),
        };
        let folder = folder.join("snapshots").join(&commit);
        Ok(folder.is_dir().then(|| Snapshot { commit, folder, cache: self.cache.clone() }))
    }
}

impl Snapshot {
    /// Where a file is, if it was downloaded.
    ///
    /// # Errors
    /// If it is a link that leads out of the cache.
    pub fn file(&self, name: &str) -> Result<Option<PathBuf>, Error> {
        let path = self.folder.join(file_path(name)?);
        Ok(self.stays_inside(&path)?.then_some(path).filter(|path| path.is_file()))
    }

    /// Every file that was downloaded, by name.
    ///
    /// # Errors
    /// As [`Snapshot::file`], for any of them.
    pub fn files(&self) -> Result<Vec<RepoFile>, Error> {
        let mut files = list_files(&self.folder, MAX_DEPTH)?;
        let mut inside = Vec::with_capacity(files.len());
        for file in files.drain(..) {
            if self.file(&file.name)?.is_some() {
                inside.push(file);
            }
        }
        Ok(inside)
    }

    /// Whether a path exists. Wherever links lead, it must be in the cache.
    fn stays_inside(&self, path: &Path) -> Result<bool, Error> {
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            // The content may have been deleted, and the link not.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::io(path)(error)),
        };
        let cache = fs::canonicalize(&self.cache).map_err(Error::io(&self.cache))?;
        if target.starts_with(cache) {
            return Ok(true);
        }
        Err(Error::Escapes { path: path.to_path_buf(), target })
    }
}

/// The files in a folder and in those below it down to a depth, by name. Hidden ones are left out, and links to
/// folders are not followed.
pub(crate) fn list_files(root: &Path, depth: usize) -> Result<Vec<RepoFile>, Error> {
    let mut files = Vec::new();
    list_folder(root, "", depth, &mut files)?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn list_folder(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<RepoFile>) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        let (path, name) = (entry.path(), format!("{prefix}{name}"));
        let kind = entry.file_type().map_err(Error::io(&path))?;
        if kind.is_dir() && depth > 0 {
            list_folder(&path, &format!("{name}/"), depth - 1, files)?;
        }
        // Follows links.
        if let Ok(metadata) = fs::metadata(&path)
            && metadata.is_file()
        {
            files.push(RepoFile { name, size: Some(metadata.len()), content: None });
        }
        if files.len() > MAX_FILES {
            let problem = format!("more than {MAX_FILES} files");
            return Err(Error::Cache { path: folder.to_path_buf(), problem });
        }
    }
    Ok(())
}

/// The commit in a file of `refs`, if there is such a file.
fn read_ref(path: &Path) -> Result<Option<String>, Error> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(None);
        }
        Err(error) => return Err(Error::io(path)(error)),
    };
    if file.metadata().map_err(Error::io(path))?.is_dir() {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(MAX_REF).read_to_end(&mut text).map_err(Error::io(path))?;
    let text = String::from_utf8_lossy(&text);
    match text.trim() {
        commit if is_commit(commit) => Ok(Some(commit.to_string())),
        other => {
            let problem = format!("`{}` is not the id of a commit", other.escape_debug());
            Err(Error::Cache { path: path.to_path_buf(), problem })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// A cache with one repository: a ref, a snapshot, and a file in it.
    fn cache() -> (tempfile::TempDir, Hub, Repo) {
        let folder = tempfile::tempdir().unwrap();
        let repo = folder.path().join("models--ada--tiny");
        let snapshot = repo.join("snapshots").join(COMMIT);
        for folder in [repo.join("refs"), repo.join("blobs"), snapshot.join("sub")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(repo.join("refs/main"), format!("{COMMIT}\n")).unwrap();
        fs::write(repo.join("blobs/one"), "{}").unwrap();
        fs::write(snapshot.join("sub/plain.txt"), "plain").unwrap();
        let hub = Hub::offline(folder.path());
        (folder, hub, Repo::new("ada/tiny").unwrap())
    }

    #[test]
    fn a_branch_leads_to_its_commit() {
        let (folder, hub, repo) = cache();
        let snapshot = hub.snapshot(&repo).unwrap().unwrap();
        assert_eq!(snapshot.commit, COMMIT);
        assert_eq!(hub.snapshot(&repo.clone().at(COMMIT).unwrap()).unwrap().unwrap(), snapshot);
        assert_eq!(hub.snapshot(&repo.clone().at("v2").unwrap()).unwrap(), None);
        assert_eq!(hub.snapshot(&Repo::new("ada/other").unwrap()).unwrap(), None);
        let named = snapshot.files().unwrap();
        assert_eq!(named, [RepoFile { name: "sub/plain.txt".into(), size: Some(5), content: None }]);
        assert!(snapshot.file("sub/plain.txt").unwrap().unwrap().starts_with(folder.path()));
        assert_eq!(snapshot.file("config.json").unwrap(), None);
        assert!(snapshot.file("../../refs/main").is_err());
    }

    #[test]
    fn a_ref_is_a_commit() {
        let (folder, hub, repo) = cache();
        for text in ["../../../etc", "", "main", &"f".repeat(1000)] {
            fs::write(folder.path().join("models--ada--tiny/refs/main"), text).unwrap();
            let error = hub.snapshot(&repo).unwrap_err().to_string();
            assert!(error.contains("is not the id of a commit"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_in_the_cache() {
        use std::os::unix::fs::symlink;
        let (folder, hub, repo) = cache();
        let snapshot = hub.snapshot(&repo).unwrap().unwrap();
        symlink("../../blobs/one", snapshot.folder.join("config.json")).unwrap();
        symlink("../../blobs/gone", snapshot.folder.join("deleted.json")).unwrap();
        assert!(snapshot.file("config.json").unwrap().is_some());
        assert_eq!(snapshot.file("deleted.json").unwrap(), None);
        assert_eq!(snapshot.files().unwrap().len(), 2);
        let outside = tempfile::NamedTempFile::new().unwrap();
        symlink(outside.path(), snapshot.folder.join("model.gguf")).unwrap();
        let error = snapshot.file("model.gguf").unwrap_err();
        assert!(matches!(error, Error::Escapes { .. }), "{error}");
        assert!(snapshot.files().is_err());
        drop(folder);
    }
}
