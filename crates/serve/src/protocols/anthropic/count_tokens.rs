//! `POST /v1/messages/count_tokens`: how many tokens a conversation has.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::prompt::PromptFields;
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::state::Context;
use crate::state::ServerState;

/// A conversation to count.
#[derive(Debug, serde::Deserialize, ToSchema)]
pub(crate) struct CountTokensRequest {
    #[serde(flatten)]
    prompt: PromptFields,
}

impl RequestBody for CountTokensRequest {
    fn read(fields: &mut Fields) -> Result<CountTokensRequest, ApiError> {
        Ok(CountTokensRequest { prompt: fields.take()? })
    }
}

/// The tokens of a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenCount {
    /// As many as `/v1/messages` would read, those of the chat template included.
    input_tokens: usize,
}

/// Counts the tokens of a conversation.
#[utoipa::path(
    post,
    path = "/v1/messages/count_tokens",
    tag = "Anthropic",
    request_body = CountTokensRequest,
    responses((status = 200, body = TokenCount))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<CountTokensRequest>,
) -> Result<Json<TokenCount>, ApiError> {
    let model = server.models.text(body.prompt.model.as_deref()).await?;
    let spec = body.prompt.into_prompt_spec(server.config.keep_attribution_header)?;
    let rendered = spec.render(&model, &server.config, &context).await?;
    context.note_prompt(model.id(), rendered.tokens.len());
    Ok(Json(TokenCount { input_tokens: rendered.tokens.len() }))
}
