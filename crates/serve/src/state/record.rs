//! The facts of a request, which become known while it is answered.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, Method, StatusCode};
use pipelines::PrefixEnd;
use tokio::sync::watch;

use crate::access::KeyPermit;
use crate::api_error::ApiError;
use crate::excerpt::excerpt;
use crate::telemetry::{Answers, RequestReport, SpanFacts};

/// The most bytes of the header that names ignored fields, and of a field in it: clients and proxies take heads of 8 KiB.
const MAX_IGNORED: usize = 2 << 10;
const MAX_IGNORED_FIELD: usize = 128;

/// A request and its facts.
pub(crate) struct RequestRecord {
    pub(super) id: String,
    route: String,
    began: Instant,
    method: Method,
    facts: Mutex<RequestFacts>,
    /// The error that ends it before its answer does, once it is cancelled.
    cancelled: watch::Sender<Option<ApiError>>,
}

/// The facts of a request so far.
#[derive(Default)]
pub(crate) struct RequestFacts {
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

impl RequestRecord {
    /// A request that begins now.
    pub(crate) fn new(id: String, method: Method, route: String) -> RequestRecord {
        let (began, facts, cancelled) = (Instant::now(), Mutex::default(), watch::Sender::new(None));
        RequestRecord { id, route, began, method, facts, cancelled }
    }

    /// Waits until the request is cancelled, and gives its error; most are never cancelled.
    pub(super) async fn cancelled(&self) -> ApiError {
        let mut cancelled = self.cancelled.subscribe();
        let error = cancelled.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        error.expect("the sender lives as long as this, and nothing takes the error away")
    }

    /// Has the request end with an error.
    pub(crate) fn cancel(&self, error: ApiError) {
        self.lock().finish = Some("cancelled");
        self.cancelled.send_replace(Some(error));
    }

    /// The facts so far.
    pub(crate) fn report(&self) -> RequestReport {
        self.report_of(&self.lock())
    }

    /// The tokens of the request so far, if it is one of a key.
    pub(crate) fn tokens_of(&self, key: &str) -> Option<usize> {
        let facts = self.lock();
        (facts.key.as_deref() == Some(key)).then(|| facts.tokens())
    }

    /// The facts so far, locked.
    pub(super) fn lock(&self) -> MutexGuard<'_, RequestFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_of(&self, facts: &RequestFacts) -> RequestReport {
        let answers = facts.answers.as_ref();
        RequestReport {
            id: self.id.clone(),
            key: facts.key.clone(),
            method: self.method.to_string(),
            route: self.route.clone(),
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
            seconds: seconds(self.began.elapsed()),
            is_running: true,
        }
    }

    /// The report of the request once it is over.
    pub(super) fn final_report(&self, facts: &RequestFacts) -> RequestReport {
        let report = self.report_of(facts);
        let is_cut = facts.answers.as_ref().is_some_and(Answers::are_cut);
        RequestReport {
            status: report.status.or(Some(499)),
            finish: if is_cut { Some("cancelled") } else { report.finish },
            is_running: false,
            ..report
        }
    }
}

impl RequestFacts {
    /// Tokens of prompts and answers.
    pub(super) fn tokens(&self) -> usize {
        self.prompt_tokens + self.generated_tokens
    }

    /// Notes the error that the request ends with.
    pub(crate) fn note_error(&mut self, error: &ApiError) {
        self.error = Some(error.code);
        self.message = Some(error.logged());
    }

    /// The fields without effect, for a header; `None` if there are none.
    pub(crate) fn ignored_header(&self) -> Option<HeaderValue> {
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

/// Seconds to the microsecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ignored: &[&str], unnamed: usize, expected: Option<&str>) {
        let ignored = ignored.iter().map(ToString::to_string).collect();
        let facts = RequestFacts { ignored, unnamed_ignored: unnamed, ..RequestFacts::default() };
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
        let facts = RequestFacts { ignored: many.collect(), ..RequestFacts::default() };
        let header = facts.ignored_header().unwrap();
        let text = header.to_str().unwrap();
        assert!(text.len() <= MAX_IGNORED + 200, "{}", text.len());
        let named = text.split(", ").count() - 1;
        assert!(text.ends_with(&format!(", and {} more", 5000 - named)), "{text}");
        let long = "x".repeat(1 << 20);
        let facts = RequestFacts { ignored: [long].into(), ..RequestFacts::default() };
        assert!(facts.ignored_header().unwrap().len() <= MAX_IGNORED_FIELD + 2);
    }
}
