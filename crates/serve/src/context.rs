//! The facts of one HTTP request: its id, and what its response headers and its log line say.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, MatchedPath, Request as HttpRequest, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use pipelines::{EventKind, PrefixEnd, Request};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::watch;
use utoipa::ToSchema;

use crate::access::{self, KeyPermit};
use crate::error::ApiError;
use crate::excerpt::excerpt;
use crate::listener::{Connection, OpenRequest};
use crate::models::ActiveModel;
use crate::operations::metrics::Answers;
use crate::server::{Shared, Work};
use crate::stamp;
use crate::traces::{self, Parent, SpanFacts};

/// The header with the id of a request, taken from the client or made.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header with the fields of a request that have no effect.
const IGNORED: HeaderName = HeaderName::from_static("x-peri-ignored");
/// The longest id that is taken from a client.
const MAX_ID: usize = 128;
/// The most bytes of [`IGNORED`], and of a field in it: clients and proxies take heads of 8 KiB.
const MAX_IGNORED: usize = 2 << 10;
const MAX_IGNORED_FIELD: usize = 128;

/// The facts of a request.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct RequestReport {
    id: String,
    /// The name of the client's key.
    key: Option<String>,
    pub(crate) method: String,
    pub(crate) route: String,
    /// The id of the model, once it is known.
    pub(crate) model: Option<String>,
    /// The HTTP status, once it is known; 499 if the client left before.
    pub(crate) status: Option<u16>,
    pub(crate) prompt_tokens: usize,
    /// Of these, tokens that the cache held.
    pub(crate) cached_tokens: usize,
    /// Why it held no more tokens of the last prompt: `other_tokens` follow in the cache, or `nothing_cached`; there is
    /// `no_state` after more tokens, of a model that keeps states; the `last_token` always runs; so do all, if
    /// `prompt_logits` are wanted; or prefix caching is `off`.
    prefix_end: Option<&'static str>,
    /// Tokens that the cache holds, of which it has no state after so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    matching_tokens: Option<usize>,
    pub(crate) generated_tokens: usize,
    /// Seconds in the queue.
    queue: Option<f64>,
    /// Seconds until the first token.
    first_token: Option<f64>,
    /// After the first, of all answers together.
    tokens_per_second: Option<f64>,
    /// Why the last of its answers ended.
    pub(crate) finish: Option<&'static str>,
    /// The code of the error that it ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    /// What the error says, without what its client wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Since it came, or until it ended.
    pub(crate) seconds: f64,
    is_running: bool,
}

impl RequestReport {
    fn new(record: &Record, facts: &Facts) -> RequestReport {
        let answers = facts.answers.as_ref();
        RequestReport {
            id: record.id.clone(),
            key: facts.key.clone(),
            method: record.method.to_string(),
            route: record.route.clone(),
            model: facts.model.clone(),
            status: facts.status.map(|status| status.as_u16()),
            prompt_tokens: facts.prompt_tokens,
            cached_tokens: facts.cached_tokens,
            prefix_end: facts.prefix_end.map(PrefixEnd::name),
            matching_tokens: match facts.prefix_end {
                Some(PrefixEnd::NoState { matching }) => Some(matching),
                _ => None,
            },
            generated_tokens: facts.generated_tokens,
            queue: answers.and_then(Answers::queue).map(seconds),
            first_token: answers.and_then(Answers::first_token).map(seconds),
            tokens_per_second: answers.and_then(Answers::tokens_per_second).map(f64::round),
            finish: facts.finish,
            error: facts.error,
            message: facts.message.clone(),
            seconds: seconds(record.began.elapsed()),
            is_running: true,
        }
    }

    /// The report of a request that is over.
    fn ended(record: &Record, facts: &Facts) -> RequestReport {
        let report = RequestReport::new(record, facts);
        let is_cut = facts.answers.as_ref().is_some_and(Answers::are_cut);
        RequestReport {
            status: report.status.or(Some(499)),
            finish: if is_cut { Some("cancelled") } else { report.finish },
            is_running: false,
            ..report
        }
    }

    /// The fields of its line in the access log.
    fn log_fields(&self) -> Map<String, Value> {
        let mut fields = Map::from_iter([("time".to_string(), stamp::rfc3339().into())]);
        if let Ok(Value::Object(report)) = serde_json::to_value(self) {
            fields.extend(report.into_iter().filter(|(name, _)| name != "is_running"));
        }
        fields
    }

