//! An answer as it is made: an iterator for threads, a stream for tasks.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use async_channel::{Receiver, RecvError, Sender};
use futures_core::Stream;

use super::completion::{Account, Completion, Draft, Timings, Usage};
use super::now;
use super::worker::{Command, LOW_WATER, Message, Submission, Ticket};
use crate::Error;
use crate::generator::{EventKind, Request};
use crate::owner::End;

/// An answer as it is made, for a thread that may wait: what [`EventKind`] lists, up to `Finished` or an error, after
/// which there is nothing more. Dropping it cancels the request.
#[derive(Debug)]
pub struct TextStream {
    ticket: Ticket,
    /// Pinned, since it is also a stream that waits.
    messages: Pin<Box<Receiver<Message>>>,
    commands: Sender<Command>,
    /// Set by the worker when it has paused the request, taken back by whoever has it go on.
    paused: Arc<AtomicBool>,
    end: End,
    echo: bool,
    account: Account,
    over: bool,
}

/// An answer as it is made, for a task, on any runtime. Dropping it cancels the request.
#[derive(Debug)]
pub struct AsyncTextStream(TextStream);

impl TextStream {
    pub(super) fn new(
        ticket: Ticket,
        messages: Receiver<Message>,
        commands: Sender<Command>,
        end: End,
        prompt_tokens: usize,
        echo: bool,
    ) -> TextStream {
        TextStream {
            ticket,
            messages: Box::pin(messages),
            commands,
            paused: Arc::new(AtomicBool::new(false)),
            end,
            echo,
            account: Account::new(now(), prompt_tokens),
            over: false,
        }
    }

    /// What the worker is to get.
    pub(super) fn submission(&self, request: Request, messages: Sender<Message>) -> Submission {
        Submission { ticket: self.ticket, request, messages, paused: Arc::clone(&self.paused) }
    }

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
        self.account.usage
    }

    /// Times so far; all of them once the answer has ended.
    pub fn timings(&self) -> Timings {
        self.account.timings
    }

    /// Waits for the rest, and puts the answer together. What was read from the stream before is not part of it.
    ///
    /// # Errors
    /// If something goes wrong while it is made.
    pub fn completion(mut self) -> Result<Completion, Error> {
        let mut draft = Draft::new(self.echo);
        while let Some(event) = self.next() {
            if let Some(reason) = draft.take(event?) {
                return Ok(draft.complete(reason, &self.account));
            }
        }
        Err(self.end.error())
    }

    /// As [`TextStream::completion`], for a task.
    pub(super) async fn completion_async(mut self) -> Result<Completion, Error> {
        let mut draft = Draft::new(self.echo);
        while let Some(event) = self.next_async().await {
            if let Some(reason) = draft.take(event?) {
                return Ok(draft.complete(reason, &self.account));
            }
        }
        Err(self.end.error())
    }

    async fn next_async(&mut self) -> Option<Result<EventKind, Error>> {
        if self.over {
            return None;
        }
        let received = self.messages.recv().await;
        Some(self.take(received))
    }

    /// Takes a message, and has the worker go on if it has paused and little is left to read.
    fn take(&mut self, received: Result<Message, RecvError>) -> Result<EventKind, Error> {
        let Ok(Message { at, event }) = received else {
            self.over = true;
            return Err(self.end.error());
        };
        if self.messages.len() <= LOW_WATER && self.paused.swap(false, Ordering::SeqCst) {
            // Without a worker, the next message tells.
            let _ = self.commands.try_send(Command::Resume(self.ticket));
        }
        self.account.note(at, &event);
        self.over = matches!(event, EventKind::Finished { .. } | EventKind::Failed(_));
        match event {
            EventKind::Failed(error) => {
                Err(Arc::try_unwrap(error).unwrap_or_else(|shared| Error::Defect(shared.to_string())))
            }
            event => Ok(event),
        }
    }
}

impl Iterator for TextStream {
    type Item = Result<EventKind, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let received = self.messages.recv_blocking();
        Some(self.take(received))
    }
}

impl Drop for TextStream {
    fn drop(&mut self) {
        if !self.over {
            let _ = self.commands.try_send(Command::Abort(self.ticket));
        }
    }
}

impl AsyncTextStream {
    pub(super) fn new(stream: TextStream) -> AsyncTextStream {
        AsyncTextStream(stream)
    }

    /// Tokens so far; all of them once the answer has ended.
    pub fn usage(&self) -> Usage {
        self.0.usage()
    }

    /// Times so far; all of them once the answer has ended.
    pub fn timings(&self) -> Timings {
        self.0.timings()
    }
}

impl Stream for AsyncTextStream {
    type Item = Result<EventKind, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut self.0;
        if stream.over {
            return Poll::Ready(None);
        }
        let received = ready!(stream.messages.as_mut().poll_next(context));
        Poll::Ready(Some(stream.take(received.ok_or(RecvError))))
    }
}
