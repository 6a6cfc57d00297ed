//! The shape of errors, which is that of the protocol whose route was asked: of all errors, also those of routers, keys
//! and bodies.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::protocols::anthropic;
use crate::protocols::ollama;
use crate::state::Context;

/// How a protocol shows errors: the name of the schema, and what makes the object.
type Shape = (&'static str, fn(&ApiError, request_id: &str) -> Value);

/// The name of the shape that [`ApiError`] has by itself.
const OPENAI: &str = "Error";
const ANTHROPIC: Shape = ("AnthropicError", anthropic::error_object);
const OLLAMA: Shape = ("OllamaError", ollama::error_object);

/// The header with the id of a request in the Anthropic API.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The shape for the routes below a path, unless it is that of OpenAI.
fn shape_of(path: &str) -> Option<Shape> {
    let is_below = |prefix: &str| {
        path.strip_prefix(prefix).is_some_and(|rest| matches!(rest.bytes().next(), None | Some(b'/')))
    };
    if is_below("/v1/messages") || is_below("/messages") {
        Some(ANTHROPIC)
    } else if is_below("/api") {
        Some(OLLAMA)
    } else {
        None
    }
}

/// The name of the schema of errors of a route.
pub(super) fn schema_name(path: &str) -> &'static str {
    shape_of(path).map_or(OPENAI, |(name, _)| name)
}

/// The schemas of errors.
pub(super) fn schemas() -> impl Iterator<Item = (&'static str, Value)> {
    let text = || json!({"type": "string"});
    let object = |fields: Value| {
        let required: Vec<String> = fields.as_object().into_iter().flat_map(|f| f.keys().cloned()).collect();
        json!({"type": "object", "required": required, "properties": fields})
    };
    let param = json!({"type": ["string", "null"]});
    let mut of_openai = object(json!({"message": text(), "type": text(), "param": param, "code": text()}));
    // Of a prompt that is too long.
    for count in ["n_prompt_tokens", "n_ctx"] {
        of_openai["properties"][count] = json!({"type": "integer"});
    }
    let of_anthropic = json!({"type": text(), "message": text()});
    [
        (OPENAI, object(json!({"error": of_openai}))),
        (ANTHROPIC.0, object(json!({"type": text(), "error": object(of_anthropic), "request_id": text()}))),
        (OLLAMA.0, object(json!({"error": text()}))),
    ]
    .into_iter()
}

/// Gives errors the shape of their protocol, and answers its headers.
pub(super) async fn apply(request: Request, next: Next) -> Response {
    let spoken = anthropic::models::is_spoken(request.headers()).then_some(ANTHROPIC);
    let Some((name, shape)) = shape_of(request.uri().path()).or(spoken) else {
        return next.run(request).await;
    };
    let context = request.extensions().get::<Context>().cloned();
    let id = context.as_ref().map_or("", Context::id);
    let mut response = next.run(request).await;
    if name == ANTHROPIC.0
        && let Ok(id) = HeaderValue::from_str(id)
    {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    let mut shaped = (error.status, Json(shape(&error, id))).into_response();
    let own = [header::CONTENT_LENGTH, header::CONTENT_TYPE];
    let kept = response.headers().iter().filter(|(name, _)| !own.contains(name));
    shaped.headers_mut().extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    shaped.extensions_mut().insert(error);
    shaped
}
