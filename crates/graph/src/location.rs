//! Places in the source of the programs that build graphs.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A place in the source of the program that builds a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceLocation {
    /// In a program in Rust.
    Rust(&'static Location<'static>),
    /// In a program in another language.
    Other {
        /// The path of the file.
        file: Arc<str>,
        /// Counted from 1.
        line: u32,
        /// Counted from 1, if it is known.
        column: Option<u32>,
    },
}

impl SourceLocation {
    /// The path of the file.
    pub fn file(&self) -> &str {
        match self {
            SourceLocation::Rust(location) => location.file(),
            SourceLocation::Other { file, .. } => file,
        }
    }

    /// The line, counted from 1.
    pub fn line(&self) -> u32 {
        match self {
            SourceLocation::Rust(location) => location.line(),
            SourceLocation::Other { line, .. } => *line,
        }
    }
}

impl From<&'static Location<'static>> for SourceLocation {
    fn from(location: &'static Location<'static>) -> SourceLocation {
        SourceLocation::Rust(location)
    }
}

/// `src/model.rs:12:9`
impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceLocation::Rust(location) => location.fmt(f),
            SourceLocation::Other { file, line, column: Some(column) } => write!(f, "{file}:{line}:{column}"),
            SourceLocation::Other { file, line, column: None } => write!(f, "{file}:{line}"),
        }
    }
}
