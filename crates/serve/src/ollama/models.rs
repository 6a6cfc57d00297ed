//! `GET /api/tags`, `/api/ps` and `/api/version`, `POST /api/show`, and `/`: which models there are, and what they are.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::body::{Body, Fields, RequestBody};
use crate::error::ApiError;
use crate::models::{Entry, LoadedModel};
use crate::server::Shared;
use crate::stamp;

/// When models expire that stay in memory.
const NEVER: &str = "9999-12-31T23:59:59Z";

/// The models of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tags {
    models: Vec<Tag>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
struct Tag {
    name: String,
    model: String,
    modified_at: String,
    /// Bytes of its weights.
    size: u64,
    details: Details,
}

/// The models in memory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Processes {
    models: Vec<Process>,
}

/// A model in memory.
#[derive(Debug, Serialize, ToSchema)]
struct Process {
    name: String,
    model: String,
    /// Bytes of its weights.
    size: u64,
    details: Details,
    /// When it leaves memory, unless it is used before.
    expires_at: &'static str,
    /// Bytes of them that a GPU holds.
    size_vram: u64,
    /// The most tokens of a prompt and its answer together.
    context_length: usize,
}

/// Facts about a model.
#[derive(Debug, Serialize, ToSchema)]
struct Details {
    parent_model: &'static str,
    format: &'static str,
    family: String,
    families: Vec<String>,
    parameter_size: &'static str,
    quantization_level: String,
}

/// A model to show.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ShowRequest {
    /// The id or an alias of a model.
    #[serde(alias = "name")]
    model: Option<String>,
}

impl RequestBody for ShowRequest {
    fn read(fields: &mut Fields) -> Result<ShowRequest, ApiError> {
        fields.take()
    }
}

/// What a model is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Shown {
    modelfile: String,
    parameters: String,
    /// Its chat template, which is Jinja.
    template: String,
    details: Details,
    #[schema(value_type = Object)]
    model_info: Map<String, Value>,
    /// `completion` or `embedding`.
    capabilities: Vec<&'static str>,
    modified_at: String,
}

/// Which build runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OllamaVersion {
    version: &'static str,
}

impl Details {
    fn of(entry: &Entry) -> Details {
        let plan = entry.loaded.plan();
        let family = plan.architecture().to_string();
        let encoding = plan.config().quantization_encoding;
        Details {
            parent_model: "",
            format: "",
            families: vec![family.clone()],
            family,
            parameter_size: "",
            quantization_level: encoding.map(|encoding| encoding.to_string()).unwrap_or_default(),
        }
    }
}

/// Lists the models.
#[utoipa::path(get, path = "/api/tags", tag = "Ollama", responses((status = 200, body = Tags)))]
pub(crate) async fn tags(State(shared): State<Arc<Shared>>) -> Json<Tags> {
    let tag = |entry: &Arc<Entry>| Tag {
        name: entry.id.clone(),
        model: entry.id.clone(),
        modified_at: stamp::rfc3339_of(entry.created),
        size: entry.loaded.plan().weight_bytes().unwrap_or(0),
        details: Details::of(entry),
    };
    Json(Tags { models: shared.models.all().iter().map(tag).collect() })
}

/// Lists the models in memory.
#[utoipa::path(get, path = "/api/ps", tag = "Ollama", responses((status = 200, body = Processes)))]
pub(crate) async fn processes(State(shared): State<Arc<Shared>>) -> Json<Processes> {
    let process = |entry: &Arc<Entry>| Process {
        name: entry.id.clone(),
        model: entry.id.clone(),
        size: entry.loaded.plan().weight_bytes().unwrap_or(0),
        details: Details::of(entry),
        expires_at: NEVER,
        size_vram: 0,
        context_length: entry.loaded.max_length(),
    };
    Json(Processes { models: shared.models.all().iter().map(process).collect() })
}

/// Shows a model.
#[utoipa::path(
    post,
    path = "/api/show",
    tag = "Ollama",
    request_body = ShowRequest,
    responses((status = 200, body = Shown))
)]
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Body(body): Body<ShowRequest>,
) -> Result<Json<Shown>, ApiError> {
    let entry = super::find(&shared.models, body.model.as_deref())?;
    let architecture = entry.loaded.plan().architecture();
    let (template, capability) = match &entry.loaded {
        LoadedModel::Text(generator) => {
            let source = generator.chat_template().and_then(|template| template.gguf_keys().next());
            (source.map(|(_, source)| source.to_string()).unwrap_or_default(), "completion")
        }
        LoadedModel::Embedding(_) => (String::new(), "embedding"),
    };
    let mut model_info = Map::new();
    model_info.insert("general.architecture".to_string(), json!(architecture));
    model_info.insert(format!("{architecture}.context_length"), json!(entry.loaded.max_length()));
    Ok(Json(Shown {
        modelfile: format!("FROM {}\n", entry.id),
        parameters: String::new(),
        template,
        details: Details::of(entry),
        model_info,
        capabilities: vec![capability],
        modified_at: stamp::rfc3339_of(entry.created),
    }))
}

/// Says which build runs.
#[utoipa::path(get, path = "/api/version", tag = "Ollama", responses((status = 200, body = OllamaVersion)))]
pub(crate) async fn version() -> Json<OllamaVersion> {
    Json(OllamaVersion { version: env!("CARGO_PKG_VERSION") })
}
