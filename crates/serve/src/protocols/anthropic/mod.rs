//! Routes in the shapes of the Anthropic API.

mod blocks;
pub(crate) mod count_tokens;
pub(crate) mod messages;
pub(crate) mod models;
mod prompt;
mod tools;

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::api_error::ApiError;

/// An error as an object, for responses and for events of a stream.
pub(crate) fn error_object(error: &ApiError, request_id: &str) -> Value {
    let kind = match error.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    // These objects have no field for the place.
    let message = match &error.param {
        Some(param) if !error.message.contains(&param[..]) => format!("{param}: {}", error.message),
        _ => error.message.clone(),
    };
    json!({
        "type": "error",
        "error": { "type": kind, "message": message },
        "request_id": request_id,
    })
}
