//! What standard error shows while a model loads.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar for a phase that is measured in bytes; invisible where standard error is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar that has not started.
    pub(crate) fn new(quiet: bool) -> Progress {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{msg:>10} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}");
        bar.set_style(style.expect("a template of known fields"));
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Progress { bar }
    }

    /// Shows how far a phase is.
    pub(crate) fn show(&self, phase: &'static str, done: u64, total: u64) {
        self.bar.set_message(phase);
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
