//! `POST /v2/models/{model}/infer`: texts to continue.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use pipelines::{Request, TextRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BYTES, INPUT, OUTPUT};
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::generation::{self, Generation, ParserConfig};
use crate::sampling::Sampling;
use crate::state::Context;
use crate::state::ServerState;

/// The most tokens of an answer, unless the request says it; as for completions.
const DEFAULT_MAX_TOKENS: usize = 16;
/// The most texts of a request.
const MAX_TEXTS: usize = 1024;

/// Texts to continue.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InferRequest {
    #[serde(flatten)]
    tensors: Tensors,
    #[schema(value_type = Option<Parameters>)]
    parameters: Parameters,
}

/// The tensors of a request.
#[derive(Debug, Deserialize, ToSchema)]
struct Tensors {
    /// Comes back with the answer.
    id: Option<String>,
    /// One tensor with the name `text_input`.
    inputs: Vec<InputTensor>,
}

/// A tensor of texts.
#[derive(Debug, Deserialize, ToSchema)]
struct InputTensor {
    name: String,
    /// Only `BYTES`.
    datatype: String,
    /// How many texts there are.
    shape: Vec<usize>,
    data: Vec<String>,
}

/// How the texts are continued.
#[derive(Debug, Deserialize, ToSchema)]
struct Parameters {
    #[serde(flatten)]
    lengths: Lengths,
    #[serde(flatten)]
    sampling: Sampling,
}

/// How many tokens there may be.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = InferLengths)]
struct Lengths {
    /// The most tokens of an answer.
    max_tokens: Option<usize>,
}

impl RequestBody for InferRequest {
    fn read(fields: &mut Fields) -> Result<InferRequest, ApiError> {
        let read = |fields: &mut Fields| Ok(Parameters { lengths: fields.take()?, sampling: fields.take()? });
        let parameters = fields.object("parameters", read)?;
        Ok(InferRequest { tensors: fields.take()?, parameters })
    }
}

/// The texts that were made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InferResponse {
    model_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    outputs: [OutputTensor; 1],
}

/// A tensor of texts.
#[derive(Debug, Serialize, ToSchema)]
struct OutputTensor {
    name: &'static str,
    datatype: &'static str,
    shape: [usize; 1],
    data: Vec<String>,
}

/// Continues texts.
#[utoipa::path(
    post,
    path = "/v2/models/{model}/infer",
    tag = "KServe",
    params(("model" = String, Path, description = "The id or an alias of a model")),
    request_body = InferRequest,
    responses((status = 200, body = InferResponse))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Path(model): Path<String>,
    Body(body): Body<InferRequest>,
) -> Result<Json<InferResponse>, ApiError> {
    let InferRequest { tensors, parameters } = body;
    let id = tensors.id.clone();
    let texts = tensors.into_texts()?;
    let model = &server.models.acquire(Some(&model), None).await?;
    let Parameters { lengths: Lengths { max_tokens }, sampling } = parameters;
    let max_new_tokens = max_tokens.or(model.lengths().answer()).or(Some(DEFAULT_MAX_TOKENS));
    let parameters = Request { max_new_tokens, ..model.request(sampling)? };
    let mut requests = Vec::with_capacity(texts.len());
    for text in texts {
        let (bytes, generator) = (text.len(), model.loaded.generator()?.clone());
        let request = TextRequest { prompt: text.into(), parameters: parameters.clone() };
        let prepared = generation::off_the_runtime(bytes, move || generator.prepare(request)).await?;
        requests.push(model.bound(prepared)?);
    }
    let mut generation = Generation::start(model, requests, 1, &ParserConfig::default(), context).await?;
    let data: Vec<String> = generation.answers().await?.iter().map(|answer| answer.content.text()).collect();
    let output = OutputTensor { name: OUTPUT, datatype: BYTES, shape: [data.len()], data };
    Ok(Json(InferResponse { model_name: model.id.clone(), id, outputs: [output] }))
}

impl Tensors {
    /// The texts of the only input.
    ///
    /// # Errors
    /// If there are other inputs, or its type or shape does not fit.
    fn into_texts(self) -> Result<Vec<String>, ApiError> {
        let wrong = |field: &str, message: String| Err(ApiError::invalid(field, message));
        let Ok([InputTensor { name, datatype, shape, data }]) = <[InputTensor; 1]>::try_from(self.inputs)
        else {
            return wrong("inputs", format!("give one input, `{INPUT}`"));
        };
        if name != INPUT {
            return wrong("inputs[0].name", format!("inputs[0].name is `{name}`: give `{INPUT}`"));
        }
        if datatype != BYTES {
            return wrong("inputs[0].datatype", format!("inputs[0].datatype is {datatype}: give {BYTES}"));
        }
        let count = shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size));
        if count != Some(data.len()) || !(1..=MAX_TEXTS).contains(&data.len()) {
            let given = data.len();
            let message =
                format!("inputs[0] has the shape {shape:?} and {given} texts: give 1 to {MAX_TEXTS}");
            return wrong("inputs[0].shape", message);
        }
        Ok(data)
    }
}
