//! Text from prompts, from any thread, blocking or async.
//!
//! A worker owns the [`Generator`](crate::Generator). Requests go to it through a bounded queue, and the events of each
//! come back through a bounded channel of its own.

mod cache_events;
mod completion;
mod options;
mod prompt;
mod queue;
mod stream;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use engine::InferenceSession;

pub use cache_events::CacheEvents;
pub use completion::{Completion, PromptToken, Timings, Usage};
pub use options::TextGeneratorOptions;
pub use prompt::{Chat, ChatMessage, Prompt, TextRequest};
pub use queue::QueueLimits;
pub use stream::{AsyncTextStream, BatchEvent, BatchStream, IndexedCompletion, TextStream};
pub use worker::HIGH_WATER;

use crate::plan::Plan;
use crate::run::generator::{Generator, Prepared, Request, RequestLimits};
use crate::tasks::handle::{Handle, Waiting};
use crate::tasks::text_model::TextModel;
use crate::{AnswerFormat, ChatTemplate, Error};
use cache_events::CacheReaders;
use queue::{Queue, Ticket};
use worker::{Submission, TextWork};

/// A handle to a model that writes. Clones share the model, its thread and its cache; requests of all of them share its
/// steps, and each gets what it would get alone.
///
/// - Dropping a stream, or the future of an answer, cancels its request before the next step, wherever it is: waiting,
///   half read or answering.
/// - A stream that is not read delays no other. Once it is [`HIGH_WATER`] events behind, its request is paused: it
///   gives up its place and its part of the cache, and goes on, with the same result, when half of them were read.
/// - [`Request::queue_timeout`] and [`Request::timeout`] bound the time until a request starts and ends.
/// - Requests that have not started are bounded, in all and of each tenant ([`QueueLimits`]): beyond that,
///   [`TextGenerator::try_stream`] and [`TextGenerator::try_batch`] return [`Error::Busy`]. [`TextGenerator::stream`] and
///   the others wait until the worker can take the request.
/// - If the model cannot run a step, with an error or a panic, the step is tried again in halves, until the request that
///   it cannot run is alone. That one fails, and no other. A panic outside of the model fails the requests of that
///   moment and empties the cache; later ones are not affected.
/// - The thread ends when the last handle and the last stream are dropped; streams may outlive the handles.
///   [`TextGenerator::shutdown`] ends it at once.
///
/// ```
/// # use std::sync::Arc;
/// # use engine::devices::Platform;
/// use perihelion_pipelines::config::PipelineConfig;
/// use perihelion_pipelines::{Machine, TextGenerator, TextRequest};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
/// # let platform = Platform::new(|| Arc::new(cpu::Cpu::new(2)));
/// let plan = PipelineConfig::new(path).plan(Machine::new(&platform))?;
/// let session = engine::InferenceSession::new(plan.config().devices_of(&platform)?)?;
/// let generator = TextGenerator::from_plan(&session, plan)?;
///
/// let mut request = TextRequest::from("Once upon a time");
/// request.parameters.max_new_tokens = Some(16);
/// request.parameters.stop = vec![".".into()];
/// let answer = generator.generate(request)?;
/// println!("{} ({} tokens, {:?})", answer.text, answer.usage.generated_tokens, answer.reason);
/// # assert!(!answer.text.is_empty() && !answer.text.contains('.'));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type TextGenerator = Handle<TextWork>;

/// What handles know.
pub struct TextContext {
    model: Arc<TextModel>,
    chat_template: Option<ChatTemplate>,
    /// Found when it is first asked for.
    answer_format: OnceLock<AnswerFormat>,
    limits: RequestLimits,
    queue: Arc<Queue>,
}

impl TextGenerator {
    /// Starts a worker for a model, with the limits of its plan and the chat template of its files, if they have one.
    ///
    /// # Errors
    /// If the cache does not fit into memory, the chat template is invalid, or no thread can be started.
    pub fn new(model: Arc<TextModel>) -> Result<TextGenerator, Error> {
        let plan = model.plan().clone();
        TextGenerator::with_plan(model, &plan)
    }

    /// Fetches, compiles and loads a planned model, and starts a worker for it.
    ///
    /// # Errors
    /// As [`TextModel::from_plan`] and [`TextGenerator::new`].
    pub fn from_plan(session: &InferenceSession, plan: Plan) -> Result<TextGenerator, Error> {
        TextGenerator::new(Arc::new(TextModel::from_plan(session, plan)?))
    }

