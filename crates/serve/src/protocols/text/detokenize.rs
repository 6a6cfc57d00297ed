//! `POST /detokenize`: the text of tokens.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use pipelines::SkipSpecial;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::state::Context;
use crate::state::ServerState;

/// Tokens to make text of.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DetokenizeRequest {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// The ids of the tokens.
    tokens: Vec<u32>,
}

impl RequestBody for DetokenizeRequest {
    fn read(fields: &mut Fields) -> Result<DetokenizeRequest, ApiError> {
        fields.take()
    }
}

/// The text of tokens. Special tokens are named in it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenText {
    /// The text.
    prompt: String,
    /// The same under llama.cpp's name.
    content: String,
}

/// Makes text of tokens.
#[utoipa::path(
    post,
    path = "/detokenize",
    tag = "Text",
    request_body = DetokenizeRequest,
    responses((status = 200, body = TokenText))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<DetokenizeRequest>,
) -> Result<Json<TokenText>, ApiError> {
    let model = server.models.text(body.model.as_deref()).await?;
    context.note(|facts| facts.model = Some(model.id().to_string()));
    let tokenizer = model.tokenizer();
    if let Some(index) = body.tokens.iter().position(|&token| tokenizer.token(token).is_none()) {
        let (path, token, size) = (format!("tokens[{index}]"), body.tokens[index], tokenizer.vocab_size());
        let message = format!("{path} is {token}: the vocabulary has {size} tokens");
        return Err(ApiError::invalid(path, message));
    }
    let prompt = tokenizer.decode(&body.tokens, SkipSpecial::No);
    Ok(Json(TokenText { content: prompt.clone(), prompt }))
}

/// The same as `/detokenize`.
#[utoipa::path(
    post,
    path = "/v1/detokenize",
    tag = "Text",
    request_body = DetokenizeRequest,
    responses((status = 200, body = TokenText))
)]
pub(crate) async fn create_v1(
    state: State<Arc<ServerState>>,
    context: Context,
    body: Body<DetokenizeRequest>,
) -> Result<Json<TokenText>, ApiError> {
    create(state, context, body).await
}
