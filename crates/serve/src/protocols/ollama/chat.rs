//! `POST /api/chat`: the next message of a conversation.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use pipelines::{Chat, ToolUse};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::answer::{AnswerFields, AnswerLine, Route, Shape};
use super::options::Options;
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::fields::conversation::check_roles;
use crate::fields::dry_run::DryRunField;
use crate::generation::PromptSpec;
use crate::state::Context;
use crate::state::ServerState;

/// The line that stands for an image in messages that are not the newest of the user.
const UNSEEN: &str = "[image: the model reads text only]";

/// A conversation to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct OllamaChatRequest {
    #[serde(flatten)]
    conversation: MessagesField,
    #[serde(flatten)]
    answer: AnswerFields,
    #[schema(value_type = Option<Options>)]
    options: Options,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// The messages of a request.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
struct MessagesField {
    /// The conversation so far, oldest message first; an empty one only loads the model. If the last message is the
    /// assistant's, the answer continues it.
    #[schema(value_type = Option<Vec<Object>>)]
    messages: Option<Vec<Map<String, Value>>>,
    /// Functions that the answer may call.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
}

impl RequestBody for OllamaChatRequest {
    fn read(fields: &mut Fields) -> Result<OllamaChatRequest, ApiError> {
        let options = Options::read(fields, "options")?;
        let (conversation, answer, dry_run) = (fields.take()?, fields.take()?, fields.take()?);
        Ok(OllamaChatRequest { conversation, answer, options, dry_run })
    }
}

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/api/chat",
    tag = "Ollama",
    request_body = OllamaChatRequest,
    responses((status = 200, description = "The answer, or unless `stream` is false its lines", content(
        (AnswerLine = "application/json"),
        (AnswerLine = "application/x-ndjson")
    )))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<OllamaChatRequest>,
) -> Result<Response, ApiError> {
    let OllamaChatRequest { conversation, answer, options, dry_run } = body;
    let Some(spec) = conversation.into_prompt_spec(&context)? else {
        return answer.nothing(options, &server.models, Shape::Chat).await;
    };
    let model = &server.models.acquire(answer.model.as_deref(), answer.keep_alive).await?;
    let route = Route { model, server: &server, context };
    answer.answer(spec, options, dry_run, Shape::Chat, route).await
}

impl MessagesField {
    /// The conversation as chat templates take it; `None` if it is empty.
    ///
    /// # Errors
    /// If the newest message of the user has images, or a tool is not a function.
    fn into_prompt_spec(self, context: &Context) -> Result<Option<PromptSpec>, ApiError> {
        let tools = ToolUse::new(self.tools, None, None)?;
        let given = self.messages.unwrap_or_default();
        check_roles(&given)?;
        let is_user = |message: &Map<String, Value>| message.get("role").is_some_and(|role| role == "user");
        let newest = given.iter().rposition(is_user);
        let mut messages = Vec::new();
        for (index, mut message) in given.into_iter().enumerate() {
            let images =
                message.remove("images").and_then(|images| Some(images.as_array()?.len())).unwrap_or(0);
            if images > 0 {
                let path = format!("messages[{index}].images");
                if newest == Some(index) {
                    return Err(ApiError::invalid(&path, format!("{path}: the models read text only")));
                }
                let text = message.get("content").and_then(Value::as_str).unwrap_or_default();
                let lines = std::iter::once(text).chain(std::iter::repeat_n(UNSEEN, images));
                let lines = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
                message.insert("content".to_string(), lines.into());
                context.note(|facts| facts.ignored.extend([path]));
            }
            if let Some(thinking) = message.remove("thinking") {
                message.insert("reasoning_content".to_string(), thinking);
            }
            messages.push(Value::Object(message));
        }
        let Some(last) = messages.last() else { return Ok(None) };
        let continue_final_message = last["role"] == "assistant"
            && last["content"].as_str().is_some_and(|content| !content.is_empty());
        let chat = Chat { continue_final_message, ..Chat::new(messages) };
        Ok(Some(PromptSpec { tools, ..PromptSpec::from(chat) }))
    }
}
