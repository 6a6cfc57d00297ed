//! Text from prompts, from any thread, blocking or async.
//!
//! One plain thread owns the [`Generator`](crate::Generator). Requests and cancellations go to it through one
//! channel, what comes of each request comes back through a channel of its own, and nothing is locked while the
//! model computes.

mod completion;
mod prompt;
mod stream;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_channel::Sender;
use engine::InferenceSession;

pub use completion::{Completion, PromptToken, Timings, Usage};
pub use prompt::{Chat, ChatMessage, Prompt, TextRequest};
pub use stream::{AsyncTextStream, TextStream};
pub use worker::{HIGH_WATER, Status};

use crate::config::ResolvedConfig;
use crate::generator::{Generator, Request};
use crate::generator_options::GeneratorOptions;
use crate::owner::End;
use crate::text_model::TextModel;
use crate::{ChatTemplate, Error};
use worker::{Command, Ticket};

/// A handle to a model that writes. Clones share the model, its thread and its cache; requests of all of them share its
/// steps, and each gets what it would get alone.
///
/// - Dropping a stream, or the future of an answer, cancels its request before the next step, wherever it is: waiting,
///   half read or answering.
/// - A stream that is not read holds up nobody. Once it is [`HIGH_WATER`] events behind, its request is paused: it
///   gives up its place and its part of the cache, and goes on, with the same result, when it has been read halfway.
/// - The thread ends when the last handle and the last stream are dropped; streams may outlive the handles.
///   [`TextGenerator::shutdown`] ends it at once.
/// - Should the thread end by a defect of ours, all that wait for it get an error with the reason.
///
/// ```
/// # use std::sync::Arc;
/// # use engine::devices::Platform;
/// use perihelion_pipelines::config::{Machine, PipelineConfig};
/// use perihelion_pipelines::{TextGenerator, TextRequest};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
/// # let platform = Platform::new(|| Arc::new(cpu::Cpu::new(2)));
/// let resolved = PipelineConfig::new(path).resolve(Machine::new(&platform))?;
/// let session = engine::InferenceSession::new(resolved.config().devices_of(&platform)?)?;
/// let generator = TextGenerator::from_config(&session, resolved)?;
///
/// let mut request = TextRequest::from("Once upon a time");
/// request.parameters.max_new_tokens = Some(16);
/// request.parameters.stop = vec![".".into()];
/// let answer = generator.generate(request)?;
/// println!("{} ({} tokens, {:?})", answer.text, answer.usage.generated_tokens, answer.reason);
/// # assert!(!answer.text.is_empty() && !answer.text.contains('.'));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TextGenerator {
    shared: Arc<Shared>,
    commands: Sender<Command>,
}

/// What handles share.
struct Shared {
    model: Arc<TextModel>,
    chat_template: Option<ChatTemplate>,
    next_ticket: AtomicU64,
    end: End,
}

impl TextGenerator {
    /// Starts a thread for a model. Its chat template is that of its own files, if they have one.
    ///
    /// # Errors
    /// As [`Generator::new`]; if the chat template is no template; or if no thread can be started.
    pub fn new(model: Arc<TextModel>, options: &GeneratorOptions) -> Result<TextGenerator, Error> {
        let chat_template = model.chat_template()?;
        TextGenerator::start(model, options, chat_template)
    }

    /// Loads the model of a configuration onto a session's devices, and starts a thread for it that runs as the
    /// configuration says.
    ///
    /// # Errors
    /// As [`TextModel::from_config`] and [`TextGenerator::new`].
    pub fn from_config(session: &InferenceSession, resolved: ResolvedConfig) -> Result<TextGenerator, Error> {
        let options = GeneratorOptions::from(&resolved);
        TextGenerator::new(Arc::new(TextModel::from_config(session, resolved)?), &options)
    }

    /// Starts a thread for a model, with a chat template other than its own.
    ///
    /// # Errors
    /// As [`Generator::new`], or if no thread can be started.
    pub fn with_chat_template(
        model: Arc<TextModel>,
        options: &GeneratorOptions,
        chat_template: ChatTemplate,
    ) -> Result<TextGenerator, Error> {
        TextGenerator::start(model, options, Some(chat_template))
    }

