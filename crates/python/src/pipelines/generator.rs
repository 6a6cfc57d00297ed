//! Text generators as Python's class `LLM` holds them.

use std::sync::Arc;

use perihelion::driver;
use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{Devices, PipelineConfig, machine};
use perihelion::pipelines::{
    AddSpecial, AnswerReader, Chat, ChatTemplate, Error, FetchProgress, FinishedRequests, Histogram,
    ParseSpecial, Piece, Request, SkipSpecial, TextGenerator, TextModel, Tokenizer, log_probabilities,
    visit_logits,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::answers::{Answers, Batch};
use super::config::{Config, all_warnings, fields};
use super::error::{open_error, pipelines_error, prompt_error};
use super::progress::Progress;
use super::request::{bad_words, count, request};
use super::turn::Turn;
use super::waiting::wait_for_thread;
use crate::buffer::Buffer;
use crate::owned::Closable;
use crate::running::detached;
use crate::session::{Session, record_range};

/// A model that writes, and its thread; and the session whose trace shows what Python does.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Generator(Closable<TextGenerator>, Closable<Arc<InferenceSession>>);

/// Bytes of text from which tokenizing is worth releasing the GIL.
const LONG_TEXT: usize = 1024;

/// Size, the tokens that begin and end a text, and all that end one.
type Vocabulary = (usize, Option<u32>, Option<u32>, Vec<u32>);

#[pymethods]
impl Generator {
    #[new]
    #[pyo3(signature = (config, num_threads, chat_template, session, progress))]
    fn new(
        py: Python<'_>,
        config: &Config,
        num_threads: usize,
        chat_template: Option<String>,
        session: Option<&Session>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Generator> {
        let config = config.get();
        let session = session.map(|session| session.0.get().cloned()).transpose()?;
        let progress = Progress::new(progress);
        let told = progress.clone();
        let open = move || open(&config, num_threads, chat_template.as_deref(), session, &told);
        let (generator, session) = wait_for_thread(py, open)?.map_err(open_error)?;
        progress.check()?;
        Ok(Generator(Closable::new("the LLM", generator), Closable::new("the LLM", session)))
    }

    /// Adds a range to the trace that began `ago` seconds before now, if calls are measured in detail.
    fn record_range(&self, name: &str, ago: f64, seconds: f64) -> PyResult<()> {
        // Closed meanwhile, it has no trace.
        self.1.get().map_or(Ok(()), |session| record_range(&session, name, ago, seconds))
    }

    /// The fields of the configuration as they were decided, as JSON; those that have no value are left out.
    fn config(&self) -> PyResult<String> {
        Ok(fields(self.0.get()?.model().plan().config()))
    }

    /// Warnings about the configuration.
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(all_warnings(self.0.get()?.model().plan()))
    }

    /// The chunks of the answer to a prompt.
    fn stream(
        &self,
        py: Python<'_>,
        prompt: Prompt<'_>,
        params: &Bound<'_, PyAny>,
        seed: u64,
    ) -> PyResult<Answers> {
        let generator = self.0.get()?;
        let (request, reader) = prompt.request(generator.model().tokenizer(), params, seed)?;
        let request = prepare(py, &generator, request)?.map_err(pipelines_error)?;
        detached(py, || Answers::of_text(generator, request, reader.as_ref()))
    }

    /// The chunks of the answers to prompts that run together, each with the index of its prompt.
    fn stream_batch(
        &self,
        py: Python<'_>,
        prompts: Vec<Prompt<'_>>,
        params: Vec<Bound<'_, PyAny>>,
        seeds: Vec<u64>,
    ) -> PyResult<Answers> {
        let (generator, batch) = self.prepared(py, prompts, params, seeds, false)?;
        detached(py, || Answers::of_chunks(generator, batch))
    }

    /// The answers to requests that run together, and how many there are. A prompt that is refused is one answer if
    /// `returns_errors`, else an exception.
    fn batch(
        &self,
        py: Python<'_>,
        prompts: Vec<Prompt<'_>>,
        params: Vec<Bound<'_, PyAny>>,
        seeds: Vec<u64>,
        returns_errors: bool,
    ) -> PyResult<(Answers, usize)> {
        let (generator, batch) = self.prepared(py, prompts, params, seeds, returns_errors)?;
        let count = batch.requests.len() + batch.refused.len();
        Ok((detached(py, || Answers::of_batch(generator, batch))?, count))
    }

    /// The natural logarithm of the probability of each token but the first.
    fn score(&self, py: Python<'_>, tokens: Vec<u32>) -> PyResult<Vec<f64>> {
        let model = Arc::clone(self.0.get()?.model());
        wait_for_thread(py, move || log_probabilities(&model, &tokens))?.map_err(pipelines_error)
    }

    /// The logits that predict the token after each, f32[tokens, vocab].
    fn logits(&self, py: Python<'_>, tokens: Vec<u32>) -> PyResult<Buffer> {
        let model = Arc::clone(self.0.get()?.model());
        wait_for_thread(py, move || logits(&model, &tokens))?.map_err(pipelines_error)
    }

    /// A conversation as the model reads it. `fields` are JSON.
    fn read_turn(&self, py: Python<'_>, fields: &str, params: &Bound<'_, PyAny>) -> PyResult<Turn> {
        Turn::read(py, self.0.get()?, fields, params)
    }

    /// The prompt of a conversation. All but the flags are JSON.
    fn render(
        &self,
        messages: &str,
        tools: &str,
        documents: &str,
        add_generation_prompt: bool,
        continue_final_message: bool,
        extra: &str,
    ) -> PyResult<String> {
        let generator = self.0.get()?;
        let chat = Chat {
            tools: json(tools)?,
            documents: json(documents)?,
            add_generation_prompt,
            continue_final_message,
            extra: json(extra)?,
            ..Chat::new(json(messages)?)
        };
        let template = generator.chat_template().ok_or(Error::NoChatTemplate).map_err(pipelines_error)?;
        chat.render(template, Some(generator.model().tokenizer())).map_err(pipelines_error)
    }

    fn encode(
        &self,
        py: Python<'_>,
        text: String,
        add_special: bool,
        parse_special: bool,
    ) -> PyResult<Vec<u32>> {
        let add = if add_special { AddSpecial::Yes } else { AddSpecial::No };
        let parse = if parse_special { ParseSpecial::Yes } else { ParseSpecial::No };
        let tokenizer = self.tokenizer()?;
        let encode = || tokenizer.encode(&text, add, parse);
        let tokens = if text.len() > LONG_TEXT { detached(py, encode)? } else { encode() };
        tokens.map_err(|error| pipelines_error(error.into()))
    }

    /// The tokens of a text, and the characters of it that each stands for, if that is known.
    fn encode_places(
        &self,
        py: Python<'_>,
        text: String,
        add_special: bool,
    ) -> PyResult<(Vec<u32>, Vec<Option<Place>>)> {
        let add = if add_special { AddSpecial::Yes } else { AddSpecial::No };
        let tokenizer = self.tokenizer()?;
        let pieces = detached(py, || tokenizer.encode_pieces(&text, add, ParseSpecial::Yes))?;
        let pieces = pieces.map_err(|error| pipelines_error(error.into()))?;
        let ids = pieces.iter().map(|piece| piece.id).collect();
        Ok((ids, places(&text, &pieces)))
    }

    /// A token as the vocabulary writes it.
    fn token(&self, id: u32) -> PyResult<Option<String>> {
        Ok(self.tokenizer()?.token(id).map(std::borrow::Cow::into_owned))
    }

    /// The id of a token as the vocabulary writes it.
    fn token_id(&self, token: &str) -> PyResult<Option<u32>> {
        Ok(self.tokenizer()?.id(token))
    }

    fn decode(&self, tokens: Vec<u32>, skip_special: bool) -> PyResult<String> {
        let skip = if skip_special { SkipSpecial::Yes } else { SkipSpecial::No };
        Ok(self.tokenizer()?.decode(&tokens, skip))
    }

    fn vocabulary(&self) -> PyResult<Vocabulary> {
        let tokenizer = self.tokenizer()?;
        let ends = tokenizer.eos_ids().iter().copied().collect();
        Ok((tokenizer.vocab_size(), tokenizer.bos(), tokenizer.eos(), ends))
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.0.get()?.status().map_err(pipelines_error)?;
        let counters = PyDict::new(py);
        counters.set_item("running", status.running)?;
        counters.set_item("waiting", status.waiting)?;
        counters.set_item("paused", status.paused)?;
        counters.set_item("free_pages", status.free_pages)?;
        counters.set_item("num_pages", status.num_pages)?;
        Ok(counters)
    }

    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.0.get()?.status().map_err(pipelines_error)?;
        let FinishedRequests { stop, length, cancelled, failed, .. } = status.finished;
        let ends = PyDict::new(py);
        for (reason, count) in
            [("stop", stop), ("length", length), ("cancelled", cancelled), ("failed", failed)]
        {
            ends.set_item(reason, count)?;
        }
        let metrics = PyDict::new(py);
        metrics.set_item("started", status.started)?;
        metrics.set_item("finished", ends)?;
        metrics.set_item("prompt_tokens", status.prompt_tokens)?;
        metrics.set_item("cached_tokens", status.cached_tokens)?;
        metrics.set_item("generated_tokens", status.generated_tokens)?;
        metrics.set_item("queued_tokens", status.queued_tokens)?;
        metrics.set_item("preemptions", status.preemptions)?;
        metrics.set_item("failed_steps", status.failed_steps)?;
        metrics.set_item("step_tokens", histogram(&status.step_tokens))?;
        metrics.set_item("step_prefill_tokens", histogram(&status.step_prefill_tokens))?;
        metrics.set_item("step_microseconds", histogram(&status.step_micros))?;
        Ok(metrics)
    }

    /// Cancels all requests, ends the thread and frees the memory.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.1.take()?;
        self.0.close(py, TextGenerator::shutdown)
    }

    /// As `close`, for an object that is gone: of another process, there is nothing to close.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_ours() { self.close(py) } else { Ok(()) }
    }
}

