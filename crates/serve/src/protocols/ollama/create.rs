//! `POST /api/create`: a name for a model with a system prompt, a template and parameters of its own.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::options::Options;
use super::status::{StatusLine, StreamField};
use super::untagged;
use crate::api_error::ApiError;
use crate::blocking;
use crate::body::{Body, Fields, RequestBody};
use crate::models::PresetSpec;
use crate::state::Context;
use crate::state::ServerState;

/// A preset to make.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CreateRequest {
    #[serde(flatten)]
    preset: PresetFields,
    /// Defaults of requests, under the names of `options`.
    #[schema(value_type = Option<Options>)]
    parameters: Map<String, Value>,
    #[serde(flatten)]
    unsupported: UnsupportedFields,
    #[serde(flatten)]
    stream: StreamField,
}

/// The fields of the preset.
#[derive(Debug, Deserialize, ToSchema)]
struct PresetFields {
    /// The name by which requests choose it.
    #[serde(alias = "name")]
    model: String,
    /// The id or an alias of a model, or the name of a preset, whose settings are taken too.
    from: String,
    /// The system prompt of conversations that have none.
    system: Option<String>,
    /// A chat template in place of the model's: Jinja, as of Hugging Face.
    template: Option<String>,
}

/// Fields that would make models of files.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = CreateUnsupportedFields)]
struct UnsupportedFields {
    /// Refused: files are not uploaded.
    #[schema(value_type = Option<Object>)]
    files: Option<Value>,
    /// Refused: adapters are not supported.
    #[schema(value_type = Option<Object>)]
    adapters: Option<Value>,
    /// Refused: `peri quantize` writes quantized files.
    quantize: Option<String>,
    /// Refused: send messages with each request.
    #[schema(value_type = Option<Vec<Object>>)]
    messages: Option<Value>,
    /// Refused: give its parts in fields of their own.
    modelfile: Option<String>,
}

impl RequestBody for CreateRequest {
    fn read(fields: &mut Fields) -> Result<CreateRequest, ApiError> {
        let given = fields.get("parameters").and_then(Value::as_object).into_iter().flatten();
        let given = given.filter(|(_, value)| !value.is_null());
        let parameters = given.map(|(name, value)| (name.clone(), value.clone())).collect();
        // Errors name the place in them.
        Options::read(fields, "parameters")?;
        let (unsupported, preset, stream) = (fields.take()?, fields.take()?, fields.take()?);
        Ok(CreateRequest { preset, parameters, unsupported, stream })
    }
}

/// Makes a preset, or changes it.
#[utoipa::path(
    post,
    path = "/api/create",
    tag = "Ollama",
    request_body = CreateRequest,
    responses((status = 200, description = "The end, or unless `stream` is false the steps", content(
        (StatusLine = "application/json"),
        (StatusLine = "application/x-ndjson")
    )))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<CreateRequest>,
) -> Result<Response, ApiError> {
    let CreateRequest { preset, parameters, unsupported, stream } = body;
    unsupported.check()?;
    let (model, _) = server.models.resolve(Some(&preset.from))?;
    let length = parameters.get("num_ctx").and_then(Value::as_f64).unwrap_or(0.0);
    if length > model.facts.max_length as f64 {
        // The model's own length bounds the prompt and the answer.
        context.note(|facts| facts.ignored.extend(["parameters.num_ctx".to_string()]));
    }
    let is_given = |text: &String| !text.is_empty();
    let spec = PresetSpec {
        name: untagged(&preset.model),
        from: preset.from,
        system: preset.system.filter(is_given),
        template: preset.template.filter(is_given),
        parameters,
        ..PresetSpec::default()
    };
    blocking::run(move || server.models.create(spec)).await?;
    Ok(stream.done(vec!["reading model metadata", "writing manifest", "success"]))
}

impl UnsupportedFields {
    /// Refuses fields that are not supported.
    ///
    /// # Errors
    /// If there is one.
    fn check(&self) -> Result<(), ApiError> {
        let fields = [
            ("files", self.files.is_some(), "files are not uploaded: pull a model, and give it in `from`"),
            ("adapters", self.adapters.is_some(), "adapters are not supported"),
            ("quantize", self.quantize.is_some(), "run `peri quantize`, and serve the file that it writes"),
            ("messages", self.messages.is_some(), "send messages with each request"),
            ("modelfile", self.modelfile.is_some(), "give `from`, `system`, `template` and `parameters`"),
        ];
        match fields.iter().find(|(_, is_given, _)| *is_given) {
            Some((field, _, reason)) => {
                Err(ApiError::invalid(*field, format!("{field} is not supported: {reason}")))
            }
            None => Ok(()),
        }
    }
}
