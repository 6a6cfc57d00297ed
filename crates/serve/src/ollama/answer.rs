//! Answers as lines of JSON, the same for `/api/generate` and `/api/chat`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use pipelines::{Prompt, Request, TokenLogprobs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::options::{Fitted, Options};
use super::{error_object, find};
use crate::context::Context;
use crate::dry_run::DryRunField;
use crate::error::ApiError;
use crate::generation::{self, Delta, Generation, Timings, Usage, Writer};
use crate::models::{Entry, KeepAlive, KeepAliveField, Models};
use crate::openai::logprobs::TokenEntry;
use crate::sse;
use crate::stamp::rfc3339;

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
    /// Not supported yet: formats are refused.
    #[schema(value_type = Option<Object>)]
    format: Option<Value>,
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
        model: &Arc<Entry>,
        prompt: Prompt,
        options: Options,
        dry_run: DryRunField,
        shape: Shape,
        context: Context,
    ) -> Result<Response, ApiError> {
        self.check()?;
        let generator = model.loaded.generator()?;
        let tokens = generation::tokens(generator, prompt).await?;
        let Fitted { request, truncated } = options.request(model, tokens, self.truncate.unwrap_or(false))?;
        let logprobs = self.logprobs.unwrap_or(false).then_some(self.top_logprobs.unwrap_or(0));
        let request = Request { logprobs, ..request };
        let request = generation::prepare(generator, request.into())
            .await
            .map_err(|error| error.rename("max_tokens", "num_predict").within("options"))?;
        let requests = vec![request];
        if let Some(counted) = dry_run.answer(model, &requests, &context) {
            return Ok(counted);
        }
        let mut generation = Generation::start(model, requests, 1, context).await?;
        let mut lines = Lines {
            model: model.id.clone(),
            shape,
            truncated: (truncated > 0).then_some(truncated),
            reason: "stop",
        };
        if self.stream.unwrap_or(true) {
            return Ok(sse::respond_lines(generation.written(lines)));
        }
        let answer = generation.answers().await?.pop().unwrap_or_default();
        lines.reason = answer.finish.name();
        let end = lines.end_of(generation.usage, generation.timings);
        Ok(Json(lines.line(answer.text, &answer.logprobs, Some(end))).into_response())
    }

    /// The answer to an empty prompt, which only loads the model; or unloads it, if it is to stay for no time.
    ///
    /// # Errors
    /// If the model cannot be loaded.
    pub(super) async fn nothing(&self, models: &Arc<Models>, shape: Shape) -> Result<Response, ApiError> {
        let model = find(models, self.model.as_deref())?;
        let reason = match self.keep_alive {
            Some(keep_alive) if keep_alive.is_zero() => {
                models.keep_alive(&model, keep_alive);
                "unload"
            }
            keep_alive => {
                models.acquire(Some(model.id()), keep_alive).await?;
                "load"
            }
        };
        let lines = Lines { model: model.id().to_string(), shape, truncated: None, reason };
        let end = lines.end_of(Usage::default(), Timings::none());
        Ok(Json(lines.line(String::new(), &[], Some(end))).into_response())
    }

    fn check(&self) -> Result<(), ApiError> {
        if !matches!(&self.format, None | Some(Value::Null)) && self.format != Some(Value::from("")) {
            return Err(ApiError::invalid("format", "formats are not supported: leave `format` out"));
        }
        if self.top_logprobs.is_some_and(|count| count > 0) && !self.logprobs.unwrap_or(false) {
            return Err(ApiError::invalid("top_logprobs", "top_logprobs needs `logprobs: true`"));
        }
        Ok(())
    }
}

/// How the lines of an answer are written.
struct Lines {
    model: String,
    shape: Shape,
    /// Tokens that were cut from the prompt, if any.
    truncated: Option<usize>,
    /// Why the answer ended.
    reason: &'static str,
}

impl Writer for Lines {
    fn write(&mut self, out: &mut Vec<u8>, _index: usize, delta: Delta, _usage: Usage) {
        match delta {
            Delta::Text { text, logprobs, .. } if !text.is_empty() || logprobs.is_some() => {
                append(out, &self.line(text, logprobs.as_slice(), None));
            }
            Delta::Finished { text, finish } => {
                self.reason = finish.name();
                if !text.is_empty() {
                    append(out, &self.line(text, &[], None));
                }
            }
            Delta::Started | Delta::Prompt(_) | Delta::Text { .. } => {}
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        append(out, &error_object(error, ""));
    }

    fn end(&mut self, out: &mut Vec<u8>, generation: &Generation) {
        let end = self.end_of(generation.usage, generation.timings);
        append(out, &self.line(String::new(), &[], Some(end)));
    }
}

impl Lines {
    fn line(&self, text: String, logprobs: &[TokenLogprobs], end: Option<End>) -> AnswerLine {
        let (response, message) = match self.shape {
            Shape::Generate => (Some(text), None),
            Shape::Chat => (None, Some(LineMessage { role: "assistant", content: text })),
        };
        let logprobs: Vec<TokenEntry> = logprobs.iter().map(TokenEntry::from).collect();
        AnswerLine {
            model: self.model.clone(),
            created_at: rfc3339(),
            response,
            message,
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

/// Appends a line.
fn append(out: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *out, line).expect("the objects have text keys");
    out.push(b'\n');
}
