//! `POST /v1/embeddings`, and `/v1/pooling` in the shape of vLLM: texts to vectors.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pipelines::{EmbeddingParameters, EmbeddingRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::fields::texts::{TextInput, TextObject, TextParts, TextPiece};
use crate::fields::truncation::{Truncation, TruncationFields};
use crate::stamp;
use crate::state::Context;
use crate::state::ServerState;

/// The most texts of a request.
pub(crate) const MAX_TEXTS: usize = 2048;

/// Texts to make vectors of.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbeddingsRequest {
    #[serde(flatten)]
    texts: EmbeddingFields,
    #[serde(flatten)]
    truncation: TruncationFields,
}

/// The texts, and how their vectors are written.
#[derive(Debug, Deserialize, ToSchema)]
struct EmbeddingFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// A text, the tokens of a text with texts between them, or a list of these.
    #[serde(alias = "content")]
    input: Input,
    /// How vectors are written.
    encoding_format: Option<EncodingFormat>,
    /// Only the first dimensions of the vectors.
    #[schema(minimum = 1)]
    dimensions: Option<usize>,
}

/// Texts, or their tokens.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "give a text, a list of tokens and texts, or a list of these")]
pub(crate) enum Input {
    Text(String),
    Several(Vec<TextInput>),
    Pieces(Vec<TextPiece>),
    Object(TextObject),
    Parts(TextParts),
}

/// How vectors are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum EncodingFormat {
    /// Numbers.
    #[default]
    Float,
    /// Little-endian f32, in base64.
    Base64,
}

impl RequestBody for EmbeddingsRequest {
    fn read(fields: &mut Fields) -> Result<EmbeddingsRequest, ApiError> {
        Ok(EmbeddingsRequest { texts: fields.take()?, truncation: fields.take()? })
    }
}

/// Vectors, in the order of the texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Embeddings {
    object: &'static str,
    data: Vec<EmbeddingObject>,
    model: String,
    usage: EmbeddingUsage,
}

/// A vector.
#[derive(Debug, Serialize, ToSchema)]
struct EmbeddingObject {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

/// Vectors in the shape of vLLM, in the order of the texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Poolings {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    data: Vec<PoolingObject>,
    usage: EmbeddingUsage,
}

/// A vector in the shape of vLLM.
#[derive(Debug, Serialize, ToSchema)]
struct PoolingObject {
    index: usize,
    object: &'static str,
    data: Vector,
}

/// A vector in the shape of llama.cpp, which has one for each token if none are pooled.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NativeEmbedding {
    index: usize,
    embedding: [Vector; 1],
}

/// A vector as it is written.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

/// Counts of tokens.
#[derive(Debug, Serialize, ToSchema)]
struct EmbeddingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl Input {
    fn into_list(self) -> Vec<TextInput> {
        match self {
            Input::Text(text) => vec![TextInput::Text(text)],
            Input::Several(texts) => texts,
            Input::Pieces(pieces) => vec![TextInput::Pieces(pieces)],
            Input::Object(object) => vec![TextInput::Object(object)],
            Input::Parts(parts) => vec![TextInput::Parts(parts)],
        }
    }
}

impl Vector {
    fn new(vector: Vec<f32>, format: EncodingFormat) -> Vector {
        match format {
            EncodingFormat::Float => Vector::Float(vector),
            EncodingFormat::Base64 => Vector::Base64(
                STANDARD.encode(vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()),
            ),
        }
    }
}

/// Makes vectors of texts.
#[utoipa::path(
    post,
    path = "/v1/embeddings",
    tag = "OpenAI",
    request_body = EmbeddingsRequest,
    responses((status = 200, body = Embeddings))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<EmbeddingsRequest>,
) -> Result<Json<Embeddings>, ApiError> {
    let EmbeddedTexts { model, vectors, usage } = embed(&server, &context, body).await?;
    let data = vectors.into_iter().enumerate().map(|(index, embedding)| EmbeddingObject {
        object: "embedding",
        index,
        embedding,
    });
    Ok(Json(Embeddings { object: "list", data: data.collect(), model, usage }))
}

/// Makes vectors of texts, in the shape of vLLM.
#[utoipa::path(
    post,
    path = "/v1/pooling",
    tag = "OpenAI",
    request_body = EmbeddingsRequest,
    responses((status = 200, body = Poolings))
)]
pub(crate) async fn pool(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<EmbeddingsRequest>,
) -> Result<Json<Poolings>, ApiError> {
    let EmbeddedTexts { model, vectors, usage } = embed(&server, &context, body).await?;
    let data = vectors.into_iter().enumerate();
    let data = data.map(|(index, data)| PoolingObject { index, object: "pooling", data }).collect();
    let (id, created) = (stamp::unique_id("pool-"), stamp::now());
    Ok(Json(Poolings { id, object: "list", created, model, data, usage }))
}

/// Makes vectors of texts, in the shape of llama.cpp.
#[utoipa::path(
    post,
    path = "/embedding",
    tag = "llama.cpp",
    request_body = EmbeddingsRequest,
    responses((status = 200, body = Vec<NativeEmbedding>))
)]
pub(crate) async fn create_native(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<EmbeddingsRequest>,
) -> Result<Json<Vec<NativeEmbedding>>, ApiError> {
    let vectors = embed(&server, &context, body).await?.vectors.into_iter().enumerate();
    Ok(Json(vectors.map(|(index, vector)| NativeEmbedding { index, embedding: [vector] }).collect()))
}

/// Vectors, and what they took.
struct EmbeddedTexts {
    model: String,
    vectors: Vec<Vector>,
    usage: EmbeddingUsage,
}

async fn embed(
    server: &ServerState,
    context: &Context,
    body: EmbeddingsRequest,
) -> Result<EmbeddedTexts, ApiError> {
    let EmbeddingsRequest { texts: own, truncation } = body;
    let model = &server.models.acquire(own.model.as_deref(), None).await?;
    let embedder = model.loaded.embedder()?;
    let Truncation { truncate, max_tokens } = truncation.within(embedder.max_length())?;
    let inputs = own.input.into_list();
    if inputs.is_empty() || inputs.len() > MAX_TEXTS {
        let message = format!("input has {} texts: give 1 to {MAX_TEXTS}", inputs.len());
        return Err(ApiError::invalid("input", message));
    }
    let mut texts = Vec::with_capacity(inputs.len());
    for input in inputs {
        texts.push(input.into_text(model).await?);
    }
    let parameters = EmbeddingParameters {
        dimensions: own.dimensions,
        truncate,
        max_tokens,
        ..EmbeddingParameters::default()
    };
    let request = EmbeddingRequest { texts, parameters };
    let embeddings = embedder.embed_async(request).await?;
    let prompt_tokens = embeddings.iter().map(|embedding| embedding.tokens).sum();
    context.note_prompt(&model.id, prompt_tokens);
    let format = own.encoding_format.unwrap_or_default();
    let vectors = embeddings.into_iter().map(|embedding| Vector::new(embedding.vector, format));
    Ok(EmbeddedTexts {
        model: model.id.clone(),
        vectors: vectors.collect(),
        usage: EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens },
    })
}
