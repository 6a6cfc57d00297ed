//! `GET /v1/models`: which models there are.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::models::{Entry, LoadedModel};
use crate::server::Shared;

/// The models of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    object: &'static str,
    data: Vec<Model>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Model {
    id: String,
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    owned_by: &'static str,
    /// Other names for it.
    aliases: Vec<String>,
    /// The most tokens of a prompt and its answer together.
    max_model_len: usize,
    /// Facts beyond the OpenAI API.
    meta: Meta,
}

/// Facts about a model.
#[derive(Debug, Serialize, ToSchema)]
struct Meta {
    /// `text` or `embedding`.
    kind: &'static str,
    architecture: String,
    /// Bytes of its weights.
    weight_bytes: Option<u64>,
}

impl Model {
    fn of(entry: &Entry) -> Model {
        let plan = entry.loaded.plan();
        let kind = match &entry.loaded {
            LoadedModel::Text(_) => "text",
            LoadedModel::Embedding(_) => "embedding",
        };
        Model {
            id: entry.id.clone(),
            object: "model",
            created: entry.created,
            owned_by: "perihelion",
            aliases: entry.aliases.clone(),
            max_model_len: entry.loaded.max_length(),
            meta: Meta {
                kind,
                architecture: plan.architecture().to_string(),
                weight_bytes: plan.weight_bytes(),
            },
        }
    }
}

/// Lists the models.
#[utoipa::path(get, path = "/v1/models", tag = "OpenAI", responses((status = 200, body = ModelList)))]
pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Json<ModelList> {
    let data = shared.models.all().iter().map(|entry| Model::of(entry)).collect();
    Json(ModelList { object: "list", data })
}

/// Shows a model. Ids may have slashes.
#[utoipa::path(
    get,
    path = "/v1/models/{*id}",
    tag = "OpenAI",
    params(("id" = String, Path, description = "The id or an alias of a model")),
    responses((status = 200, body = Model))
)]
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Json<Model>, ApiError> {
    Ok(Json(Model::of(shared.models.find(Some(&id))?)))
}
