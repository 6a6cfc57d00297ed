//! `POST /v1/chat/completions`: the next message of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use pipelines::{AnswerEvent, Chat, Prompt, Request, ToolCall};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::functions::{FunctionFields, function_finish};
use super::logprobs::{Logprobs, TokenEntry};
use super::prompt_logprobs::{PromptLogprobs, prompt_logprobs};
use super::unsupported::UnsupportedFields;
use super::{RequestMetrics, StreamOptions, Usage};
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::config::{KeepAlive, KeepAliveField};
use crate::fields::OutputFormatFields;
use crate::fields::conversation::ConversationFields;
use crate::fields::dry_run::DryRunField;
use crate::fields::timings::{PromptProgress, TelemetryFields, Timings};
use crate::generation::{Answer, Delta, Generation, PreparedPrompt, PromptSpec, Writer};
use crate::models::ActiveModel;
use crate::sampling::{Sampling, TokenLimit};
use crate::sse;
use crate::stamp::{call_id, now, unique_id};
use crate::state::Context;
use crate::state::ServerState;

/// A conversation to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatRequest {
    #[serde(flatten)]
    conversation: ConversationFields,
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    functions: FunctionFields,
    #[serde(flatten)]
    unsupported: UnsupportedFields,
    #[serde(flatten)]
    output_format: OutputFormatFields,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    telemetry: TelemetryFields,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// How far answers go, and how they are sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatAnswerFields)]
struct AnswerFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// The most tokens of the answer; the default, and -1, is all that the context has room for.
    #[serde(alias = "max_completion_tokens", alias = "n_predict")]
    #[schema(value_type = Option<i64>, minimum = -1)]
    max_tokens: Option<TokenLimit>,
    /// How many answers to make.
    #[schema(minimum = 1, maximum = 128)]
    n: Option<usize>,
    /// Whether the answer is sent as events while it is made.
    #[serde(default)]
    stream: Option<bool>,
    /// What a stream sends in addition.
    stream_options: Option<StreamOptions>,
    /// Whether to give the log-probabilities of the answer's tokens.
    logprobs: Option<bool>,
    /// How many of the likeliest tokens to give at each place.
    #[schema(maximum = 256)]
    top_logprobs: Option<usize>,
    /// Gives the log-probabilities of the prompt's tokens, and of this many of the likeliest at each place.
    #[schema(maximum = 256)]
    prompt_logprobs: Option<usize>,
    /// Whether the answer begins with the last message, if that is the assistant's.
    echo: Option<bool>,
    /// Whether to give the ids of the prompt's and the answer's tokens.
    return_token_ids: Option<bool>,
    /// Cuts the prompt to its last so many tokens; -1 cuts it to what the context has room for.
    #[schema(minimum = -1)]
    truncate_prompt_tokens: Option<i64>,
    /// Whether to give the times that the answers took.
    include_metrics: Option<bool>,
    /// How long the model stays in memory unused after the answer.
    #[schema(value_type = Option<KeepAliveField>)]
    keep_alive: Option<KeepAlive>,
}

impl RequestBody for ChatRequest {
    fn read(fields: &mut Fields) -> Result<ChatRequest, ApiError> {
        let functions = FunctionFields::read(fields)?;
        Ok(ChatRequest {
            conversation: fields.take().map_err(|error| functions.rename(error))?,
            functions,
            answer: fields.take()?,
            unsupported: fields.take()?,
            output_format: fields.take()?,
            sampling: fields.take()?,
            telemetry: fields.take()?,
            dry_run: fields.take()?,
        })
    }
}

/// The answers to a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    #[serde(flatten)]
    head: Head,
    choices: Vec<ChatChoice>,
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<u32>>,
    /// Of each token of the prompt; the first has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    prompt_logprobs: Option<Vec<Option<PromptLogprobs>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<RequestMetrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
}

/// What every object of one answer repeats.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ChatHead)]
struct Head {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    system_fingerprint: String,
}

/// An answer.
#[derive(Debug, Serialize, ToSchema)]
struct ChatChoice {
    index: usize,
    message: Message,
    logprobs: Option<Logprobs>,
    finish_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

/// What the assistant says.
#[derive(Debug, Serialize, ToSchema)]
struct Message {
    role: &'static str,
    /// `null` if there are calls and no text.
    content: Option<String>,
    refusal: Option<String>,
    /// The model's reasoning.
    #[serde(flatten)]
    reasoning: Reasoning,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
    /// The call, of a request with `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<CalledFunction>,
}

/// Reasoning, under the names of several APIs.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ChatReasoning)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
}

/// A call of a tool, or what it gains.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatToolCall)]
struct Call {
    /// From 0 in an answer; only in streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    function: CalledFunction,
}

/// The function of a call, or what its arguments gain.
#[derive(Debug, Serialize, ToSchema)]
struct CalledFunction {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// JSON.
    arguments: String,
}

