//! Events of a download.

use std::time::Duration;

/// An event of a download, in which several files arrive at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Files are about to be fetched.
    Started {
        /// How many.
        files: usize,
        /// Their bytes, as far as the hub told them already.
        bytes: u64,
    },
    /// A part of a file arrived.
    Bytes {
        /// Its name.
        file: &'a str,
        /// Bytes on this machine, including those of an earlier attempt.
        done: u64,
        /// Bytes it has.
        total: u64,
    },
    /// Another process is downloading this file, and this one waits.
    Waiting {
        /// Its name.
        file: &'a str,
    },
    /// A request failed and will be repeated.
    Retrying {
        /// The file's name.
        file: &'a str,
        /// The delay before the next attempt.
        wait: Duration,
        /// What went wrong.
        problem: &'a str,
    },
    /// A file is complete and checked.
    Done {
        /// Its name.
        file: &'a str,
        /// Bytes it has.
        total: u64,
    },
}
