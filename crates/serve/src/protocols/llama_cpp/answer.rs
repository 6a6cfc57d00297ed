//! Answers in the shape of llama.cpp's own routes: how requests ask for them, and how they are sent.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use pipelines::{LogprobsMode, Prompt, Request, SkipSpecial, TokenLogprob, TokenLogprobs, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::config::{KeepAlive, KeepAliveField};
use crate::fields::OutputFormatFields;
use crate::fields::dry_run::DryRunField;
use crate::fields::timings::{PromptProgress, TelemetryFields, Timings};
use crate::generation::{AnswerStats, Delta, Finish, Generation, ParserConfig, PromptSpec, Writer, text_of};
use crate::models::ActiveModel;
use crate::protocols::openai::logprobs::finite;
use crate::sampling::{Sampling, TokenLimit};
use crate::sse;
use crate::state::Context;
use crate::state::ServerState;

/// The number of no slot: requests are not bound to slots.
const NO_SLOT: i32 = -1;

/// How far answers go, and what is sent of them.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NativeAnswerFields)]
pub(super) struct AnswerFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// The most tokens of an answer; the default, and -1, is all that the context has room for.
    #[serde(alias = "max_tokens")]
    #[schema(value_type = Option<i64>, minimum = -1)]
    n_predict: Option<TokenLimit>,
    /// How many answers to make for each prompt.
    #[serde(alias = "n")]
    #[schema(minimum = 1, maximum = 128)]
    n_cmpl: Option<usize>,
    /// Gives the log-probabilities of the tokens, and of this many of the likeliest at each place; 0 gives none.
    #[schema(maximum = 256)]
    n_probs: Option<usize>,
    /// Whether `n_probs` gives probabilities after penalties, temperature and filters, as `prob` and `top_probs`; tokens
    /// that a filter left out are not among them.
    post_sampling_probs: Option<bool>,
    /// Whether the answer is sent as events while it is made.
    stream: Option<bool>,
    /// Whether a whole answer has the ids of its tokens; events always have them.
    return_tokens: Option<bool>,
    /// Fields that the answer is to have, in place of all; `/` is between a field and one in it.
    response_fields: Option<Vec<String>>,
    /// How long the model stays in memory unused after the answer.
    #[schema(value_type = Option<KeepAliveField>)]
    keep_alive: Option<KeepAlive>,
}

/// A request, apart from its prompts.
pub(super) struct CompletionTask<'a> {
    pub(super) server: &'a ServerState,
    pub(super) model: &'a Arc<ActiveModel>,
    pub(super) context: Context,
    pub(super) answer: AnswerFields,
    pub(super) output_format: OutputFormatFields,
    pub(super) sampling: Sampling,
    pub(super) telemetry: TelemetryFields,
    pub(super) dry_run: DryRunField,
    /// Whether the prompt was cut to make room.
    pub(super) is_cut: bool,
}

/// An answer, or a list of those to several prompts.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum NativeAnswer {
    One(Box<NativeCompletion>),
    Several(Vec<NativeCompletion>),
}

/// An answer, and the last event of one. With `response_fields`, it has only these.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(default)]
pub(crate) struct NativeCompletion {
    index: usize,
    content: String,
    tokens: Vec<u32>,
    /// -1: requests are not bound to slots.
    id_slot: i32,
    stop: bool,
    model: String,
    /// Tokens of the answer.
    tokens_predicted: usize,
    /// Tokens of the prompt.
    tokens_evaluated: usize,
    generation_settings: GenerationSettings,
    /// The text of the prompt, with its special tokens.
    prompt: String,
    has_new_line: bool,
    /// Whether the prompt was cut, or the answer ended because the context is full.
    truncated: bool,
    /// `eos`, `limit`, or `word` at a text that ends answers.
    stop_type: &'static str,
    stopping_word: String,
    /// Tokens of the prompt and the answer.
    tokens_cached: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_probabilities: Option<Vec<NativeProbability>>,
    timings: Timings,
}

