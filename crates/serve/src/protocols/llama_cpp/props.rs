//! `GET /props`: a model, and the defaults of requests to it.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::GenerationSettings;
use super::slots::slot_count;
use crate::api_error::ApiError;
use crate::config::ModelKind;
use crate::state::ServerState;

/// The model of a request.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PropsParams {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
}

/// A model, and the defaults of requests to it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Props {
    default_generation_settings: DefaultSettings,
    /// How many requests the model answers at once; 0 while it is not in memory.
    total_slots: usize,
    model_alias: String,
    /// The file, the folder or the repo of the model.
    model_path: String,
    modalities: Modalities,
    /// Empty if the model has none.
    chat_template: String,
    bos_token: String,
    eos_token: String,
    build_info: String,
    /// Whether the model is not in memory; a request loads it.
    is_sleeping: bool,
}

/// The defaults of requests.
#[derive(Debug, Serialize, ToSchema)]
struct DefaultSettings {
    /// The most tokens of a prompt and its answer together.
    n_ctx: usize,
    params: GenerationSettings,
}

/// The modalities that a model reads in addition to text.
#[derive(Debug, Serialize, ToSchema)]
struct Modalities {
    vision: bool,
    audio: bool,
    video: bool,
}

/// Shows a model and the defaults of requests to it. That does not load it.
#[utoipa::path(
    get,
    path = "/props",
    tag = "llama.cpp",
    params(PropsParams),
    responses((status = 200, body = Props))
)]
pub(crate) async fn show(
    State(server): State<Arc<ServerState>>,
    params: Result<Query<PropsParams>, QueryRejection>,
) -> Result<Json<Props>, ApiError> {
    let Query(PropsParams { model: name }) =
        params.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    let (served, preset) = server.models.resolve(name.as_deref())?;
    let loaded = server.models.status(&served).loaded;
    let model = server.models.text(name.as_deref()).await?;
    let tokenizer = model.tokenizer();
    let of_preset = preset.as_ref().map(|preset| preset.sampling()).unwrap_or_default();
    let mut request = of_preset.request(served.facts.sampling, Some(tokenizer))?;
    // A request without a seed gets one of its own.
    request.seed = 0;
    request.max_new_tokens = preset.as_ref().and_then(|preset| preset.lengths().answer());
    let template = match served.facts.kind {
        ModelKind::Text => model.chat_template().ok().and_then(|own| own.gguf_keys().next()),
        ModelKind::Embedding | ModelKind::Classifier => None,
    };
    let text = |token: Option<u32>| {
        token.and_then(|id| tokenizer.token(id)).map(|text| text.into_owned()).unwrap_or_default()
    };
    let shown = Props {
        default_generation_settings: DefaultSettings {
            n_ctx: model.max_length(),
            params: GenerationSettings::new(&request, tokenizer),
        },
        total_slots: loaded.as_deref().map_or(0, slot_count),
        model_alias: model.id().to_string(),
        model_path: served.path(),
        modalities: Modalities { vision: false, audio: false, video: false },
        chat_template: template.map(|(_, source)| source.to_string()).unwrap_or_default(),
        bos_token: text(tokenizer.bos()),
        eos_token: text(tokenizer.eos()),
        build_info: format!("peri-{}", server.config.build),
        is_sleeping: loaded.is_none(),
    };
    Ok(Json(shown))
}
