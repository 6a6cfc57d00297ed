//! Answers as they are made.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use async_channel::{Receiver, Sender};
use futures_lite::future::block_on;
use futures_lite::{Stream, StreamExt};
use text::GrammarCompiler;

use super::completion::{Account, Completion, Draft, Timings, Usage};
use super::queue::Ticket;
use super::worker::{HIGH_WATER, Message, Submission, TextWork};
use crate::Error;
use crate::run::generator::{EventKind, Prepared, Request};
use crate::tasks::handle::Waiting;
use crate::tasks::worker::Worker;

/// How many requests of a batch add to the events that its stream holds: as many as run at once, or more.
const MAX_SHARES: usize = 64;

/// An answer as it is made, for a task on any runtime: events up to [`EventKind::Finished`] or an error. Dropping it
/// cancels the request.
#[derive(Debug)]
pub struct AsyncTextStream {
    messages: Messages,
    echo: bool,
    account: Account,
    over: bool,
}

/// An answer as it is made, for a thread that may wait. Dropping it cancels the request.
pub type TextStream = Waiting<AsyncTextStream>;

/// The answers to several requests that run together, for a task: events in the order in which they happen. Dropping it
/// cancels all of them.
#[derive(Debug)]
pub struct BatchStream {
    messages: Messages,
    /// Requests that are not over.
    open: usize,
    /// The answers that [`BatchStream::next_completion`] puts together.
    drafts: Vec<(Draft, Account)>,
}

/// An event of a [`BatchStream`].
#[derive(Debug)]
#[non_exhaustive]
pub struct BatchEvent {
    /// The request: its index among those of the batch.
    pub index: usize,
    /// When the step ended that the event is of; of [`EventKind::Started`], when it began. Events of one step have one
    /// time.
    pub at: Instant,
    /// What happened.
    pub kind: EventKind,
}

/// The channel from a worker. When it is dropped, the worker is woken to drop the requests.
#[derive(Debug)]
struct Messages {
    /// Pinned, since it is also a stream that waits. Closed before `worker` wakes the thread.
    received: Pin<Box<Receiver<Message>>>,
    worker: Worker<TextWork>,
}

impl Messages {
    /// A channel for some requests.
    fn open(worker: &Worker<TextWork>, requests: usize) -> (Sender<Message>, Messages) {
        let capacity = HIGH_WATER.saturating_mul(requests.clamp(1, MAX_SHARES)).max(requests);
        let (sender, received) = async_channel::bounded(capacity);
        (sender, Messages { received: Box::pin(received), worker: worker.clone() })
    }

    /// Notes that a message was received, and wakes the worker if half of the messages of a full channel were.
    fn note(&self) {
        if self.received.len() == self.received.capacity().unwrap_or(0) / 2 {
            self.worker.wake();
        }
    }
}

