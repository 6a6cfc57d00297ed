//! Requests that are refused or fail, with their HTTP status.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pipelines::TextError;
use pipelines::error::InvalidField;
use serde_json::json;

use crate::excerpt::excerpt;

/// The most bytes of a message, and of the name of a field: both may quote the request.
const MAX_MESSAGE: usize = 2048;
const MAX_PARAM: usize = 256;
/// The most bytes of a message in the log, and of a name in it.
const MAX_LOGGED: usize = 400;
const MAX_LOGGED_NAME: usize = 80;

/// A request that is refused or fails. Every protocol shows it in its own shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// The code that programs compare, such as `context_length_exceeded`.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The field of the request that is wrong.
    pub(crate) param: Option<String>,
    /// When to try again.
    pub(crate) retry_after: Option<Duration>,
    /// Of a prompt that is too long.
    pub(crate) excess: Option<Excess>,
}

/// The tokens of a prompt, and the most that the model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Excess {
    tokens: usize,
    limit: usize,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        let message = bounded(message.into(), MAX_MESSAGE);
        ApiError { status, code, message, param: None, retry_after: None, excess: None }
    }

    /// A request that is wrong as a whole.
    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A request with a field that is wrong.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(bounded(param.into(), MAX_PARAM)), ..ApiError::bad_request(message) }
    }

    /// The error of a request that was cancelled through an admin route.
    pub(crate) fn cancelled() -> ApiError {
        let status = StatusCode::from_u16(499).expect("a number of three digits");
        ApiError::new(status, "cancelled", "the request was cancelled by the server's operator")
    }

    /// The error of a request to a server that ends within a time.
    pub(crate) fn draining(time: Duration) -> ApiError {
        let message = "the server is shutting down: send the request again once it is back";
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
        ApiError { retry_after: Some(time), ..error }
    }

    /// The error of a request of which a part came too slowly.
    pub(crate) fn too_slow(part: &str, limit: Duration) -> ApiError {
        let message = format!("the {part} of the request did not come within {} s", limit.as_secs_f64());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
    }

    /// The error of a field that has another name in the request's protocol.
    #[must_use]
    pub(crate) fn rename(mut self, field: &str, name: &str) -> ApiError {
        if self.param.as_deref() == Some(field) {
            self.param = Some(name.to_string());
        }
        let is_field = |word: &str| word == field;
        let words = self.message.split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_')).map(|piece| {
            let word = piece.trim_end_matches(|c: char| !(c.is_alphanumeric() || c == '_'));
            if is_field(word) { piece.replacen(field, name, 1) } else { piece.to_string() }
        });
        self.message = words.collect();
        self
    }

    /// The error of a field that is part of an object.
    #[must_use]
    pub(crate) fn within(self, object: &str) -> ApiError {
        let Some(param) = self.param else { return self };
        let message = if self.message.starts_with(&param) {
            format!("{object}.{}", self.message)
        } else {
            self.message
        };
        ApiError { param: Some(format!("{object}.{param}")), message, ..self }
    }

    /// The message for the log, which holds nothing that users wrote: quoted values are left out, names stay.
    pub(crate) fn logged(&self) -> String {
        let mut out = String::new();
        let mut rest = &self.message[..];
        while let Some(start) = rest.find(['"', '`']) {
            let quote = &rest[start..=start];
            let quoted = &rest[start + 1..];
            let end = end_of_quoted(quoted, quote).unwrap_or(quoted.len());
            let shown = if quote == "`" && is_name(&quoted[..end]) { &quoted[..end] } else { "…" };
            out.extend([&rest[..start], quote, shown, quote]);
            rest = quoted.get(end + 1..).unwrap_or_default();
        }
        out.push_str(rest);
        bounded(out, MAX_LOGGED)
    }

    /// The type of the error in the shape of OpenAI.
    pub(crate) fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The error as an object in the shape of OpenAI, for responses and for events of a stream. That of a prompt that is
    /// too long has the numbers under llama.cpp's names too.
    pub(crate) fn to_openai(&self) -> serde_json::Value {
        let ApiError { message, param, code, .. } = self;
        let mut error = json!({ "message": message, "type": self.kind(), "param": param, "code": code });
        if let Some(Excess { tokens, limit }) = self.excess {
            error["n_prompt_tokens"] = tokens.into();
            error["n_ctx"] = limit.into();
        }
        json!({ "error": error })
    }
}

