//! `POST /v1/completions`: texts to continue.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use indexmap::IndexMap;
use pipelines::{InfillTexts, Prompt, Request, TokenLogprobs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::logprobs::finite;
use super::{StreamOptions, Usage};
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::config::{KeepAlive, KeepAliveField};
use crate::fields::OutputFormatFields;
use crate::fields::dry_run::DryRunField;
use crate::fields::texts::{TextInput, TextObject, TextParts, TextPiece};
use crate::fields::timings::{PromptProgress, TelemetryFields, Timings};
use crate::generation::{Delta, Generation, ParserConfig, PromptSpec, PromptToken, Writer, infill, text_of};
use crate::sampling::{Sampling, TokenLimit};
use crate::sse;
use crate::stamp::{now, unique_id};
use crate::state::Context;
use crate::state::ServerState;

/// The most prompts of a request.
const MAX_PROMPTS: usize = 1024;
/// The length of answers to requests that do not set it, as in the OpenAI API.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Texts to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
    #[serde(flatten)]
    texts: Texts,
    #[serde(flatten)]
    output_format: OutputFormatFields,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    telemetry: TelemetryFields,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// The fields of the texts.
#[derive(Debug, Deserialize, ToSchema)]
struct Texts {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// A text, the tokens of a text with texts between them, or a list of these.
    prompt: Prompts,
    /// The most tokens of an answer; 0 only reads the prompt, and -1 is all that the context has room for.
    #[serde(alias = "max_completion_tokens", alias = "n_predict")]
    #[schema(value_type = Option<i64>, minimum = -1)]
    max_tokens: Option<TokenLimit>,
    /// How many answers to make for each prompt.
    #[schema(minimum = 1, maximum = 128)]
    n: Option<usize>,
    /// Whether the answers are sent as events while they are made.
    stream: Option<bool>,
    /// What a stream sends in addition.
    stream_options: Option<StreamOptions>,
    /// Gives the log-probabilities of the tokens, and of this many of the likeliest at each place.
    #[schema(maximum = 256)]
    logprobs: Option<usize>,
    /// Whether the prompt comes before the answer.
    echo: Option<bool>,
    /// The text after the answer, which then fills the gap between the prompt and it, by models that can.
    suffix: Option<String>,
    /// How long the model stays in memory unused after the answer.
    #[schema(value_type = Option<KeepAliveField>)]
    keep_alive: Option<KeepAlive>,
}

/// Texts, or their tokens.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "give a text, a list of tokens and texts, or a list of these")]
pub(crate) enum Prompts {
    Text(String),
    Several(Vec<TextInput>),
    Pieces(Vec<TextPiece>),
    Object(TextObject),
    Parts(TextParts),
}

impl Prompts {
    /// The prompts.
    ///
    /// # Errors
    /// If there are none, or too many.
    pub(crate) fn into_list(self) -> Result<Vec<TextInput>, ApiError> {
        let prompts = match self {
            Prompts::Text(text) => vec![TextInput::Text(text)],
            Prompts::Several(prompts) => prompts,
            Prompts::Pieces(pieces) => vec![TextInput::Pieces(pieces)],
            Prompts::Object(object) => vec![TextInput::Object(object)],
            Prompts::Parts(parts) => vec![TextInput::Parts(parts)],
        };
        if prompts.is_empty() || prompts.len() > MAX_PROMPTS {
            let message = format!("prompt has {} texts: give 1 to {MAX_PROMPTS}", prompts.len());
            return Err(ApiError::invalid("prompt", message));
        }
        Ok(prompts)
    }
}

impl RequestBody for CompletionRequest {
    fn read(fields: &mut Fields) -> Result<CompletionRequest, ApiError> {
        Ok(CompletionRequest {
            texts: fields.take()?,
            output_format: fields.take()?,
            sampling: fields.take()?,
            telemetry: fields.take()?,
            dry_run: fields.take()?,
        })
    }
}

/// The answers to texts, and the shape of the events of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Completion {
    #[serde(flatten)]
    head: Head,
    choices: Vec<CompletionChoice>,
    /// `null` in all events but the last, and absent unless it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<PromptProgress>,
}

/// What every object of one answer repeats.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = CompletionHead)]
struct Head {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    system_fingerprint: String,
}

