//! `GET /v1/models`: which models there are.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::config::ModelKind;
use crate::models::{ModelStatus, Preset, Progress, ServedModel};
use crate::protocols::anthropic::models::{ModelInfo, ModelPage, is_spoken};
use crate::sampling::{Sampling, SamplingDefaults};
use crate::state::ServerState;

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
    /// The model of a preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    /// The most tokens of a prompt and its answer together.
    max_model_len: usize,
    /// Facts beyond the OpenAI API.
    meta: Meta,
}

/// Facts about a model.
#[derive(Debug, Serialize, ToSchema)]
struct Meta {
    /// `text`, `embedding` or `classifier`.
    kind: &'static str,
    architecture: String,
    /// Unless it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<usize>,
    /// Bytes of its weights.
    weight_bytes: u64,
    /// Bytes of its weights and its cache, which it needs in memory.
    memory_bytes: u64,
    /// How tokens are chosen where requests leave it open, if the model makes text.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling: Option<SamplingDefaults>,
    /// `absent`, `loading`, `ready`, `draining` until its requests have ended, or `failed`.
    state: &'static str,
    /// How far it is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    /// Why it could not be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// Whether it stays in memory.
    pinned: bool,
    /// Requests that use it.
    running: usize,
    /// Requests that wait until it is in memory.
    waiting: usize,
    /// Seconds until it leaves memory, unless it is used before.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in: Option<f64>,
}

impl Model {
    pub(crate) fn from_status(status: ModelStatus) -> Model {
        let ModelStatus {
            model, state, progress, failure, loaded, expires_in, pinned, running, waiting, ..
        } = status;
        let facts = &model.facts;
        Model {
            id: model.id().to_string(),
            object: "model",
            created: model.created,
            owned_by: "perihelion",
            aliases: model.aliases().to_vec(),
            parent: None,
            max_model_len: loaded.map_or(facts.max_length, |loaded| loaded.max_length()),
            meta: Meta {
                kind: match facts.kind {
                    ModelKind::Text => "text",
                    ModelKind::Embedding => "embedding",
                    ModelKind::Classifier => "classifier",
                },
                architecture: facts.architecture.clone(),
                parameters: facts.parameters,
                weight_bytes: facts.weight_bytes,
                memory_bytes: facts.need,
                sampling: defaults(&model, Sampling::default()),
                state,
                progress,
                failure,
                pinned,
                running,
                waiting,
                expires_in: expires_in.map(|time| time.as_secs_f64()),
            },
        }
    }

    /// The model in the shape of the Anthropic API.
    fn to_anthropic(&self) -> ModelInfo {
        ModelInfo::new(&self.id, self.created, self.max_model_len)
    }

    /// The model under the name of a preset.
    fn under(self, preset: &Preset, model: &ServedModel) -> Model {
        let (parent, limit) = (Some(self.id), preset.lengths().num_ctx.unwrap_or(usize::MAX));
        Model {
            id: preset.name().to_string(),
            created: preset.spec().created,
            aliases: Vec::new(),
            parent,
            max_model_len: self.max_model_len.min(limit),
            meta: Meta { sampling: defaults(model, preset.sampling()), ..self.meta },
            ..self
        }
    }
}

fn defaults(model: &ServedModel, of_preset: Sampling) -> Option<SamplingDefaults> {
    let makes_text = model.facts.kind == ModelKind::Text;
    makes_text.then(|| of_preset.defaults(model.facts.sampling).ok()).flatten()
}

/// Lists the models and presets. Requests with the header `anthropic-version` get the shape of that API.
#[utoipa::path(get, path = "/v1/models", tag = "OpenAI", responses((status = 200, body = ModelList)))]
pub(crate) async fn list(State(server): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    let models = server.models.statuses().into_iter().map(Model::from_status);
    let presets = server.models.presets();
    let presets = presets
        .iter()
        .map(|(preset, model)| Model::from_status(server.models.status(model)).under(preset, model));
    let data: Vec<Model> = models.chain(presets).collect();
    if is_spoken(&headers) {
        let models: Vec<ModelInfo> = data.iter().map(Model::to_anthropic).collect();
        return Json(ModelPage::from(models)).into_response();
    }
    Json(ModelList { object: "list", data }).into_response()
}

/// Shows a model. Ids may have slashes. Requests with the header `anthropic-version` get the shape of that API.
#[utoipa::path(
    get,
    path = "/v1/models/{*id}",
    tag = "OpenAI",
    params(("id" = String, Path, description = "The id or an alias of a model")),
    responses((status = 200, body = Model))
)]
pub(crate) async fn show(
    State(server): State<Arc<ServerState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (model, preset) = server.models.resolve(Some(&id))?;
    let shown = Model::from_status(server.models.status(&model));
    let shown = match preset {
        Some(preset) => shown.under(&preset, &model),
        None => shown,
    };
    Ok(if is_spoken(&headers) {
        Json(shown.to_anthropic()).into_response()
    } else {
        Json(shown).into_response()
    })
}
