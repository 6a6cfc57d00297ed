//! Answers as they are made, for every protocol: library events in, deltas of choices out.

mod answer;
mod delta;
mod usage;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use futures_core::Stream;
use pipelines::{
    AddSpecial, BatchEvent, BatchStream, Chat, ChatTemplate, Error, EventKind, ParseSpecial, Prompt, Request,
    TextGenerator, TextRequest, Tokenizer,
};

pub(crate) use answer::{Answer, Writer};
pub(crate) use delta::{Delta, Finish, PromptToken};
pub(crate) use usage::{Timings, Usage};

use crate::context::Context;
use crate::error::ApiError;
use crate::models::{Entry, ModelText};

/// Prompts longer than this are made tokens on a thread that may block.
const INLINE_BYTES: usize = 4096;

/// Answers to one or more requests, made together.
pub(crate) struct Generation {
    stream: BatchStream,
    choices: Vec<Choice>,
    context: Context,
    /// Answers that have not ended.
    open: usize,
    /// Keeps the model while it answers.
    _model: Arc<Entry>,
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
}

/// One of the answers.
struct Choice {
    /// Whether its prompt counts in the usage.
    is_first: bool,
}

impl Generation {
    /// Starts the answers: `n` for each of the requests, in order.
    ///
    /// # Errors
    /// If the queue is full.
    pub(crate) async fn start(
        model: &Arc<Entry>,
        requests: Vec<Request>,
        n: usize,
        context: Context,
    ) -> Result<Generation, ApiError> {
        let generator = model.loaded.generator()?;
        let answers = context.measure(model, &requests, n);
        let mut usage = Usage::default();
        let (mut samples, mut choices) = (Vec::new(), Vec::new());
        for mut request in requests {
            request.cache_salt = context.cache_salt(request.cache_salt);
            request.timeout = request.timeout.or(context.timeout());
            usage.prompt_tokens += request.prompt.len();
            for (index, sample) in request.samples(n)?.into_iter().enumerate() {
                choices.push(Choice { is_first: index == 0 });
                samples.push(sample);
            }
        }
        context.note(|facts| {
            facts.model = Some(model.id.clone());
            facts.prompt_tokens = usage.prompt_tokens;
        });
        let timings = Timings::begin();
        let stream = generator.try_batch(samples)?;
        context.note(|facts| facts.answers = Some(answers));
        let (open, _model) = (choices.len(), Arc::clone(model));
        Ok(Generation { stream, open, choices, context, _model, usage, timings })
    }

    /// What comes next of any choice: its index and the delta, or why it failed; `None` when all have ended.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, Delta), ApiError>> {
        loop {
            let Generation { stream, context, .. } = self;
            let event = tokio::select! {
                biased;
                error = context.cancelled() => {
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
        while let Poll::Ready(Some(event)) = Pin::new(&mut self.stream).poll_next(&mut task) {
            if let Some(delta) = self.take(event) {
                return Some(delta);
            }
        }
        None
    }

    /// Whether all answers have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.open == 0
    }

    fn take(&mut self, event: Result<BatchEvent, Error>) -> Option<Result<(usize, Delta), ApiError>> {
        let BatchEvent { index, at, kind, .. } = match event {
            Ok(event) => event,
            // The worker has ended: an error of each choice would say the same.
            Err(error) => {
                self.open = 0;
                return Some(Err(error.into()));
            }
        };
        self.timings.note(at, &kind);
        self.context.observe(index, at, &kind);
        match &kind {
            EventKind::Started { cached_tokens } if self.choices[index].is_first => {
                self.usage.cached_tokens += cached_tokens;
            }
            EventKind::Token { .. } => self.usage.generated_tokens += 1,
            EventKind::Finished { .. } => self.open -= 1,
            EventKind::Failed(error) => {
                self.open -= 1;
                return Some(Err(ApiError::from(&**error)));
            }
            _ => {}
        }
        let delta = delta::of_event(kind)?;
        let usage = self.usage;
        self.context.note(|facts| {
            facts.cached_tokens = usage.cached_tokens;
            facts.generated_tokens = usage.generated_tokens;
            if let Delta::Finished { finish, .. } = &delta {
                facts.finish = Some(finish.name());
            }
        });
        Some(Ok((index, delta)))
    }
}

/// Makes the prompt tokens and checks the request. Long prompts do not hold up other tasks.
///
/// # Errors
/// If the generator refuses the request.
pub(crate) async fn prepare(generator: &TextGenerator, request: TextRequest) -> Result<Request, ApiError> {
    if request.parameters.scores().is_some() && !generator.model().plan().config().enable_echo {
        let message = "log-probabilities of prompts need a server that was started with --enable-echo";
        return Err(ApiError::invalid("prompt_logprobs", message));
    }
    let (bytes, generator) = (size_of(&request.prompt), generator.clone());
    off_the_runtime(bytes, move || generator.prepare(request)).await
}

/// Makes the prompt tokens, however many they are.
///
/// # Errors
/// If the model has no chat template for a conversation, or its template refuses it.
pub(crate) async fn tokens(generator: &TextGenerator, prompt: Prompt) -> Result<Vec<u32>, ApiError> {
    let (bytes, generator) = (size_of(&prompt), generator.clone());
    off_the_runtime(bytes, move || match prompt {
        Prompt::Tokens(tokens) => Ok(tokens),
        Prompt::Text { text, add, parse } => Ok(generator.model().tokenizer().encode(&text, add, parse)?),
        Prompt::Chat(chat) => {
            Ok(rendered(generator.model().tokenizer(), generator.chat_template(), &chat)?.tokens)
        }
    })
    .await
}

/// Renders a conversation, however long it is.
///
/// # Errors
/// If the model has no chat template, or its template refuses the conversation.
pub(crate) async fn render(model: &ModelText, chat: Chat) -> Result<Rendered, ApiError> {
    let model = model.clone();
    model.chat_template()?;
    off_the_runtime(size_of_messages(&chat), move || {
        rendered(model.tokenizer(), model.chat_template().ok(), &chat)
    })
    .await
}

/// A conversation as the model reads it.
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
}

fn rendered(tokenizer: &Tokenizer, template: Option<&ChatTemplate>, chat: &Chat) -> Result<Rendered, Error> {
    let text = chat.render(template.ok_or(Error::NoChatTemplate)?, Some(tokenizer))?;
    // The template writes all special tokens itself.
    let tokens = tokenizer.encode(&text, AddSpecial::No, ParseSpecial::Yes)?;
    Ok(Rendered { text, tokens })
}

/// Bytes of the texts of a prompt.
fn size_of(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Text { text, .. } => text.len(),
        Prompt::Tokens(_) => 0,
        Prompt::Chat(chat) => size_of_messages(chat),
    }
}

/// Bytes of the messages of a conversation.
fn size_of_messages(chat: &Chat) -> usize {
    chat.messages.iter().map(|message| message.to_string().len()).sum()
}

/// Works on a text of so many bytes, on a thread that may block if they are many.
///
/// # Errors
/// If the work fails.
pub(crate) async fn off_the_runtime<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, ApiError> {
    if bytes <= INLINE_BYTES {
        return Ok(work()?);
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(defect) => Err(ApiError::from(Error::Defect(defect.to_string()))),
    }
}
