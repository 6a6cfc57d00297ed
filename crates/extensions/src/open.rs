//! Libraries by path: shared libraries, packages and sources.

use std::path::Path;

use crate::library::load;
use crate::{Compiler, Error, Library, package, source};

impl Library {
    /// Loads what a path names: a shared library, a package (a folder with a manifest), or a source of Rust (`.rs`),
    /// which `compiler` compiles.
    ///
    /// # Errors
    /// If it cannot be loaded, or what it says of itself makes no sense.
    pub fn open(path: impl AsRef<Path>, compiler: &Compiler) -> Result<Library, Error> {
        let given = path.as_ref();
        let path = given.canonicalize().map_err(|error| Error::Io { path: given.to_path_buf(), error })?;
        if path.is_dir() {
            return package::open(&path);
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => load(&source::compile(&path, compiler)?, None),
            Some("mojo" | "mojoc" | "mojopkg") => {
                let message =
                    "Mojo is not read: write the ops in Rust, C or C++ (docs/write-an-extension.md)";
                Err(Error::NotALibrary { path, message: message.to_string() })
            }
            _ => load(&path, None),
        }
    }
}
