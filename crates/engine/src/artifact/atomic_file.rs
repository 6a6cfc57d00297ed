//! A file that is there whole or not at all.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the names of files end with that are not finished yet, or never were.
pub(crate) const TEMPORARY: &str = ".tmp";

/// The temporary names of this process's unfinished files.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Written under a temporary name in the folder of its own, and renamed once it is whole. Dropped before that, or when
/// the process ends in between, nothing of the name itself changes.
pub struct AtomicFile {
    file: BufWriter<File>,
    temporary: PathBuf,
    path: PathBuf,
    is_committed: bool,
}

impl AtomicFile {
    /// An empty file, to become the one at `path`.
    ///
    /// # Errors
    /// If the path names no file, or the system refuses.
    pub fn create(path: &Path) -> io::Result<AtomicFile> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
        };
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let mut unique = OsString::from(".");
            unique.push(name);
            unique.push(format!(".{}.{count}{TEMPORARY}", std::process::id()));
            let temporary = path.with_file_name(unique);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    unfinished().insert(temporary.clone());
                    let (file, path) = (BufWriter::with_capacity(1 << 16, file), path.to_path_buf());
                    return Ok(AtomicFile { file, temporary, path, is_committed: false });
                }
                // Left by a process that had this one's number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes the unfinished files of this process, which is about to end.
    pub fn remove_unfinished() {
        unfinished().iter().for_each(|temporary| drop(fs::remove_file(temporary)));
    }

    /// Gives the file its name, once the disk has it: it survives even a crash of the machine.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        self.rename()?;
        sync_folder(&self.path)
    }

    /// Gives the file its name at once. After a crash of the machine it may be damaged, which its reader must notice.
    pub(crate) fn commit_unsynced(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.rename()
    }

    fn rename(&mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.path)?;
        unfinished().remove(&self.temporary);
        self.is_committed = true;
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl io::Seek for AtomicFile {
    fn seek(&mut self, position: io::SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.is_committed {
            // What cannot be removed does no harm under its own name.
            let _ = fs::remove_file(&self.temporary);
            unfinished().remove(&self.temporary);
        }
    }
}

fn unfinished() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the disk know the folder's new entry, where systems have that.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFolder;

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = TestFolder::new("atomic_file");
        let path = folder.path().join("file");
        let entries = || fs::read_dir(folder.path()).unwrap().count();
        let write = |contents: &str| {
            let mut file = AtomicFile::create(&path).unwrap();
            file.write_all(contents.as_bytes()).unwrap();
            file
        };
        drop(write("unfinished"));
        assert_eq!(entries(), 0);
        write("first").commit().unwrap();
        let (second, third) = (write("second"), write("third"));
        assert_eq!((fs::read_to_string(&path).unwrap(), entries()), ("first".to_string(), 3));
        third.commit_unsynced().unwrap();
        second.commit().unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap(), entries()), ("second".to_string(), 1));
        assert!(AtomicFile::create(&folder.path().join("missing/file")).is_err());
        assert_eq!(AtomicFile::create(Path::new("/")).err().unwrap().to_string(), "the path names no file");
    }
}
