//! Results as they come: chunks of one answer, complete answers of several requests, vectors, rankings.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};

use futures_lite::{Stream, StreamExt, stream};
use perihelion::driver;
use perihelion::pipelines::{
    AnswerReader, BatchStream, Classification, ClassificationRequest, Classifier, Completion, Embedder,
    Embedding, EmbeddingRequest, Error, EventKind, FinishReason, Request, RerankRequest, TextGenerator,
    Timings, TokenLogprobs, Usage, Warning,
};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyStopAsyncIteration, PyStopIteration, PyValueError};
use pyo3::prelude::*;

use super::error::{pipelines_error, prompt_error};
use super::parts::{Call, CallDelta, PartReader, Parts};
use super::waiting::wait;
use super::wakeups::{Awaited, InboxWaker, Wakeups};
use crate::buffer::Buffer;
use crate::logs;
use crate::owned::Closable;

/// Results of a worker, item by item. Dropping it cancels the requests.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Answers {
    /// By which a loop finds the task that waits for these.
    #[pyo3(get)]
    key: u64,
    inbox: Arc<Inbox>,
}

/// The items of answers. It outlives them only while a wake-up is handled.
struct Inbox(Closable<Incoming>);

struct Incoming {
    items: Pin<Box<dyn Stream<Item = Result<Item, Error>> + Send>>,
    /// An item that came before it was asked for.
    early: Option<Option<Result<Item, Error>>>,
    /// Whether polling takes no time worth releasing the GIL for.
    is_quick: bool,
    /// Of the loop that asked last.
    waker: Option<Arc<InboxWaker>>,
    /// Whether there was nothing left, so that the waker has to be called before there is.
    is_empty: bool,
    /// Whether a task waits for the next item.
    is_awaited: bool,
}

enum Item {
    /// A part of an answer, and the warnings that came before it.
    Chunk(Chunk, Vec<Warning>),
    /// A part of the answer to one of several prompts.
    PromptChunk(usize, Chunk, Vec<Warning>),
    /// An answer to one of several prompts.
    Answer {
        sample: Sample,
        prompts: usize,
        answer: Result<Completion, Error>,
        reader: Option<Arc<AnswerReader>>,
    },
    Vectors {
        vectors: Vec<Embedding>,
        dims: usize,
    },
    /// The indices and scores of documents, best first.
    Ranking(Vec<(usize, f32)>),
    /// The scores of texts, of so many labels each.
    Scores {
        texts: Vec<Classification>,
        labels: usize,
    },
}

/// The index of a prompt, and which of its answers.
type Sample = (usize, usize);

/// Requests that run together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) prompts: usize,
    pub(super) requests: Vec<Request>,
    samples: Vec<Sample>,
    /// How the answers to each request are read, if they have parts.
    readers: Vec<Option<Arc<AnswerReader>>>,
    /// Prompts that do not run, by their index.
    pub(super) refused: Vec<(usize, Error)>,
}

impl Batch {
    /// A batch without requests, of so many prompts.
    pub(super) fn new(prompts: usize) -> Batch {
        Batch { prompts, ..Batch::default() }
    }

    /// Adds the requests of a prompt.
    pub(super) fn add(&mut self, prompt: usize, requests: Vec<Request>, reader: Option<&Arc<AnswerReader>>) {
        self.readers.extend(requests.iter().map(|_| reader.cloned()));
        self.samples.extend((0..requests.len()).map(|sample| (prompt, sample)));
        self.requests.extend(requests);
    }
}

/// Text, tokens, log-probabilities and, at the end, the reason and the usage; the new parts that are no text.
type Chunk = (String, Vec<u32>, Vec<Scores>, Option<Reason>, Option<UsageTuple>, OtherParts);
/// Reasoning, calls that became whole, and what is new of calls.
type OtherParts = (String, Vec<Call>, Vec<CallDelta>);

