//! A plain thread that owns a model, and how it ends for those that wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use async_channel::Receiver;

use crate::Error;
use crate::generator::panic_message;

/// What a thread does with what it owns.
pub(crate) trait Owner: Send + 'static {
    /// What it is called.
    const NAME: &'static str;

    /// Works until told to stop, or until nobody is left who could tell it anything.
    fn run(&mut self);

    /// Takes no more commands, and drops those that nobody will look at: whoever waits for an answer to them would
    /// wait for as long as they are kept.
    fn close(&mut self);
}

/// How a thread ended.
#[derive(Debug, Clone)]
pub(crate) struct End {
    name: &'static str,
    /// Set before the thread's channels close, if it did not end in order.
    reason: Arc<OnceLock<String>>,
    /// Closed when the thread has ended.
    closed: Arc<Receiver<()>>,
}

/// Starts a thread.
pub(crate) fn spawn<O: Owner>(mut owner: O) -> Result<End, Error> {
    let (alive, closed) = async_channel::bounded(1);
    let reason = Arc::new(OnceLock::new());
    let end = End { name: O::NAME, reason: Arc::clone(&reason), closed: Arc::new(closed) };
    let work = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| owner.run())) {
            // Before the channels close, so that whoever finds them closed finds the reason.
            let _ = reason.set(format!("a defect ended it: {}", panic_message(&*panic)));
        }
        owner.close();
        drop(owner);
        drop(alive);
    };
    let thread = std::thread::Builder::new().name(O::NAME.replace(' ', "-")).spawn(work);
    thread.map_err(|error| Error::Stopped {
        name: O::NAME,
        reason: format!("its thread cannot be started: {error}"),
    })?;
    Ok(end)
}

impl End {
    /// Why there is no answer.
    pub(crate) fn error(&self) -> Error {
        let reason = self.reason().map_or_else(|| "it was shut down".to_string(), str::to_string);
        Error::Stopped { name: self.name, reason }
    }

    /// Why it ended, if it did so by a defect.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Waits until the thread has ended.
    pub(crate) fn wait(&self) {
        // Nothing is ever sent.
        let _ = self.closed.recv_blocking();
    }
}
