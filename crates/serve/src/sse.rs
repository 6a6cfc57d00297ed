//! Server-sent events: what is ready is sent in one write, and a comment keeps silent connections open.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;

/// How long a stream may be silent before a comment is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Keeps nginx from collecting events.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The events of an answer.
pub(crate) trait Events: Send + 'static {
    /// Appends the events that come next, at least one, and all that are ready. Returns whether there are more.
    fn next(&mut self, out: &mut Vec<u8>) -> impl Future<Output = bool> + Send;
}

/// A response that sends events as they are made.
pub(crate) fn respond(events: impl Events) -> Response {
    respond_as(events, "text/event-stream; charset=utf-8", b": waiting\n\n")
}

/// A response that sends lines of JSON as they are made. They have no comments.
pub(crate) fn respond_lines(lines: impl Events) -> Response {
    respond_as(lines, "application/x-ndjson", b"")
}

/// `silence` is sent when there is nothing else to send, unless it is empty.
fn respond_as(events: impl Events, content_type: &'static str, silence: &'static [u8]) -> Response {
    let chunks = stream::unfold(Some(events), move |events| async move {
        let mut events = events?;
        let mut out = Vec::new();
        let more = loop {
            // The future holds nothing that is lost when it is dropped: events stay in their channel.
            match tokio::time::timeout(KEEP_ALIVE, events.next(&mut out)).await {
                Ok(more) => break more,
                Err(_) if out.is_empty() && !silence.is_empty() => {
                    out.extend_from_slice(silence);
                    break true;
                }
                Err(_) => {}
            }
        };
        Some((Ok::<_, Infallible>(Bytes::from(out)), more.then_some(events)))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (NO_BUFFERING, HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}

/// Appends an event without a name.
pub(crate) fn data(out: &mut Vec<u8>, object: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *out, object).expect("the objects have text keys");
    out.extend_from_slice(b"\n\n");
}

/// Appends an event with a name.
pub(crate) fn event(out: &mut Vec<u8>, name: &str, object: &impl Serialize) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    data(out, object);
}

/// Appends the end of a stream in the shape of OpenAI.
pub(crate) fn done(out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: [DONE]\n\n");
}