/// Prompt tokens, cached prompt tokens, and generated tokens.
type UsageTuple = (usize, usize, usize);
/// `stop`, `length` or `tool_calls`, and the index of the stop string or the stop token.
type Reason = (&'static str, Option<usize>, Option<u32>);
/// The token at a position and the likeliest tokens, each with its log-probability and text.
type Scores = (Scored, Vec<Scored>);
type Scored = (u32, f32, String);

#[pymethods]
impl Answers {
    /// The next item. Waits for it.
    fn next(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut incoming = self.inbox.take()?;
        incoming.is_empty = false;
        let (incoming, item) = wait(py, async move {
            let item = poll_fn(|context| incoming.poll(context)).await;
            (incoming, item)
        })?;
        let item = self.inbox.settle(py, incoming, item)?;
        item.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// The next item if it has come; of a text, all that has come. If not, `wakeups` will have it once it has.
    fn poll(&self, py: Python<'_>, wakeups: &Wakeups) -> PyResult<Option<Py<PyAny>>> {
        let mut incoming = self.inbox.take()?;
        if !incoming.waker.as_ref().is_some_and(|waker| wakeups.made(waker)) {
            let inbox = Arc::downgrade(&self.inbox);
            incoming.waker = Some(wakeups.waker(self.key, inbox));
            incoming.is_empty = false;
        }
        let polled = incoming.advance(py);
        logs::deliver(py)?;
        match polled {
            Poll::Ready(item) => {
                let item = self.inbox.settle(py, incoming, item)?;
                item.map(Some).ok_or_else(|| PyStopAsyncIteration::new_err(()))
            }
            Poll::Pending => {
                incoming.is_awaited = true;
                self.inbox.0.put(incoming).map(|()| None)
            }
        }
    }

    /// Cancels the requests.
    fn close(&self) -> PyResult<()> {
        self.inbox.0.take().map(drop)
    }
}

impl Answers {
    /// Hands the request in.
    fn new(items: impl Stream<Item = Result<Item, Error>> + Send + 'static) -> Answers {
        Answers::of_items(items, false)
    }

    fn of_items(items: impl Stream<Item = Result<Item, Error>> + Send + 'static, is_quick: bool) -> Answers {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (waker, is_empty, is_awaited) = (None, false, false);
        let mut incoming =
            Incoming { items: Box::pin(items), early: None, is_quick, waker, is_empty, is_awaited };
        if let Poll::Ready(item) = incoming.poll(&mut Context::from_waker(Waker::noop())) {
            incoming.early = Some(item);
        }
        let inbox = Arc::new(Inbox(Closable::new("the answer", incoming)));
        Answers { key: COUNT.fetch_add(1, Ordering::Relaxed), inbox }
    }

    /// The chunks of one answer.
    pub(super) fn of_text(
        generator: TextGenerator,
        request: Request,
        reader: Option<&AnswerReader>,
    ) -> Answers {
        let mut chunks = Chunks::new(&request, reader);
        let start = async move {
            let mut stream = match generator.stream_async(request).await {
                Ok(stream) => Some(stream),
                Err(error) => return stream::once(Err(error)).boxed(),
            };
            let events = stream::poll_fn(move |context| {
                let Some(events) = &mut stream else { return Poll::Ready(None) };
                let event = ready!(events.poll_next(context));
                let item = event.map(|event| {
                    let chunk = chunks.take(event?);
                    Ok(chunk.map(|(chunk, warnings)| Item::Chunk(chunk, warnings)))
                });
                if chunks.is_over {
                    stream = None;
                }
                Poll::Ready(item)
            });
            events.filter_map(Result::transpose).boxed()
        };
        // The request is handed in at once; what comes after that only takes events from a channel.
        Answers::of_items(stream::once_future(start).flatten(), true)
    }

    /// The chunks of answers to requests that run together, each with the index of its prompt.
    pub(super) fn of_chunks(generator: TextGenerator, batch: Batch) -> Answers {
        let Batch { requests, readers, .. } = batch;
        let chunks =
            requests.iter().zip(&readers).map(|(request, reader)| Chunks::new(request, reader.as_deref()));
        let mut chunks: Vec<Chunks> = chunks.collect();
        let start = async move {
            let mut stream = generator.batch_async(requests).await;
            let events = stream::poll_fn(move |context| {
                let event = ready!(stream.poll_next(context));
                Poll::Ready(event.map(|event| {
                    let event = event?;
                    if let EventKind::Failed(error) = event.kind {
                        return Err(Error::owned(error));
                    }
                    let chunk = chunks[event.index].take(event.kind);
                    Ok(chunk.map(|(chunk, warnings)| Item::PromptChunk(event.index, chunk, warnings)))
                }))
            });
            events.filter_map(Result::transpose)
        };
        Answers::of_items(stream::once_future(start).flatten(), true)
    }

    /// The answers to requests that run together, as they are completed; refused prompts come first.
    pub(super) fn of_batch(generator: TextGenerator, batch: Batch) -> Answers {
        enum State {
            Waiting(TextGenerator, Vec<Request>),
            Running(BatchStream),
        }
        let Batch { prompts, requests, samples, readers, refused } = batch;
        let refused = refused.into_iter().map(move |(prompt, error)| {
            Ok(Item::Answer { sample: (prompt, 0), prompts, answer: Err(error), reader: None })
        });
        let next = move |state| async move {
            let mut batch = match state {
                State::Waiting(generator, requests) => generator.batch_async(requests).await,
                State::Running(batch) => batch,
            };
            let item = match batch.next_completion().await {
                Ok(None) => return None,
                Ok(Some((index, answer))) => Ok((index, answer)),
                Err(error) => Err(error),
            };
            Some((item, State::Running(batch)))
        };
        let answers = stream::unfold(State::Waiting(generator, requests), next).map(move |answer| {
            answer.map(|(index, answer)| {
                let (sample, reader) = (samples[index], readers[index].clone());
                Item::Answer { sample, prompts, answer, reader }
            })
        });
        Answers::new(stream::iter(refused).chain(answers))
    }

    /// The vectors of texts.
    pub(super) fn of_texts(embedder: Embedder, request: EmbeddingRequest) -> Answers {
        let dims = request.parameters.dimensions.unwrap_or_else(|| embedder.dimensions());
        let embed = async move {
            let vectors = embedder.embed_async(request).await?;
            Ok(Item::Vectors { vectors, dims })
        };
        Answers::new(stream::once_future(embed))
    }

    /// The scores of texts.
    pub(super) fn of_labels(classifier: Classifier, request: ClassificationRequest) -> Answers {
        let labels = classifier.labels().len();
        let classify = async move {
            let texts = classifier.classify_async(request).await?;
            Ok(Item::Scores { texts, labels })
        };
        Answers::new(stream::once_future(classify))
    }

    /// The documents of a request, ranked.
    pub(super) fn of_documents(classifier: Classifier, request: RerankRequest) -> Answers {
        let rank = async move {
            let ranking = classifier.rerank_async(request).await?;
            let ranked = ranking.documents.iter().map(|document| (document.index, document.score));
            Ok(Item::Ranking(ranked.collect()))
        };
        Answers::new(stream::once_future(rank))
    }
}

impl Awaited for Inbox {
    fn awaited(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        // Of a closed answer, or one that another thread reads, there is nothing.
        let mut incoming = self.0.take().ok().flatten()?;
        let polled = if incoming.is_awaited { incoming.advance(py) } else { Poll::Pending };
        let settled = match polled {
            Poll::Ready(item) => {
                incoming.is_awaited = false;
                self.settle(py, incoming, item)
            }
            Poll::Pending => return self.0.put(incoming).map(|()| None).unwrap_or_default(),
        };
        let item = settled.and_then(|item| item.ok_or_else(|| PyStopAsyncIteration::new_err(())));
        Some(item.unwrap_or_else(|error| error.into_value(py).into_any()))
    }
}

impl Inbox {
    /// Takes the items out while they are waited for.
    fn take(&self) -> PyResult<Incoming> {
        self.0
            .take()?
            .ok_or_else(|| PyValueError::new_err("the answer is closed, or another thread reads it"))
    }

    /// The item as Python's, and the stream put back if there may be more.
    fn settle(
        &self,
        py: Python<'_>,
        incoming: Incoming,
        item: Option<Result<Item, Error>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let item = item.transpose().map_err(pipelines_error)?.map(|item| item.into_python(py)).transpose()?;
        self.0.put(incoming)?;
        Ok(item)
    }
}

impl Incoming {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Item, Error>>> {
        match self.early.take() {
            Some(item) => Poll::Ready(item),
            None => self.items.as_mut().poll_next(context),
        }
    }

    /// The next item for a loop; of a text, all of it that has come, so that a loop that is slower than the model catches
    /// up.
    fn advance(&mut self, py: Python<'_>) -> Poll<Option<Result<Item, Error>>> {
        let Some(waker) = self.waker.clone() else { return Poll::Pending };
        let was_called = waker.take_call();
        if self.is_empty && !was_called {
            return Poll::Pending;
        }
        let waker = Waker::from(waker);
        let poll = |incoming: &mut Incoming| incoming.poll(&mut Context::from_waker(&waker));
        let polled = if self.is_quick { poll(self) } else { py.detach(|| poll(self)) };
        self.is_empty = polled.is_pending();
        let Poll::Ready(Some(Ok(Item::Chunk(mut chunk, mut warnings)))) = polled else { return polled };
        loop {
            match poll(self) {
                Poll::Ready(Some(Ok(Item::Chunk(next, more)))) => {
                    chunk = joined(chunk, next);
                    warnings.extend(more);
                }
                Poll::Ready(other) => {
                    self.early = Some(other);
                    break;
                }
                Poll::Pending => {
                    self.is_empty = true;
                    break;
                }
            }
        }
        Poll::Ready(Some(Ok(Item::Chunk(chunk, warnings))))
    }
}

/// Two parts of an answer as one.
fn joined((mut text, mut tokens, mut scores, _, _, parts): Chunk, next: Chunk) -> Chunk {
    let (more, further, others, reason, usage, (thought, called, new)) = next;
    let (mut reasoning, mut calls, deltas) = parts;
    text.push_str(&more);
    tokens.extend(further);
    scores.extend(others);
    reasoning.push_str(&thought);
    calls.extend(called);
    let mut all = Parts { deltas, ..Parts::default() };
    new.into_iter().for_each(|delta| all.add_delta(delta));
    (text, tokens, scores, reason, usage, (reasoning, calls, all.deltas))
}

impl Item {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Item::Chunk(chunk, warnings) => {
                warn(py, warnings)?;
                chunk.into_py_any(py)
            }
            Item::PromptChunk(prompt, chunk, warnings) => {
                warn(py, warnings)?;
                (prompt, chunk).into_py_any(py)
            }
            Item::Answer { sample: (prompt, sample), prompts, answer, reader } => {
                let answer = match answer {
                    Ok(answer) => completion(py, answer, reader.as_deref())?,
                    Err(error) => prompt_error(error, prompt, prompts).into_value(py).into_any(),
                };
                (prompt, sample, answer).into_py_any(py)
            }
            Item::Vectors { vectors, dims } => matrix(&vectors, dims).into_py_any(py),
            Item::Ranking(ranking) => ranking.into_py_any(py),
            Item::Scores { texts, labels } => {
                let scores: Vec<f32> = texts.into_iter().flat_map(|text| text.scores).collect();
                let shape = [scores.len() / labels.max(1), labels];
                Buffer(driver::Buffer::from_slice(shape, &scores)).into_py_any(py)
            }
        }
    }
}

