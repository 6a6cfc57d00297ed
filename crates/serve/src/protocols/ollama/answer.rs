//! Answers as lines of JSON, the same for `/api/generate` and `/api/chat`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use pipelines::{AnswerEvent, Constraint, Request, Thinking, TokenLogprobs, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::options::{Fitted, Options, in_options};
use super::{append, error_object};
use crate::api_error::ApiError;
use crate::config::{KeepAlive, KeepAliveField};
use crate::fields::dry_run::DryRunField;
use crate::generation::{
    Delta, Finish, Generation, OutputFormat, PromptSpec, Timings, Usage, Writer, schema_constraint,
};
use crate::models::{ActiveModel, Models};
use crate::protocols::openai::logprobs::TokenEntry;
use crate::sse;
use crate::stamp::rfc3339;
use crate::state::Context;
use crate::state::ServerState;

/// Fields of both routes.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaAnswerFields)]
pub(super) struct AnswerFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    pub(super) model: Option<String>,
    /// Whether the answer is sent line by line while it is made; true by default.
    stream: Option<bool>,
    /// Whether a prompt that is too long is cut from the front; the answer then has `truncated_tokens`.
    truncate: Option<bool>,
    /// Whether to give the log-probabilities of the answer's tokens.
    logprobs: Option<bool>,
    /// How many of the likeliest tokens to give at each place.
    #[schema(maximum = 256)]
    top_logprobs: Option<usize>,
    /// How long the model stays in memory unused after the answer.
    #[schema(value_type = Option<KeepAliveField>)]
    pub(super) keep_alive: Option<KeepAlive>,
    /// The form of the text: `json`, or a JSON schema.
    #[schema(value_type = Option<Object>)]
    format: Option<Value>,
    /// Whether the model reasons before it answers: a bool, or `low`, `medium` or `high`.
    #[schema(value_type = Option<Object>)]
    think: Option<Value>,
}

/// Which route is answered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Generate,
    Chat,
}

/// An answer, or what it gains.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnswerLine {
    model: String,
    /// When the line was made.
    created_at: String,
    /// The text, of `/api/generate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<String>,
    /// The text, of `/api/chat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<LineMessage>,
    /// The model's reasoning, of `/api/generate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    /// Whether this is the last line.
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenEntry>>,
    /// Of the last line.
    #[serde(flatten)]
    end: Option<End>,
}

/// What the assistant says.
#[derive(Debug, Serialize, ToSchema)]
struct LineMessage {
    role: &'static str,
    content: String,
    /// The model's reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    /// Each in one line, once it is whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<LineCall>,
}

/// A call of a tool.
#[derive(Debug, Serialize, ToSchema)]
struct LineCall {
    function: LineFunction,
}

/// The function of a call.
#[derive(Debug, Serialize, ToSchema)]
struct LineFunction {
    /// From 0 in an answer.
    index: usize,
    name: String,
    #[schema(value_type = Object)]
    arguments: Value,
}

/// The part of an answer that a line holds.
#[derive(Debug, Default)]
struct Gain {
    text: String,
    thinking: Option<String>,
    calls: Vec<LineCall>,
}

impl From<&ToolCall> for LineCall {
    fn from(ToolCall { index, name, arguments, .. }: &ToolCall) -> LineCall {
        // Numbers beyond those of JSON values stay as they were written.
        let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.clone().into());
        LineCall { function: LineFunction { index: *index, name: name.clone(), arguments } }
    }
}

/// Why an answer ended, and what it took. Durations are nanoseconds; the total is the sum of the others.
#[derive(Debug, Serialize, ToSchema)]
struct End {
    /// `stop`, `length`, or for an empty prompt `load` or `unload`.
    done_reason: &'static str,
    /// Tokens that were cut from the front of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_tokens: Option<usize>,
    total_duration: u64,
    /// In the queue.
    load_duration: u64,
    /// Tokens of the prompt, those in the cache included.
    prompt_eval_count: usize,
    /// Until the first token of the answer.
    prompt_eval_duration: u64,
    /// Tokens of the answer.
    eval_count: usize,
    /// From the first token to the end.
    eval_duration: u64,
}

