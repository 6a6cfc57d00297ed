//! Files as bytes, mapped into memory rather than read.

mod advice;
#[cfg(unix)]
mod lost_pages;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;

#[cfg(unix)]
use self::lost_pages::LostPages;
use crate::Error;

/// A file mapped read-only: nothing is read before someone looks at it.
///
/// The first byte lies at the start of a page. A mapping shows the file as it is on disk, so who overwrites the file in
/// place changes the bytes, and bytes that are cut off read as zeros. [`MappedFile::check`] says so. Replacing the file by
/// renaming is harmless.
///
/// To survive bytes that are cut off, the first mapping on Unix installs a handler of SIGBUS. It hands errors elsewhere to
/// the handler that was there before.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    /// To ask for the file's size and time, whatever has its name by now.
    file: File,
    len: u64,
    modified: Option<SystemTime>,
    /// Whether another time is a change.
    is_timed: bool,
    // Dropped before the mapping, whose addresses others may get then.
    #[cfg(unix)]
    lost: LostPages,
    map: Mmap,
}

impl MappedFile {
    /// Maps a file.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a regular file.
    pub fn open(path: &Path) -> io::Result<MappedFile> {
        // Asked before opening: to open a named pipe is to wait for its writer.
        if !path.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        // SAFETY: the mapping is private and read-only. A file that is overwritten in place changes its bytes, on which no
        // check of their contents relies for memory safety once they were read; pages that are cut off are replaced.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(MappedFile {
            path: path.to_path_buf(),
            file,
            len: metadata.len(),
            modified: metadata.modified().ok(),
            is_timed: false,
            #[cfg(unix)]
            lost: LostPages::watch(&map)?,
            map,
        })
    }

    /// This file, which has also changed once it was written at another time: not for files whose time says when they were
    /// used.
    #[must_use]
    pub fn timed(self) -> MappedFile {
        MappedFile { is_timed: true, ..self }
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When the file was written last, as it was opened; `None` where the system does not say.
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Whether the bytes are still those that the file had when it was opened, as far as its size, its time if it is
    /// [`timed`](MappedFile::timed), and the reads so far tell.
    ///
    /// # Errors
    /// [`Error::FileChanged`] if not.
    pub fn check(&self) -> Result<(), Error> {
        let changed = |message: String| Err(Error::FileChanged { path: self.path.clone(), message });
        let metadata = self.file.metadata().map_err(Error::io(&self.path))?;
        if metadata.len() != self.len {
            return changed(format!("it had {} bytes and has {}", self.len, metadata.len()));
        }
        if self.is_timed && metadata.modified().ok() != self.modified {
            return changed("it was written".to_string());
        }
        #[cfg(unix)]
        if self.lost.any() {
            return changed("a part of it could not be read".to_string());
        }
        Ok(())
    }

    /// Asks the system to read a part ahead of its use. Refusals are ignored.
    pub fn prefetch(&self, range: Range<usize>) {
        if self.map.get(range.clone()).is_some_and(|part| !part.is_empty()) {
            advice::prefetch(&self.map, range);
        }
    }

    /// Gives the physical pages wholly inside a part back to the system. Reading them later reads the file again.
    pub fn release(&self, range: Range<usize>) {
        if self.map.get(range.clone()).is_some() {
            let start = range.start.next_multiple_of(LARGEST_PAGE);
            let end = range.end / LARGEST_PAGE * LARGEST_PAGE;
            if start < end {
                advice::release(&self.map, start..end);
            }
        }
    }
}

/// Page sizes are 4, 16 or 64 KiB; a multiple of the largest is a multiple of each.
const LARGEST_PAGE: usize = 64 << 10;

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::fs::OpenOptions;

    use super::*;
    use crate::Bytes;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("perihelion-mapped-{name}-{}", std::process::id()))
    }

    #[test]
    fn files_are_bytes() {
        let path = path("bytes");
        for contents in [&b"some bytes"[..], b""] {
            std::fs::write(&path, contents).unwrap();
            let bytes = Bytes::map(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            assert_eq!(&bytes[..], contents);
            assert!(bytes.slice(0..0).unwrap().file().unwrap().check().is_ok(), "removing changes nothing");
        }
        assert_eq!(Bytes::map(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let folder = Bytes::map(&std::env::temp_dir()).unwrap_err();
        assert_eq!(folder.to_string(), "no regular file");
    }

    #[cfg(unix)]
    #[test]
    fn files_that_are_written_in_place_are_told_from_those_that_are_replaced() {
        let path = path("changed");
        let open = |contents: &[u8]| {
            std::fs::write(&path, contents).unwrap();
            MappedFile::open(&path).unwrap()
        };
        let problem = |file: &MappedFile| {
            let error = file.check().unwrap_err().to_string();
            error.strip_prefix(&path.display().to_string()).unwrap().to_string()
        };
        let file = open(b"contents");
        std::fs::write(path.with_extension("new"), b"others").unwrap();
        std::fs::rename(path.with_extension("new"), &path).unwrap();
        assert!(file.check().is_ok());
        std::fs::remove_file(&path).unwrap();
        assert!(file.check().is_ok());
        let file = open(b"contents");
        OpenOptions::new().append(true).open(&path).unwrap().set_len(20).unwrap();
        assert_eq!(problem(&file), " changed while it was in use (it had 8 bytes and has 20): load it again");
        let file = open(b"contents");
        let later = file.modified().unwrap() + std::time::Duration::from_secs(1);
        File::open(&path).unwrap().set_modified(later).unwrap();
        assert!(file.check().is_ok());
        let file = file.timed();
        assert_eq!(problem(&file), " changed while it was in use (it was written): load it again");
        std::fs::remove_file(&path).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_cut_off_read_as_zeros() {
        let path = path("cut");
        let open = || {
            std::fs::write(&path, vec![7; 1 << 20]).unwrap();
            MappedFile::open(&path).unwrap()
        };
        let cut = |len: u64| OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
        for len in [0, 1, 70_000, (1 << 20) - 1] {
            let (file, count) = (open(), len as usize);
            cut(len);
            // The pages of a file may be larger than 4 KiB, and are there to the end.
            assert!(
                file.as_ref().iter().enumerate().all(|(at, &byte)| byte == if at < count { 7 } else { 0 })
            );
            assert!(file.check().is_err());
        }
        // A file that has its length again: the pages that were read meanwhile are those of no file.
        let file = open();
        let modified = file.modified().unwrap();
        cut(0);
        assert_eq!(file.as_ref()[1 << 19], 0);
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        File::open(&path).unwrap().set_modified(modified).unwrap();
        let error = file.check().unwrap_err().to_string();
        assert!(error.contains("(a part of it could not be read)"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }
}