/// The shape of OpenAI. The error itself is an extension of the response, from which routers of other protocols make
/// their own shape.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.to_openai())).into_response();
        if let Some(wait) = self.retry_after {
            let seconds = HeaderValue::from(wait.as_secs_f64().ceil().max(1.0) as u64);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<pipelines::Error> for ApiError {
    fn from(error: pipelines::Error) -> ApiError {
        ApiError::from(&error)
    }
}

impl From<&pipelines::Error> for ApiError {
    fn from(error: &pipelines::Error) -> ApiError {
        use pipelines::Error as E;
        let message = error.to_string();
        match error {
            &E::PromptTooLong { tokens, limit } => too_many(tokens, limit, ""),
            &E::PromptBeyondMaxLength { tokens, limit } => {
                too_many(tokens, limit, ", or start the server with a larger max_length")
            }
            E::PromptTooLarge { bytes, most, limit } => too_long(format!(
                "the prompt has {bytes} bytes, but this model's maximum context length is {limit} tokens, which stand \
                 for at most {most} bytes: shorten it"
            )),
            E::TooLong(_) | E::TextTooLong { .. } | E::PairTooLong { .. } => too_long(message),
            E::Request(fields) | E::Sampling(fields) | E::Embedder(fields) => field_errors(fields),
            E::EmptyPrompt
            | E::EmptyText { .. }
            | E::UnknownToken { .. }
            | E::NoChatTemplate
            | E::NotForText { .. }
            | E::NotARanker { .. }
            | E::NoPooling { .. } => ApiError::bad_request(message),
            E::Text(TextError::Constraint(_)) => ApiError::invalid("constraint", message),
            E::Text(TextError::Tools { field, .. }) => ApiError::invalid(field, message),
            E::Text(TextError::ChatMessage { index, field, .. }) => {
                ApiError::invalid(format!("messages[{index}]{field}"), message)
            }
            E::Text(_) => ApiError::invalid("messages", message),
            E::Busy { retry_after, .. } => {
                let retry_after = retry_after.or(Some(Duration::from_secs(1)));
                let status = StatusCode::TOO_MANY_REQUESTS;
                ApiError { retry_after, ..ApiError::new(status, "rate_limit_exceeded", message) }
            }
            E::QueueTimeout { .. }
            | E::Timeout { .. }
            | E::Stopped { .. }
            | E::OutOfMemory(_)
            | E::WorkerEnded { .. } => unavailable(message),
            E::Engine(error) if error.is_out_of_memory() || error.is_file_changed() => unavailable(message),
            E::Source(error) => source_error(error),
            _ => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message),
        }
    }
}

fn bounded(text: String, limit: usize) -> String {
    if text.len() <= limit { text } else { excerpt(&text, limit).into_owned() }
}

/// Where a text in quotes ends. In double quotes, a backslash escapes.
fn end_of_quoted(text: &str, quote: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = !is_escaped && quote.as_bytes() == [byte];
        is_escaped = !is_escaped && byte == b'\\' && quote == "\"";
        is_end
    })
}

/// Whether a text could be the name of a field, a model or a route, and not something that a user wrote.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@/[]{}".contains(&byte);
    text.len() <= MAX_LOGGED_NAME && text.bytes().all(is_plain)
}