impl AnswerFields {
    /// Answers a prompt.
    ///
    /// # Errors
    /// If the request is refused.
    pub(super) async fn answer(
        self,
        spec: PromptSpec,
        options: Options,
        dry_run: DryRunField,
        shape: Shape,
        route: Route<'_>,
    ) -> Result<Response, ApiError> {
        let Route { model, server, context } = route;
        if options.exceed(model) {
            context.note(|facts| facts.ignored.extend(["options.num_ctx".to_string()]));
        }
        let is_cut = self.truncate.unwrap_or(false);
        let spec =
            PromptSpec { output_format: self.output_format()?, thinking: self.thinking()?, is_cut, ..spec };
        let mut prepared = spec.prepare(model, &server.config, &context).await?;
        let Fitted { mut request, truncated } =
            options.request(model, std::mem::take(&mut prepared.own.tokens), is_cut)?;
        prepared.own.tokens = std::mem::take(&mut request.prompt);
        let logprobs = self.logprobs.unwrap_or(false).then_some(self.top_logprobs.unwrap_or(0));
        let request = prepared.into_request(Request { logprobs, ..request }, model);
        let (request, parser_config) = request.map_err(in_options)?;
        let requests = vec![request];
        if let Some(counted) = dry_run.answer(model, &requests, &context) {
            return Ok(counted);
        }
        let mut generation = Generation::start(model, requests, 1, &parser_config, context).await?;
        let mut lines = Lines::new(&model.id, shape);
        lines.truncated = (truncated > 0).then_some(truncated);
        if self.stream.unwrap_or(true) {
            return Ok(sse::respond_lines(generation.written(lines)));
        }
        let answer = generation.answers().await?.pop().unwrap_or_default();
        lines.reason = reason_of(answer.finish);
        let end = lines.end_of(generation.usage, generation.timings);
        let gain = Gain {
            text: answer.content.text(),
            thinking: Some(answer.content.reasoning()).filter(|text| !text.is_empty()),
            calls: answer.content.tool_calls().map(LineCall::from).collect(),
        };
        Ok(Json(lines.line(gain, &answer.logprobs, Some(end))).into_response())
    }

    /// The answer to an empty prompt, which only loads the model; or unloads it, if it is to stay for no time.
    ///
    /// # Errors
    /// If the model cannot be loaded, or does not take the options.
    pub(super) async fn nothing(
        &self,
        options: Options,
        models: &Arc<Models>,
        shape: Shape,
    ) -> Result<Response, ApiError> {
        let (reason, id) = match self.keep_alive {
            Some(keep_alive) if keep_alive.is_zero() => {
                let model = models.find(self.model.as_deref())?;
                models.keep_alive(&model, keep_alive);
                ("unload", model.id().to_string())
            }
            keep_alive => {
                let model = models.acquire(self.model.as_deref(), keep_alive).await?;
                options.check(&model)?;
                ("load", model.id.clone())
            }
        };
        let lines = Lines { reason, ..Lines::new(&id, shape) };
        let end = lines.end_of(Usage::default(), Timings::none());
        Ok(Json(lines.line(Gain::default(), &[], Some(end))).into_response())
    }

    /// The form of the text, if there is one.
    fn output_format(&self) -> Result<Option<OutputFormat>, ApiError> {
        if self.top_logprobs.is_some_and(|count| count > 0) && !self.logprobs.unwrap_or(false) {
            return Err(ApiError::invalid("top_logprobs", "top_logprobs needs `logprobs: true`"));
        }
        let constraint = match &self.format {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(name)) if name.is_empty() => return Ok(None),
            Some(Value::String(name)) if name == "json" => Constraint::JsonObject,
            Some(schema @ Value::Object(_)) => schema_constraint(schema.clone()),
            Some(other) => {
                let message = format!("format is {other}: give \"json\" or a JSON schema");
                return Err(ApiError::invalid("format", message));
            }
        };
        Ok(Some(OutputFormat { field: "format", constraint }))
    }

    /// The request's reasoning settings.
    fn thinking(&self) -> Result<Option<Thinking>, ApiError> {
        match &self.think {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(is_on)) => Ok(Some(Thinking::new("think", *is_on))),
            Some(Value::String(effort)) if effort.is_empty() => Ok(None),
            Some(Value::String(effort)) => Ok(Some(Thinking::with_effort("think", effort)?)),
            Some(other) => {
                Err(ApiError::invalid("think", format!("think is {other}: give true, false or an effort")))
            }
        }
    }
}

