//! What takes the place of `traces.rs` without the feature `otlp`: no server has traces.

use axum::http::HeaderMap;
use pipelines::{AnswerEvent, Prompt, Request};

use super::{Answers, RequestReport};
use crate::Error;

/// Where a server sends its traces: nowhere without the feature `otlp`.
#[derive(Debug, Clone)]
pub enum TraceConfig {}

/// Sends spans.
pub(crate) enum Traces {}

/// The facts of a request that only its span holds.
#[derive(Default)]
pub(crate) struct SpanFacts;

/// The trace that a request is part of.
#[derive(Default)]
pub(crate) struct TraceParent;

impl Traces {
    pub(crate) fn start(config: &TraceConfig, _: &str) -> Result<Traces, Error> {
        match *config {}
    }

    pub(crate) fn has_content(&self) -> bool {
        match *self {}
    }

    pub(crate) fn send(&self, _: &RequestReport, _: &SpanFacts, _: Option<&Answers>, _: &TraceParent) {
        match *self {}
    }

    pub(crate) fn finish(&self) {
        match *self {}
    }
}

impl SpanFacts {
    pub(crate) fn begin(&mut self, _: &[Request], _: usize, _: bool) {}

    pub(crate) fn note(&mut self, _: usize, _: &[AnswerEvent], _: bool) {}

    pub(crate) fn note_prompt(&mut self, _: &Prompt, _: bool) {}
}

pub(crate) fn parent(_: &HeaderMap) -> TraceParent {
    TraceParent
}
