//! The progress of a download: one bar for all its files on a terminal, lines elsewhere.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use indicatif::HumanBytes;

use crate::exit::one_line;
use crate::progress::Progress;

/// The progress of a download of several files, up to eight at once.
pub(crate) struct Transfer<'p> {
    bar: &'p Progress,
    /// Whether to print a line for each complete file and each problem if there is no bar.
    lines: bool,
    sums: Mutex<Sums>,
}

/// What arrived so far, over all files.
#[derive(Default)]
struct Sums {
    files: usize,
    complete: usize,
    /// Bytes of all files, as far as the hub told them beforehand.
    announced: u64,
    /// Bytes here and in all, of each file that has begun.
    begun: HashMap<String, (u64, u64)>,
}

impl<'p> Transfer<'p> {
    /// A download shown as a bar, or not at all.
    pub(crate) fn new(bar: &'p Progress) -> Transfer<'p> {
        Transfer { bar, lines: false, sums: Mutex::default() }
    }

    /// A download shown as a bar, or as lines if there can be no bar.
    pub(crate) fn with_lines(bar: &'p Progress, quiet: bool) -> Transfer<'p> {
        Transfer { lines: !quiet && !bar.is_visible(), ..Transfer::new(bar) }
    }

    /// Shows an event; called from any thread.
    pub(crate) fn report(&self, event: sources::Progress<'_>) {
        if let Some(line) = line(event) {
            if self.lines {
                // A closed standard error changes nothing.
                let _ = writeln!(std::io::stderr(), "{line}");
            } else if !matches!(event, sources::Progress::Done { .. }) {
                self.bar.print(&line);
            }
        }
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.add(event);
        if !sums.begun.is_empty() {
            let (name, done, total) = sums.shown();
            self.bar.bytes("fetching", name, done, total);
        }
    }
}

impl Sums {
    fn add(&mut self, event: sources::Progress<'_>) {
        match event {
            sources::Progress::Started { files, bytes } => {
                self.files += files;
                self.announced += bytes;
            }
            sources::Progress::Bytes { file, done, total } => {
                self.begun.insert(file.to_string(), (done, total));
            }
            sources::Progress::Done { file, total } => {
                self.begun.insert(file.to_string(), (total, total));
                self.complete += 1;
            }
            _ => {}
        }
    }

    /// The text next to the bar, the bytes that are here, and the bytes of all files.
    fn shown(&self) -> (String, u64, u64) {
        let (done, total) = self.begun.values().fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1));
        let name = match self.files {
            0 | 1 => "fetching".to_string(),
            files => format!("fetching {files} files, {} done", self.complete),
        };
        (name, done, total.max(self.announced))
    }
}

/// The line for an event, if it has one.
fn line(event: sources::Progress<'_>) -> Option<String> {
    Some(match event {
        sources::Progress::Waiting { file } => {
            format!("{}: waiting for another process that downloads it", one_line(file))
        }
        sources::Progress::Retrying { file, wait, problem } => {
            format!("{}: {}; retrying in {:.0} s", one_line(file), one_line(problem), wait.as_secs_f64())
        }
        sources::Progress::Done { file, total } => format!("{}: {}", one_line(file), HumanBytes(total)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_arrive_together_are_one_sum() {
        use sources::Progress::{Bytes, Done, Started};
        let mut sums = Sums::default();
        let mut shown = |event| {
            sums.add(event);
            sums.shown()
        };
        shown(Started { files: 3, bytes: 60 });
        shown(Bytes { file: "a", done: 1, total: 10 });
        let together = shown(Bytes { file: "b", done: 5, total: 20 });
        assert_eq!(together, ("fetching 3 files, 0 done".to_string(), 6, 60));
        assert_eq!(shown(Done { file: "a", total: 10 }), ("fetching 3 files, 1 done".to_string(), 15, 60));
        // The hub did not tell all sizes beforehand.
        assert_eq!(shown(Bytes { file: "c", done: 0, total: 50 }).2, 80);
    }
}
