//! `POST /api/embed` and `/api/embeddings`: texts to vectors.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use pipelines::{Embedding, EmbeddingParameters, EmbeddingRequest, Truncate};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::body::{Body, Fields, RequestBody};
use crate::context::Context;
use crate::error::ApiError;
use crate::models::{ActiveModel, KeepAlive, KeepAliveField};
use crate::openai::embeddings::MAX_TEXTS;
use crate::sampling::OneOrMany;
use crate::server::Shared;

/// Texts to make vectors of.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbedRequest {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// A text or texts.
    input: OneOrMany,
    /// Whether texts that are too long are cut at their end; else they are an error.
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
    /// The text.
    prompt: String,
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
    State(shared): State<Arc<Shared>>,
    context: Context,
    Body(body): Body<EmbedRequest>,
) -> Result<Json<EmbedResponse>, ApiError> {
    let began = Instant::now();
    let model = &shared.models.acquire(body.model.as_deref(), body.keep_alive).await?;
    let texts = body.input.into_vec();
    if texts.len() > MAX_TEXTS {
        let message = format!("input has {} texts: give at most {MAX_TEXTS}", texts.len());
        return Err(ApiError::invalid("input", message));
    }
    let truncate = body.truncate.unwrap_or(false).then_some(Truncate::Right);
    let parameters =
        EmbeddingParameters { dimensions: body.dimensions, truncate, ..EmbeddingParameters::default() };
    let embeddings = embed(model, texts, parameters, &context).await?;
    Ok(Json(EmbedResponse {
        model: model.id.clone(),
        prompt_eval_count: embeddings.iter().map(|embedding| embedding.tokens).sum(),
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
    State(shared): State<Arc<Shared>>,
    context: Context,
    Body(body): Body<OneEmbeddingRequest>,
) -> Result<Json<OneEmbedding>, ApiError> {
    let model = &shared.models.acquire(body.model.as_deref(), body.keep_alive).await?;
    let embeddings = embed(model, vec![body.prompt], EmbeddingParameters::default(), &context).await?;
    let embedding = embeddings.into_iter().next().map(|embedding| embedding.vector).unwrap_or_default();
    Ok(Json(OneEmbedding { embedding }))
}

/// The vectors of texts.
async fn embed(
    model: &ActiveModel,
    texts: Vec<String>,
    parameters: EmbeddingParameters,
    context: &Context,
) -> Result<Vec<Embedding>, ApiError> {
    let request = EmbeddingRequest::new(texts).with(parameters);
    let embeddings = model.loaded.embedder()?.embed_async(request).await?;
    context.note(|facts| {
        facts.model = Some(model.id.clone());
        facts.prompt_tokens = embeddings.iter().map(|embedding| embedding.tokens).sum();
    });
    Ok(embeddings)
}