/// An answer, or what it gains.
#[derive(Debug, Default, Serialize, ToSchema)]
struct CompletionChoice {
    text: String,
    index: usize,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
}

/// Log-probabilities in the shape of the older API.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[schema(as = CompletionLogprobs)]
struct Logprobs {
    /// The texts of the tokens.
    tokens: Vec<String>,
    /// `null` for the first token of a prompt.
    token_logprobs: Vec<Option<f32>>,
    /// The likeliest tokens at each place.
    top_logprobs: Vec<Option<IndexMap<String, f32>>>,
    /// Where each token begins in the text, in characters.
    text_offset: Vec<usize>,
}

impl Logprobs {
    /// Adds a token that begins at `offset`.
    fn push(&mut self, text: &str, logprobs: Option<&TokenLogprobs>, offset: usize) {
        let chosen = logprobs.map(|logprobs| logprobs.chosen.text().into_owned());
        self.tokens.push(chosen.unwrap_or_else(|| text.to_string()));
        self.token_logprobs.push(logprobs.map(|logprobs| finite(logprobs.chosen.logprob)));
        let top = |logprobs: &TokenLogprobs| {
            let chosen = std::iter::once(&logprobs.chosen);
            let all = logprobs.top.iter().chain(chosen);
            all.map(|choice| (choice.text().into_owned(), finite(choice.logprob))).collect()
        };
        self.top_logprobs.push(logprobs.map(top));
        self.text_offset.push(offset);
    }
}

/// Continues texts.
#[utoipa::path(
    post,
    path = "/v1/completions",
    tag = "OpenAI",
    request_body = CompletionRequest,
    responses((status = 200, description = "The answers, or with `stream` their events", content(
        (Completion = "application/json"),
        (Completion = "text/event-stream")
    )))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<CompletionRequest>,
) -> Result<Response, ApiError> {
    respond(&server, context, body).await
}

/// Continues texts.
pub(crate) async fn respond(
    server: &ServerState,
    context: Context,
    body: CompletionRequest,
) -> Result<Response, ApiError> {
    let CompletionRequest { texts, output_format, sampling, telemetry, dry_run } = body;
    let model = &server.models.acquire(texts.model.as_deref(), texts.keep_alive).await?;
    let n = texts.n.unwrap_or(1);
    let (stream, include_usage) =
        (texts.stream.unwrap_or(false), texts.stream_options.is_some_and(StreamOptions::include_usage));
    telemetry.note(stream, &context);
    let (max_tokens, gives_logprobs) = (texts.max_tokens.map(TokenLimit::count), texts.logprobs.is_some());
    let parameters = Request {
        max_new_tokens: max_tokens.or(model.lengths().answer()).or(Some(DEFAULT_MAX_TOKENS)),
        logprobs: texts.logprobs,
        echo: texts.echo.unwrap_or(false),
        ..model.request(sampling)?
    };
    let (output_format, suffix) =
        (output_format.into_format(&context)?, texts.suffix.filter(|suffix| !suffix.is_empty()));
    if suffix.is_some() && parameters.echo {
        return Err(ApiError::invalid(
            "echo",
            "echo: a prompt with a `suffix` does not come back; leave one out",
        ));
    }
    let mut requests = Vec::new();
    for prompt in texts.prompt.into_list()? {
        let prompt = match (prompt.into_prompt(model).await?, &suffix) {
            (Prompt::Text { text, .. }, Some(suffix)) => {
                let texts = InfillTexts { before: text, after: suffix.clone(), ..InfillTexts::default() };
                infill::prompt(model, texts, usize::MAX, "suffix").await?.tokens.into()
            }
            (_, Some(_)) => {
                return Err(ApiError::invalid("suffix", "suffix: give the prompt as a text, not as tokens"));
            }
            (prompt, None) => prompt,
        };
        let spec = PromptSpec { output_format: output_format.clone(), ..prompt.into() };
        let prepared = spec.prepare(model, &server.config, &context).await?;
        requests.push(prepared.into_request(parameters.clone(), model)?.0);
    }
    if let Some(counted) = dry_run.answer(model, &requests, &context) {
        return Ok(counted);
    }
    let answers = requests.len() * n;
    let generation = Generation::start(model, requests, n, &ParserConfig::default(), context).await?;
    let head = Head {
        id: unique_id("cmpl-"),
        object: "text_completion",
        created: now(),
        model: model.id.clone(),
        system_fingerprint: server.fingerprint(model),
    };
    if stream {
        let offsets = vec![0; answers];
        return Ok(generation.stream(Chunks { head, offsets, gives_logprobs, include_usage, telemetry }));
    }
    let logprobs = gives_logprobs.then(Logprobs::default);
    let empty = |index| CompletionChoice { index, logprobs: logprobs.clone(), ..CompletionChoice::default() };
    let choices = (0..answers).map(empty).collect();
    Ok(Json(collect(generation, head, choices, telemetry).await?).into_response())
}