    fn start(
        model: Arc<TextModel>,
        options: &GeneratorOptions,
        chat_template: Option<ChatTemplate>,
    ) -> Result<TextGenerator, Error> {
        let generator = Generator::new(Arc::clone(&model), options)?;
        let (commands, received) = async_channel::unbounded();
        let end = worker::spawn(generator, received)?;
        let shared = Shared { model, chat_template, next_ticket: AtomicU64::new(0), end };
        Ok(TextGenerator { shared: Arc::new(shared), commands })
    }

    /// The model.
    pub fn model(&self) -> &Arc<TextModel> {
        &self.shared.model
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// If the request is refused, or something goes wrong while it is answered.
    pub fn generate(&self, request: impl Into<TextRequest>) -> Result<Completion, Error> {
        self.stream(request)?.completion()
    }

    /// The answer to a request, as it is made.
    ///
    /// # Errors
    /// If the prompt has no tokens in this model's vocabulary, or its chat template refuses it. All else comes
    /// through the stream.
    pub fn stream(&self, request: impl Into<TextRequest>) -> Result<TextStream, Error> {
        let request = self.encode(request.into())?;
        Ok(self.submit(request))
    }

    /// The answer to a request. Dropping the future cancels it.
    ///
    /// # Errors
    /// As [`TextGenerator::generate`].
    pub async fn generate_async(&self, request: impl Into<TextRequest>) -> Result<Completion, Error> {
        self.stream(request)?.completion_async().await
    }

    /// The answer to a request, as it is made.
    ///
    /// # Errors
    /// As [`TextGenerator::stream`].
    pub fn stream_async(&self, request: impl Into<TextRequest>) -> Result<AsyncTextStream, Error> {
        Ok(AsyncTextStream::new(self.stream(request)?))
    }

    /// Several answers to one prompt, made together, with the seeds of [`Request::samples`].
    ///
    /// # Errors
    /// As [`TextGenerator::stream`], and [`Request::samples`].
    pub fn samples(&self, request: impl Into<TextRequest>, count: usize) -> Result<Vec<TextStream>, Error> {
        let request = self.encode(request.into())?;
        Ok(request.samples(count)?.into_iter().map(|sample| self.submit(sample)).collect())
    }

    /// How much there is to do, and how full the cache is. Waits for the step that runs.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn status(&self) -> Result<Status, Error> {
        self.shared.end.ask(&self.commands, Command::Status)
    }

    /// Cancels all requests, of all handles, and waits until the thread has ended.
    pub fn shutdown(self) {
        let _ = self.commands.send_blocking(Command::Stop);
        self.shared.end.wait();
    }

    /// Makes the prompt tokens.
    fn encode(&self, request: TextRequest) -> Result<Request, Error> {
        let TextRequest { prompt, parameters } = request;
        let prompt = prompt.encode(self.shared.model.tokenizer(), self.shared.chat_template.as_ref())?;
        Ok(Request { prompt, ..parameters })
    }

    fn submit(&self, request: Request) -> TextStream {
        let ticket = Ticket(self.shared.next_ticket.fetch_add(1, Ordering::Relaxed));
        let prompt_tokens = request.prompt.len();
        let echo = request.echo;
        let (messages, received) = async_channel::unbounded();
        let stream = TextStream::new(
            ticket,
            received,
            self.commands.clone(),
            self.shared.end.clone(),
            prompt_tokens,
            echo,
        );
        let submission = stream.submission(request, messages);
        // An error shows in the stream, whose channel is then closed.
        let _ = self.commands.send_blocking(Command::Add(Box::new(submission)));
        stream
    }
}

impl std::fmt::Debug for TextGenerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextGenerator").field("end", &self.shared.end.reason()).finish_non_exhaustive()
    }
}

/// The time now, as all parts of this module measure it.
fn now() -> Instant {
    Instant::now()
}
