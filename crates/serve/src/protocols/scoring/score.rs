//! `POST /v1/score`: how well texts fit each other, in the shape of vLLM.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use pipelines::{ClassificationRequest, ClassificationText};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ScoredTexts, ScoringFields, ScoringUsage, check_repeated, own_names};
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::stamp;
use crate::state::Context;
use crate::state::ServerState;

/// Pairs of texts.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ScoreBody {
    #[serde(flatten)]
    own: ScoreFields,
    #[serde(flatten)]
    scoring: ScoringFields,
}

/// The fields of scores alone.
#[derive(Debug, Deserialize, ToSchema)]
struct ScoreFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// The first text of each pair, or one for all pairs.
    text_1: ScoredTexts,
    /// The second text of each pair.
    text_2: ScoredTexts,
}

impl RequestBody for ScoreBody {
    fn read(fields: &mut Fields) -> Result<ScoreBody, ApiError> {
        Ok(ScoreBody { own: fields.take()?, scoring: ScoringFields::read(fields)? })
    }
}

/// Scores, in the order of the pairs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Scores {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    data: Vec<Score>,
    usage: ScoringUsage,
}

/// The score of a pair.
#[derive(Debug, Serialize, ToSchema)]
struct Score {
    index: usize,
    object: &'static str,
    score: f32,
}

/// Pairs of the texts of both fields.
///
/// # Errors
/// If they are not as many, unless there is one first text.
fn pairs(first: ScoredTexts, second: ScoredTexts) -> Result<Vec<ClassificationText>, ApiError> {
    let (first, second) = (first.into_texts("text_1")?, second.into_texts("text_2")?);
    if first.len() != second.len() && first.len() != 1 {
        let (found, expected) = (first.len(), second.len());
        let message =
            format!("text_1 has {found} texts, and text_2 has {expected}: give as many, or one text_1");
        return Err(ApiError::invalid("text_1", message));
    }
    if let [only] = &first[..] {
        check_repeated("text_1", only.len(), second.len())?;
    }
    Ok(first.into_iter().cycle().zip(second).map(ClassificationText::from).collect())
}

/// Scores pairs of texts.
#[utoipa::path(
    post,
    path = "/v1/score",
    tag = "Scoring",
    request_body = ScoreBody,
    responses((status = 200, body = Scores))
)]
pub(crate) async fn create_v1(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<ScoreBody>,
) -> Result<Json<Scores>, ApiError> {
    let ScoreBody { own, scoring } = body;
    let pairs = pairs(own.text_1, own.text_2)?;
    let model = &server.models.acquire(own.model.as_deref(), None).await?;
    let classifier = model.loaded.classifier()?;
    classifier.expect_one_label()?;
    let request = ClassificationRequest::new(pairs).with(scoring.parameters(classifier)?);
    let scored = classifier.classify_async(request).await.map_err(own_names)?;
    let tokens = scored.iter().map(|pair| pair.tokens).sum();
    context.note_prompt(&model.id, tokens);
    let data = scored.into_iter().enumerate();
    let data = data.map(|(index, pair)| Score { index, object: "score", score: pair.scores[0] });
    Ok(Json(Scores {
        id: stamp::unique_id("score-"),
        object: "list",
        created: stamp::now(),
        model: model.id.clone(),
        data: data.collect(),
        usage: ScoringUsage::new(tokens),
    }))
}

/// The same as `/v1/score`.
#[utoipa::path(
    post,
    path = "/score",
    tag = "Scoring",
    request_body = ScoreBody,
    responses((status = 200, body = Scores))
)]
pub(crate) async fn create(
    state: State<Arc<ServerState>>,
    context: Context,
    body: Body<ScoreBody>,
) -> Result<Json<Scores>, ApiError> {
    create_v1(state, context, body).await
}
