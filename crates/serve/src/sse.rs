//! Streams of events: those that are ready are sent in one write, and silent streams show that they live.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;

/// How long a stream may be silent. The idle limits of clients are longer, and comments do not count against them.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Keeps nginx from collecting events.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The events of an answer.
pub(crate) trait Events: Send + 'static {
    /// Appends the events that come next, at least one, and all that are ready. Returns whether there are more.
    fn next(&mut self, out: &mut Vec<u8>) -> impl Future<Output = bool> + Send;

    /// Appends an event that says only that the answer goes on, if the protocol has one.
    fn wait(&mut self, _out: &mut Vec<u8>) {}
}

/// A response that sends events as they are made.
pub(crate) fn respond(events: impl Events) -> Response {
    respond_as(events, "text/event-stream; charset=utf-8")
}

/// A response that sends lines of JSON as they are made.
pub(crate) fn respond_lines(lines: impl Events) -> Response {
    respond_as(lines, "application/x-ndjson")
}

fn respond_as(events: impl Events, content_type: &'static str) -> Response {
    let chunks = stream::unfold(Some(events), |events| async move {
        let mut events = events?;
        let (out, more) = piece(&mut events, KEEP_ALIVE).await;
        Some((Ok::<_, Infallible>(Bytes::from(out)), more.then_some(events)))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (NO_BUFFERING, HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}

/// The events that come next, or after `silence` the one that only says that the answer goes on. Returns whether there are
/// more.
async fn piece(events: &mut impl Events, silence: Duration) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    loop {
        // The future holds nothing that is lost when it is dropped: events stay in their channel.
        if let Ok(more) = tokio::time::timeout(silence, events.next(&mut out)).await {
            return (out, more);
        }
        if out.is_empty() {
            events.wait(&mut out);
        }
        if !out.is_empty() {
            return (out, true);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two events, of which the second never comes.
    struct Silent {
        sent: bool,
        waits: &'static [u8],
    }

    impl Events for Silent {
        async fn next(&mut self, out: &mut Vec<u8>) -> bool {
            if std::mem::replace(&mut self.sent, true) {
                std::future::pending::<()>().await;
            }
            out.extend_from_slice(b"first");
            true
        }

        fn wait(&mut self, out: &mut Vec<u8>) {
            out.extend_from_slice(self.waits);
        }
    }

    #[test]
    fn a_silent_stream_sends_what_its_protocol_has_for_that_again_and_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let silence = Duration::from_millis(1);
            let mut events = Silent { sent: false, waits: b"ping" };
            assert_eq!(piece(&mut events, Duration::from_secs(60)).await, (b"first".to_vec(), true));
            for _ in 0..3 {
                assert_eq!(piece(&mut events, silence).await, (b"ping".to_vec(), true));
            }
            let mut lines = Silent { sent: true, waits: b"" };
            let nothing = tokio::time::timeout(Duration::from_millis(50), piece(&mut lines, silence)).await;
            assert!(nothing.is_err(), "a protocol without such an event sends nothing");
        });
    }
}
