//! `POST /v1/messages/count_tokens`: how many tokens a conversation has.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::prompt::PromptFields;
use crate::body::{Body, Fields, RequestBody};
use crate::context::Context;
use crate::error::ApiError;
use crate::server::Shared;

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
    State(shared): State<Arc<Shared>>,
    context: Context,
    Body(body): Body<CountTokensRequest>,
) -> Result<Json<TokenCount>, ApiError> {
    let model = shared.models.text(body.prompt.model.as_deref()).await?;
    let turn = body.prompt.into_turn(shared.config.keep_attribution_header)?;
    let rendered = turn.render(&model, &shared.config, &context).await?;
    context.note(|facts| {
        facts.model = Some(model.id().to_string());
        facts.prompt_tokens = rendered.tokens.len();
    });
    Ok(Json(TokenCount { input_tokens: rendered.tokens.len() }))
}
