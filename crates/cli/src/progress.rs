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
            // Setting the length draws, and so would setting the message.
            self.bar.set_style(style("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}"));
            let bar = self.bar.clone().with_message(phase);
            bar.set_length(total);
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that remembers what was written.
    #[derive(Debug, Clone, Default)]
    struct Written(Arc<Mutex<Vec<String>>>);

    impl Written {
        fn add(&self, text: &str) -> std::io::Result<()> {
            self.0.lock().unwrap().push(text.to_string());
            Ok(())
        }
    }

    impl TermLike for Written {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }

        fn write_line(&self, line: &str) -> std::io::Result<()> {
            self.add(line)
        }

        fn write_str(&self, text: &str) -> std::io::Result<()> {
            self.add(text)
        }

        fn clear_line(&self) -> std::io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_first_frame_says_what_is_under_way() {
        let terminal = Written::default();
        let progress = Progress { bar: ProgressBar::no_length() };
        progress.bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        progress.bytes("packing", 0, 5 << 20);
        let written = terminal.0.lock().unwrap();
        let first = written.iter().find(|text| !text.trim().is_empty()).expect("a frame");
        assert!(first.starts_with("packing ") && first.contains("0 B/5.00 MiB"), "{written:?}");
    }
}
