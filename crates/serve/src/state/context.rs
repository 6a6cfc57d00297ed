//! A handle to a request, from its head to the end of its response.

use std::convert::Infallible;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use pipelines::{EventKind, Request};

use super::record::{RequestFacts, RequestRecord};
use super::{OpenRequest, ServerState, Work};
use crate::api_error::ApiError;
use crate::models::ActiveModel;
use crate::telemetry::{Answers, SpanFacts, TraceParent};

/// A handle to the facts of a request. The log line is written when the last one is dropped, which is when the response
/// has been sent or its client is gone.
#[derive(Clone)]
pub(crate) struct Context(Arc<ActiveRequest>);

/// A request that is being answered.
struct ActiveRequest {
    server: Arc<ServerState>,
    record: Arc<RequestRecord>,
    /// Its place among the requests of the server.
    number: u64,
    /// The trace that it is part of.
    parent: TraceParent,
    /// Counted until the request is over.
    _work: Option<Work>,
    _open: Option<OpenRequest>,
}

impl Context {
    /// Begins a request, whose connection and work for a model count it until it is over.
    pub(crate) fn begin(
        server: &Arc<ServerState>,
        record: RequestRecord,
        parent: TraceParent,
        work: Option<Work>,
        open: Option<OpenRequest>,
    ) -> Context {
        let (number, record) = server.requests.begin(record);
        let server = Arc::clone(server);
        Context(Arc::new(ActiveRequest { server, record, number, parent, _work: work, _open: open }))
    }

    /// The id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.0.record.id
    }

    /// Whether this is the context of a request.
    pub(crate) fn is_of(&self, record: &Arc<RequestRecord>) -> bool {
        Arc::ptr_eq(&self.0.record, record)
    }

    /// Waits until the request is cancelled, and gives its error; most are never cancelled.
    pub(crate) async fn cancelled(&self) -> ApiError {
        self.0.record.cancelled().await
    }

    /// Notes facts.
    pub(crate) fn note<T>(&self, note: impl FnOnce(&mut RequestFacts) -> T) -> T {
        note(&mut self.facts())
    }

    /// Notes which model reads how many tokens of prompts.
    pub(crate) fn note_prompt(&self, model: &str, tokens: usize) {
        self.note(|facts| {
            facts.model = Some(model.to_string());
            facts.prompt_tokens = tokens;
        });
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

    fn facts(&self) -> MutexGuard<'_, RequestFacts> {
        self.0.record.lock()
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let ActiveRequest { server, record, number, parent, .. } = self;
        server.requests.end(*number);
        let report = {
            let facts = record.lock();
            facts.answers.iter().for_each(Answers::note_end);
            facts.permit.iter().for_each(|permit| permit.charge(facts.tokens()));
            let report = record.final_report(&facts);
            if let Some(traces) = &server.traces {
                traces.send(&report, &facts.span, facts.answers.as_ref(), parent);
            }
            report
        };
        if server.log.is_on() {
            server.log.write(report.log_fields());
        }
        server.requests.remember(report);
    }
}

impl<S: Sync> FromRequestParts<S> for Context {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Context, Infallible> {
        let context = parts.extensions.get::<Context>().cloned();
        Ok(context.expect("every route has the layer `service::context::attach`"))
    }
}