/// A part of an answer as it is made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatChunk {
    #[serde(flatten)]
    head: Head,
    choices: Vec<ChunkChoice>,
    /// `null` in all chunks but the last, and absent unless it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
    /// Of the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<u32>>,
    /// Of the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<RequestMetrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<PromptProgress>,
}

/// What a choice gains.
#[derive(Debug, Serialize, ToSchema)]
struct ChunkChoice {
    index: usize,
    delta: MessageDelta,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

/// What a message gains.
#[derive(Debug, Default, Serialize, ToSchema)]
struct MessageDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(flatten)]
    reasoning: Reasoning,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
    /// Of a request with `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<CalledFunction>,
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    tag = "OpenAI",
    request_body = ChatRequest,
    responses((status = 200, description = "The answers, or with `stream` their events", content(
        (ChatCompletion = "application/json"),
        (ChatChunk = "text/event-stream")
    )))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(mut body): Body<ChatRequest>,
) -> Result<Response, ApiError> {
    let functions = std::mem::take(&mut body.functions);
    let has_functions = functions.are_given();
    let response = respond(&server, context.clone(), body, has_functions).await;
    functions.note(&context);
    response.map_err(|error| functions.rename(error))
}

/// Answers a conversation; with functions, calls have the older shape.
async fn respond(
    server: &ServerState,
    context: Context,
    body: ChatRequest,
    has_functions: bool,
) -> Result<Response, ApiError> {
    let ChatRequest {
        conversation, answer, unsupported, output_format, sampling, telemetry, dry_run, ..
    } = body;
    unsupported.check(&context)?;
    telemetry.note(answer.stream.unwrap_or(false), &context);
    let model = &server.models.acquire(answer.model.as_deref(), answer.keep_alive).await?;
    let is_cut = answer.truncate_prompt_tokens.is_some();
    let output_format = output_format.into_format(&context)?;
    let spec = PromptSpec { output_format, is_cut, ..conversation.into_prompt_spec()? };
    let echo = answer.echo_of(&spec, &context);
    let parameters = answer.parameters(model.request(sampling)?, model)?;
    let mut prepared = spec.prepare(model, &server.config, &context).await?;
    answer.cut(&mut prepared, model)?;
    let (request, parser_config) = prepared.into_request(parameters, model)?;
    let requests = vec![request];
    if let Some(counted) = dry_run.answer(model, &requests, &context) {
        return Ok(counted);
    }
    let gives_tokens = answer.return_token_ids.unwrap_or(false);
    let mut prompt_token_ids = gives_tokens.then(|| requests[0].prompt.clone());
    let n = answer.n.unwrap_or(1);
    let mut generation = Generation::start(model, requests, n, &parser_config, context).await?;
    let head = Head {
        id: unique_id("chatcmpl-"),
        object: "chat.completion",
        created: now(),
        model: model.id.clone(),
        system_fingerprint: server.fingerprint(model),
    };
    let gives_metrics = answer.include_metrics.unwrap_or(false);
    if answer.stream.unwrap_or(false) {
        let include_usage = answer.stream_options.is_some_and(StreamOptions::include_usage);
        let head = Head { object: "chat.completion.chunk", ..head };
        return Ok(generation.stream(Chunks {
            head,
            n,
            echo,
            has_functions,
            include_usage,
            gives_tokens,
            prompt_token_ids,
            gives_metrics,
            telemetry,
        }));
    }
    let answers = generation.answers().await?;
    let wants_prompt = answer.prompt_logprobs.is_some();
    let of_prompt = |answer: &Answer| prompt_logprobs(&answer.prompt);
    let completion = ChatCompletion {
        head,
        usage: generation.usage.into(),
        prompt_token_ids: prompt_token_ids.take(),
        prompt_logprobs: answers.first().filter(|_| wants_prompt).map(of_prompt),
        metrics: gives_metrics.then(|| RequestMetrics::new(generation.usage, generation.timings)),
        timings: telemetry.total(&generation),
        choices: answers
            .into_iter()
            .enumerate()
            .map(|(index, answer)| ChatChoice::new(index, &echo, answer, gives_tokens))
            .map(|choice| if has_functions { choice.with_function_call() } else { choice })
            .collect(),
    };
    Ok(Json(completion).into_response())
}

impl AnswerFields {
    /// The text that answers begin with: the last message, if the request wants that and it is the assistant's.
    fn echo_of(&self, spec: &PromptSpec, context: &Context) -> String {
        let (true, Prompt::Chat(Chat { messages, .. })) = (self.echo.unwrap_or(false), &spec.prompt) else {
            return String::new();
        };
        let last = messages.last().filter(|last| last["role"] == "assistant");
        if last.is_none() {
            context.note(|facts| facts.ignored.extend(["echo".to_string()]));
        }
        last.and_then(|last| last["content"].as_str()).unwrap_or_default().to_string()
    }

