//! `GET /api/tags`, `/api/ps` and `/api/version`, `POST /api/show`, and `/`: which models there are, and what they are.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use pipelines::{AnswerFormat, InfillFormat};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::config::ModelKind;
use crate::models::{ModelStatus, Preset, PresetSpec, ServedModel};
use crate::stamp;
use crate::state::ServerState;

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
    /// A digest of its files and settings, of a model in memory.
    digest: String,
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
    /// A digest of its files and settings.
    digest: String,
    details: Details,
    /// When it leaves memory, unless it is used before.
    expires_at: String,
    /// Bytes of them that a GPU holds.
    size_vram: u64,
    /// The most tokens of a prompt and its answer together.
    context_length: usize,
}

/// Facts about a model.
#[derive(Debug, Serialize, ToSchema)]
struct Details {
    /// The model of a preset.
    parent_model: String,
    format: &'static str,
    family: String,
    families: Vec<String>,
    parameter_size: String,
    quantization_level: String,
}

/// A model to show.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ShowRequest {
    /// The id or an alias of a model, or the name of a preset.
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
    /// The parameters of a preset, a line each.
    parameters: String,
    /// Its chat template, which is Jinja.
    template: String,
    /// The system prompt of a preset.
    system: String,
    details: Details,
    #[schema(value_type = Object)]
    model_info: Map<String, Value>,
    /// `completion`, with `tools` and `thinking` if its template has them and `insert` if it fills gaps, or `embedding`.
    capabilities: Vec<&'static str>,
    modified_at: String,
}

/// Which build runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OllamaVersion {
    version: &'static str,
}

impl Details {
    fn for_model(model: &ServedModel) -> Details {
        let facts = &model.facts;
        Details {
            parent_model: String::new(),
            format: "",
            families: vec![facts.architecture.clone()],
            family: facts.architecture.clone(),
            parameter_size: facts.parameters.map(parameter_size).unwrap_or_default(),
            quantization_level: facts.encoding.clone(),
        }
    }
}

/// A number of parameters as model names have it, such as 1.1B.
fn parameter_size(parameters: usize) -> String {
    let units = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")];
    match units.iter().find(|(unit, _)| parameters as f64 >= *unit) {
        Some((unit, name)) => format!("{:.1}{name}", parameters as f64 / unit),
        None => parameters.to_string(),
    }
}

impl Tag {
    fn from_status(status: &ModelStatus) -> Tag {
        let ModelStatus { model, loaded, .. } = status;
        Tag {
            name: model.id().to_string(),
            model: model.id().to_string(),
            modified_at: stamp::rfc3339_of(model.created),
            size: model.facts.weight_bytes,
            digest: loaded.as_ref().map(|loaded| loaded.digest().to_string()).unwrap_or_default(),
            details: Details::for_model(model),
        }
    }

    /// The same model under the name of a preset.
    fn under(self, preset: &Preset) -> Tag {
        Tag {
            name: preset.name().to_string(),
            model: preset.name().to_string(),
            modified_at: stamp::rfc3339_of(preset.spec().created),
            details: Details { parent_model: self.name, ..self.details },
            ..self
        }
    }
}

/// Lists the models and presets.
#[utoipa::path(get, path = "/api/tags", tag = "Ollama", responses((status = 200, body = Tags)))]
pub(crate) async fn tags(State(server): State<Arc<ServerState>>) -> Json<Tags> {
    let (statuses, presets) = (server.models.statuses(), server.models.presets());
    let presets =
        presets.iter().map(|(preset, model)| Tag::from_status(&server.models.status(model)).under(preset));
    Json(Tags { models: statuses.iter().map(Tag::from_status).chain(presets).collect() })
}

/// Lists the models in memory.
#[utoipa::path(get, path = "/api/ps", tag = "Ollama", responses((status = 200, body = Processes)))]
pub(crate) async fn processes(State(server): State<Arc<ServerState>>) -> Json<Processes> {
    let process = |status: &ModelStatus| {
        let Tag { name, model, size, digest, details, .. } = Tag::from_status(status);
        let expires_at = status.expires_in.map_or(NEVER.to_string(), stamp::rfc3339_in);
        let context_length = status.loaded.as_ref()?.max_length();
        Some(Process { name, model, size, digest, details, expires_at, size_vram: 0, context_length })
    };
    Json(Processes { models: server.models.statuses().iter().filter_map(process).collect() })
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
    State(server): State<Arc<ServerState>>,
    Body(body): Body<ShowRequest>,
) -> Result<Json<Shown>, ApiError> {
    let (model, preset) = server.models.resolve(body.model.as_deref())?;
    let text = server.models.text(body.model.as_deref()).await?;
    let source = text.chat_template().ok().and_then(|template| template.gguf_keys().next());
    let template = source.map(|(_, source)| source.to_string()).unwrap_or_default();
    let capabilities = match model.facts.kind {
        ModelKind::Text => {
            let format = AnswerFormat::for_model(text.chat_template().ok(), Some(text.tokenizer()));
            let (tools, thinking) = (format.tools.map(|_| "tools"), format.reasoning.map(|_| "thinking"));
            let insert = InfillFormat::for_tokenizer(text.tokenizer()).map(|_| "insert");
            ["completion"].into_iter().chain(tools).chain(thinking).chain(insert).collect()
        }
        ModelKind::Embedding => vec!["embedding"],
        ModelKind::Classifier => vec!["rerank"],
    };
    let (architecture, mut model_info) = (&model.facts.architecture, Map::new());
    model_info.insert("general.architecture".to_string(), json!(architecture));
    model_info.insert("general.parameter_count".to_string(), json!(model.facts.parameters));
    model_info.insert(format!("{architecture}.context_length"), json!(text.max_length()));
    let tag = Tag::from_status(&server.models.status(&model));
    let tag = match &preset {
        Some(preset) => tag.under(preset),
        None => tag,
    };
    let spec = preset.map(|preset| preset.spec().clone()).unwrap_or_default();
    Ok(Json(Shown {
        modelfile: modelfile(&spec, model.id()),
        parameters: parameters(&spec).join("\n"),
        template,
        system: spec.system.unwrap_or_default(),
        details: tag.details,
        model_info,
        capabilities,
        modified_at: tag.modified_at,
    }))
}

/// A model's or a preset's settings in the form of Ollama's files.
fn modelfile(spec: &PresetSpec, model: &str) -> String {
    let block = |name: &str, text: &Option<String>| {
        text.iter().map(|text| format!("{name} \"\"\"{text}\"\"\"")).collect::<Vec<_>>()
    };
    let lines = [
        vec![format!("FROM {model}")],
        block("TEMPLATE", &spec.template),
        block("SYSTEM", &spec.system),
        parameters(spec).into_iter().map(|line| format!("PARAMETER {line}")).collect(),
    ];
    lines.concat().join("\n") + "\n"
}

/// A line for each value of each parameter.
fn parameters(spec: &PresetSpec) -> Vec<String> {
    let values = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let lines = |(name, value): (&String, &Value)| {
        values(value).into_iter().map(|value| format!("{name} {value}")).collect::<Vec<_>>()
    };
    spec.parameters.iter().flat_map(lines).collect()
}

/// Says which build runs.
#[utoipa::path(get, path = "/api/version", tag = "Ollama", responses((status = 200, body = OllamaVersion)))]
pub(crate) async fn version() -> Json<OllamaVersion> {
    Json(OllamaVersion { version: env!("CARGO_PKG_VERSION") })
}