/// A part of an answer as it is made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NativeChunk {
    index: usize,
    content: String,
    tokens: Vec<u32>,
    /// `false`.
    stop: bool,
    /// -1: requests are not bound to slots.
    id_slot: i32,
    /// Tokens of the answer so far.
    tokens_predicted: usize,
    /// Tokens of the prompt.
    tokens_evaluated: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_probabilities: Option<Vec<NativeProbability>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<PromptProgress>,
}

/// How the tokens of an answer are chosen, and where it ends.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(super) struct GenerationSettings {
    /// -1 means unlimited.
    n_predict: i64,
    seed: u64,
    temperature: f32,
    /// 0 is all tokens.
    top_k: usize,
    top_p: f32,
    min_p: f32,
    repeat_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    stop: Vec<String>,
    ignore_eos: bool,
    logit_bias: Vec<TokenBias>,
    n_probs: usize,
    post_sampling_probs: bool,
}

/// A bias that is added to the logit of a token.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct TokenBias {
    token: u32,
    /// `null` is minus infinity: the token cannot be chosen.
    bias: Option<f32>,
}

/// A token of an answer, and the likeliest tokens at its place.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NativeProbability {
    #[serde(flatten)]
    chosen: NativeToken,
    #[serde(flatten)]
    top: NativeTop,
}

/// The likeliest tokens at a place.
#[derive(Debug, Serialize, ToSchema)]
enum NativeTop {
    #[serde(rename = "top_logprobs")]
    Logprobs(Vec<NativeToken>),
    /// With `post_sampling_probs`.
    #[serde(rename = "top_probs")]
    Probs(Vec<NativeToken>),
}

/// A token and how probable it is.
#[derive(Debug, Serialize, ToSchema)]
struct NativeToken {
    id: u32,
    token: String,
    bytes: Vec<u8>,
    #[serde(flatten)]
    score: NativeScore,
}

/// How probable a token is.
#[derive(Debug, Serialize, ToSchema)]
enum NativeScore {
    #[serde(rename = "logprob")]
    Logprob(f32),
    /// With `post_sampling_probs`.
    #[serde(rename = "prob")]
    Prob(f32),
}

impl AnswerFields {
    /// The model of the request.
    pub(super) async fn model(&self, server: &ServerState) -> Result<Arc<ActiveModel>, ApiError> {
        server.models.acquire(self.model.as_deref(), self.keep_alive).await
    }

    fn logprobs_mode(&self) -> LogprobsMode {
        if self.post_sampling_probs.unwrap_or(false) { LogprobsMode::Processed } else { LogprobsMode::Raw }
    }

    /// The most tokens of an answer, if the request says.
    pub(super) fn limit(&self) -> Option<usize> {
        self.n_predict.map(TokenLimit::count).filter(|&count| count != usize::MAX)
    }
}

impl CompletionTask<'_> {
    /// Answers prompts.
    ///
    /// # Errors
    /// If one cannot be answered so.
    pub(super) async fn answer(self, prompts: Vec<Prompt>) -> Result<Response, ApiError> {
        // Errors of the library have its names.
        self.respond(prompts)
            .await
            .map_err(|error| error.rename("logprobs", "n_probs").rename("max_tokens", "n_predict"))
    }

    async fn respond(self, prompts: Vec<Prompt>) -> Result<Response, ApiError> {
        let CompletionTask {
            server,
            model,
            context,
            answer,
            output_format,
            sampling,
            telemetry,
            dry_run,
            is_cut,
        } = self;
        telemetry.note(answer.stream.unwrap_or(false), &context);
        let limit = answer.n_predict.map(TokenLimit::count).or(model.lengths().answer());
        let parameters = Request {
            max_new_tokens: Some(limit.unwrap_or(usize::MAX)),
            logprobs: answer.n_probs.filter(|&count| count > 0),
            logprobs_mode: answer.logprobs_mode(),
            ..model.request(sampling)?
        };
        let output_format = output_format.into_format(&context)?;
        let is_list = prompts.len() > 1;
        let mut requests = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let spec = PromptSpec { output_format: output_format.clone(), ..prompt.into() };
            let prepared = spec.prepare(model, &server.config, &context).await?;
            requests.push(prepared.into_request(parameters.clone(), model)?.0);
        }
        if let Some(counted) = dry_run.answer(model, &requests, &context) {
            return Ok(counted);
        }
        let n = answer.n_cmpl.unwrap_or(1);
        let tokenizer = model.loaded.tokenizer();
        let shape = Shape {
            model: model.id.clone(),
            settings: GenerationSettings::new(&parameters, tokenizer),
            prompts: requests.iter().map(|one| tokenizer.decode(&one.prompt, SkipSpecial::No)).collect(),
            n,
            max_length: model.max_length(),
            is_cut,
            telemetry,
            fields: answer.response_fields.unwrap_or_default(),
        };
        let mut generation = Generation::start(model, requests, n, &ParserConfig::default(), context).await?;
        if answer.stream.unwrap_or(false) {
            let has_new_line = vec![false; shape.prompts.len() * n];
            return Ok(generation.stream(Chunks { shape, has_new_line }));
        }
        let gives_tokens = answer.return_tokens.unwrap_or(false);
        let answers = generation.answers().await?.into_iter().enumerate().map(|(index, answer)| {
            let content = answer.content.text();
            let probabilities = answer.logprobs.iter().map(|place| shape.probability(place)).collect();
            let whole = shape.whole(index, answer.finish, generation.stats(index));
            NativeCompletion {
                has_new_line: content.contains('\n'),
                content,
                tokens: if gives_tokens { answer.tokens } else { Vec::new() },
                completion_probabilities: parameters.logprobs.map(|_| probabilities),
                ..whole
            }
        });
        Ok(shape.respond(answers.collect(), is_list))
    }
}

