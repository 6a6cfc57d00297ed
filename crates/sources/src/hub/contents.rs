//! What a hub's cache holds in all: repositories, bytes, and what did not arrive whole.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Hub;
use crate::Error;

/// What names of folders with a repository begin with.
const KINDS: [&str; 3] = ["models--", "datasets--", "spaces--"];
/// What names of files that have not arrived whole end with.
const INCOMPLETE: &str = ".incomplete";

/// What a cache holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheContents {
    /// Repositories of which there is something.
    pub repos: usize,
    /// Bytes of all files, incomplete ones included.
    pub bytes: u64,
    /// Files that are arriving, or whose download broke off and is resumed by the next one.
    pub incomplete: Vec<PathBuf>,
}

impl Hub {
    /// Counts what the cache holds. One that is not there is empty.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn contents(&self) -> Result<CacheContents, Error> {
        let mut contents = CacheContents::default();
        for repo in entries(&self.cache)? {
            let name = repo.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !KINDS.iter().any(|kind| name.starts_with(kind)) {
                continue;
            }
            contents.repos += 1;
            for blob in entries(&repo.join("blobs"))? {
                // Links of snapshots lead here; a file that was moved meanwhile has no size.
                let Ok(metadata) = fs::symlink_metadata(&blob) else { continue };
                if metadata.is_file() {
                    contents.bytes = contents.bytes.saturating_add(metadata.len());
                    if blob.to_string_lossy().ends_with(INCOMPLETE) {
                        contents.incomplete.push(blob);
                    }
                }
            }
        }
        Ok(contents)
    }
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
}