impl TextStream {
    /// The text of the answer, piece by piece as it is made, and nothing else of it.
    pub fn text(self) -> impl Iterator<Item = Result<String, Error>> {
        self.filter_map(|event| match event {
            Ok(EventKind::Token { text, .. } | EventKind::Finished { text, .. }) => {
                Some(text).filter(|text| !text.is_empty()).map(Ok)
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Tokens so far; all of them once the answer has ended.
    pub fn usage(&self) -> Usage {
        self.0.usage()
    }

    /// Times so far; all of them once the answer has ended.
    pub fn timings(&self) -> Timings {
        self.0.timings()
    }

    /// Waits for the rest, and puts the answer together. What was read from the stream before is not part of it.
    ///
    /// # Errors
    /// If something goes wrong while it is made.
    pub fn completion(self) -> Result<Completion, Error> {
        block_on(self.0.completion())
    }
}

impl AsyncTextStream {
    /// A stream, and its submission to the worker.
    pub(super) fn new(
        worker: &Worker<TextWork>,
        prepared: Prepared,
        ticket: Ticket,
    ) -> (AsyncTextStream, Submission) {
        let (messages, received) = Messages::open(worker, 1);
        let (request, submitted) = (&prepared.request, Instant::now());
        let account = Account::new(submitted, request.prompt_tokens());
        let stream = AsyncTextStream { messages: received, echo: request.echo, account, over: false };
        (stream, Submission { prepared: Ok(prepared), messages, index: 0, ticket, submitted })
    }

    /// Tokens so far; all of them once the answer has ended.
    pub fn usage(&self) -> Usage {
        self.account.usage
    }

    /// Times so far; all of them once the answer has ended.
    pub fn timings(&self) -> Timings {
        self.account.timings
    }

    /// The rest of the answer, put together. What was read from the stream before is not part of it.
    ///
    /// # Errors
    /// If something goes wrong while it is made.
    pub async fn completion(mut self) -> Result<Completion, Error> {
        let mut draft = Draft::new(self.echo);
        while let Some(event) = self.next().await {
            if let Some(reason) = draft.take(event?) {
                return Ok(draft.complete(reason, &self.account));
            }
        }
        Err(self.messages.worker.error())
    }

    fn receive(&mut self, received: Option<Message>) -> Result<EventKind, Error> {
        let Some(Message { at, event, .. }) = received else {
            self.over = true;
            return Err(self.messages.worker.error());
        };
        self.messages.note();
        self.account.note(at, &event);
        self.over = matches!(event, EventKind::Finished { .. } | EventKind::Failed(_));
        match event {
            EventKind::Failed(error) => Err(Error::owned(error)),
            event => Ok(event),
        }
    }
}

impl Stream for AsyncTextStream {
    type Item = Result<EventKind, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let received = ready!(self.messages.received.as_mut().poll_next(context));
        Poll::Ready(Some(self.receive(received)))
    }
}

impl BatchStream {
    /// A stream, and its submissions to the worker.
    pub(super) fn new(
        worker: &Worker<TextWork>,
        grammars: &GrammarCompiler,
        requests: Vec<Request>,
        tickets: Vec<Ticket>,
    ) -> (BatchStream, Vec<Submission>) {
        let open = requests.len();
        let (messages, received) = Messages::open(worker, open);
        let submitted = Instant::now();
        let draft =
            |request: &Request| (Draft::new(request.echo), Account::new(submitted, request.prompt_tokens()));
        let drafts = requests.iter().map(draft).collect();
        let submission = |(index, (request, ticket))| {
            let (prepared, messages) = (Prepared::new(request, grammars), messages.clone());
            Submission { prepared, messages, index, ticket, submitted }
        };
        let submissions = requests.into_iter().zip(tickets).enumerate().map(submission).collect();
        (BatchStream { messages: received, open, drafts }, submissions)
    }

    /// The next complete answer, with its index; `None` after the last. Events that were read before are not part of it.
    ///
    /// # Errors
    /// If the worker has ended. The error of a single request is its answer.
    pub async fn next_completion(&mut self) -> Result<Option<IndexedCompletion>, Error> {
        while let Some(event) = self.next().await {
            let BatchEvent { index, at, kind } = event?;
            let (draft, account) = &mut self.drafts[index];
            account.note(at, &kind);
            if let EventKind::Failed(error) = kind {
                return Ok(Some((index, Err(Error::owned(error)))));
            }
            if let Some(reason) = draft.take(kind) {
                let completion = std::mem::take(draft).complete(reason, account);
                return Ok(Some((index, Ok(completion))));
            }
        }
        Ok(None)
    }
}

/// The index of a request in its batch, and its answer.
pub type IndexedCompletion = (usize, Result<Completion, Error>);

impl Stream for BatchStream {
    /// An error ends the stream: the worker has ended. What goes wrong in one request is [`EventKind::Failed`].
    type Item = Result<BatchEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        if stream.open == 0 {
            return Poll::Ready(None);
        }
        let received = ready!(stream.messages.received.as_mut().poll_next(context));
        Poll::Ready(Some(match received {
            Some(Message { index, at, event: kind }) => {
                stream.messages.note();
                stream.open -= usize::from(matches!(kind, EventKind::Finished { .. } | EventKind::Failed(_)));
                Ok(BatchEvent { index, at, kind })
            }
            None => {
                stream.open = 0;
                Err(stream.messages.worker.error())
            }
        }))
    }
}
