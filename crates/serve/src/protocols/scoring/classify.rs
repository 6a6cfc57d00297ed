//! `POST /v1/classify`: the labels of texts, in the shape of vLLM.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use pipelines::{Classification, ClassificationRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ScoredTexts, ScoringFields, ScoringUsage};
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::stamp;
use crate::state::Context;
use crate::state::ServerState;

/// ScoredTexts to label.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ClassifyBody {
    #[serde(flatten)]
    own: ClassifyFields,
    #[serde(flatten)]
    scoring: ScoringFields,
}

/// The fields of labels alone.
#[derive(Debug, Deserialize, ToSchema)]
struct ClassifyFields {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// A text, or texts.
    input: ScoredTexts,
}

impl RequestBody for ClassifyBody {
    fn read(fields: &mut Fields) -> Result<ClassifyBody, ApiError> {
        Ok(ClassifyBody { own: fields.take()?, scoring: ScoringFields::read(fields)? })
    }
}

/// Labels, in the order of the texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Labels {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    data: Vec<LabelledText>,
    usage: ScoringUsage,
}

/// The label of a text.
#[derive(Debug, Serialize, ToSchema)]
struct LabelledText {
    index: usize,
    /// The label of the highest score.
    label: String,
    /// The scores of all labels.
    probs: Vec<f32>,
    num_classes: usize,
}

impl LabelledText {
    fn new(index: usize, text: Classification, labels: &[String]) -> LabelledText {
        let label = labels[text.best()].clone();
        LabelledText { index, label, num_classes: text.scores.len(), probs: text.scores }
    }
}

/// Labels texts.
#[utoipa::path(
    post,
    path = "/v1/classify",
    tag = "Scoring",
    request_body = ClassifyBody,
    responses((status = 200, body = Labels))
)]
pub(crate) async fn create_v1(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<ClassifyBody>,
) -> Result<Json<Labels>, ApiError> {
    let ClassifyBody { own, scoring } = body;
    let texts = own.input.into_texts("input")?;
    let model = &server.models.acquire(own.model.as_deref(), None).await?;
    let classifier = model.loaded.classifier()?;
    let request = ClassificationRequest::new(texts).with(scoring.parameters(classifier)?);
    let scored = classifier.classify_async(request).await?;
    let tokens = scored.iter().map(|text| text.tokens).sum();
    context.note_prompt(&model.id, tokens);
    let data = scored.into_iter().enumerate();
    let data = data.map(|(index, text)| LabelledText::new(index, text, classifier.labels()));
    Ok(Json(Labels {
        id: stamp::unique_id("classify-"),
        object: "list",
        created: stamp::now(),
        model: model.id.clone(),
        data: data.collect(),
        usage: ScoringUsage::new(tokens),
    }))
}

/// The same as `/v1/classify`.
#[utoipa::path(
    post,
    path = "/classify",
    tag = "Scoring",
    request_body = ClassifyBody,
    responses((status = 200, body = Labels))
)]
pub(crate) async fn create(
    state: State<Arc<ServerState>>,
    context: Context,
    body: Body<ClassifyBody>,
) -> Result<Json<Labels>, ApiError> {
    create_v1(state, context, body).await
}
