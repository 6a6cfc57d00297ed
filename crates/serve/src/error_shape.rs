//! The shape of errors, which is that of the protocol whose route was asked: of all errors, also those of routers, keys
//! and bodies.

use axum::Json;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::anthropic;
use crate::context::Context;
use crate::error::ApiError;
use crate::ollama;

/// How a protocol shows errors; `None` is the shape that [`ApiError`] has by itself.
type Shape = fn(&ApiError, request_id: &str) -> Value;

/// The shape for the routes below a path.
fn shape_of(path: &str) -> Option<Shape> {
    let is_below = |prefix: &str| {
        path.strip_prefix(prefix).is_some_and(|rest| matches!(rest.bytes().next(), None | Some(b'/')))
    };
    if is_below("/v1/messages") {
        Some(anthropic::error_object)
    } else if is_below("/api") {
        Some(ollama::error_object)
    } else {
        None
    }
}

/// Gives errors the shape of their protocol.
pub(crate) async fn apply(request: Request, next: Next) -> Response {
    let Some(shape) = shape_of(request.uri().path()) else { return next.run(request).await };
    let context = request.extensions().get::<Context>().cloned();
    let mut response = next.run(request).await;
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    let id = context.as_ref().map_or("", Context::id);
    let mut shaped = (error.status, Json(shape(&error, id))).into_response();
    let own = [header::CONTENT_LENGTH, header::CONTENT_TYPE];
    let kept = response.headers().iter().filter(|(name, _)| !own.contains(name));
    shaped.headers_mut().extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    shaped.extensions_mut().insert(error);
    shaped
}
