//! Answers as they are made, for every protocol: library events in, deltas of choices out.

mod answer;
mod declared;
mod delta;
pub(crate) mod infill;
mod output_format;
mod places;
mod prompt_spec;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use futures_core::Stream;
use pipelines::{BatchEvent, BatchStream, Error, EventKind, Prompt, Request};

pub(crate) use answer::{Answer, Writer};
pub(crate) use declared::declared;
use delta::ChoiceParser;
pub(crate) use delta::{Delta, Finish, PromptToken, text_of};
pub(crate) use output_format::{OutputFormat, schema_constraint};
pub(crate) use places::Places;
pub(crate) use prompt_spec::{ParserConfig, PreparedPrompt, PromptSpec, check_bytes};
pub(crate) use usage::{AnswerStats, Timings, Usage};

use crate::api_error::ApiError;
use crate::blocking::{self, INLINE_BYTES};
use crate::models::ActiveModel;
use crate::state::Context;

/// The most log-probabilities of tokens in a response that is sent whole: each takes some hundred bytes.
const MAX_LOGPROBS: usize = 1 << 20;

/// Answers to one or more requests, made together.
pub(crate) struct Generation {
    stream: BatchStream,
    choices: Vec<Choice>,
    context: Context,
    /// Deltas that come before the next event.
    ready: VecDeque<(usize, Delta)>,
    /// Answers that have not ended.
    open: usize,
    /// The most log-probabilities that the answers may have together.
    logprobs: usize,
    /// Keeps the model while it answers.
    _model: Arc<ActiveModel>,
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
}

/// One of the answers.
struct Choice {
    /// Whether its prompt counts in the usage.
    is_first: bool,
    /// Until it has ended.
    parser: Option<ChoiceParser>,
    stats: AnswerStats,
}

impl Generation {
    /// Starts the answers: `n` for each of the requests, in order. All are read alike.
    ///
    /// # Errors
    /// If the queue is full.
    pub(crate) async fn start(
        model: &Arc<ActiveModel>,
        requests: Vec<Request>,
        n: usize,
        config: &ParserConfig,
        context: Context,
    ) -> Result<Generation, ApiError> {
        let generator = model.loaded.generator()?;
        let answers = context.measure(model, &requests, n);
        let (mut usage, mut logprobs) = (Usage::default(), 0_usize);
        let (mut samples, mut choices) = (Vec::new(), Vec::new());
        let timings = Timings::begin();
        for mut request in requests {
            request.cache_salt = context.cache_salt(request.cache_salt);
            request.tenant = context.tenant();
            request.timeout = request.timeout.or(context.timeout());
            usage.prompt_tokens += request.prompt.len();
            let of_each = most_logprobs(&request, model.loaded.max_length());
            logprobs = logprobs.saturating_add(of_each.saturating_mul(n));
            for (index, sample) in request.samples(n)?.into_iter().enumerate() {
                let parser = Some(config.parser());
                let usage = Usage { prompt_tokens: sample.prompt.len(), ..Usage::default() };
                let stats = AnswerStats { usage, timings };
                choices.push(Choice { is_first: index == 0, parser, stats });
                samples.push(sample);
            }
        }
        context.note_prompt(&model.id, usage.prompt_tokens);
        context.trace(|span, content| span.begin(&samples, n, content));
        let stream = generator.try_batch(samples)?;
        context.note(|facts| facts.answers = Some(answers));
        let (open, _model) = (choices.len(), Arc::clone(model));
        let ready = VecDeque::new();
        Ok(Generation { stream, ready, open, logprobs, choices, context, _model, usage, timings })
    }

    /// Checks that the answers fit into memory as one response.
    ///
    /// # Errors
    /// If they may have too many log-probabilities.
    pub(crate) fn expect_small(&self) -> Result<(), ApiError> {
        if self.logprobs <= MAX_LOGPROBS {
            return Ok(());
        }
        let message = format!(
            "the answers may have {} log-probabilities together, but a response that is not streamed has at most \
             {MAX_LOGPROBS}: ask for fewer or shorter answers, or stream them",
            self.logprobs
        );
        Err(ApiError::invalid("logprobs", message))
    }