impl Generator {
    /// Requests that are checked.
    fn prepared(
        &self,
        py: Python<'_>,
        prompts: Vec<Prompt<'_>>,
        params: Vec<Bound<'_, PyAny>>,
        seeds: Vec<u64>,
        returns_errors: bool,
    ) -> PyResult<(TextGenerator, Batch)> {
        let generator = self.0.get()?;
        let mut batch = Batch::new(prompts.len());
        for (index, ((prompt, params), seed)) in prompts.into_iter().zip(params).zip(seeds).enumerate() {
            let (request, reader) = prompt.request(generator.model().tokenizer(), &params, seed)?;
            let count = count(&params)?;
            let reader = reader.map(Arc::new);
            match prepare(py, &generator, request)?.and_then(|request| request.samples(count)) {
                Ok(samples) => batch.add(index, samples, reader.as_ref()),
                Err(error) if returns_errors => batch.refused.push((index, error)),
                Err(error) => return Err(prompt_error(error, index, batch.prompts)),
            }
        }
        Ok((generator, batch))
    }

    fn tokenizer(&self) -> PyResult<Arc<Tokenizer>> {
        Ok(Arc::clone(self.0.get()?.model().tokenizer()))
    }
}

/// A prompt that the model continues: tokens, or a turn of a conversation.
#[derive(FromPyObject)]
enum Prompt<'py> {
    Turn(Bound<'py, Turn>),
    Tokens(Vec<u32>),
}

