//! The progress of downloads on standard error: bars on a terminal, lines elsewhere.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sources::Progress;

use crate::exit::one_line;
use crate::output;

/// The progress of a download of several files.
pub(crate) struct Transfer {
    show: Show,
}

enum Show {
    Nothing,
    /// A line for each complete file and each problem.
    Lines,
    /// A bar for each file and one for the total.
    Bars {
        all: MultiProgress,
        total: ProgressBar,
        files: Mutex<HashMap<String, ProgressBar>>,
    },
}

impl Transfer {
    /// The progress of a download of `bytes` bytes.
    pub(crate) fn new(bytes: u64, quiet: bool) -> Transfer {
        let show = match (quiet, std::io::stderr().is_terminal() && !output::is_dumb_terminal()) {
            (true, _) => Show::Nothing,
            (false, false) => Show::Lines,
            (false, true) => {
                let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
                let total = all.add(ProgressBar::new(bytes));
                total.set_style(style("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}"));
                total.set_message("all files");
                total.enable_steady_tick(Duration::from_millis(200));
                Show::Bars { all, total, files: Mutex::default() }
            }
        };
        Transfer { show }
    }

    /// Shows an event; called from any thread.
    pub(crate) fn report(&self, progress: Progress<'_>) {
        match &self.show {
            Show::Nothing => {}
            Show::Lines => {
                if let Some(line) = line(progress) {
                    // A closed standard error changes nothing.
                    let _ = writeln!(std::io::stderr(), "{line}");
                }
            }
            Show::Bars { all, total, files } => {
                let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(line) = line(progress).filter(|_| !matches!(progress, Progress::Done { .. })) {
                    let _ = all.println(line);
                }
                match progress {
                    Progress::Bytes { file, done, total } => {
                        let bar = files.entry(file.to_string()).or_insert_with(|| {
                            let bar = all.insert(0, ProgressBar::new(total));
                            bar.set_style(style("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}"));
                            bar.set_message(one_line(file));
                            bar
                        });
                        bar.set_position(done);
                    }
                    Progress::Done { file, .. } => {
                        if let Some(bar) = files.get(file) {
                            bar.finish_and_clear();
                        }
                    }
                    _ => {}
                }
                total.set_position(files.values().map(ProgressBar::position).sum());
            }
        }
    }

    /// Erases the bars.
    pub(crate) fn clear(&self) {
        if let Show::Bars { total, files, .. } = &self.show {
            let files = files.lock().unwrap_or_else(PoisonError::into_inner);
            files.values().chain([total]).for_each(ProgressBar::finish_and_clear);
        }
    }
}

/// The line for an event, if it has one.
fn line(progress: Progress<'_>) -> Option<String> {
    Some(match progress {
        Progress::Bytes { .. } => return None,
        Progress::Waiting { file } => {
            format!("{}: waiting for another process that downloads it", one_line(file))
        }
        Progress::Retrying { file, wait, problem } => {
            format!("{}: {}; retrying in {:.0} s", one_line(file), one_line(problem), wait.as_secs_f64())
        }
        Progress::Done { file, total } => format!("{}: {}", one_line(file), HumanBytes(total)),
    })
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template of known fields")
}