    /// Cuts the prompt if the request wants that.
    fn cut(&self, prepared: &mut PreparedPrompt, model: &ActiveModel) -> Result<(), ApiError> {
        let Some(count) = self.truncate_prompt_tokens else { return Ok(()) };
        let limit = model.max_length();
        // An answer of open length gets half of the context.
        let room = self.max_tokens.map_or(usize::MAX, TokenLimit::count).min(limit / 2).max(1);
        let kept = match count {
            -1 => limit.saturating_sub(room),
            count => usize::try_from(count).ok().filter(|&count| count > 0).ok_or_else(|| {
                let message = format!("truncate_prompt_tokens is {count}: give 1 or more, or -1");
                ApiError::invalid("truncate_prompt_tokens", message)
            })?,
        };
        prepared.own.tokens.drain(..prepared.own.tokens.len().saturating_sub(kept));
        Ok(())
    }

    /// A request for such answers.
    fn parameters(&self, request: Request, model: &ActiveModel) -> Result<Request, ApiError> {
        let max_tokens = self.max_tokens.map(TokenLimit::count);
        let wants_logprobs = self.logprobs.unwrap_or(false);
        if self.top_logprobs.is_some_and(|count| count > 0) && !wants_logprobs {
            return Err(ApiError::invalid("top_logprobs", "top_logprobs needs `logprobs: true`"));
        }
        if self.prompt_logprobs.is_some() && self.stream.unwrap_or(false) {
            return Err(ApiError::invalid("prompt_logprobs", "prompt_logprobs needs `stream: false`"));
        }
        Ok(Request {
            max_new_tokens: max_tokens.or(model.lengths().answer()).or(Some(usize::MAX)),
            logprobs: wants_logprobs.then_some(self.top_logprobs.unwrap_or(0)),
            prompt_logprobs: self.prompt_logprobs,
            ..request
        })
    }
}

impl ChatChoice {
    fn new(index: usize, echo: &str, answer: Answer, gives_tokens: bool) -> ChatChoice {
        let content: Vec<TokenEntry> = answer.logprobs.iter().map(TokenEntry::from).collect();
        let text = echo.to_string() + &answer.content.text();
        let tool_calls: Vec<Call> = answer.content.tool_calls().map(Call::whole).collect();
        let message = Message {
            role: "assistant",
            content: (tool_calls.is_empty() || !text.is_empty()).then_some(text),
            refusal: None,
            reasoning: Reasoning::new(answer.content.reasoning()),
            tool_calls,
            function_call: None,
        };
        ChatChoice {
            index,
            message,
            logprobs: (!content.is_empty()).then_some(Logprobs { content }),
            finish_reason: answer.finish.name(),
            token_ids: gives_tokens.then_some(answer.tokens),
        }
    }

    /// The same with its call in the older shape.
    fn with_function_call(mut self) -> ChatChoice {
        self.message.function_call = self.message.tool_calls.pop().map(|call| call.function);
        self.finish_reason = function_finish(self.finish_reason);
        self
    }
}

impl Reasoning {
    fn new(text: String) -> Reasoning {
        let text = Some(text).filter(|text| !text.is_empty());
        Reasoning { reasoning_content: text.clone(), reasoning: text }
    }
}

impl Call {
    fn whole(call: &ToolCall) -> Call {
        let ToolCall { name, arguments, .. } = call.clone();
        Call { index: None, ..Call::started(0, name, arguments) }
    }

    fn started(index: usize, name: String, arguments: String) -> Call {
        Call {
            index: Some(index),
            id: Some(call_id("call_")),
            r#type: Some("function"),
            function: CalledFunction { name: Some(name), arguments },
        }
    }

    fn more(index: usize, arguments: String) -> Call {
        Call {
            index: Some(index),
            id: None,
            r#type: None,
            function: CalledFunction { name: None, arguments },
        }
    }
}

impl MessageDelta {
    fn text(text: String) -> MessageDelta {
        MessageDelta { content: Some(text), ..MessageDelta::default() }
    }

    fn call(call: Call) -> MessageDelta {
        MessageDelta { tool_calls: vec![call], ..MessageDelta::default() }
    }

    /// The part of the message that an event adds, if any.
    fn from_event(event: AnswerEvent) -> Option<MessageDelta> {
        match event {
            AnswerEvent::Text(text) | AnswerEvent::ToolCallFailed { text, .. } => {
                Some(MessageDelta::text(text))
            }
            AnswerEvent::Reasoning(text) => {
                Some(MessageDelta { reasoning: Reasoning::new(text), ..MessageDelta::default() })
            }
            AnswerEvent::ToolCallStarted { index, name, .. } => {
                Some(MessageDelta::call(Call::started(index, name, String::new())))
            }
            AnswerEvent::ToolCallArguments { index, delta } => {
                Some(MessageDelta::call(Call::more(index, delta)))
            }
            AnswerEvent::ToolCallFinished { .. } => None,
        }
    }
}

