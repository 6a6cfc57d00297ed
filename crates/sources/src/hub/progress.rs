//! What is told while files arrive.

use std::time::Duration;

/// What is told while files arrive, several at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    /// So much of a file is here.
    Bytes {
        /// Its name.
        file: &'a str,
        /// Bytes that are here, counting those of an earlier try.
        done: u64,
        /// Bytes it has.
        total: u64,
    },
    /// Someone else is downloading the same file.
    Waiting {
        /// Its name.
        file: &'a str,
    },
    /// Something went wrong, and will be tried again.
    Retrying {
        /// The file's name.
        file: &'a str,
        /// In how long.
        wait: Duration,
        /// What went wrong.
        problem: &'a str,
    },
    /// A file is here, whole and checked.
    Done {
        /// Its name.
        file: &'a str,
        /// Bytes it has.
        total: u64,
    },
}