impl Prompt<'_> {
    /// The request, and how its answers are read if they have parts.
    fn request(
        self,
        tokenizer: &Tokenizer,
        params: &Bound<'_, PyAny>,
        seed: u64,
    ) -> PyResult<(Request, Option<AnswerReader>)> {
        let request = Request { bad_words: bad_words(params, tokenizer)?, ..request(params, seed)? };
        match self {
            Prompt::Tokens(prompt) => Ok((Request { prompt, ..request }, None)),
            Prompt::Turn(turn) => {
                let (request, reader) = turn.get().request(request);
                Ok((request, Some(reader)))
            }
        }
    }
}

/// The characters that a token stands for: the first, and the one behind the last.
type Place = (usize, usize);

/// The characters of a text that tokens stand for.
fn places(text: &str, pieces: &[Piece]) -> Vec<Option<Place>> {
    // Places grow, so that the text is walked once.
    let (mut byte, mut chars) = (0, 0);
    let mut index_of = |at: usize| {
        if at < byte {
            (byte, chars) = (0, 0);
        }
        let at = (byte..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(byte);
        chars += text[byte..at].chars().count();
        byte = at;
        chars
    };
    let place =
        |piece: &Piece| piece.place.as_ref().map(|place| (index_of(place.start), index_of(place.end)));
    pieces.iter().map(place).collect()
}

/// f32[tokens, vocab]
fn logits(model: &Arc<TextModel>, tokens: &[u32]) -> Result<Buffer, Error> {
    let (window, mut rows) = (model.plan().max_length()?, Vec::new());
    visit_logits(model, tokens, window, window.div_ceil(2), |_, row| {
        rows.extend_from_slice(row);
        Ok::<(), Error>(())
    })?;
    Ok(Buffer(driver::Buffer::from_slice([tokens.len(), model.vocab()], &rows)))
}

/// Checks a request. Compiling its constraint takes time, so it runs without the GIL.
fn prepare(py: Python<'_>, generator: &TextGenerator, request: Request) -> PyResult<Result<Request, Error>> {
    if request.constraint.is_none() {
        return Ok(generator.prepare(request));
    }
    let generator = generator.clone();
    wait_for_thread(py, move || generator.prepare(request))
}

/// The number of values, their sum, and the numbers of values up to the bounds at which they change.
fn histogram(histogram: &Histogram) -> (u64, u64, Vec<(u64, u64)>) {
    let up_to = (0..Histogram::BUCKETS).map(|exponent| (1 << exponent, histogram.at_most(exponent)));
    let mut last = 0;
    let buckets = up_to.filter(|&(_, count)| std::mem::replace(&mut last, count) != count).collect();
    (histogram.count(), histogram.sum, buckets)
}

fn open(
    config: &PipelineConfig,
    num_threads: usize,
    chat_template: Option<&str>,
    session: Option<Arc<InferenceSession>>,
    progress: &Progress,
) -> Result<(TextGenerator, Arc<InferenceSession>), Error> {
    let plan = config.plan_or_built_in(machine())?;
    let template = chat_template.map(ChatTemplate::find).transpose()?;
    let session = session_for(plan.config(), num_threads, session)?;
    let fetch = &|event: FetchProgress<'_>| progress.fetch(event);
    let model = TextModel::from_plan_with(&session, plan, fetch, &mut |event| progress.load(event))?;
    let model = Arc::new(model);
    let generator = match template {
        Some(template) => TextGenerator::with_chat_template(model, template)?,
        None => TextGenerator::new(model)?,
    };
    Ok((generator, session))
}

/// The session that is given, else one on the devices of the configuration.
pub(super) fn session_for(
    config: &PipelineConfig,
    num_threads: usize,
    session: Option<Arc<InferenceSession>>,
) -> Result<Arc<InferenceSession>, Error> {
    match session {
        Some(session) => Ok(session),
        None => new_session(config, num_threads).map(Arc::new),
    }
}

/// A session on the devices of a configuration.
pub(crate) fn new_session(config: &PipelineConfig, num_threads: usize) -> Result<InferenceSession, Error> {
    // The CPU comes from the builder, which knows the number of threads.
    let devices = config.devices()?.into_iter().filter(|device| !device.is_host());
    let builder = InferenceSession::builder().devices(devices).num_threads(num_threads);
    Ok(builder.build()?)
}

fn json<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}