impl ChunkChoice {
    fn new(index: usize, delta: MessageDelta) -> ChunkChoice {
        ChunkChoice { index, delta, logprobs: None, finish_reason: None, token_ids: None }
    }

    /// The same with its call in the older shape.
    fn with_function_call(mut self) -> ChunkChoice {
        self.delta.function_call = self.delta.tool_calls.pop().map(|call| call.function);
        self.finish_reason = self.finish_reason.map(function_finish);
        self
    }
}

/// How the events of answers are written.
struct Chunks {
    head: Head,
    n: usize,
    /// The text that answers begin with.
    echo: String,
    /// Whether calls have the older shape.
    has_functions: bool,
    include_usage: bool,
    /// Whether the ids of tokens are sent.
    gives_tokens: bool,
    /// Those of the prompt, until they are sent.
    prompt_token_ids: Option<Vec<u32>>,
    gives_metrics: bool,
    telemetry: TelemetryFields,
}

impl Writer for Chunks {
    fn begin(&mut self, out: &mut Vec<u8>) {
        for index in 0..self.n {
            let delta = MessageDelta { role: Some("assistant"), ..MessageDelta::text(String::new()) };
            let chunk = self.chunk(vec![ChunkChoice::new(index, delta)]);
            sse::data(out, &ChatChunk { prompt_token_ids: self.prompt_token_ids.take(), ..chunk });
            if !self.echo.is_empty() {
                self.send(out, ChunkChoice::new(index, MessageDelta::text(self.echo.clone())), None);
            }
        }
    }

    fn wait(&mut self, out: &mut Vec<u8>, index: usize) {
        self.send(out, ChunkChoice::new(index, MessageDelta::default()), None);
    }

    fn write(&mut self, out: &mut Vec<u8>, index: usize, delta: Delta, generation: &Generation) {
        if let Some(progress) = self.telemetry.progress(generation, index, &delta) {
            let chunk = self.chunk(vec![ChunkChoice::new(index, MessageDelta::default())]);
            sse::data(out, &ChatChunk { prompt_progress: Some(progress), ..chunk });
        }
        let timings = self.telemetry.timings(generation, index);
        match delta {
            Delta::Started | Delta::Prompt(_) => {}
            Delta::Token { token, logprobs, events } => {
                let logprobs = logprobs.map(|token| Logprobs { content: vec![TokenEntry::from(&token)] });
                let token_ids = self.gives_tokens.then(|| vec![token]);
                let mut deltas = events.into_iter().filter_map(MessageDelta::from_event);
                let first = match deltas.next() {
                    None if logprobs.is_none() && token_ids.is_none() => return,
                    first => first.unwrap_or_else(|| MessageDelta::text(String::new())),
                };
                self.send(
                    out,
                    ChunkChoice { logprobs, token_ids, ..ChunkChoice::new(index, first) },
                    timings,
                );
                deltas.for_each(|delta| self.send(out, ChunkChoice::new(index, delta), timings));
            }
            Delta::Finished { events, finish } => {
                let deltas = events.into_iter().filter_map(MessageDelta::from_event);
                deltas.for_each(|delta| self.send(out, ChunkChoice::new(index, delta), timings));
                let finish_reason = Some(finish.name());
                let end = ChunkChoice { finish_reason, ..ChunkChoice::new(index, MessageDelta::default()) };
                self.send(out, end, timings);
            }
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        sse::data(out, &error.to_openai());
        sse::done(out);
    }

    fn end(&mut self, out: &mut Vec<u8>, generation: &Generation) {
        if self.include_usage || self.gives_metrics {
            let usage = self.include_usage.then(|| Some(generation.usage.into()));
            let metrics =
                self.gives_metrics.then(|| RequestMetrics::new(generation.usage, generation.timings));
            let timings = self.telemetry.total(generation);
            sse::data(out, &ChatChunk { usage, metrics, timings, ..self.chunk(Vec::new()) });
        }
        sse::done(out);
    }
}

impl Chunks {
    fn send(&self, out: &mut Vec<u8>, choice: ChunkChoice, timings: Option<Timings>) {
        let choice = if self.has_functions { choice.with_function_call() } else { choice };
        sse::data(out, &ChatChunk { timings, ..self.chunk(vec![choice]) });
    }

    fn chunk(&self, choices: Vec<ChunkChoice>) -> ChatChunk {
        let usage = self.include_usage.then_some(None);
        let head = self.head.clone();
        ChatChunk {
            head,
            choices,
            usage,
            prompt_token_ids: None,
            metrics: None,
            timings: None,
            prompt_progress: None,
        }
    }
}
