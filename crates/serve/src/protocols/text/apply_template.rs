//! `POST /apply-template`: the prompt that a conversation becomes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::fields::conversation::ConversationFields;
use crate::state::Context;
use crate::state::ServerState;

/// A conversation to render.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ApplyTemplateRequest {
    #[serde(flatten)]
    model: ModelField,
    #[serde(flatten)]
    conversation: ConversationFields,
}

/// The model whose template is used.
#[derive(Debug, Deserialize, ToSchema)]
struct ModelField {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
}

impl RequestBody for ApplyTemplateRequest {
    fn read(fields: &mut Fields) -> Result<ApplyTemplateRequest, ApiError> {
        Ok(ApplyTemplateRequest { model: fields.take()?, conversation: fields.take()? })
    }
}

/// A conversation as the model reads it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RenderedPrompt {
    prompt: String,
}

/// Renders a conversation with the model's chat template.
#[utoipa::path(
    post,
    path = "/apply-template",
    tag = "Text",
    request_body = ApplyTemplateRequest,
    responses((status = 200, body = RenderedPrompt))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<ApplyTemplateRequest>,
) -> Result<Json<RenderedPrompt>, ApiError> {
    let model = server.models.text(body.model.model.as_deref()).await?;
    context.note(|facts| facts.model = Some(model.id().to_string()));
    let rendered = body.conversation.into_prompt_spec()?.render(&model, &server.config, &context).await?;
    Ok(Json(RenderedPrompt { prompt: rendered.text }))
}

/// The same as `/apply-template`.
#[utoipa::path(
    post,
    path = "/v1/apply-template",
    tag = "Text",
    request_body = ApplyTemplateRequest,
    responses((status = 200, body = RenderedPrompt))
)]
pub(crate) async fn create_v1(
    state: State<Arc<ServerState>>,
    context: Context,
    body: Body<ApplyTemplateRequest>,
) -> Result<Json<RenderedPrompt>, ApiError> {
    create(state, context, body).await
}