    /// The id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

/// A handle to the facts of a request. The log line is written when the last one is dropped, which is when the response
/// has been sent or its client is gone.
#[derive(Clone)]
pub(crate) struct Context(Arc<Record>);

pub(crate) struct Record {
    server: Arc<Shared>,
    id: String,
    began: Instant,
    method: Method,
    route: String,
    facts: Mutex<Facts>,
    /// Its place among the requests of the server.
    number: u64,
    /// The trace that it is part of.
    parent: Parent,
    /// Why it is to end before its answer does, if it is.
    cancelled: watch::Sender<Option<ApiError>>,
    /// Counted until the request is over.
    _work: Option<Work>,
    _open: Option<OpenRequest>,
}

/// What becomes known while a request is answered.
#[derive(Default)]
pub(crate) struct Facts {
    /// The name of the client's key.
    pub(crate) key: Option<String>,
    /// Counts the request among those of its key, if that has limits.
    pub(crate) permit: Option<KeyPermit>,
    /// Fields that have no effect.
    pub(crate) ignored: BTreeSet<String>,
    /// How many more there are, of which nothing else is known.
    pub(crate) unnamed_ignored: usize,
    /// The id of the model.
    pub(crate) model: Option<String>,
    pub(crate) status: Option<StatusCode>,
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    /// Why the cache held no more of the last prompt.
    pub(crate) prefix_end: Option<PrefixEnd>,
    pub(crate) generated_tokens: usize,
    /// Why the last of its answers ended.
    pub(crate) finish: Option<&'static str>,
    /// The answers of a model that makes text.
    pub(crate) answers: Option<Answers>,
    /// The code of the error that it ended with, and what that says.
    pub(crate) error: Option<&'static str>,
    message: Option<String>,
    pub(crate) span: SpanFacts,
}

impl Context {
    /// The id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    /// Whether this is the context of a record.
    pub(crate) fn is_of(&self, record: &Arc<Record>) -> bool {
        Arc::ptr_eq(&self.0, record)
    }

    /// Waits until the request is cancelled, and gives its error; most are never cancelled.
    pub(crate) async fn cancelled(&self) -> ApiError {
        let mut cancelled = self.0.cancelled.subscribe();
        let error = cancelled.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        error.expect("the sender lives as long as this, and nothing takes the error away")
    }

    /// Notes facts.
    pub(crate) fn note<T>(&self, note: impl FnOnce(&mut Facts) -> T) -> T {
        note(&mut self.facts())
    }

    /// Notes the error that the request ends with.
    pub(crate) fn note_error(&self, error: &ApiError) {
        self.note(|facts| facts.note_error(error));
    }

    /// Measures of `n` answers of a model to each of the requests.
    pub(crate) fn measure(&self, model: &ActiveModel, requests: &[Request], n: usize) -> Answers {
        self.0.server.metrics.begin(model.id(), model.loaded.max_length(), requests, n)
    }

    /// Measures how long the form of an answer took to compile.
    pub(crate) fn note_grammar(&self, model: &ActiveModel, time: Duration) {
        self.0.server.metrics.note_grammar(model.id(), model.loaded.max_length(), time);
    }

    /// Measures an event of an answer.
    pub(crate) fn observe(&self, index: usize, at: Instant, event: &EventKind) {
        if let Some(answers) = &mut self.facts().answers {
            answers.note(index, at, event);
        }
    }

    /// Notes parts of the request's span, if it has one. `content` is whether it has prompts and answers.
    pub(crate) fn trace(&self, note: impl FnOnce(&mut SpanFacts, bool)) {
        if let Some(traces) = &self.0.server.traces {
            note(&mut self.facts().span, traces.has_content());
        }
    }

    /// How long an answer may take.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.0.server.config.request_timeout
    }

    /// The salt of cached prefixes: clients with different keys share none, whatever salts they give.
    pub(crate) fn cache_salt(&self, given: Option<String>) -> Option<String> {
        match &self.facts().key {
            // Names of keys have no zero byte.
            Some(key) if !self.0.server.config.shared_cache => {
                Some(format!("{key}\0{}", given.unwrap_or_default()))
            }
            _ => given,
        }
    }

    /// Whose turn the request waits for and whose share of the cache it uses: those of its key.
    pub(crate) fn tenant(&self) -> Option<String> {
        self.facts().key.clone()
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock()
    }
}

impl Facts {
    /// Tokens of prompts and answers.
    fn tokens(&self) -> usize {
        self.prompt_tokens + self.generated_tokens
    }

    fn note_error(&mut self, error: &ApiError) {
        self.error = Some(error.code);
        self.message = Some(error.logged());
    }

    /// The fields without effect, for a header; `None` if there are none.
    fn ignored_header(&self) -> Option<HeaderValue> {
        let (mut text, mut named) = (String::new(), 0);
        for path in &self.ignored {
            let shown = printable(&excerpt(path, MAX_IGNORED_FIELD));
            if text.len() + shown.len() > MAX_IGNORED {
                break;
            }
            let comma = if text.is_empty() { "" } else { ", " };
            text.extend([comma, &shown]);
            named += 1;
        }
        let others = self.ignored.len() - named + self.unnamed_ignored;
        if others > 0 {
            text.push_str(&format!("{}and {others} more", if text.is_empty() { "" } else { ", " }));
        }
        HeaderValue::from_str(&text).ok().filter(|_| !text.is_empty())
    }
}

