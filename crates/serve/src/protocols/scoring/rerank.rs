//! `POST /v1/rerank`: documents in the order of how well they answer a query, in the shape of Cohere and Jina, and if the
//! documents are named `texts`, in that of Hugging Face's text-embeddings-inference (TEI).

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use pipelines::RerankRequest;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::{ScoringFields, ScoringUsage, check_count, check_repeated, own_names};
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::stamp;
use crate::state::Context;
use crate::state::ServerState;

/// A query, and documents to rank.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RerankBody {
    #[serde(flatten)]
    own: RerankFields,
    /// Of a request with `texts`.
    #[serde(flatten)]
    tei: Option<TeiFields>,
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
    #[serde(alias = "texts")]
    documents: Vec<RerankDocument>,
    /// How many of the best are returned; all, unless given.
    #[schema(minimum = 1)]
    top_n: Option<usize>,
    /// Whether results have the documents. The default is true for `documents`, and false for `texts`.
    #[serde(alias = "return_text")]
    return_documents: Option<bool>,
}

/// The fields of TEI alone.
#[derive(Debug, Deserialize, ToSchema)]
struct TeiFields {
    /// Whether scores are the logits.
    raw_scores: Option<bool>,
    /// Whether texts that are too long are cut.
    truncate: Option<bool>,
    /// Which end of them is cut: `left`, or `right`, the default.
    truncation_direction: Option<String>,
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
        let is_tei = fields.has("texts");
        let own = fields.take()?;
        let tei = if is_tei { Some(TeiFields::read(fields)?) } else { None };
        Ok(RerankBody { own, tei, scoring: ScoringFields::read(fields)? })
    }
}

impl TeiFields {
    /// Takes the fields, and sets those of the other shape that mean the same.
    fn read(fields: &mut Fields) -> Result<TeiFields, ApiError> {
        let tei: TeiFields = fields.take()?;
        if tei.raw_scores == Some(true) {
            fields.set("use_activation", Some(json!(false)));
        }
        if tei.truncate == Some(true) {
            fields.set("truncate_prompt_tokens", Some(json!(-1)));
            let side = tei.truncation_direction.as_deref().map(|side| json!(side.to_ascii_lowercase()));
            fields.set("truncation_side", side);
        }
        Ok(tei)
    }
}

/// Documents, best first, in the shape of the request.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum RerankAnswer {
    Rankings(Rankings),
    Tei(Vec<TeiRank>),
}

/// A document in a ranking of TEI.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TeiRank {
    /// Which of the request's texts.
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    score: f32,
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

impl From<TeiRank> for RankedDocument {
    fn from(TeiRank { index, text, score }: TeiRank) -> RankedDocument {
        RankedDocument { index, document: text.map(|text| DocumentText { text }), relevance_score: score }
    }
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
    responses((status = 200, body = RerankAnswer))
)]
pub(crate) async fn create_v1(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<RerankBody>,
) -> Result<Json<RerankAnswer>, ApiError> {
    let RerankBody { own, tei, scoring } = body;
    check_count(if tei.is_some() { "texts" } else { "documents" }, own.documents.len())?;
    check_repeated("query", own.query.len(), own.documents.len())?;
    if own.top_n == Some(0) {
        return Err(ApiError::invalid("top_n", "top_n is 0: give at least 1"));
    }
    let model = &server.models.acquire(own.model.as_deref(), None).await?;
    let documents: Vec<String> = own.documents.into_iter().map(String::from).collect();
    let texts = own.return_documents.unwrap_or(tei.is_none()).then(|| documents.clone());
    let classifier = model.loaded.classifier()?;
    let parameters = scoring.parameters(classifier)?;
    let request = RerankRequest { query: own.query, documents, top_n: own.top_n, parameters };
    let ranking = classifier.rerank_async(request).await.map_err(own_names)?;
    context.note_prompt(&model.id, ranking.tokens);
    let ranks = ranking.documents.into_iter().map(|ranked| TeiRank {
        index: ranked.index,
        text: texts.as_ref().map(|texts| texts[ranked.index].clone()),
        score: ranked.score,
    });
    if tei.is_some() {
        return Ok(Json(RerankAnswer::Tei(ranks.collect())));
    }
    Ok(Json(RerankAnswer::Rankings(Rankings {
        id: stamp::unique_id("rerank-"),
        model: model.id.clone(),
        results: ranks.map(RankedDocument::from).collect(),
        usage: ScoringUsage::new(ranking.tokens),
    })))
}

/// The same as `/v1/rerank`.
#[utoipa::path(
    post,
    path = "/rerank",
    tag = "Scoring",
    request_body = RerankBody,
    responses((status = 200, body = RerankAnswer))
)]
pub(crate) async fn create(
    state: State<Arc<ServerState>>,
    context: Context,
    body: Body<RerankBody>,
) -> Result<Json<RerankAnswer>, ApiError> {
    create_v1(state, context, body).await
}
