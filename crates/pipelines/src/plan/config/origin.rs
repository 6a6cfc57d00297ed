//! Who set a value of a configuration.

use std::fmt;
use std::path::PathBuf;

/// Who set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No layer: the default.
    Default,
    /// The command, for what it does.
    Command,
    /// A file.
    File {
        /// Which.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable of this name.
    Environment(String),
    /// A flag or an argument of the command line.
    Argument,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Command => f.write_str("default of the command"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment(variable) => f.write_str(variable),
            Origin::Argument => f.write_str("command line"),
        }
    }
}