/// The facts that all answers to a request share.
struct Shape {
    model: String,
    settings: GenerationSettings,
    prompts: Vec<String>,
    /// How many answers each prompt gets.
    n: usize,
    max_length: usize,
    is_cut: bool,
    telemetry: TelemetryFields,
    fields: Vec<String>,
}

impl Shape {
    /// An answer that has ended, without its text.
    fn whole(&self, index: usize, finish: Finish, stats: &AnswerStats) -> NativeCompletion {
        let usage = stats.usage;
        let tokens = usage.prompt_tokens + usage.generated_tokens;
        let is_full = finish == Finish::Length && tokens >= self.max_length;
        let stopping_word = match finish {
            Finish::StopString(index) => self.settings.stop.get(index).cloned().unwrap_or_default(),
            _ => String::new(),
        };
        NativeCompletion {
            index,
            id_slot: NO_SLOT,
            stop: true,
            model: self.model.clone(),
            tokens_predicted: usage.generated_tokens,
            tokens_evaluated: usage.prompt_tokens,
            generation_settings: self.settings.clone(),
            prompt: self.prompts[index / self.n].clone(),
            truncated: self.is_cut || is_full,
            stop_type: match finish {
                Finish::StopString(_) => "word",
                Finish::Length => "limit",
                Finish::Stop | Finish::ToolCalls => "eos",
            },
            stopping_word,
            tokens_cached: tokens,
            timings: Timings::from(stats),
            ..NativeCompletion::default()
        }
    }

    /// A token of an answer, and the likeliest tokens at its place.
    fn probability(&self, place: &TokenLogprobs) -> NativeProbability {
        let is_processed = self.settings.post_sampling_probs;
        let token = |choice: &TokenLogprob| NativeToken {
            id: choice.token,
            token: choice.text().into_owned(),
            bytes: choice.bytes.clone(),
            score: match is_processed {
                true => NativeScore::Prob(choice.logprob.exp()),
                false => NativeScore::Logprob(finite(choice.logprob)),
            },
        };
        let top = place.top.iter().map(token).collect();
        NativeProbability {
            chosen: token(&place.chosen),
            top: if is_processed { NativeTop::Probs(top) } else { NativeTop::Logprobs(top) },
        }
    }

    /// The response with whole answers: one, unless there are several or the prompts are a list.
    fn respond(&self, mut answers: Vec<NativeCompletion>, is_list: bool) -> Response {
        let answer = match answers.pop() {
            Some(only) if answers.is_empty() && !is_list => NativeAnswer::One(Box::new(only)),
            last => NativeAnswer::Several(answers.into_iter().chain(last).collect()),
        };
        match answer {
            answer if self.fields.is_empty() => Json(answer).into_response(),
            NativeAnswer::One(answer) => Json(self.select(&answer)).into_response(),
            NativeAnswer::Several(answers) => {
                let selected: Vec<Value> = answers.iter().map(|answer| self.select(answer)).collect();
                Json(selected).into_response()
            }
        }
    }

