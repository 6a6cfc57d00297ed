//! `POST /api/embed` and `/api/embeddings`: texts to vectors.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use pipelines::{Embedding, EmbeddingParameters, EmbeddingRequest, Truncate};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::config::{KeepAlive, KeepAliveField};
use crate::models::ActiveModel;
use crate::protocols::openai::embeddings::MAX_TEXTS;
use crate::sampling::OneOrMany;
use crate::state::Context;
use crate::state::ServerState;

/// Texts to make vectors of.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbedRequest {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// A text or texts. Without any, the model is only loaded.
    input: Option<OneOrMany>,
    /// Whether texts that are too long are cut at their end, which is the default; with false, they are an error.
    truncate: Option<bool>,
    /// How long the model stays in memory unused after the answer.
    #[schema(value_type = Option<KeepAliveField>)]
    keep_alive: Option<KeepAlive>,
    /// Only the first dimensions of the vectors.
    #[schema(minimum = 1)]
    dimensions: Option<usize>,
}

/// A text to make a vector of.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct OneEmbeddingRequest {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// The text. Without one, the model is only loaded.
    prompt: Option<String>,
    /// Whether a text that is too long is cut at its end, which is the default; with false, it is an error.
    truncate: Option<bool>,
    /// How long the model stays in memory unused after the answer.
    #[schema(value_type = Option<KeepAliveField>)]
    keep_alive: Option<KeepAlive>,
}

impl RequestBody for EmbedRequest {
    fn read(fields: &mut Fields) -> Result<EmbedRequest, ApiError> {
        fields.take()
    }
}

impl RequestBody for OneEmbeddingRequest {
    fn read(fields: &mut Fields) -> Result<OneEmbeddingRequest, ApiError> {
        fields.take()
    }
}

/// Vectors, in the order of the texts. Durations are nanoseconds.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbedResponse {
    model: String,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    /// Tokens of the texts.
    prompt_eval_count: usize,
    /// Tokens that were cut from the texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_tokens: Option<usize>,
}

/// A vector.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OneEmbedding {
    embedding: Vec<f32>,
}

/// Makes vectors of texts.
#[utoipa::path(
    post,
    path = "/api/embed",
    tag = "Ollama",
    request_body = EmbedRequest,
    responses((status = 200, body = EmbedResponse))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<EmbedRequest>,
) -> Result<Json<EmbedResponse>, ApiError> {
    let began = Instant::now();
    let model = &server.models.acquire(body.model.as_deref(), body.keep_alive).await?;
    let texts = match body.input {
        Some(OneOrMany::Many(texts)) => texts,
        one => given(one.map(OneOrMany::into_vec).into_iter().flatten()),
    };
    if texts.len() > MAX_TEXTS {
        let message = format!("input has {} texts: give at most {MAX_TEXTS}", texts.len());
        return Err(ApiError::invalid("input", message));
    }
    let parameters = EmbeddingParameters { dimensions: body.dimensions, ..parameters(body.truncate) };
    let embeddings = embed(model, texts, parameters, &context).await?;
    let truncated: usize = embeddings.iter().map(|embedding| embedding.truncated).sum();
    Ok(Json(EmbedResponse {
        model: model.id.clone(),
        prompt_eval_count: embeddings.iter().map(|embedding| embedding.tokens).sum(),
        truncated_tokens: (truncated > 0).then_some(truncated),
        embeddings: embeddings.into_iter().map(|embedding| embedding.vector).collect(),
        total_duration: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
        load_duration: 0,
    }))
}

/// Makes a vector of a text.
#[utoipa::path(
    post,
    path = "/api/embeddings",
    tag = "Ollama",
    request_body = OneEmbeddingRequest,
    responses((status = 200, body = OneEmbedding))
)]
pub(crate) async fn create_one(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<OneEmbeddingRequest>,
) -> Result<Json<OneEmbedding>, ApiError> {
    let model = &server.models.acquire(body.model.as_deref(), body.keep_alive).await?;
    let embeddings = embed(model, given(body.prompt), parameters(body.truncate), &context).await?;
    let embedding = embeddings.into_iter().next().map(|embedding| embedding.vector).unwrap_or_default();
    Ok(Json(OneEmbedding { embedding }))
}

/// The texts that are not empty: in Ollama, an empty text in place of a list is none.
fn given(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    texts.into_iter().filter(|text| !text.is_empty()).collect()
}

/// How texts become vectors: those that are too long are cut, unless the request says otherwise.
fn parameters(truncate: Option<bool>) -> EmbeddingParameters {
    let truncate = truncate.unwrap_or(true).then_some(Truncate::Right);
    EmbeddingParameters { truncate, ..EmbeddingParameters::default() }
}

/// The vectors of texts.
async fn embed(
    model: &ActiveModel,
    texts: Vec<String>,
    parameters: EmbeddingParameters,
    context: &Context,
) -> Result<Vec<Embedding>, ApiError> {
    let embedder = model.loaded.embedder()?;
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let embeddings = embedder.embed_async(EmbeddingRequest::new(texts).with(parameters)).await?;
    context.note_prompt(&model.id, embeddings.iter().map(|embedding| embedding.tokens).sum());
    Ok(embeddings)
}