/// Makes chunks of the events of an answer.
struct Chunks {
    /// If it has parts.
    reader: Option<PartReader>,
    /// Of events before the next chunk.
    warnings: Vec<Warning>,
    usage: UsageTuple,
    /// Whether there is nothing more, although the model would go on.
    is_over: bool,
}

impl Chunks {
    fn new(request: &Request, reader: Option<&AnswerReader>) -> Chunks {
        let usage = (request.prompt_tokens(), 0, 0);
        Chunks { reader: reader.map(PartReader::new), warnings: Vec::new(), usage, is_over: false }
    }

    /// The chunk of an event, with the warnings before it; events without text have none.
    fn take(&mut self, event: EventKind) -> Option<(Chunk, Vec<Warning>)> {
        let chunk = match event {
            EventKind::Token { token, text, logprobs } => {
                self.usage.2 += 1;
                let mut parts = self.parts(text);
                self.is_over = self.reader.as_ref().is_some_and(PartReader::is_over);
                let end = self.is_over.then(|| self.end((FinishReason::Stop.name(), None, None), &mut parts));
                let scores = logprobs.into_iter().map(scores).collect();
                chunk(parts, vec![token], scores, end)
            }
            EventKind::Finished { reason: why, text } => {
                let mut parts = self.parts(text);
                let end = self.end(reason(why), &mut parts);
                chunk(parts, Vec::new(), Vec::new(), Some(end))
            }
            EventKind::Started { cached_tokens, .. } => {
                self.usage.1 = cached_tokens;
                return None;
            }
            EventKind::Warning(warning) => {
                self.warnings.push(warning);
                return None;
            }
            _ => return None,
        };
        Some((chunk, std::mem::take(&mut self.warnings)))
    }