/// Errors of names are the client's, those of the hub are the hub's.
fn source_error(error: &sources::Error) -> ApiError {
    use sources::Error as E;
    let message = error.to_string();
    let with = |status, code| ApiError::new(status, code, message.clone());
    match error {
        E::MissingRepo { .. } | E::MissingRevision { .. } | E::MissingFile { .. } => {
            ApiError { param: Some("model".to_string()), ..with(StatusCode::NOT_FOUND, "model_not_found") }
        }
        E::Gated { .. } => with(StatusCode::FORBIDDEN, "permission_denied"),
        E::Offline { .. } | E::NoDownloads { .. } => with(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        E::RateLimited { retry_after, .. } => {
            ApiError { retry_after: *retry_after, ..with(StatusCode::SERVICE_UNAVAILABLE, "unavailable") }
        }
        E::Network { .. } | E::Untrusted { .. } | E::Protocol { .. } | E::WrongDigest { .. } => {
            with(StatusCode::BAD_GATEWAY, "hub_error")
        }
        E::DiskFull { .. } => with(StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
        E::Escapes { .. } | E::Cache { .. } | E::Io { .. } | E::Setting { .. } => {
            with(StatusCode::INTERNAL_SERVER_ERROR, "internal_error")
        }
        _ => ApiError::invalid("model", message),
    }
}

/// Says that the server cannot answer now, and that the client may try again in 5 s.
fn unavailable(message: String) -> ApiError {
    let retry_after = Some(Duration::from_secs(5));
    ApiError { retry_after, ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message) }
}

/// Clients find such errors by their code or by the words "maximum context length".
fn too_long(message: String) -> ApiError {
    ApiError { code: "context_length_exceeded", ..ApiError::bad_request(message) }
}

/// The error of a prompt of so many tokens.
fn too_many(tokens: usize, limit: usize, remedy: &str) -> ApiError {
    let error = too_long(format!(
        "the prompt has {tokens} tokens, but this model's maximum context length is {limit} tokens: shorten it{remedy}"
    ));
    ApiError { excess: Some(Excess { tokens, limit }), ..error }
}

/// All the wrong fields in one message; the first is the parameter.
fn field_errors(fields: &[InvalidField]) -> ApiError {
    let name = |field: &'static str| match field {
        "max_new_tokens" => "max_tokens",
        "min_new_tokens" => "min_tokens",
        other => other,
    };
    let problems = fields.iter().map(|InvalidField { field, value, fix, .. }| {
        format!("{} is {value}: {fix}", name(field)).replace("max_new_tokens", "max_tokens")
    });
    let message = problems.collect::<Vec<_>>().join("; ");
    match fields.first() {
        Some(first) => ApiError::invalid(name(first.field), message),
        None => ApiError::bad_request(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_quote_a_request_are_bounded() {
        let text = "x".repeat(1 << 20);
        let error = ApiError::invalid(&text, format!("there is no field `{text}`: give another"));
        assert!(error.message.len() <= MAX_MESSAGE && error.param.as_ref().unwrap().len() <= MAX_PARAM);
        assert!(error.message.starts_with("there is no field `xxx"), "{}", error.message);
        assert!(error.message.ends_with("xxx`: give another"), "{}", error.message);
    }

    #[test]
    fn logged_messages_keep_names_and_leave_out_values() {
        let check = |message: &str, expected: &str| {
            assert_eq!(ApiError::bad_request(message).logged(), expected);
        };
        check(
            "there is no field `stopp`: did you mean `stop`?",
            "there is no field `stopp`: did you mean `stop`?",
        );
        check(
            "a: invalid type: string \"my \\\"secret\\\"\", expected u32",
            "a: invalid type: string \"…\", expected u32",
        );
        check("there is no model `my secret text`", "there is no model `…`");
        check("cut \"off", "cut \"…\"");
        check("the body has 3 fields", "the body has 3 fields");
    }

    #[test]
    fn library_errors_have_status_code_and_parameter() {
        let long = ApiError::from(pipelines::Error::PromptTooLong { tokens: 9, limit: 8 });
        assert_eq!((long.status, long.code), (StatusCode::BAD_REQUEST, "context_length_exceeded"));
        let request = pipelines::Request { min_new_tokens: 5, max_new_tokens: Some(4), ..Default::default() };
        let wrong = ApiError::from(request.validate(10).unwrap_err());
        assert_eq!(wrong.param.as_deref(), Some("min_tokens"));
        assert_eq!(wrong.message, "min_tokens is 5: give at most max_tokens, which is 4");
        let what = "the values of a step".to_string();
        let memory = pipelines::Error::Engine(engine::Error::OutOfMemory { what, bytes: 1 << 40 });
        let memory = ApiError::from(memory);
        assert_eq!((memory.status, memory.code), (StatusCode::SERVICE_UNAVAILABLE, "unavailable"));
        let busy = ApiError::from(pipelines::Error::Busy {
            name: "text generator",
            waiting: 3,
            unit: pipelines::QueueUnit::Requests,
            limit: 3,
            retry_after: Some(Duration::from_millis(1200)),
        });
        let response = busy.into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    }
}
