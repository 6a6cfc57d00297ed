//! A file of weights, mapped into memory and read where it lies; or the bytes of one that are in memory already.

use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use memmap2::MmapOptions;
use tensor::{Bytes, MappedFile};

use crate::{Error, Format};

/// A file mapped read-only ([`MappedFile`]), or bytes that came another way. Opening reads nothing; clones share the bytes.
#[derive(Clone)]
pub struct WeightFile {
    path: PathBuf,
    bytes: Bytes,
    /// How many of the first bytes are those of the file; the others are zeros.
    at_hand: usize,
}

impl WeightFile {
    /// Maps a file.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a regular file.
    pub fn open(path: &Path) -> Result<WeightFile, Error> {
        // Asked before opening: to open a named pipe is to wait for its writer.
        let kind = path.metadata().map_err(Error::io(path))?;
        if !kind.is_file() {
            return Err(Error::Unsupported { path: path.to_path_buf(), what: "no regular file".to_string() });
        }
        let file = MappedFile::open(path).map_err(Error::io(path))?;
        let (path, bytes) = (path.to_path_buf(), Bytes::of_file(Arc::new(file.timed())));
        let at_hand = bytes.len();
        Ok(WeightFile { path, bytes, at_hand })
    }

    /// Bytes that are in memory already, under a name for messages.
    pub(crate) fn in_memory(name: &str, bytes: Bytes) -> WeightFile {
        let at_hand = bytes.len();
        WeightFile { path: PathBuf::from(name), bytes, at_hand }
    }

    /// The first bytes of a file of `size` bytes that is elsewhere, and zeros in place of the others, which take address
    /// space and no memory.
    pub(crate) fn beginning(name: &str, first: &[u8], size: usize) -> Result<WeightFile, Error> {
        let path = PathBuf::from(name);
        let map = MmapOptions::new().len(size).no_reserve_swap().map_anon();
        let mut map = map.map_err(Error::io(&path))?;
        map[..first.len()].copy_from_slice(first);
        let map = map.make_read_only().map_err(Error::io(&path))?;
        let bytes = Bytes::shared(Arc::new(map));
        Ok(WeightFile { path, bytes, at_hand: first.len() })
    }

    /// How it stores weights, by its content, or else by its name.
    ///
    /// # Errors
    /// If name and content contradict each other, or neither is known.
    pub(crate) fn format(&self) -> Result<Format, Error> {
        match (Format::from_name(&self.path), Format::from_content(self)) {
            (Some(name), Some(content)) if name != content => {
                Err(Error::Contradiction { path: self.path.clone(), name, content })
            }
            (_, Some(format)) | (Some(format), None) => Ok(format),
            (None, None) => {
                let start = self[..self.len().min(8)].to_vec();
                Err(Error::UnknownFormat { path: self.path.clone(), start })
            }
        }
    }

    /// How all files of a model store weights.
    ///
    /// # Errors
    /// If they differ, or as [`WeightFile::format`].
    pub(crate) fn common_format(files: &[WeightFile]) -> Result<Format, Error> {
        let first = files[0].format()?;
        for file in &files[1..] {
            let other = file.format()?;
            if other != first {
                let what = format!("a {other} file among the {first} files of one model");
                return Err(Error::Unsupported { path: file.path.clone(), what });
            }
        }
        Ok(first)
    }

    /// The path it was opened by, or the name of bytes that were in memory already.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a file of this machine, mapped; else the path is only a name.
    pub fn is_mapped(&self) -> bool {
        self.map().is_some()
    }

    /// When the file was written last, as it was opened; `None` of what is no file here, and where no system says so.
    pub fn modified(&self) -> Option<SystemTime> {
        self.map()?.modified()
    }

    /// Whether the bytes are still those that the file had when it was opened ([`MappedFile::check`]).
    ///
    /// # Errors
    /// If not.
    pub fn check(&self) -> Result<(), tensor::Error> {
        self.map().map_or(Ok(()), MappedFile::check)
    }

    /// Whether all of it is at hand, and not its header alone.
    pub fn is_whole(&self) -> bool {
        self.at_hand >= self.bytes.len()
    }

    /// Whether a part of it is at hand.
    pub(crate) fn has(&self, range: &Range<usize>) -> bool {
        range.end <= self.at_hand
    }

    /// A part of the file, without a copy, or `None` when it lies outside.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        self.bytes.slice(range)
    }

    /// Asks the kernel to read a part ahead of its use. Refusals are ignored: it is advice.
    pub(crate) fn prefetch(&self, range: Range<usize>) {
        if let Some(map) = self.map() {
            map.prefetch(range);
        }
    }

    /// Gives the physical pages wholly inside a part back to the kernel. Reading them later reads the file again.
    pub(crate) fn release(&self, range: Range<usize>) {
        if let Some(map) = self.map() {
            map.release(range);
        }
    }

    /// The mapping under the bytes, if there is one.
    fn map(&self) -> Option<&MappedFile> {
        self.bytes.file().map(|file| &**file)
    }
}

/// The bytes of a small file next to weights, such as a configuration.
///
/// # Errors
/// If it cannot be read, or is not a regular file: to open a named pipe would be to wait for its writer.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    match path.metadata()?.is_file() {
        true => std::fs::read(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

impl Deref for WeightFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_from_bytes_in_memory() {
        let path = std::env::temp_dir().join(format!("perihelion-file-{}", std::process::id()));
        std::fs::write(&path, b"bytes").unwrap();
        let file = WeightFile::open(&path).unwrap();
        let modified = path.metadata().unwrap().modified().ok();
        assert_eq!((file.is_mapped(), file.modified()), (true, modified));
        // Under the name of a file that is there.
        let memory = WeightFile::in_memory(&path.to_string_lossy(), Bytes::new(*b"bytes"));
        assert_eq!((memory.is_mapped(), memory.modified()), (false, None));
        assert_eq!(read_file(&path).unwrap(), b"bytes");
        std::fs::remove_file(&path).unwrap();
        assert!(read_file(&std::env::temp_dir()).is_err(), "a folder is no file");
    }
}
