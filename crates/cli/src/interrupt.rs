//! Ctrl-C: ends a command at once until there is something to end in order; after that, the second one does.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::exit::INTERRUPTED;

/// Nothing to lose yet: Ctrl-C ends the process.
const AT_ONCE: u8 = 0;
/// Whoever holds the [`Interrupt`] looks at it from time to time.
const WATCHED: u8 = 1;
/// Ctrl-C was pressed once; the next one ends the process.
const ASKED: u8 = 2;

/// Whether the user has asked us to stop.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicU8>);

impl Interrupt {
    /// Starts listening. Called once.
    pub(crate) fn listen() -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt(Arc::new(AtomicU8::new(AT_ONCE)));
        let state = Arc::clone(&interrupt.0);
        ctrlc::set_handler(move || {
            if state.compare_exchange(WATCHED, ASKED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                leave();
            }
        })?;
        Ok(interrupt)
    }

    /// From here on, the first Ctrl-C only asks.
    pub(crate) fn watch(&self) {
        self.0.store(WATCHED, Ordering::Relaxed);
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASKED
    }
}

fn leave() -> ! {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Past a progress bar and the terminal's `^C`.
        let _ = writeln!(stderr);
    }
    std::process::exit(INTERRUPTED.into())
}
