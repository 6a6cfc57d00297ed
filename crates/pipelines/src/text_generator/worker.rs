//! The thread that owns the generator: commands in, messages out, one step at a time.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use async_channel::{Receiver, Sender};

use super::now;
use crate::Error;
use crate::generator::{Event, EventKind, Generator, Request};
use crate::owner::{self, End, Owner};
use crate::sequence::SequenceId;

/// Names a request from the moment it is handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ticket(pub(super) u64);

/// A request is paused once this many of its events were not read. Those of the step that gets there come on top: a
/// chunk of the prompt at most, or all of it where it is echoed without log-probabilities.
pub const HIGH_WATER: usize = 256;
/// It goes on when so few are left.
pub(super) const LOW_WATER: usize = HIGH_WATER / 2;

/// What the thread is told.
pub(super) enum Command {
    Add(Box<Submission>),
    /// Nobody reads the answer any more.
    Abort(Ticket),
    /// The answer to a request that was paused has been read.
    Resume(Ticket),
    Status(Sender<Status>),
    Stop,
    #[cfg(test)]
    Panic,
    /// Something that happens in the next step.
    #[cfg(test)]
    Fault(fn() -> Result<(), Error>),
}

/// A request, and where its answer goes.
pub(super) struct Submission {
    pub(super) ticket: Ticket,
    pub(super) request: Request,
    pub(super) messages: Sender<Message>,
    pub(super) paused: Arc<AtomicBool>,
}

/// What happened to a request, and when.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) at: Instant,
    pub(super) event: EventKind,
}

/// How much there is to do, between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Requests that run.
    pub running: usize,
    /// Requests that wait for room.
    pub waiting: usize,
    /// Requests whose answers are not read.
    pub paused: usize,
    /// Pages of the KV cache that no request holds.
    pub free_pages: usize,
    /// Pages of the KV cache.
    pub num_pages: usize,
}

/// Starts the thread.
pub(super) fn spawn(generator: Generator, commands: Receiver<Command>) -> Result<End, Error> {
    owner::spawn(Worker { generator, readers: HashMap::new(), sequences: HashMap::new() }, commands)
}

struct Worker {
    generator: Generator,
    /// Of all requests that are not over.
    readers: HashMap<SequenceId, Reader>,
    sequences: HashMap<Ticket, SequenceId>,
}

/// Where an answer goes.
struct Reader {
    ticket: Ticket,
    messages: Sender<Message>,
    paused: Arc<AtomicBool>,
}

impl Owner for Worker {
    const NAME: &'static str = "text generator";

    type Command = Command;

    fn is_idle(&self) -> bool {
        self.generator.is_idle()
    }

    fn obey(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::Add(submission) => self.add(*submission),
            Command::Abort(ticket) => {
                if let Some(id) = self.sequences.get(&ticket).copied() {
                    self.generator.abort(id);
                    self.forget(id);
                }
            }
            Command::Resume(ticket) => {
                if let Some(&id) = self.sequences.get(&ticket) {
                    self.generator.resume(id);
                }
            }
            Command::Status(reply) => {
                // Whoever asked may be gone.
                let _ = reply.try_send(self.status());
            }
            Command::Stop => return ControlFlow::Break(()),
            #[cfg(test)]
            Command::Panic => panic!("on purpose"),
            #[cfg(test)]
            Command::Fault(fault) => self.generator.fault = Some(fault),
        }
        ControlFlow::Continue(())
    }

    fn step(&mut self) {
        let began = now();
        match self.generator.step() {
            Ok(events) => self.deliver(events, began),
            Err(error) => self.fail_step(&error.to_string()),
        }
    }
}

impl Worker {
    fn add(&mut self, submission: Submission) {
        let Submission { ticket, request, messages, paused } = submission;
        match self.generator.add(request) {
            Ok(id) => {
                self.sequences.insert(ticket, id);
                self.readers.insert(id, Reader { ticket, messages, paused });
            }
            Err(error) => {
                let event = EventKind::Failed(Arc::new(error));
                // Whoever asked may be gone.
                let _ = messages.try_send(Message { at: now(), event });
            }
        }
    }

    fn deliver(&mut self, events: Vec<Event>, began: Instant) {
        let ended = now();
        for Event { id, kind: event } in events {
            let Some(reader) = self.readers.get(&id) else { continue };
            let at = if matches!(event, EventKind::Started { .. }) { began } else { ended };
            let over = matches!(event, EventKind::Finished { .. } | EventKind::Failed(_));
            // If nobody reads any more, the command that says so is on its way.
            let _ = reader.messages.try_send(Message { at, event });
            if over {
                self.forget(id);
            }
        }
        self.pause_slow_readers();
    }

    fn pause_slow_readers(&mut self) {
        for (&id, reader) in &self.readers {
            if reader.messages.len() < HIGH_WATER || reader.paused.load(Ordering::SeqCst) {
                continue;
            }
            self.generator.pause(id);
            reader.paused.store(true, Ordering::SeqCst);
            // A reader who was done before it could see the mark will not tell.
            if reader.messages.len() <= LOW_WATER && reader.paused.swap(false, Ordering::SeqCst) {
                self.generator.resume(id);
            }
        }
    }

    /// The model could not run: an error for the requests of the step. The others wait for theirs.
    fn fail_step(&mut self, problem: &str) {
        for id in self.generator.stepped().to_vec() {
            self.generator.abort(id);
            if let Some(reader) = self.readers.get(&id) {
                let event = EventKind::Failed(Arc::new(Error::Defect(problem.to_owned())));
                let _ = reader.messages.try_send(Message { at: now(), event });
            }
            self.forget(id);
        }
    }

    fn forget(&mut self, id: SequenceId) {
        if let Some(reader) = self.readers.remove(&id) {
            self.sequences.remove(&reader.ticket);
        }
    }

    fn status(&self) -> Status {
        let scheduler = self.generator.scheduler();
        Status {
            running: scheduler.num_running(),
            waiting: scheduler.num_waiting(),
            paused: self.generator.num_paused(),
            free_pages: scheduler.cache().num_free(),
            num_pages: scheduler.cache().num_pages(),
        }
    }
}