/// A text in the characters that headers can have; others are escaped.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => out.push(c),
            '…' => out.push_str("..."),
            _ => out.extend(c.escape_unicode()),
        }
    }
    out
}

impl Record {
    /// Has the request end with an error.
    pub(crate) fn cancel(&self, error: ApiError) {
        self.lock().finish = Some("cancelled");
        self.cancelled.send_replace(Some(error));
    }

    /// The facts so far.
    pub(crate) fn report(&self) -> RequestReport {
        RequestReport::new(self, &self.lock())
    }

    /// The tokens of the request so far, if it is one of a key.
    pub(crate) fn tokens_of(&self, key: &str) -> Option<usize> {
        let facts = self.lock();
        (facts.key.as_deref() == Some(key)).then(|| facts.tokens())
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let report = {
            let facts = self.lock();
            facts.answers.iter().for_each(Answers::note_end);
            facts.permit.iter().for_each(|permit| permit.charge(facts.tokens()));
            let report = RequestReport::ended(self, &facts);
            if let Some(traces) = &self.server.traces {
                traces.send(&report, &facts, &self.parent);
            }
            report
        };
        if self.server.log.is_on() {
            self.server.log.write(report.log_fields());
        }
        self.server.requests.end(self.number, report);
    }
}

/// Seconds to the microsecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Gives each request a context, and each response the headers that follow from it.
pub(crate) async fn attach(
    State(server): State<Arc<Shared>>,
    mut request: HttpRequest,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str).to_string();
    let id = request.headers().get(&REQUEST_ID).and_then(given_id);
    let work = access::is_work(request.uri().path()).then(|| server.begin_work());
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let is_http2 = request.version() == Version::HTTP_2;
    let open = connection.as_ref().map(|connection| connection.request(is_http2));
    let requests = &server.requests;
    let parent = server.traces.as_ref().map(|_| traces::parent(request.headers())).unwrap_or_default();
    let context = Context(requests.begin(|number| Record {
        server: Arc::clone(&server),
        id: id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string()),
        began: Instant::now(),
        method: request.method().clone(),
        route,
        facts: Mutex::default(),
        number,
        parent,
        cancelled: watch::Sender::new(None),
        _work: work,
        _open: open,
    }));
    request.extensions_mut().insert(context.clone());
    let is_last = || connection.as_ref().is_some_and(|connection| connection.is_last());
    let mut response = match connection.as_ref().and_then(|connection| connection.refusal()) {
        Some(error) => error.into_response(),
        None => next.run(request).await,
    };
    let status = response.status();
    let error = response.extensions().get::<ApiError>();
    context.0.server.metrics.note_response(&context.0.route, status, error.map(|error| error.code));
    let ignored = {
        let mut facts = context.facts();
        facts.status = Some(status);
        error.into_iter().for_each(|error| facts.note_error(error));
        facts.ignored_header()
    };
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
pub(crate) async fn cancellable(context: Context, request: HttpRequest, next: Next) -> Response {
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

impl<S: Sync> FromRequestParts<S> for Context {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Context, Infallible> {
        let context = parts.extensions.get::<Context>().cloned();
        Ok(context.expect("every route has the layer `context::attach`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ignored: &[&str], unnamed: usize, expected: Option<&str>) {
        let ignored = ignored.iter().map(ToString::to_string).collect();
        let facts = Facts { ignored, unnamed_ignored: unnamed, ..Facts::default() };
        let header = facts.ignored_header();
        assert_eq!(header.as_ref().map(|header| header.to_str().unwrap()), expected);
    }

    #[test]
    fn header_of_ignored_fields_is_bounded_and_counts_the_others() {
        check(&[], 0, None);
        check(&["b", "a"], 0, Some("a, b"));
        check(&["größe\n"], 0, Some("gr\\u{f6}\\u{df}e\\u{a}"));
        check(&["a"], 312, Some("a, and 312 more"));
        check(&[], 1, Some("and 1 more"));
        let many = (0..5000).map(|index| format!("field{index:04}"));
        let facts = Facts { ignored: many.collect(), ..Facts::default() };
        let header = facts.ignored_header().unwrap();
        let text = header.to_str().unwrap();
        assert!(text.len() <= MAX_IGNORED + 200, "{}", text.len());
        let named = text.split(", ").count() - 1;
        assert!(text.ends_with(&format!(", and {} more", 5000 - named)), "{text}");
        let long = "x".repeat(1 << 20);
        let facts = Facts { ignored: [long].into(), ..Facts::default() };
        assert!(facts.ignored_header().unwrap().len() <= MAX_IGNORED_FIELD + 2);
    }
}