/// Waits for all answers, which begin as empty choices.
async fn collect(
    mut generation: Generation,
    head: Head,
    mut choices: Vec<CompletionChoice>,
    telemetry: TelemetryFields,
) -> Result<Completion, ApiError> {
    generation.expect_small()?;
    let mut offsets = vec![0; choices.len()];
    while let Some(event) = generation.next().await {
        let (index, delta) = event?;
        choices[index].take(delta, &mut offsets[index]);
    }
    let (usage, timings) = (Some(Some(generation.usage.into())), telemetry.total(&generation));
    Ok(Completion { head, choices, usage, timings, prompt_progress: None })
}

impl CompletionChoice {
    /// Adds a delta. `offset` is the number of characters before it. Tokens of the prompt are listed if the answer has
    /// log-probabilities.
    fn take(&mut self, delta: Delta, offset: &mut usize) {
        let (text, logprobs) = match delta {
            Delta::Started => return,
            Delta::Prompt(PromptToken { text, logprobs }) => {
                if let Some(list) = &mut self.logprobs {
                    list.push(&text, logprobs.as_ref(), *offset);
                }
                (text, None)
            }
            Delta::Token { logprobs, events, .. } => (text_of(events), logprobs),
            Delta::Finished { events, finish } => {
                self.finish_reason = Some(finish.name());
                (text_of(events), None)
            }
        };
        if let Some(logprobs) = logprobs {
            self.logprobs.get_or_insert_default().push(&text, Some(&logprobs), *offset);
        }
        *offset += text.chars().count();
        self.text.push_str(&text);
    }
}

/// How the events of answers are written.
struct Chunks {
    head: Head,
    /// The characters of each answer so far.
    offsets: Vec<usize>,
    gives_logprobs: bool,
    include_usage: bool,
    telemetry: TelemetryFields,
}

impl Writer for Chunks {
    fn wait(&mut self, out: &mut Vec<u8>, index: usize) {
        sse::data(out, &self.chunk(vec![CompletionChoice { index, ..CompletionChoice::default() }]));
    }

    fn write(&mut self, out: &mut Vec<u8>, index: usize, delta: Delta, generation: &Generation) {
        if let Some(progress) = self.telemetry.progress(generation, index, &delta) {
            let choice = CompletionChoice { index, ..CompletionChoice::default() };
            let chunk = self.chunk(vec![choice]);
            sse::data(out, &Completion { prompt_progress: Some(progress), ..chunk });
        }
        let logprobs = self.gives_logprobs.then(Logprobs::default);
        let mut choice = CompletionChoice { index, logprobs, ..CompletionChoice::default() };
        choice.take(delta, &mut self.offsets[index]);
        choice.logprobs.take_if(|list| list.tokens.is_empty());
        if !choice.text.is_empty() || choice.finish_reason.is_some() || choice.logprobs.is_some() {
            let timings = self.telemetry.timings(generation, index);
            sse::data(out, &Completion { timings, ..self.chunk(vec![choice]) });
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        sse::data(out, &error.to_openai());
        sse::done(out);
    }

    fn end(&mut self, out: &mut Vec<u8>, generation: &Generation) {
        if self.include_usage {
            let (usage, timings) = (Some(Some(generation.usage.into())), self.telemetry.total(generation));
            sse::data(out, &Completion { usage, timings, ..self.chunk(Vec::new()) });
        }
        sse::done(out);
    }
}

impl Chunks {
    fn chunk(&self, choices: Vec<CompletionChoice>) -> Completion {
        let usage = self.include_usage.then_some(None);
        Completion { head: self.head.clone(), choices, usage, timings: None, prompt_progress: None }
    }
}
