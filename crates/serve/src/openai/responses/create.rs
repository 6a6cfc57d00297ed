//! `POST /v1/responses`: the next message of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use pipelines::{Chat, Constraint, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::events::{Draft, Events, ResponseEvent};
use super::input;
use super::object::{ReasoningConfig, ResponseObject, TextConfig};
use crate::body::{Body, Fields, RequestBody};
use crate::context::Context;
use crate::dry_run::DryRunField;
use crate::error::ApiError;
use crate::form::{Form, schema_of};
use crate::generation::{self, Generation, Thinking, ToolUse, Turn};
use crate::sampling::Sampling;
use crate::server::Shared;
use crate::stamp::{now, unique_id};

/// The value of `include` that asks for log-probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";

/// A conversation to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ResponseRequest {
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    refused: RefusedFields,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// The conversation, and how it is answered.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ResponseAnswerFields)]
struct AnswerFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// A text of the user, or the items of a conversation.
    #[schema(value_type = Object)]
    input: Value,
    /// Instructions for this response alone.
    instructions: Option<String>,
    /// A stored response, whose conversation goes on.
    previous_response_id: Option<String>,
    /// Whether the response is kept for later requests; true by default.
    store: Option<bool>,
    /// The most tokens of the answer; the default is all that the context has room for.
    max_output_tokens: Option<usize>,
    /// Whether the answer is sent as events while it is made.
    stream: Option<bool>,
    /// `message.output_text.logprobs` gives the log-probabilities of the answer's tokens.
    include: Option<Vec<String>>,
    /// How many of the likeliest tokens to give at each place.
    #[schema(maximum = 256)]
    top_logprobs: Option<usize>,
    /// Comes back with the response.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    /// Functions that the answer may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// `none`, `auto`, `required`, a function, or `allowed_tools`. The default is `auto`.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Value>,
    /// Whether an answer may have several calls; true by default.
    parallel_tool_calls: Option<bool>,
    /// How much the model reasons before it answers.
    reasoning: Option<ReasoningField>,
    /// The form of the text.
    text: Option<TextField>,
}

/// How much the model reasons before it answers.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ResponseReasoningField)]
struct ReasoningField {
    /// `none` to `max`.
    effort: Option<String>,
}

/// The form of the text.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ResponseTextField)]
struct TextField {
    /// `text`, `json_object`, or `json_schema` with a `schema`.
    format: Option<FormatField>,
}

/// The form of the text.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[schema(as = ResponseFormatField)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FormatField {
    /// Any text.
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema {
        /// A name for it.
        name: Option<String>,
        /// The schema.
        #[schema(value_type = Object)]
        schema: Value,
        /// Whether the text must fit it, which it does in any case.
        strict: Option<bool>,
    },
}

impl TextField {
    /// The form, if there is one.
    fn form(&self) -> Option<Form> {
        let constraint = match self.format.as_ref()? {
            FormatField::Text => return None,
            FormatField::JsonObject => Constraint::JsonObject,
            FormatField::JsonSchema { schema, .. } => schema_of(schema.clone()),
        };
        Some(Form { field: "text.format", constraint })
    }
}

/// Fields that must have the one value that is supported.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
struct RefusedFields {
    /// Prompts are never truncated: `disabled`.
    truncation: Option<String>,
    /// Not supported: true is refused.
    background: Option<bool>,
    /// Not supported: use `previous_response_id`.
    #[schema(value_type = Option<Object>)]
    conversation: Option<Value>,
    /// Not supported: stored prompts are refused.
    #[schema(value_type = Option<Object>)]
    prompt: Option<Value>,
}

impl RequestBody for ResponseRequest {
    fn read(fields: &mut Fields) -> Result<ResponseRequest, ApiError> {
        Ok(ResponseRequest {
            answer: fields.take()?,
            refused: fields.take()?,
            sampling: fields.take()?,
            dry_run: fields.take()?,
        })
    }
}