    /// What comes next of any choice: its index and the delta, or why it failed; `None` when all have ended.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, Delta), ApiError>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            if self.is_over() {
                return None;
            }
            let Generation { stream, context, .. } = self;
            let event = tokio::select! {
                biased;
                error = context.cancelled() => {
                    context.note_error(&error);
                    self.open = 0;
                    return Some(Err(error));
                }
                event = poll_fn(|task| Pin::new(&mut *stream).poll_next(task)) => event?,
            };
            if let Some(delta) = self.take(event) {
                return Some(delta);
            }
        }
    }

    /// As [`Generation::next`], if it is there already.
    pub(crate) fn next_ready(&mut self) -> Option<Result<(usize, Delta), ApiError>> {
        let mut task = TaskContext::from_waker(Waker::noop());
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            if self.is_over() {
                return None;
            }
            let Poll::Ready(Some(event)) = Pin::new(&mut self.stream).poll_next(&mut task) else {
                return None;
            };
            if let Some(delta) = self.take(event) {
                return Some(delta);
            }
        }
    }

    /// The tokens and times of one of the answers.
    pub(crate) fn stats(&self, index: usize) -> &AnswerStats {
        &self.choices[index].stats
    }

    /// Whether all answers have ended. Those that the model would go on with are cancelled with the generation.
    pub(crate) fn is_over(&self) -> bool {
        self.open == 0
    }

    fn take(&mut self, event: Result<BatchEvent, Error>) -> Option<Result<(usize, Delta), ApiError>> {
        let BatchEvent { index, at, kind, .. } = match event {
            Ok(event) => event,
            // The worker has ended: an error of each choice would say the same.
            Err(error) => {
                self.open = 0;
                let error = ApiError::from(error);
                self.context.note_error(&error);
                return Some(Err(error));
            }
        };
        let choice = &mut self.choices[index];
        let was_reasoning = choice.parser.as_ref()?.is_reasoning();
        self.timings.note(at, &kind);
        choice.stats.timings.note(at, &kind);
        self.context.observe(index, at, &kind);
        match &kind {
            EventKind::Started { cached_tokens, prefix_end } => {
                choice.stats.usage.cached_tokens = *cached_tokens;
                if choice.is_first {
                    self.usage.cached_tokens += cached_tokens;
                    self.context.note(|facts| facts.prefix_end = Some(*prefix_end));
                }
            }
            EventKind::Token { .. } => {
                choice.stats.usage.generated_tokens += 1;
                self.usage.generated_tokens += 1;
            }
            EventKind::Failed(error) => {
                self.open -= 1;
                let error = ApiError::from(&**error);
                self.context.note_error(&error);
                return Some(Err(error));
            }
            _ => {}
        }
        let delta = Delta::from_event(kind, &mut choice.parser)?;
        self.context.trace(|span, content| span.note(index, delta.events(), content));
        let is_reasoning = choice.parser.as_ref().is_some_and(ChoiceParser::is_reasoning);
        if matches!(delta, Delta::Token { .. }) && (was_reasoning || is_reasoning) {
            choice.stats.usage.reasoning_tokens += 1;
            self.usage.reasoning_tokens += 1;
        }
        if let Some(parser) = choice.parser.take_if(|parser| parser.is_over()) {
            self.ready.push_back((index, parser.finish("", Finish::Stop)));
        }
        self.open -= usize::from(choice.parser.is_none());
        self.note(self.ready.back().map_or(&delta, |(_, delta)| delta));
        Some(Ok((index, delta)))
    }

    /// Notes the counts so far, and how an answer ended.
    fn note(&self, delta: &Delta) {
        self.context.note(|facts| {
            facts.cached_tokens = self.usage.cached_tokens;
            facts.generated_tokens = self.usage.generated_tokens;
            if let Delta::Finished { finish, .. } = delta {
                facts.finish = Some(finish.name());
            }
        });
    }
}

/// The most log-probabilities of an answer to a request and of its prompt, if both have at most `max_length` tokens.
fn most_logprobs(request: &Request, max_length: usize) -> usize {
    let room = max_length.saturating_sub(request.prompt.len());
    let tokens = request.max_new_tokens.unwrap_or(room).min(room);
    let of = |tokens: usize, alternatives: Option<usize>| {
        alternatives.map_or(0, |count| tokens.saturating_mul(count.saturating_add(1)))
    };
    of(tokens, request.logprobs).saturating_add(of(request.prompt.len(), request.scores()))
}

/// Bytes of the texts of a prompt, which are counted as far as it matters.
fn size_of(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Text { text, .. } => text.len(),
        Prompt::Tokens(_) => 0,
        Prompt::Chat(chat) => {
            let mut count = ByteCount(0);
            // An error means that there are many.
            let _ = chat.messages.iter().try_for_each(|message| serde_json::to_writer(&mut count, message));
            count.0
        }
    }
}

/// Counts bytes until they are more than a thread of the runtime works on.
struct ByteCount(usize);

impl std::io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        if self.0 > INLINE_BYTES { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Works on a text of so many bytes, on a thread that may block if they are many.
///
/// # Errors
/// If the work fails.
pub(crate) async fn off_the_runtime<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, ApiError> {
    blocking::run_on(bytes, move || Ok(work()?)).await
}