    /// The fields of an answer that the request wants.
    fn select(&self, answer: &NativeCompletion) -> Value {
        let answer = serde_json::to_value(answer).expect("the fields have text keys");
        let field = |path: &String| Some((path.clone(), answer.pointer(&format!("/{path}"))?.clone()));
        self.fields.iter().filter_map(field).collect::<Map<String, Value>>().into()
    }

    fn chunk(index: usize, generation: &Generation) -> NativeChunk {
        let usage = generation.stats(index).usage;
        NativeChunk {
            index,
            content: String::new(),
            tokens: Vec::new(),
            stop: false,
            id_slot: NO_SLOT,
            tokens_predicted: usage.generated_tokens,
            tokens_evaluated: usage.prompt_tokens,
            completion_probabilities: None,
            timings: None,
            prompt_progress: None,
        }
    }
}

/// How the events of answers are written.
struct Chunks {
    shape: Shape,
    /// Of each answer so far.
    has_new_line: Vec<bool>,
}

impl Writer for Chunks {
    fn wait(&mut self, out: &mut Vec<u8>, _index: usize) {
        out.extend_from_slice(b":\n\n");
    }

    fn write(&mut self, out: &mut Vec<u8>, index: usize, delta: Delta, generation: &Generation) {
        let chunk = Shape::chunk(index, generation);
        let telemetry = self.shape.telemetry;
        if let Some(progress) = telemetry.progress(generation, index, &delta) {
            let chunk = Shape::chunk(index, generation);
            sse::data(out, &NativeChunk { prompt_progress: Some(progress), ..chunk });
        }
        match delta {
            Delta::Started | Delta::Prompt(_) => {}
            Delta::Token { token, logprobs, events } => {
                let content = text_of(events);
                self.has_new_line[index] |= content.contains('\n');
                let completion_probabilities = logprobs.map(|place| vec![self.shape.probability(&place)]);
                let timings = telemetry.timings(generation, index);
                let tokens = vec![token];
                sse::data(out, &NativeChunk { content, tokens, completion_probabilities, timings, ..chunk });
            }
            Delta::Finished { events, finish } => {
                let content = text_of(events);
                let has_new_line = self.has_new_line[index] || content.contains('\n');
                let whole = self.shape.whole(index, finish, generation.stats(index));
                let whole = NativeCompletion { content, has_new_line, ..whole };
                if self.shape.fields.is_empty() {
                    sse::data(out, &whole);
                } else {
                    sse::data(out, &self.shape.select(&whole));
                }
            }
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        sse::data(out, &error.to_openai());
    }

    fn end(&mut self, _out: &mut Vec<u8>, _generation: &Generation) {}
}

impl GenerationSettings {
    /// The settings of a request to the model of a tokenizer.
    pub(super) fn new(request: &Request, tokenizer: &Tokenizer) -> GenerationSettings {
        let params = request.sampling.params();
        let limit = request.max_new_tokens.and_then(|count| i64::try_from(count).ok());
        let given = request.logit_bias.iter().map(|(&token, &bias)| TokenBias { token, bias: Some(bias) });
        let ends = tokenizer.eos_ids().iter().filter(|_| request.ignore_eos);
        let never = ends.map(|&token| TokenBias { token, bias: None });
        GenerationSettings {
            n_predict: limit.unwrap_or(-1),
            seed: request.seed,
            temperature: params.temperature,
            top_k: params.top_k.filter(|&count| count != usize::MAX).unwrap_or(0),
            top_p: params.top_p,
            min_p: params.min_p,
            repeat_penalty: params.repetition_penalty,
            presence_penalty: params.presence_penalty,
            frequency_penalty: params.frequency_penalty,
            stop: request.stop.clone(),
            ignore_eos: request.ignore_eos,
            logit_bias: given.chain(never).collect(),
            n_probs: request.logprobs.unwrap_or(0),
            post_sampling_probs: request.logprobs_mode == LogprobsMode::Processed,
        }
    }
}
