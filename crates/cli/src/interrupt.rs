//! Ctrl-C and SIGTERM: exit at once until a command can stop in order; from then on, the second signal does.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use async_channel::Receiver;
use engine::AtomicFile;

/// Nothing to finish yet: a signal ends the process.
const AT_ONCE: u8 = 0;
/// The holder of the [`Interrupt`] polls it.
const WATCHED: u8 = 1;
/// A signal came; the next one ends the process.
const ASKED: u8 = 2;

/// The number of Ctrl-C's signal.
const SIGINT: u8 = 2;

/// The last signal.
static SIGNAL: AtomicU8 = AtomicU8::new(SIGINT);

/// Whether the user asked us to stop.
#[derive(Clone)]
pub(crate) struct Interrupt {
    state: Arc<AtomicU8>,
    /// Set with [`ASKED`], for code that takes a flag.
    stop: Arc<AtomicBool>,
    /// Wakes those who wait for a signal.
    signals: Receiver<()>,
}

impl Interrupt {
    /// Starts listening. Called once per process.
    pub(crate) fn listen() -> anyhow::Result<Interrupt> {
        let (send, signals) = async_channel::bounded(1);
        let interrupt = Interrupt {
            state: Arc::new(AtomicU8::new(AT_ONCE)),
            stop: Arc::new(AtomicBool::new(false)),
            signals,
        };
        let Interrupt { state, stop, .. } = interrupt.clone();
        on_signal(move |signal| {
            SIGNAL.store(signal, Ordering::Relaxed);
            if state.compare_exchange(WATCHED, ASKED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                leave();
            }
            stop.store(true, Ordering::Relaxed);
            // A full channel has a signal already.
            let _ = send.try_send(());
        })?;
        Ok(interrupt)
    }

    /// From now on, the first signal only sets [`Interrupt::asked`].
    pub(crate) fn watch(&self) {
        self.state.store(WATCHED, Ordering::Relaxed);
    }

    /// From now on, a signal ends the process again. Earlier signals are forgotten.
    pub(crate) fn rest(&self) {
        self.state.store(AT_ONCE, Ordering::Relaxed);
        self.stop.store(false, Ordering::Relaxed);
        while self.signals.try_recv().is_ok() {}
    }

    /// Waits for a signal while signals are watched.
    pub(crate) async fn pressed(&self) {
        if self.signals.recv().await.is_err() {
            // The sender lives as long as the process.
            std::future::pending().await
        }
    }

    /// Whether a signal came.
    pub(crate) fn asked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ASKED
    }

    /// A flag that is set while [`Interrupt::asked`] is true.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }
}

/// The exit code after a signal, as shells give it: 130 for Ctrl-C, 143 for SIGTERM.
pub(crate) fn exit_code() -> u8 {
    128 + SIGNAL.load(Ordering::Relaxed)
}

/// Whether the last signal was SIGTERM, which ends even an interactive command.
pub(crate) fn was_terminated() -> bool {
    SIGNAL.load(Ordering::Relaxed) != SIGINT
}

/// Calls `handle` with the number of each signal, on a thread of its own.
#[cfg(unix)]
fn on_signal(handle: impl Fn(u8) + Send + 'static) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};

    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        signals.forever().for_each(|signal| handle(u8::try_from(signal).unwrap_or(self::SIGINT)));
    })?;
    Ok(())
}

/// Calls `act` for each SIGHUP, on a thread of its own.
///
/// # Errors
/// If the system refuses a thread or a handler.
#[cfg(unix)]
pub(crate) fn on_hangup(act: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGHUP])?;
    std::thread::Builder::new().name("hangup".into()).spawn(move || signals.forever().for_each(|_| act()))?;
    Ok(())
}

/// This system has no such signal.
#[cfg(not(unix))]
pub(crate) fn on_hangup(_: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn on_signal(handle: impl Fn(u8) + Send + 'static) -> anyhow::Result<()> {
    Ok(ctrlc::set_handler(move || handle(SIGINT))?)
}

fn leave() -> ! {
    AtomicFile::remove_unfinished();
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Past a progress bar and the terminal's `^C`.
        let _ = writeln!(stderr);
    }
    std::process::exit(exit_code().into())
}
