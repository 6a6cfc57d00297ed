//! A plain thread that owns a model, and how it ends for those that wait for it.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use async_channel::{Receiver, Sender, TryRecvError};

use crate::Error;
use crate::generator::panic_message;

/// What a thread does with what it owns.
pub(crate) trait Owner: Send + 'static {
    /// What it is called.
    const NAME: &'static str;
    /// What it is told.
    type Command: Send;

    /// Whether there is nothing to do until a command comes.
    fn is_idle(&self) -> bool;

    /// Does what a command says, which may be to end.
    fn obey(&mut self, command: Self::Command) -> ControlFlow<()>;

    /// Does some of its work. All commands come before.
    fn step(&mut self);
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

/// Starts a thread. It ends when it is told to, or when nobody is left who could tell it anything.
pub(crate) fn spawn<O: Owner>(mut owner: O, commands: Receiver<O::Command>) -> Result<End, Error> {
    let (alive, closed) = async_channel::bounded(1);
    let reason = Arc::new(OnceLock::new());
    let end = End { name: O::NAME, reason: Arc::clone(&reason), closed: Arc::new(closed) };
    let work = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&mut owner, &commands))) {
            // Before the channels close, so that whoever finds them closed finds the reason.
            let _ = reason.set(format!("a defect ended it: {}", panic_message(&*panic)));
        }
        // Whoever waits for an answer to a command would wait for as long as it is kept.
        commands.close();
        while commands.try_recv().is_ok() {}
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

fn run<O: Owner>(owner: &mut O, commands: &Receiver<O::Command>) {
    loop {
        let command = match owner.is_idle() {
            true => commands.recv_blocking().map_err(|_| TryRecvError::Closed),
            false => commands.try_recv(),
        };
        match command {
            Ok(command) => {
                if owner.obey(command).is_break() {
                    return;
                }
            }
            Err(TryRecvError::Empty) => owner.step(),
            Err(TryRecvError::Closed) => return,
        }
    }
}

impl End {
    /// The answer to a question, once the thread has come to it.
    ///
    /// # Errors
    /// If the thread has ended.
    pub(crate) fn ask<C, T>(
        &self,
        commands: &Sender<C>,
        question: impl FnOnce(Sender<T>) -> C,
    ) -> Result<T, Error> {
        let (reply, answer) = async_channel::bounded(1);
        // An error shows in the reply, which then never comes.
        let _ = commands.send_blocking(question(reply));
        answer.recv_blocking().map_err(|_| self.error())
    }

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
