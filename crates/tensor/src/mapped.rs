//! Files as bytes, mapped into memory rather than read.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

use crate::Bytes;

impl Bytes {
    /// The bytes of a file, mapped read-only: nothing is read before someone looks at it.
    ///
    /// The first byte lies at the start of a page. A mapping shows the file as it is on disk: whoever overwrites it
    /// in place changes the bytes, and whoever truncates it while it is in use ends the process with a bus error.
    /// Replacing it by renaming is harmless.
    ///
    /// # Errors
    /// If it cannot be opened, or is no regular file.
    pub fn map(path: &Path) -> io::Result<Bytes> {
        // Asked before opening: to open a named pipe is to wait for its writer.
        if !path.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
        }
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Bytes::new([]));
        }
        // SAFETY: the mapping is private and read-only; that nobody overwrites a file in use is the one thing every
        // program that maps files relies on, and the documentation says so.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Bytes::new(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_bytes() {
        let path = std::env::temp_dir().join(format!("perihelion-mapped-{}", std::process::id()));
        for contents in [&b"some bytes"[..], b""] {
            std::fs::write(&path, contents).unwrap();
            let bytes = Bytes::map(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            assert_eq!(&bytes[..], contents);
        }
        assert_eq!(Bytes::map(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let folder = Bytes::map(&std::env::temp_dir()).unwrap_err();
        assert_eq!(folder.to_string(), "no regular file");
    }
}
