//! Vectors as they are made.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_channel::Receiver;
use futures_lite::Stream;

use super::worker::{Job, VectorWork};
use super::{Tokens, VectorModel};
use crate::Error;
use crate::tasks::handle::{Handle, Waiting};

/// Batches of tokens that are made ahead of what was read: while one is computed, the next one waits.
const BATCHES_AHEAD: usize = 2;

/// What is made of a request's texts, in their order, for a task on any runtime. A text of which nothing can be made is an
/// error by itself, and the others go on. Texts become tokens one by one, so that other tasks get their turn. Dropping the
/// stream cancels what was not computed yet.
pub struct VectorStream<M: VectorModel> {
    handle: Handle<VectorWork<M>>,
    settings: Arc<M::Settings>,
    /// Those that are no tokens yet.
    texts: std::vec::IntoIter<M::Text>,
    next_index: usize,
    /// Those that are, until there are enough for a batch.
    group: Vec<Job<M>>,
    group_tokens: usize,
    /// The results of the texts before `texts`, and their tokens.
    answers: VecDeque<Answer>,
    tokens_ahead: usize,
    submitting: Option<Submitting>,
}

/// The next step of a stream after it tokenized some texts.
enum Prepared<M: VectorModel> {
    /// Submit these texts, if any.
    Next(Vec<Job<M>>),
    /// Submit nothing: enough texts are queued, or none are left.
    Enough,
}

/// A group that waits for room in the queue.
type Submitting = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Where a vector comes from; pinned while it is waited for.
type Awaited = Receiver<Result<Vec<f32>, Error>>;

/// The result of a text.
#[derive(Debug)]
enum Answer {
    Refused(Error),
    Awaited { vector: Pin<Box<Awaited>>, tokens: usize, truncated: usize },
}

impl<M: VectorModel> VectorStream<M> {
    pub(super) fn new(
        handle: Handle<VectorWork<M>>,
        settings: M::Settings,
        texts: Vec<M::Text>,
    ) -> VectorStream<M> {
        VectorStream {
            handle,
            settings: Arc::new(settings),
            texts: texts.into_iter(),
            next_index: 0,
            group: Vec::new(),
            group_tokens: 0,
            answers: VecDeque::new(),
            tokens_ahead: 0,
            submitting: None,
        }
    }

    /// Makes tokens of texts and hands them in until enough is on its way. Waits while the queue is full.
    pub(super) fn prepare(&mut self) {
        while let Prepared::Next(group) = self.prepare_one() {
            if !group.is_empty() {
                self.handle.worker.submit(group);
            }
        }
    }

    /// As [`VectorStream::prepare`], for the first texts of a stream.
    ///
    /// # Errors
    /// [`Error::Busy`] if the queue is full.
    pub(super) fn try_prepare(&mut self) -> Result<(), Error> {
        while let Prepared::Next(group) = self.prepare_one() {
            if !group.is_empty() {
                self.handle.worker.try_submit(group)?;
            }
        }
        Ok(())
    }

    /// Makes tokens of the next text. Gives the texts to hand in once a batch is full or nothing comes after them.
    fn prepare_one(&mut self) -> Prepared<M> {
        let context = &self.handle.context;
        let limits = context.limits;
        if self.answers.len() >= BATCHES_AHEAD.saturating_mul(limits.texts)
            || self.tokens_ahead >= BATCHES_AHEAD.saturating_mul(limits.tokens)
        {
            return Prepared::Enough;
        }
        let Some(text) = self.texts.next() else { return Prepared::Enough };
        let index = self.next_index;
        self.next_index += 1;
        match context.model.tokens(index, &text, &self.settings, context.max_length) {
            Ok(tokens) => self.await_vector(tokens),
            Err(error) => self.answers.push_back(Answer::Refused(error)),
        }
        let full = self.group.len() >= limits.texts || self.group_tokens >= limits.tokens;
        if !full && self.texts.len() > 0 {
            return Prepared::Next(Vec::new());
        }
        self.group_tokens = 0;
        Prepared::Next(std::mem::take(&mut self.group))
    }

    fn await_vector(&mut self, input: Tokens) {
        let (reply, vector) = async_channel::bounded(1);
        let (tokens, truncated) = (input.ids.len(), input.truncated);
        self.group_tokens += tokens;
        self.tokens_ahead += tokens;
        self.group.push(Job { tokens: input, settings: Arc::clone(&self.settings), reply });
        self.answers.push_back(Answer::Awaited { vector: Box::pin(vector), tokens, truncated });
    }

    /// The answer to the first text, which has come.
    fn take(&mut self, received: Option<Result<Vec<f32>, Error>>) -> Option<Result<M::Output, Error>> {
        match self.answers.pop_front()? {
            Answer::Refused(error) => Some(Err(error)),
            Answer::Awaited { tokens, truncated, .. } => {
                self.tokens_ahead -= tokens;
                let vector = received.unwrap_or_else(|| Err(self.handle.worker.error()));
                Some(vector.map(|vector| M::output(vector, tokens, truncated)))
            }
        }
    }

    /// Makes tokens of one more text, unless the texts before wait for room in the queue. Tells whether there is more
    /// to do at once.
    fn poll_prepare(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(submitting) = &mut self.submitting {
            if submitting.as_mut().poll(context).is_pending() {
                return false;
            }
            self.submitting = None;
        }
        match self.prepare_one() {
            Prepared::Enough => false,
            Prepared::Next(group) => {
                if !group.is_empty() {
                    let worker = self.handle.worker.clone();
                    self.submitting = Some(Box::pin(async move { worker.submit_async(group).await }));
                }
                true
            }
        }
    }
}

impl<M: VectorModel> std::fmt::Debug for VectorStream<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (done, left) = (self.next_index, self.texts.len());
        f.debug_struct("VectorStream").field("taken", &done).field("left", &left).finish_non_exhaustive()
    }
}

impl<M: VectorModel> Stream for VectorStream<M> {
    type Item = Result<M::Output, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let more = self.poll_prepare(context);
        let received = match self.answers.front_mut() {
            Some(Answer::Awaited { vector, .. }) => {
                let polled = vector.as_mut().poll_next(context);
                if more && polled.is_pending() {
                    context.waker().wake_by_ref();
                }
                ready!(polled)
            }
            Some(Answer::Refused(_)) | None => None,
        };
        Poll::Ready(self.take(received))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.answers.len() + self.texts.len();
        (left, Some(left))
    }
}

impl<M: VectorModel> ExactSizeIterator for Waiting<VectorStream<M>> {}
