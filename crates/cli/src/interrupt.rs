//! Ctrl-C: ends a command at once until there is something to end in order; after that, the second one does.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use async_channel::Receiver;

use crate::exit::INTERRUPTED;

/// Nothing to lose yet: Ctrl-C ends the process.
const AT_ONCE: u8 = 0;
/// Whoever holds the [`Interrupt`] looks at it from time to time.
const WATCHED: u8 = 1;
/// Ctrl-C was pressed once; the next one ends the process.
const ASKED: u8 = 2;

/// Whether the user has asked us to stop.
#[derive(Clone)]
pub(crate) struct Interrupt {
    state: Arc<AtomicU8>,
    /// Whoever waits for Ctrl-C.
    pressed: Receiver<()>,
}

impl Interrupt {
    /// Starts listening. Called once.
    pub(crate) fn listen() -> anyhow::Result<Interrupt> {
        let (press, pressed) = async_channel::bounded(1);
        let interrupt = Interrupt { state: Arc::new(AtomicU8::new(AT_ONCE)), pressed };
        let state = Arc::clone(&interrupt.state);
        ctrlc::set_handler(move || {
            if state.compare_exchange(WATCHED, ASKED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                leave();
            }
            // Told already, if it is full.
            let _ = press.try_send(());
        })?;
        Ok(interrupt)
    }

    /// From here on, the first Ctrl-C only asks.
    pub(crate) fn watch(&self) {
        self.state.store(WATCHED, Ordering::Relaxed);
    }

    /// From here on, Ctrl-C ends the process again; whether it was pressed is forgotten.
    pub(crate) fn rest(&self) {
        self.state.store(AT_ONCE, Ordering::Relaxed);
        while self.pressed.try_recv().is_ok() {}
    }

    /// Waits until Ctrl-C is pressed while that is watched.
    pub(crate) async fn pressed(&self) {
        if self.pressed.recv().await.is_err() {
            // Nobody listens any more.
            std::future::pending().await
        }
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn asked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ASKED
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