    /// Starts a worker for a model, with the limits of another plan of the same model ([`Plan::with`]).
    ///
    /// # Errors
    /// As [`TextGenerator::new`].
    pub fn with_plan(model: Arc<TextModel>, plan: &Plan) -> Result<TextGenerator, Error> {
        TextGenerator::with_options(model, plan, TextGeneratorOptions::default())
    }

    /// As [`TextGenerator::with_plan`], with options.
    ///
    /// # Errors
    /// As [`TextGenerator::new`]. The model's own chat template is not read if another one is given.
    pub fn with_options(
        model: Arc<TextModel>,
        plan: &Plan,
        options: TextGeneratorOptions,
    ) -> Result<TextGenerator, Error> {
        let chat_template = match options.chat_template {
            Some(template) => Some(template),
            None => model.chat_template()?,
        };
        let generator = Generator::with_plan(Arc::clone(&model), plan)?;
        let cache = generator.scheduler().cache();
        let cache_tokens = cache.num_pages().saturating_mul(cache.page_size());
        let queue = options.queue.unwrap_or_else(|| QueueLimits::new(cache_tokens));
        let queue = options.max_queue.map_or(queue, |requests| queue.with_requests(requests));
        let (limits, answer_format) = (generator.limits(), OnceLock::new());
        let (jobs, queue) = (queue.requests, Arc::new(Queue::new(queue)));
        let context = TextContext { model, chat_template, answer_format, limits, queue };
        Handle::spawn(TextWork::new(generator, options.read_timeout), jobs, context)
    }

    /// As [`TextGenerator::new`], with a chat template other than the model's own, which is not read.
    ///
    /// # Errors
    /// If the cache does not fit into memory, or no thread can be started.
    pub fn with_chat_template(model: Arc<TextModel>, template: ChatTemplate) -> Result<TextGenerator, Error> {
        let plan = model.plan().clone();
        let options = TextGeneratorOptions { chat_template: Some(template), ..Default::default() };
        TextGenerator::with_options(model, &plan, options)
    }

    /// The model.
    pub fn model(&self) -> &Arc<TextModel> {
        &self.context.model
    }

