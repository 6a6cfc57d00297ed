//! The progress line on standard error.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// A line that shows the current phase and is erased at the end; hidden unless standard error is a terminal that can
/// erase lines.
pub(crate) struct Progress {
    visible: bool,
    /// The bar of the current phase. A finished bar never draws again, so each phase has its own.
    phase: Mutex<Option<Phase>>,
}

struct Phase {
    kind: &'static str,
    bar: ProgressBar,
}

impl Progress {
    /// An empty line.
    pub(crate) fn new(quiet: bool) -> Progress {
        let visible = !quiet && std::io::stderr().is_terminal() && !output::is_dumb_terminal();
        Progress { visible, phase: Mutex::new(None) }
    }

    /// Whether the line is shown at all.
    pub(crate) fn is_visible(&self) -> bool {
        self.visible
    }

    /// Prints a line above the current bar, if there is one.
    pub(crate) fn print(&self, line: &str) {
        if let Some(phase) = &*self.phase.lock().unwrap_or_else(PoisonError::into_inner) {
            phase.bar.println(line);
        }
    }

    /// Starts a phase without a measure, or renames it.
    pub(crate) fn phase(&self, name: impl Into<String>) {
        self.with_bar("", name.into(), "{spinner} {msg}", None, |bar| {
            // The ticker's first frame may come too late for a short phase.
            bar.tick();
            bar.enable_steady_tick(Duration::from_millis(100));
        });
    }

    /// Starts or updates a phase measured in bytes; `name` stands next to its bar.
    pub(crate) fn bytes(&self, kind: &'static str, name: impl Into<String>, done: u64, total: u64) {
        let template = "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}";
        self.with_bar(kind, name.into(), template, Some(total), |bar| bar.set_position(done));
    }

    /// Erases the line.
    pub(crate) fn clear(&self) {
        if let Some(phase) = self.phase.lock().unwrap_or_else(PoisonError::into_inner).take() {
            phase.bar.finish_and_clear();
        }
    }

    /// Updates the bar of a phase, which replaces that of another kind.
    fn with_bar(
        &self,
        kind: &'static str,
        name: String,
        template: &str,
        total: Option<u64>,
        update: impl FnOnce(&ProgressBar),
    ) {
        if !self.visible {
            return;
        }
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        match &*phase {
            Some(Phase { kind: current, bar }) if *current == kind => {
                bar.set_message(name);
                total.into_iter().for_each(|total| bar.set_length(total));
            }
            other => {
                other.iter().for_each(|old| old.bar.finish_and_clear());
                // Style and message come first: the first frame shows them.
                let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
                bar.set_style(style(template));
                *phase = Some(Phase { kind, bar: bar.with_message(name) });
            }
        }
        update(&phase.as_ref().expect("created above").bar);
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template of known fields")
}
