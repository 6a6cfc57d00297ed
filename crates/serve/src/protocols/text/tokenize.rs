//! `POST /tokenize`: the tokens of a text or of a conversation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use pipelines::{AddSpecial, Detokenizer, ParseSpecial, SkipSpecial, Tokenizer};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::fields::conversation::ConversationFields;
use crate::generation;
use crate::state::Context;
use crate::state::ServerState;

/// A text, or a conversation, to make tokens of.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenizeRequest {
    #[serde(flatten)]
    text: TextFields,
    /// In place of a text.
    #[serde(flatten)]
    conversation: Option<ConversationFields>,
}

/// The fields of a text.
#[derive(Debug, Deserialize, ToSchema)]
struct TextFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// The text.
    prompt: Option<String>,
    /// The text under llama.cpp's name.
    content: Option<String>,
    /// Whether the tokens that the model wants around a text are added. The default is true for `prompt`, and false for
    /// `content`, as in llama.cpp. Templates add those of conversations.
    #[serde(alias = "add_special")]
    add_special_tokens: Option<bool>,
    /// Whether the names of special tokens in the text mean these; true by default.
    parse_special: Option<bool>,
    /// Whether to give the tokens as the vocabulary writes them, too.
    return_token_strs: Option<bool>,
    /// Whether each token is an object with its id and its text.
    with_pieces: Option<bool>,
}

impl RequestBody for TokenizeRequest {
    fn read(fields: &mut Fields) -> Result<TokenizeRequest, ApiError> {
        let conversation = if fields.has("messages") { Some(fields.take()?) } else { None };
        Ok(TokenizeRequest { text: fields.take()?, conversation })
    }
}

/// The tokens of a text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tokens {
    /// How many there are.
    count: usize,
    /// The most tokens that the model takes.
    max_model_len: usize,
    tokens: TokenList,
    /// The tokens as the vocabulary writes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_strs: Option<Vec<String>>,
}

/// Tokens as they are asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum TokenList {
    Ids(Vec<u32>),
    Pieces(Vec<TokenPiece>),
}

/// A token and its text.
#[derive(Debug, Serialize, ToSchema)]
struct TokenPiece {
    id: u32,
    piece: Piece,
}

/// The text of a token.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Piece {
    Text(String),
    /// Part of a character.
    Bytes(Vec<u8>),
}

/// Makes tokens.
#[utoipa::path(
    post,
    path = "/tokenize",
    tag = "Text",
    request_body = TokenizeRequest,
    responses((status = 200, body = Tokens))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<TokenizeRequest>,
) -> Result<Json<Tokens>, ApiError> {
    let TokenizeRequest { text: fields, conversation } = body;
    let model = server.models.text(fields.model.as_deref()).await?;
    let tokenizer = Arc::clone(model.tokenizer());
    let is_prompt = fields.prompt.is_some();
    let ids = match (fields.prompt, fields.content, conversation) {
        (Some(text), None, None) | (None, Some(text), None) => {
            let add =
                if fields.add_special_tokens.unwrap_or(is_prompt) { AddSpecial::Yes } else { AddSpecial::No };
            let parse =
                if fields.parse_special.unwrap_or(true) { ParseSpecial::Yes } else { ParseSpecial::No };
            let tokenizer = Arc::clone(&tokenizer);
            generation::off_the_runtime(text.len(), move || Ok(tokenizer.encode(&text, add, parse)?)).await?
        }
        (None, None, Some(conversation)) => {
            conversation.into_prompt_spec()?.render(&model, &server.config, &context).await?.tokens
        }
        _ => {
            let message = "give one of `prompt`, `content` and `messages`";
            return Err(ApiError::invalid("prompt", message));
        }
    };
    context.note_prompt(model.id(), ids.len());
    let name = |id: &u32| tokenizer.token(*id).unwrap_or_default().into_owned();
    let token_strs = fields.return_token_strs.unwrap_or(false).then(|| ids.iter().map(name).collect());
    let (count, max_model_len) = (ids.len(), model.max_length());
    let tokens = if fields.with_pieces.unwrap_or(false) {
        TokenList::Pieces(pieces(tokenizer, &ids))
    } else {
        TokenList::Ids(ids)
    };
    Ok(Json(Tokens { count, max_model_len, tokens, token_strs }))
}

/// Each token with the bytes that it adds to the text.
fn pieces(tokenizer: Arc<Tokenizer>, ids: &[u32]) -> Vec<TokenPiece> {
    let mut text = Detokenizer::new(tokenizer, SkipSpecial::No);
    let piece = |&id| {
        let bytes = text.bytes(id);
        text.push(id);
        let piece =
            String::from_utf8(bytes).map_or_else(|error| Piece::Bytes(error.into_bytes()), Piece::Text);
        TokenPiece { id, piece }
    };
    ids.iter().map(piece).collect()
}

/// The same as `/tokenize`.
#[utoipa::path(
    post,
    path = "/v1/tokenize",
    tag = "Text",
    request_body = TokenizeRequest,
    responses((status = 200, body = Tokens))
)]
pub(crate) async fn create_v1(
    state: State<Arc<ServerState>>,
    context: Context,
    body: Body<TokenizeRequest>,
) -> Result<Json<Tokens>, ApiError> {
    create(state, context, body).await
}
