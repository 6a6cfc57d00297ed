//! What standard error shows while one waits.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is under way, in one line that goes away; invisible where standard error is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A line that shows nothing yet.
    pub(crate) fn new(quiet: bool) -> Progress {
        let bar = ProgressBar::no_length();
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Progress { bar }
    }

    /// Shows what is under way.
    pub(crate) fn phase(&self, phase: impl Into<String>) {
        self.bar.set_style(style("{spinner} {msg}"));
        self.bar.set_message(phase.into());
        self.bar.enable_steady_tick(Duration::from_millis(100));
    }

    /// Shows how far a phase is that is measured in bytes.
    pub(crate) fn bytes(&self, phase: &'static str, done: u64, total: u64) {
        if self.bar.length() != Some(total) {
            // The length first: each of these may draw.
            self.bar.set_length(total);
            self.bar.set_style(style("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}"));
            self.bar.set_message(phase);
        }
        self.bar.set_position(done);
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template of known fields")
}