    /// The template of conversations, if there is one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.context.chat_template.as_ref()
    }

    /// How the model marks reasoning and tool calls in its answers, found in its chat template and its tokenizer.
    pub fn answer_format(&self) -> AnswerFormat {
        let find = || AnswerFormat::for_model(self.chat_template(), Some(self.model().tokenizer()));
        *self.context.answer_format.get_or_init(find)
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// If the request is refused, or something goes wrong while it is answered.
    pub fn generate(&self, request: impl Into<TextRequest>) -> Result<Completion, Error> {
        self.stream(request)?.completion()
    }

    /// The answer to a request, as it is made. Waits while the queue of requests is full.
    ///
    /// # Errors
    /// If the prompt has no tokens in this model's vocabulary, its chat template refuses it, or its constraint cannot be
    /// enforced. All else comes through the stream.
    pub fn stream(&self, request: impl Into<TextRequest>) -> Result<TextStream, Error> {
        let (stream, submission) = self.submission(request)?;
        self.worker.submit(vec![submission]);
        Ok(Waiting(stream))
    }

    /// As [`TextGenerator::stream`], without waiting.
    ///
    /// # Errors
    /// As [`TextGenerator::stream`], and [`Error::Busy`] if too much waits.
    pub fn try_stream(&self, request: impl Into<TextRequest>) -> Result<TextStream, Error> {
        let request = self.encode(request.into())?;
        let mut tickets = self.context.queue.try_enter(std::slice::from_ref(&request))?;
        let prepared = Prepared::new(request, self.model().grammars())?;
        let (stream, submission) = AsyncTextStream::new(&self.worker, prepared, tickets.remove(0));
        self.worker.try_submit(vec![submission])?;
        Ok(Waiting(stream))
    }

    /// The answer to a request. Dropping the future cancels it.
    ///
    /// # Errors
    /// As [`TextGenerator::generate`].
    pub async fn generate_async(&self, request: impl Into<TextRequest>) -> Result<Completion, Error> {
        self.stream_async(request).await?.completion().await
    }

    /// The answer to a request, as it is made. Waits while the queue of requests is full.
    ///
    /// # Errors
    /// As [`TextGenerator::stream`].
    pub async fn stream_async(&self, request: impl Into<TextRequest>) -> Result<AsyncTextStream, Error> {
        let (stream, submission) = self.submission(request)?;
        self.worker.submit_async(vec![submission]).await;
        Ok(stream)
    }

    /// Several answers to one prompt, made together, with the seeds of [`Request::samples`]. With the paged cache, the prompt
    /// is computed once ([`Generator::add_all`]).
    ///
    /// # Errors
    /// As [`TextGenerator::stream`], and [`Request::samples`].
    pub fn samples(&self, request: impl Into<TextRequest>, count: usize) -> Result<Vec<TextStream>, Error> {
        let Prepared { request, grammar } =
            Prepared::new(self.encode(request.into())?, self.model().grammars())?;
        let samples = request.samples(count)?;
        let tickets = self.context.queue.enter(&samples);
        let stream = |(request, ticket)| {
            let prepared = Prepared { request, grammar: grammar.clone() };
            let (stream, submission) = AsyncTextStream::new(&self.worker, prepared, ticket);
            (Waiting(stream), submission)
        };
        let (streams, submissions) = samples.into_iter().zip(tickets).map(stream).unzip();
        self.worker.submit(submissions);
        Ok(streams)
    }

    /// The answers to requests whose prompts are tokens already, in one stream. All of them are queued before the next
    /// step, so steps and results are the same every time. With the paged cache, neighbors with the same prompt share its
    /// computation ([`Generator::add_all`]).
    pub fn batch(&self, requests: Vec<Request>) -> BatchStream {
        let tickets = self.context.queue.enter(&requests);
        let (stream, submissions) = self.answers(requests, tickets);
        self.worker.submit(submissions);
        stream
    }

    /// As [`TextGenerator::batch`], without waiting: all of the requests are queued, or none.
    ///
    /// # Errors
    /// [`Error::Busy`] if too much waits, and [`Error::Request`] if the requests are more than may ever wait.
    pub fn try_batch(&self, requests: Vec<Request>) -> Result<BatchStream, Error> {
        let tickets = self.context.queue.try_enter(&requests)?;
        let (stream, submissions) = self.answers(requests, tickets);
        self.worker.try_submit(submissions)?;
        Ok(stream)
    }

    /// As [`TextGenerator::batch`], for a task.
    pub async fn batch_async(&self, requests: Vec<Request>) -> BatchStream {
        let tickets = self.context.queue.enter(&requests);
        let (stream, submissions) = self.answers(requests, tickets);
        self.worker.submit_async(submissions).await;
        stream
    }

    /// Makes the prompt tokens, checks the request as the worker will, and compiles its constraint, which is kept for when
    /// the request comes.
    ///
    /// # Errors
    /// If the request would be refused.
    pub fn prepare(&self, request: impl Into<TextRequest>) -> Result<Request, Error> {
        let request = self.encode(request.into())?;
        self.context.limits.check(&request)?;
        Ok(Prepared::new(request, self.model().grammars())?.request)
    }

    /// Forgets what the cache holds of earlier requests: those that start from now on compute all their tokens. Waits while
    /// the queue of requests is full.
    pub fn reset_prefix_cache(&self) {
        self.worker.act(|work| work.generator.reset_prefix_cache());
    }

    /// The changes to the pages that prefix caching can lend, from now on.
    pub fn cache_events(&self) -> CacheEvents {
        let (batches, events) = CacheReaders::channel();
        self.worker.act(move |work| work.cache_readers.add(batches));
        events
    }

    /// A stream, and what the worker is to get.
    fn submission(&self, request: impl Into<TextRequest>) -> Result<(AsyncTextStream, Submission), Error> {
        let prepared = Prepared::new(self.encode(request.into())?, self.model().grammars())?;
        let ticket = self.context.queue.enter(std::slice::from_ref(&prepared.request)).remove(0);
        Ok(AsyncTextStream::new(&self.worker, prepared, ticket))
    }

    /// The stream of a batch, and what the worker is to get.
    fn answers(&self, requests: Vec<Request>, tickets: Vec<Ticket>) -> (BatchStream, Vec<Submission>) {
        BatchStream::new(&self.worker, self.model().grammars(), requests, tickets)
    }

    /// Makes the prompt tokens.
    fn encode(&self, request: TextRequest) -> Result<Request, Error> {
        let TextRequest { prompt, parameters } = request;
        let prompt = prompt.encode(self.model().tokenizer(), self.chat_template())?;
        Ok(Request { prompt, ..parameters })
    }
}