/// A route's findings before it answers.
pub(super) struct Route<'a> {
    pub(super) model: &'a Arc<ActiveModel>,
    pub(super) server: &'a ServerState,
    pub(super) context: Context,
}

/// The name of why an answer ended.
fn reason_of(finish: Finish) -> &'static str {
    if finish == Finish::Length { "length" } else { "stop" }
}

/// How the lines of an answer are written.
struct Lines {
    model: String,
    shape: Shape,
    /// Tokens that were cut from the prompt, if any.
    truncated: Option<usize>,
    /// Why the answer ended.
    reason: &'static str,
    /// The call that goes on.
    call: ToolCall,
}

impl Writer for Lines {
    fn wait(&mut self, out: &mut Vec<u8>, _index: usize) {
        append(out, &self.line(Gain::default(), &[], None));
    }

    fn write(&mut self, out: &mut Vec<u8>, _index: usize, delta: Delta, _generation: &Generation) {
        let (events, logprobs) = match delta {
            Delta::Started | Delta::Prompt(_) => return,
            Delta::Token { events, logprobs, .. } => (events, logprobs),
            Delta::Finished { events, finish } => {
                self.reason = reason_of(finish);
                (events, None)
            }
        };
        let mut gain = Gain::default();
        events.into_iter().for_each(|event| self.gain(event, &mut gain));
        if gain.is_some() || logprobs.is_some() {
            append(out, &self.line(gain, logprobs.as_slice(), None));
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        append(out, &error_object(error, ""));
    }

    fn end(&mut self, out: &mut Vec<u8>, generation: &Generation) {
        let end = self.end_of(generation.usage, generation.timings);
        append(out, &self.line(Gain::default(), &[], Some(end)));
    }
}

impl Gain {
    fn is_some(&self) -> bool {
        !self.text.is_empty() || self.thinking.is_some() || !self.calls.is_empty()
    }
}

impl Lines {
    fn new(model: &str, shape: Shape) -> Lines {
        let model = model.to_string();
        Lines { model, shape, truncated: None, reason: "stop", call: ToolCall::default() }
    }

    /// Adds an event to a line.
    fn gain(&mut self, event: AnswerEvent, gain: &mut Gain) {
        match event {
            AnswerEvent::Text(text) | AnswerEvent::ToolCallFailed { text, .. } => gain.text.push_str(&text),
            AnswerEvent::Reasoning(text) => gain.thinking.get_or_insert_default().push_str(&text),
            AnswerEvent::ToolCallStarted { index, id, name } => {
                self.call = ToolCall { index, id, name, arguments: String::new() };
            }
            AnswerEvent::ToolCallArguments { delta, .. } => self.call.arguments.push_str(&delta),
            AnswerEvent::ToolCallFinished { .. } => gain.calls.push(LineCall::from(&self.call)),
        }
    }

    fn line(&self, gain: Gain, logprobs: &[TokenLogprobs], end: Option<End>) -> AnswerLine {
        let Gain { text, thinking, calls: tool_calls } = gain;
        let (response, message, thinking) = match self.shape {
            Shape::Generate => (Some(text), None, thinking),
            Shape::Chat => {
                (None, Some(LineMessage { role: "assistant", content: text, thinking, tool_calls }), None)
            }
        };
        let logprobs: Vec<TokenEntry> = logprobs.iter().map(TokenEntry::from).collect();
        AnswerLine {
            model: self.model.clone(),
            created_at: rfc3339(),
            response,
            message,
            thinking,
            done: end.is_some(),
            logprobs: (!logprobs.is_empty()).then_some(logprobs),
            end,
        }
    }

    fn end_of(&self, usage: Usage, timings: Timings) -> End {
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let load_duration = nanoseconds(timings.queue());
        let prompt_eval_duration = nanoseconds(timings.prompt());
        let eval_duration = nanoseconds(timings.answer());
        End {
            done_reason: self.reason,
            truncated_tokens: self.truncated,
            total_duration: load_duration + prompt_eval_duration + eval_duration,
            load_duration,
            prompt_eval_count: usage.prompt_tokens,
            prompt_eval_duration,
            eval_count: usage.generated_tokens,
            eval_duration,
        }
    }
}
