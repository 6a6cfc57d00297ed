//! Text generation as the work of a worker: requests in, messages out, one step at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::{Sender, TrySendError};

use super::TextContext;
use super::cache_events::CacheReaders;
use super::queue::{NAME, Ticket};
use crate::Error;
use crate::run::generator::{Event, EventKind, Generator, Prepared, Request, Status};
use crate::run::isolation::guarded;
use crate::run::kv_cache::SequenceId;
use crate::tasks::worker::Work;

/// Events that a stream holds. A request is paused once so many were not read, and goes on once half of them were.
pub const HIGH_WATER: usize = 256;
/// Requests that wait for room; further ones stay in the queue.
const MAX_WAITING: usize = 1024;

/// A request, and where its answer goes.
pub struct Submission {
    /// The error, if its constraint cannot be enforced.
    pub(super) prepared: Result<Prepared, Error>,
    pub(super) messages: Sender<Message>,
    /// Which of the requests that share a channel it is.
    pub(super) index: usize,
    /// Until it starts.
    pub(super) ticket: Ticket,
    pub(super) submitted: Instant,
}

/// What happened to a request, and when.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) index: usize,
    pub(super) at: Instant,
    pub(super) event: EventKind,
}

/// A generator, and the readers of its answers.
pub struct TextWork {
    pub(super) generator: Generator,
    /// Of all requests that are not over, and of answers that were not sent to their end.
    pub(super) readers: BTreeMap<SequenceId, Reader>,
    pub(super) cache_readers: CacheReaders,
    read_timeout: Option<Duration>,
}

/// Where an answer goes.
pub(super) struct Reader {
    index: usize,
    messages: Sender<Message>,
    /// Events of the step in which the channel became full. Not empty exactly while the request is paused.
    backlog: VecDeque<Message>,
    /// Until the request starts.
    ticket: Option<Ticket>,
    deadlines: Deadlines,
    over: bool,
}

/// When a request has taken too long, and how long that is.
#[derive(Default)]
struct Deadlines {
    /// For its start.
    start: Option<(Instant, Duration)>,
    /// For its end.
    end: Option<(Instant, Duration)>,
    /// For its reader, while it is paused.
    read: Option<(Instant, Duration)>,
}

impl TextWork {
    pub(super) fn new(generator: Generator, read_timeout: Option<Duration>) -> TextWork {
        let (readers, cache_readers) = Default::default();
        TextWork { generator, readers, cache_readers, read_timeout }
    }
}

impl Work for TextWork {
    const NAME: &'static str = NAME;

    /// Requests that start together.
    type Job = Vec<Submission>;
    type Status = Status;
    type Context = TextContext;

    fn add(&mut self, submissions: Vec<Submission>) {
        let (mut requests, mut readers) = (Vec::new(), Vec::new());
        for Submission { prepared, messages, index, ticket, submitted } in submissions {
            let request = prepared.as_ref().map(|prepared| &prepared.request);
            let deadlines =
                request.map_or_else(|_| Deadlines::default(), |request| Deadlines::new(request, submitted));
            requests.push(prepared);
            let (ticket, backlog) = (Some(ticket), VecDeque::new());
            readers.push(Reader { index, messages, backlog, ticket, deadlines, over: false });
        }
        let ids = guarded(|| Ok(self.generator.add_prepared(requests)));
        let ids = ids.unwrap_or_else(|error| {
            let defect = error.to_string();
            readers.iter().map(|_| Err(Error::Defect(defect.clone()))).collect()
        });
        for (id, reader) in ids.into_iter().zip(readers) {
            match id {
                Ok(id) => drop(self.readers.insert(id, reader)),
                Err(error) => {
                    let event = EventKind::Failed(Arc::new(error));
                    let message = Message { index: reader.index, at: Instant::now(), event };
                    // The channel has room for an event of each of its requests.
                    let _ = reader.messages.try_send(message);
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
                reader.deadlines.read = None;
                generator.resume(id);
            }
            !(reader.over && reader.backlog.is_empty())
        });
        self.drop_late();
        self.cache_readers.publish(&mut self.generator);
    }

    fn is_idle(&self) -> bool {
        self.generator.is_idle()
    }

    fn alarm(&self) -> Option<Instant> {
        let open = self.readers.values().filter(|reader| !reader.over);
        open.filter_map(|reader| reader.deadlines.first().map(|(at, _)| at)).min()
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

    fn with_queued(status: Status, queued: usize) -> Status {
        Status { waiting: status.waiting + queued, ..status }
    }
}

impl TextWork {
    fn deliver(&mut self, events: Vec<Event>, began: Instant) {
        let ended = Instant::now();
        for Event { id, kind: event } in events {
            let at = if matches!(event, EventKind::Started { .. }) { began } else { ended };
            self.send(id, at, event);
        }
        let paused = self.readers.iter_mut().filter(|(_, reader)| !reader.over && !reader.backlog.is_empty());
        for (&id, reader) in paused {
            self.generator.pause(id);
            if reader.deadlines.read.is_none() {
                reader.deadlines.read = self.read_timeout.and_then(|limit| deadline(ended, limit));
            }
        }
    }

    /// Ends the requests whose time is up.
    fn drop_late(&mut self) {
        // The clock is looked at only if a request has a deadline.
        let Some(first) = self.alarm() else { return };
        let now = Instant::now();
        if now < first {
            return;
        }
        let late = self.readers.iter().filter(|(_, reader)| !reader.over);
        let late = late.filter_map(|(&id, reader)| Some((id, reader.deadlines.error(now)?)));
        for (id, error) in late.collect::<Vec<_>>() {
            self.generator.fail(id, &error);
            self.send(id, now, EventKind::Failed(Arc::new(error)));
        }
    }

    /// The model could run none of the step's requests: an error for these. The others wait for their step.
    fn fail_step(&mut self, error: Error) {
        let error = Arc::new(error);
        for id in self.generator.stepped().to_vec() {
            self.generator.fail(id, &error);
            self.send(id, Instant::now(), EventKind::Failed(Arc::clone(&error)));
        }
    }

    fn send(&mut self, id: SequenceId, at: Instant, event: EventKind) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        reader.over |= matches!(event, EventKind::Finished { .. } | EventKind::Failed(_));
        match event {
            EventKind::Started { .. } => {
                reader.ticket.take().into_iter().for_each(|ticket| ticket.start(at));
                reader.deadlines.start = None;
            }
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

impl Deadlines {
    fn new(request: &Request, submitted: Instant) -> Deadlines {
        let after = |limit: Option<Duration>| limit.and_then(|limit| deadline(submitted, limit));
        Deadlines { start: after(request.queue_timeout), end: after(request.timeout), read: None }
    }

    /// The one that comes first.
    fn first(&self) -> Option<(Instant, Duration)> {
        [self.start, self.end, self.read].into_iter().flatten().min()
    }

    /// The error of the first deadline that has passed.
    fn error(&self, now: Instant) -> Option<Error> {
        let first = self.first().filter(|&(at, _)| at <= now)?;
        let limit = first.1;
        Some(if self.start == Some(first) {
            Error::QueueTimeout { limit }
        } else if self.end == Some(first) {
            Error::Timeout { limit }
        } else {
            Error::NotRead { limit }
        })
    }
}

/// A time after another, unless no clock ever shows it.
fn deadline(from: Instant, limit: Duration) -> Option<(Instant, Duration)> {
    from.checked_add(limit).map(|at| (at, limit))
}
