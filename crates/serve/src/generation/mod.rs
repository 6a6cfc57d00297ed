//! Answers as they are made, for every protocol: library events in, deltas of choices out.

mod delta;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use futures_core::Stream;
use pipelines::{BatchEvent, BatchStream, Error, EventKind, Request, TextGenerator, TextRequest};

pub(crate) use delta::{Delta, Finish, PromptToken};

use crate::context::Context;
use crate::error::ApiError;
use crate::models::Entry;

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
}

/// Tokens of all choices.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Each prompt counts once, however many answers it gets.
    pub(crate) prompt_tokens: usize,
    /// Those of them whose keys and values the cache held.
    pub(crate) cached_tokens: usize,
    pub(crate) generated_tokens: usize,
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
        let mut usage = Usage::default();
        let (mut samples, mut choices) = (Vec::new(), Vec::new());
        for request in requests {
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
        let stream = generator.try_batch(samples)?;
        Ok(Generation { stream, open: choices.len(), choices, context, _model: Arc::clone(model), usage })
    }

    /// What comes next of any choice: its index and the delta; `None` when all have ended.
    pub(crate) async fn next(&mut self) -> Option<(usize, Delta)> {
        loop {
            let event = poll_fn(|task| Pin::new(&mut self.stream).poll_next(task)).await?;
            if let Some(delta) = self.take(event) {
                return Some(delta);
            }
        }
    }

    /// As [`Generation::next`], if it is there already.
    pub(crate) fn next_ready(&mut self) -> Option<(usize, Delta)> {
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

    fn take(&mut self, event: Result<BatchEvent, Error>) -> Option<(usize, Delta)> {
        let BatchEvent { index, kind, .. } = match event {
            Ok(event) => event,
            // The worker has ended: an error of each choice would say the same.
            Err(error) => {
                self.open = 0;
                return Some((0, Delta::Failed(error.into())));
            }
        };
        let choice = &mut self.choices[index];
        if let EventKind::Started { cached_tokens } = kind
            && choice.is_first
        {
            self.usage.cached_tokens += cached_tokens;
        }
        if let EventKind::Token { .. } = kind {
            self.usage.generated_tokens += 1;
        }
        let delta = Delta::of(kind)?;
        self.open -= usize::from(matches!(delta, Delta::Finished { .. } | Delta::Failed(_)));
        let usage = self.usage;
        self.context.note(|facts| {
            facts.cached_tokens = usage.cached_tokens;
            facts.generated_tokens = usage.generated_tokens;
            if let Delta::Finished { finish, .. } = &delta {
                facts.finish = Some(finish.name());
            }
        });
        Some((index, delta))
    }
}

/// Makes the prompt tokens and checks the request. Long prompts do not hold up other tasks.
///
/// # Errors
/// If the generator refuses the request.
pub(crate) async fn prepare(
    generator: &TextGenerator,
    request: TextRequest,
    prompt_bytes: usize,
) -> Result<Request, ApiError> {
    if prompt_bytes <= INLINE_BYTES {
        return Ok(generator.prepare(request)?);
    }
    let generator = generator.clone();
    match tokio::task::spawn_blocking(move || generator.prepare(request)).await {
        Ok(prepared) => Ok(prepared?),
        Err(defect) => Err(ApiError::from(Error::Defect(defect.to_string()))),
    }
}
