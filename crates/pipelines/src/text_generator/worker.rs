//! Text generation as the work of a worker: requests in, messages out, one step at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use async_channel::{Sender, TrySendError};

use super::queue::Ticket;
use crate::Error;
use crate::generator::{Event, EventKind, Generator, Request, Status, guarded};
use crate::kv_cache::SequenceId;
use crate::worker::Work;

/// Events that a stream holds. A request is paused once so many were not read, and goes on once half of them were.
pub const HIGH_WATER: usize = 256;
pub(super) const NAME: &str = "text generator";
/// Requests that wait for room; further ones stay in the queue.
const MAX_WAITING: usize = 1024;

/// A request, and where its answer goes.
pub(super) struct Submission {
    pub(super) request: Request,
    pub(super) messages: Sender<Message>,
    /// Which of the requests that share a channel it is.
    pub(super) index: usize,
    /// Until it starts.
    pub(super) ticket: Ticket,
}

/// What happened to a request, and when.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) index: usize,
    pub(super) at: Instant,
    pub(super) event: EventKind,
}

/// A generator, and the readers of its answers.
pub(super) struct TextWork {
    pub(super) generator: Generator,
    /// Of all requests that are not over, and of answers that were not sent to their end.
    pub(super) readers: BTreeMap<SequenceId, Reader>,
}

/// Where an answer goes.
pub(super) struct Reader {
    index: usize,
    messages: Sender<Message>,
    /// Events of the step in which the channel became full. Not empty exactly while the request is paused.
    backlog: VecDeque<Message>,
    /// Until the request starts.
    ticket: Option<Ticket>,
    over: bool,
}

impl TextWork {
    pub(super) fn new(generator: Generator) -> TextWork {
        TextWork { generator, readers: BTreeMap::new() }
    }
}

impl Work for TextWork {
    const NAME: &'static str = NAME;

    /// Requests that start together.
    type Job = Vec<Submission>;
    type Status = Status;

    fn add(&mut self, submissions: Vec<Submission>) {
        for Submission { request, messages, index, ticket } in submissions {
            match guarded(|| self.generator.add(request)) {
                Ok(id) => {
                    let ticket = Some(ticket);
                    let reader = Reader { index, messages, backlog: VecDeque::new(), ticket, over: false };
                    self.readers.insert(id, reader);
                }
                Err(error) => {
                    let event = EventKind::Failed(Arc::new(error));
                    // The channel has room for an event of each of its requests.
                    let _ = messages.try_send(Message { index, at: Instant::now(), event });
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.generator.scheduler().num_waiting() >= MAX_WAITING
    }

    fn tend(&mut self) {
        let generator = &mut self.generator;
        self.readers.retain(|&id, reader| {
            if reader.messages.is_closed() {
                generator.abort(id);
                return false;
            }
            let half = reader.messages.capacity().unwrap_or(0) / 2;
            if !reader.backlog.is_empty() && reader.messages.len() <= half && reader.flush() {
                generator.resume(id);
            }
            !(reader.over && reader.backlog.is_empty())
        });
    }

    fn is_idle(&self) -> bool {
        self.generator.is_idle()
    }

    fn step(&mut self) {
        let began = Instant::now();
        match self.generator.step() {
            Ok(events) => self.deliver(events, began),
            Err(error) => self.fail_step(error),
        }
    }

    fn recover(&mut self, problem: &str) {
        self.generator.restart();
        let error = Arc::new(Error::Defect(problem.to_string()));
        let open: Vec<SequenceId> = self.readers.iter().filter(|(_, r)| !r.over).map(|(&id, _)| id).collect();
        for id in open {
            self.send(id, Instant::now(), EventKind::Failed(Arc::clone(&error)));
        }
    }

    fn status(&self) -> Status {
        self.generator.status()
    }
}

impl TextWork {
    fn deliver(&mut self, events: Vec<Event>, began: Instant) {
        let ended = Instant::now();
        for Event { id, kind: event } in events {
            let at = if matches!(event, EventKind::Started { .. }) { began } else { ended };
            self.send(id, at, event);
        }
        let paused = self.readers.iter().filter(|(_, reader)| !reader.over && !reader.backlog.is_empty());
        paused.for_each(|(&id, _)| self.generator.pause(id));
    }

    /// The model could run none of the step's requests: an error for these. The others wait for their step.
    fn fail_step(&mut self, error: Error) {
        let error = Arc::new(error);
        for id in self.generator.stepped().to_vec() {
            self.generator.fail(id);
            self.send(id, Instant::now(), EventKind::Failed(Arc::clone(&error)));
        }
    }

    fn send(&mut self, id: SequenceId, at: Instant, event: EventKind) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        reader.over |= matches!(event, EventKind::Finished { .. } | EventKind::Failed(_));
        match event {
            EventKind::Started { .. } => reader.ticket.take().into_iter().for_each(|ticket| ticket.start(at)),
            EventKind::Failed(_) => reader.ticket = None,
            _ => {}
        }
        reader.backlog.push_back(Message { index: reader.index, at, event });
        if reader.flush() && reader.over {
            self.readers.remove(&id);
        }
    }
}

impl Reader {
    /// Sends what the channel takes. Returns whether that is all.
    fn flush(&mut self) -> bool {
        while let Some(message) = self.backlog.pop_front() {
            if let Err(TrySendError::Full(message)) = self.messages.try_send(message) {
                self.backlog.push_front(message);
                return false;
            }
        }
        true
    }
}
