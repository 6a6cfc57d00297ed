//! `POST /v1/responses/input_tokens`: how many tokens a conversation has.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::prompt::{PromptFields, RefusedFields, own_names};
use super::store::ResponseStore;
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::state::Context;
use crate::state::ServerState;

/// A conversation to count.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InputTokensRequest {
    #[serde(flatten)]
    prompt: PromptFields,
    #[serde(flatten)]
    refused: RefusedFields,
}

impl RequestBody for InputTokensRequest {
    fn read(fields: &mut Fields) -> Result<InputTokensRequest, ApiError> {
        Ok(InputTokensRequest { prompt: fields.take()?, refused: fields.take()? })
    }
}

/// The tokens of a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InputTokens {
    object: &'static str,
    /// As many as `/v1/responses` would read, those of the chat template included.
    input_tokens: usize,
}

/// Counts the tokens of a conversation.
#[utoipa::path(
    post,
    path = "/v1/responses/input_tokens",
    tag = "OpenAI",
    request_body = InputTokensRequest,
    responses((status = 200, body = InputTokens))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    State(store): State<Arc<ResponseStore>>,
    context: Context,
    Body(body): Body<InputTokensRequest>,
) -> Result<Json<InputTokens>, ApiError> {
    let InputTokensRequest { prompt, refused } = body;
    context.note(|facts| refused.check(&mut facts.ignored))?;
    let model = server.models.text(prompt.model.as_deref()).await?;
    let spec = prompt.read(&store)?.spec;
    let rendered = spec.render(&model, &server.config, &context).await.map_err(own_names)?;
    let input_tokens = rendered.tokens.len();
    context.note_prompt(model.id(), input_tokens);
    Ok(Json(InputTokens { object: "response.input_tokens", input_tokens }))
}
