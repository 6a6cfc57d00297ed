//! Gives each request its context, and each response the headers that follow from it.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access;
use crate::api_error::ApiError;
use crate::state::{Connection, Context, RequestRecord, ServerState};
use crate::telemetry;

/// The header with the id of a request, taken from the client or made.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header with the fields of a request that have no effect.
pub(super) const IGNORED: HeaderName = HeaderName::from_static("x-peri-ignored");
/// The longest id that is taken from a client.
const MAX_ID: usize = 128;

/// Gives each request a context, and each response the headers that follow from it.
pub(super) async fn attach(
    State(server): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str).to_string();
    let id = request.headers().get(&REQUEST_ID).and_then(given_id);
    let work = access::is_work(request.uri().path()).then(|| server.begin_work());
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let is_http2 = request.version() == Version::HTTP_2;
    let open = connection.as_ref().map(|connection| connection.request(is_http2));
    let parent = server.traces.as_ref().map(|_| telemetry::parent(request.headers())).unwrap_or_default();
    let id = id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let record = RequestRecord::new(id, request.method().clone(), route.clone());
    let context = Context::begin(&server, record, parent, work, open);
    request.extensions_mut().insert(context.clone());
    let is_last = || connection.as_ref().is_some_and(|connection| connection.is_last());
    let mut response = match connection.as_ref().and_then(|connection| connection.refusal()) {
        Some(error) => error.into_response(),
        None => next.run(request).await,
    };
    let status = response.status();
    let error = response.extensions().get::<ApiError>();
    server.metrics.note_response(&route, status, error.map(|error| error.code));
    let ignored = context.note(|facts| {
        facts.status = Some(status);
        error.into_iter().for_each(|error| facts.note_error(error));
        facts.ignored_header()
    });
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(context.id()) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(ignored) = ignored {
        headers.insert(IGNORED, ignored);
    }
    if is_last() && !is_http2 {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Ends a request that is cancelled before its response begins.
pub(super) async fn cancellable(context: Context, request: Request, next: Next) -> Response {
    tokio::select! {
        biased;
        response = next.run(request) => response,
        error = context.cancelled() => error.into_response(),
    }
}

/// An id that a client gives, if it is printable and short.
fn given_id(value: &HeaderValue) -> Option<String> {
    let id = value.to_str().ok()?;
    ((1..=MAX_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()))
        .then(|| id.to_string())
}