impl RefusedFields {
    fn check(&self) -> Result<(), ApiError> {
        let truncation = self.truncation.as_deref().is_some_and(|strategy| strategy != "disabled");
        let refused = [
            ("truncation", truncation, "prompts are not truncated: give `disabled`"),
            ("background", self.background.unwrap_or(false), "responses are not made in the background"),
            ("conversation", self.conversation.is_some(), "use `previous_response_id`"),
            ("prompt", self.prompt.is_some(), "there are no stored prompts: use `instructions` and `input`"),
        ];
        match refused.iter().find(|(_, is_refused, _)| *is_refused) {
            Some((field, _, reason)) => Err(ApiError::invalid(*field, format!("{field}: {reason}"))),
            None => Ok(()),
        }
    }
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/responses",
    tag = "OpenAI",
    request_body = ResponseRequest,
    responses((status = 200, description = "The response, or with `stream` its events", content(
        (ResponseObject = "application/json"),
        (ResponseEvent = "text/event-stream")
    )))
)]
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    context: Context,
    Body(body): Body<ResponseRequest>,
) -> Result<Response, ApiError> {
    let ResponseRequest { answer, refused, sampling, dry_run } = body;
    refused.check()?;
    let wants_logprobs = answer.wants_logprobs(&context)?;
    let model = &shared.models.acquire(answer.model.as_deref(), None).await?;
    let input = input::items(answer.input.clone())?;
    let mut conversation = match &answer.previous_response_id {
        Some(id) => shared.responses.get(id, "previous_response_id")?.conversation.clone(),
        None => Vec::new(),
    };
    conversation.extend(input.iter().cloned());
    let mut messages = input::messages(&conversation)?;
    let instructions = answer.instructions.as_ref();
    let added = instructions.map_or(0, |instructions| input::instruct(&mut messages, instructions));
    let parameters = Request {
        max_new_tokens: answer.max_output_tokens.or(model.lengths().answer()).or(Some(usize::MAX)),
        logprobs: wants_logprobs.then_some(answer.top_logprobs.unwrap_or(0)),
        ..model.request(sampling)?
    };
    let turn = Turn { added, ..answer.turn(messages).map_err(own_names)? };
    let reading = turn.read(model, &shared.config, &context).await.map_err(own_names)?;
    let (request, reader) = reading.into_request(parameters, model).map_err(own_names)?;
    let response = answer.response(&model.id, &request);
    let requests = vec![request];
    if let Some(counted) = dry_run.answer(model, &requests, &context) {
        return Ok(counted);
    }
    let generation = Generation::start(model, requests, 1, &reader, context).await?;
    let events = Events::new(Draft { shared: Arc::clone(&shared), response, input, conversation });
    if answer.stream.unwrap_or(false) {
        return Ok(generation.stream(events));
    }
    Ok(Json(events.collect(generation).await?).into_response())
}

/// An error with the fields as this API names them.
fn own_names(error: ApiError) -> ApiError {
    let error = error.rename("max_tokens", "max_output_tokens").rename("messages", "input");
    error.replace("].function.", "].").replace("messages[", "input[")
}

impl AnswerFields {
    /// Whether log-probabilities are asked for. What else `include` asks for has no effect.
    fn wants_logprobs(&self, context: &Context) -> Result<bool, ApiError> {
        let include = self.include.as_deref().unwrap_or_default();
        let others = include.iter().filter(|name| *name != LOGPROBS).map(|name| format!("include.{name}"));
        context.note(|facts| facts.ignored.extend(others));
        let wants_logprobs = include.iter().any(|name| name == LOGPROBS);
        if self.top_logprobs.is_some_and(|count| count > 0) && !wants_logprobs {
            let message = format!("top_logprobs needs `include: [\"{LOGPROBS}\"]`");
            return Err(ApiError::invalid("top_logprobs", message));
        }
        Ok(wants_logprobs)
    }

    /// The conversation, and what is asked of the answer.
    fn turn(&self, messages: Vec<Value>) -> Result<Turn, ApiError> {
        let mut declared = self.tools.clone();
        for (index, tool) in declared.iter_mut().flatten().enumerate() {
            if tool["type"] != "function" {
                let field = format!("tools[{index}].type");
                let message = format!("{field} is {}: tools of the server are not supported", tool["type"]);
                return Err(ApiError::invalid(field, message));
            }
            *tool = generation::declared(
                &tool["name"],
                &tool["description"],
                &tool["parameters"],
                &tool["strict"],
            );
        }
        let choice = self.tool_choice.clone().map(|choice| match choice.get("name") {
            Some(name) if choice["type"] == "function" => {
                json!({ "type": "function", "function": { "name": name } })
            }
            _ => choice,
        });
        let effort = self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref());
        Ok(Turn {
            tools: ToolUse::new(declared, choice.as_ref(), self.parallel_tool_calls)?,
            thinking: effort.map(|effort| Thinking::with_effort("reasoning.effort", effort)).transpose()?,
            form: self.text.as_ref().and_then(TextField::form),
            ..Turn::from(Chat::new(messages))
        })
    }

    /// The response before it has begun.
    fn response(&self, model: &str, request: &Request) -> ResponseObject {
        ResponseObject {
            id: unique_id("resp_"),
            object: "response",
            created_at: now(),
            instructions: self.instructions.clone(),
            max_output_tokens: self.max_output_tokens,
            metadata: self.metadata.clone().unwrap_or_default(),
            model: model.to_string(),
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(true),
            previous_response_id: self.previous_response_id.clone(),
            store: self.store.unwrap_or(true),
            temperature: request.sampling.temperature,
            reasoning: ReasoningConfig {
                effort: self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.clone()),
                summary: None,
            },
            text: self
                .text
                .as_ref()
                .and_then(|text| text.format.as_ref())
                .map_or_else(TextConfig::default, |format| TextConfig { format: json!(format) }),
            tool_choice: self.tool_choice.clone().unwrap_or_else(|| json!("auto")),
            tools: self.tools.clone().unwrap_or_default(),
            top_logprobs: self.top_logprobs.unwrap_or(0),
            top_p: Some(request.sampling.top_p.unwrap_or(1.0)),
            truncation: "disabled",
            ..ResponseObject::default()
        }
    }
}