    fn parts(&mut self, text: String) -> Parts {
        match &mut self.reader {
            Some(reader) => reader.push(&text),
            None => Parts { text, ..Parts::default() },
        }
    }

    /// Adds what was held back to the last parts.
    fn end(&mut self, reason: Reason, parts: &mut Parts) -> (Reason, UsageTuple) {
        let has_calls = self.reader.as_mut().is_some_and(|reader| {
            reader.finish(parts);
            reader.has_calls
        });
        (with_calls(reason, has_calls), self.usage)
    }
}

fn chunk(parts: Parts, tokens: Vec<u32>, scores: Vec<Scores>, end: Option<(Reason, UsageTuple)>) -> Chunk {
    let (reason, usage) = end.unzip();
    (parts.text, tokens, scores, reason, usage, (parts.reasoning, parts.calls, parts.deltas))
}

/// The reason of an end: an answer that has calls waits for their results, unless it was cut off.
fn with_calls(reason: Reason, has_calls: bool) -> Reason {
    if has_calls && reason.0 != FinishReason::Length.name() { ("tool_calls", None, None) } else { reason }
}

/// Text, tokens, log-probabilities of the tokens and of the prompt, the reason of the end, usage, times in seconds,
/// reasoning, and calls.
fn completion(py: Python<'_>, completion: Completion, reader: Option<&AnswerReader>) -> PyResult<Py<PyAny>> {
    warn(py, completion.warnings)?;
    let Timings { queue, first_token, total, .. } = completion.timings;
    let seconds = [queue, first_token, total].map(|time| time.map(|time| time.as_secs_f64()));
    let (parts, has_calls) = match reader {
        Some(reader) => PartReader::read(reader, &completion.text),
        None => (Parts { text: completion.text, ..Parts::default() }, false),
    };
    let answer = (
        parts.text,
        completion.tokens,
        completion.logprobs.into_iter().map(scores).collect::<Vec<Scores>>(),
        completion.prompt.into_iter().map(|token| token.logprobs.map(scores)).collect::<Vec<_>>(),
        with_calls(reason(completion.reason), has_calls),
        counts(completion.usage),
        seconds,
        parts.reasoning,
        parts.calls,
    );
    answer.into_py_any(py)
}

fn warn(py: Python<'_>, warnings: Vec<Warning>) -> PyResult<()> {
    warnings.iter().try_for_each(|warning| logs::warn(py, &warning.to_string()))
}

fn reason(reason: FinishReason) -> Reason {
    match reason {
        FinishReason::StopString(index) => (reason.name(), Some(index), None),
        FinishReason::StopToken(token) => (reason.name(), None, Some(token)),
        _ => (reason.name(), None, None),
    }
}

fn counts(usage: Usage) -> UsageTuple {
    (usage.prompt_tokens, usage.cached_tokens, usage.generated_tokens)
}

fn scores(logprobs: TokenLogprobs) -> Scores {
    let scored = |one: perihelion::pipelines::TokenLogprob| (one.token, one.logprob, one.text().into_owned());
    (scored(logprobs.chosen), logprobs.top.into_iter().map(scored).collect())
}

/// f32[texts, dims]
fn matrix(vectors: &[Embedding], dims: usize) -> Buffer {
    let values: Vec<f32> = vectors.iter().flat_map(|embedding| &embedding.vector).copied().collect();
    Buffer(driver::Buffer::from_slice([vectors.len(), dims], &values))
}
