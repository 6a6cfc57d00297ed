//! `POST /v1/rerank`: documents in the order of how well they answer a query, in the shape of Cohere and Jina.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use pipelines::RerankRequest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ScoringFields, ScoringUsage, check_count, check_repeated, note, own_names};
use crate::body::{Body, Fields, RequestBody};
use crate::context::Context;
use crate::error::ApiError;
use crate::server::Shared;
use crate::stamp;

/// A query, and documents to rank.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RerankBody {
    #[serde(flatten)]
    own: RerankFields,
    #[serde(flatten)]
    scoring: ScoringFields,
}

/// The fields of rankings alone.
#[derive(Debug, Deserialize, ToSchema)]
struct RerankFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// The query that documents should answer.
    query: String,
    /// The documents to rank.
    documents: Vec<RerankDocument>,
    /// How many of the best are returned; all, unless given.
    #[schema(minimum = 1)]
    top_n: Option<usize>,
    /// Whether results have the documents; they have, unless false.
    return_documents: Option<bool>,
}

/// A document.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged)]
enum RerankDocument {
    Text(String),
    Object { text: String },
}

impl RequestBody for RerankBody {
    fn read(fields: &mut Fields) -> Result<RerankBody, ApiError> {
        Ok(RerankBody { own: fields.take()?, scoring: ScoringFields::read(fields)? })
    }
}

/// Documents, best first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rankings {
    id: String,
    model: String,
    results: Vec<RankedDocument>,
    usage: ScoringUsage,
}

/// A document in a ranking.
#[derive(Debug, Serialize, ToSchema)]
struct RankedDocument {
    /// Which of the request's documents.
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<DocumentText>,
    relevance_score: f32,
}

/// The text of a document.
#[derive(Debug, Serialize, ToSchema)]
struct DocumentText {
    text: String,
}

impl From<RerankDocument> for String {
    fn from(document: RerankDocument) -> String {
        match document {
            RerankDocument::Text(text) | RerankDocument::Object { text } => text,
        }
    }
}

/// Ranks documents.
#[utoipa::path(
    post,
    path = "/v1/rerank",
    tag = "Scoring",
    request_body = RerankBody,
    responses((status = 200, body = Rankings))
)]
pub(crate) async fn create_v1(
    State(shared): State<Arc<Shared>>,
    context: Context,
    Body(body): Body<RerankBody>,
) -> Result<Json<Rankings>, ApiError> {
    let RerankBody { own, scoring } = body;
    check_count("documents", own.documents.len())?;
    check_repeated("query", own.query.len(), own.documents.len())?;
    if own.top_n == Some(0) {
        return Err(ApiError::invalid("top_n", "top_n is 0: give at least 1"));
    }
    let model = &shared.models.acquire(own.model.as_deref(), None).await?;
    let documents: Vec<String> = own.documents.into_iter().map(String::from).collect();
    let texts = own.return_documents.unwrap_or(true).then(|| documents.clone());
    let classifier = model.loaded.classifier()?;
    let parameters = scoring.parameters(classifier)?;
    let request = RerankRequest { query: own.query, documents, top_n: own.top_n, parameters };
    let ranking = classifier.rerank_async(request).await.map_err(own_names)?;
    note(&context, &model.id, ranking.tokens);
    let results = ranking.documents.into_iter().map(|ranked| RankedDocument {
        index: ranked.index,
        document: texts.as_ref().map(|texts| DocumentText { text: texts[ranked.index].clone() }),
        relevance_score: ranked.score,
    });
    Ok(Json(Rankings {
        id: stamp::unique_id("rerank-"),
        model: model.id.clone(),
        results: results.collect(),
        usage: ScoringUsage::new(ranking.tokens),
    }))
}

/// The same as `/v1/rerank`.
#[utoipa::path(
    post,
    path = "/rerank",
    tag = "Scoring",
    request_body = RerankBody,
    responses((status = 200, body = Rankings))
)]
pub(crate) async fn create(
    state: State<Arc<Shared>>,
    context: Context,
    body: Body<RerankBody>,
) -> Result<Json<Rankings>, ApiError> {
    create_v1(state, context, body).await
}
