//! What can be wrong with an extension.

use std::path::PathBuf;

/// An extension cannot be loaded. The message names the file and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("extension {path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A file is no shared library that this process can load.
    #[error("extension {path}: {message}")]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// What it is, or what the loader says.
        message: String,
    },
    /// The file was loaded before, and has been changed since; the loader would give the old code.
    #[error(
        "extension {path}: the file has changed since this process loaded it; start anew or use another name"
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A shared library does not export what extensions do.
    #[error(
        "extension {path}: the library does not export `{symbol}`: it is not an extension, or was built for another ABI"
    )]
    MissingSymbol {
        /// The file.
        path: PathBuf,
        /// What is looked for.
        symbol: &'static str,
    },
    /// An extension for another ABI.
    #[error("extension {path}: it is made for version {found} of the ABI, expected {expected}")]
    Abi {
        /// The file.
        path: PathBuf,
        /// The version it was made for.
        found: u32,
        /// The version this program speaks.
        expected: u32,
    },
    /// What a library says of itself makes no sense.
    #[error("extension {path}: {message}")]
    Table {
        /// The file.
        path: PathBuf,
        /// Where, and what is wrong.
        message: String,
    },
    /// A package does not hold what its manifest says, or its manifest makes no sense.
    #[error("extension package {path}: {message}")]
    Package {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// There is no compiler for a source.
    #[error(
        "extension {path}: a source needs the Rust compiler, but `{rustc}` is not there: install Rust, name a \
         compiler in PERIHELION_RUSTC, or give a compiled library"
    )]
    NoCompiler {
        /// The source.
        path: PathBuf,
        /// What was called.
        rustc: PathBuf,
    },
    /// A source does not compile.
    #[error("extension {path}: it does not compile\n{message}")]
    Compile {
        /// The source.
        path: PathBuf,
        /// What the compiler says.
        message: String,
    },
}
