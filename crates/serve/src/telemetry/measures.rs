//! Measures that are taken while requests are answered: by route, and by model.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use pipelines::{EventKind, Request};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// The labels of a metric.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// The measures of a server.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) http_requests: Family<Labels, Counter>,
    pub(crate) rejections: Family<Labels, Counter>,
    pub(crate) refused_connections: Counter,
    models: RwLock<BTreeMap<String, Arc<Measures>>>,
}

/// The measures of a model.
pub(crate) struct Measures {
    pub(crate) first_token: Histogram,
    pub(crate) between_tokens: Histogram,
    pub(crate) whole: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) prefill: Histogram,
    pub(crate) decode: Histogram,
    pub(crate) inference: Histogram,
    pub(crate) prompt_tokens: Histogram,
    pub(crate) generated_tokens: Histogram,
    pub(crate) n: Histogram,
    pub(crate) max_tokens: Histogram,
    pub(crate) grammars: Histogram,
    /// Answers whose clients left, by [`STAGES`].
    pub(crate) cancels: [Counter; STAGES.len()],
}

/// The answers to a request, for the metrics and the log line.
pub(crate) struct Answers {
    measures: Arc<Measures>,
    began: Instant,
    answers: Vec<Answer>,
}

/// An answer, and when it came to what.
#[derive(Clone, Copy)]
struct Answer {
    prompt_tokens: usize,
    generated_tokens: usize,
    started: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
    is_over: bool,
}

/// How far an answer was when its client left.
pub(crate) const STAGES: [&str; 3] = ["queue", "prefill", "decode"];
/// vLLM's bounds of times to the first token, in seconds.
const FIRST_TOKEN: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// vLLM's bounds of times between tokens.
const BETWEEN_TOKENS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// vLLM's bounds of times of whole requests and their parts.
const REQUEST: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
/// Bounds of times to compile grammars, which may take 2 seconds.
const GRAMMARS: [f64; 9] = [0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0];
/// vLLM's bounds of `n`.
const SAMPLES: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];

impl Metrics {
    /// Takes note of a response. `reason` is the code of an error.
    pub(crate) fn note_response(&self, route: &str, status: StatusCode, reason: Option<&'static str>) {
        let labels = vec![("route", route.to_string()), ("status", status.as_str().to_string())];
        self.http_requests.get_or_create(&labels).inc();
        if let Some(reason) = reason {
            self.rejections.get_or_create(&vec![("reason", reason.to_string())]).inc();
        }
    }

    /// Takes note of a connection of an address that has too many.
    pub(crate) fn note_refused_connection(&self) {
        self.refused_connections.inc();
    }

    /// The measures of a model, which begin with its first request or the first look at them.
    pub(crate) fn model(&self, model: &str, max_length: usize) -> Arc<Measures> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(measures) = models.get(model) {
            return Arc::clone(measures);
        }
        drop(models);
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Measures::new(max_length));
        Arc::clone(models.entry(model.to_string()).or_insert_with(new))
    }

    /// Takes note of the time that the form of an answer took to compile.
    pub(crate) fn note_grammar(&self, model: &str, max_length: usize, time: Duration) {
        self.model(model, max_length).grammars.observe(time.as_secs_f64());
    }

    /// Starts to measure `n` answers to each of the requests.
    pub(crate) fn begin(&self, model: &str, max_length: usize, requests: &[Request], n: usize) -> Answers {
        let measures = self.model(model, max_length);
        let mut answers = Vec::with_capacity(requests.len() * n);
        for request in requests {
            measures.n.observe(n as f64);
            if let Some(limit) = request.max_new_tokens {
                measures.max_tokens.observe(limit as f64);
            }
            answers.extend(std::iter::repeat_n(Answer::new(request.prompt.len()), n));
        }
        Answers { measures, began: Instant::now(), answers }
    }
}

impl Measures {
    fn new(max_length: usize) -> Measures {
        let [whole, queue, prefill, decode, inference] = std::array::from_fn(|_| Histogram::new(REQUEST));
        let [prompt_tokens, generated_tokens, max_tokens] =
            std::array::from_fn(|_| Histogram::new(counts_up_to(max_length)));
        Measures {
            first_token: Histogram::new(FIRST_TOKEN),
            between_tokens: Histogram::new(BETWEEN_TOKENS),
            whole,
            queue,
            prefill,
            decode,
            inference,
            prompt_tokens,
            generated_tokens,
            n: Histogram::new(SAMPLES),
            max_tokens,
            grammars: Histogram::new(GRAMMARS),
            cancels: Default::default(),
        }
    }
}

impl Answers {
    /// Takes note of an event of an answer.
    pub(crate) fn note(&mut self, index: usize, at: Instant, event: &EventKind) {
        let Answers { measures, began, answers } = self;
        let Some(answer) = answers.get_mut(index) else { return };
        match event {
            EventKind::Started { .. } => answer.started = Some(at),
            EventKind::Token { .. } => {
                match answer.last {
                    Some(last) => measures.between_tokens.observe(seconds(last, at)),
                    None => measures.first_token.observe(seconds(*began, at)),
                }
                answer.first.get_or_insert(at);
                answer.last = Some(at);
                answer.generated_tokens += 1;
            }
            EventKind::Finished { .. } => {
                answer.is_over = true;
                answer.observe(measures, *began, at);
            }
            EventKind::Failed(_) => answer.is_over = true,
            _ => {}
        }
    }

    /// Takes note that the request is gone. Answers that are not over were cancelled.
    pub(crate) fn note_end(&self) {
        for answer in self.answers.iter().filter(|answer| !answer.is_over) {
            let stage = match (answer.started, answer.first) {
                (None, _) => 0,
                (_, None) => 1,
                _ => 2,
            };
            self.measures.cancels[stage].inc();
        }
    }

    /// Whether one of them is not over.
    pub(crate) fn are_cut(&self) -> bool {
        self.answers.iter().any(|answer| !answer.is_over)
    }

    /// When the first of them came to the queue, to the model, and to its first token.
    pub(crate) fn times(&self) -> [Option<Instant>; 3] {
        let started = self.answers.iter().filter_map(|answer| answer.started).min();
        let first = self.answers.iter().filter_map(|answer| answer.first).min();
        [Some(self.began), started, first]
    }

    /// How long the first of them waited.
    pub(crate) fn queue(&self) -> Option<Duration> {
        let [came, started, _] = self.times();
        Some(started?.saturating_duration_since(came?))
    }

    /// How long the first token took, from the start.
    pub(crate) fn first_token(&self) -> Option<Duration> {
        let [came, _, first] = self.times();
        Some(first?.saturating_duration_since(came?))
    }

    /// Tokens per second after the first, of all answers together.
    pub(crate) fn tokens_per_second(&self) -> Option<f64> {
        let first = self.answers.iter().filter_map(|answer| answer.first).min()?;
        let last = self.answers.iter().filter_map(|answer| answer.last).max()?;
        let tokens: usize = self.answers.iter().map(|answer| answer.generated_tokens).sum();
        (last > first).then(|| (tokens - 1) as f64 / seconds(first, last))
    }
}

impl Answer {
    fn new(prompt_tokens: usize) -> Answer {
        Answer { prompt_tokens, generated_tokens: 0, started: None, first: None, last: None, is_over: false }
    }

    /// Observes what is known at the end.
    fn observe(&self, measures: &Measures, began: Instant, ended: Instant) {
        measures.whole.observe(seconds(began, ended));
        measures.prompt_tokens.observe(self.prompt_tokens as f64);
        measures.generated_tokens.observe(self.generated_tokens as f64);
        let Some(started) = self.started else { return };
        let last = self.last.unwrap_or(ended);
        let first = self.first.unwrap_or(last);
        measures.queue.observe(seconds(began, started));
        measures.prefill.observe(seconds(started, first));
        measures.decode.observe(seconds(first, last));
        measures.inference.observe(seconds(started, last));
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

/// vLLM's bounds of counts of tokens: 1, 2, 5, 10, 20 and so on.
fn counts_up_to(limit: usize) -> Vec<f64> {
    let limit = limit.max(1) as f64;
    let decades = std::iter::successors(Some(1.0), |decade| Some(decade * 10.0));
    let bounds = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * decade));
    bounds.take_while(|bound| *bound <= limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_counts_end_at_the_limit() {
        assert_eq!(counts_up_to(256), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(counts_up_to(0), [1.0]);
    }
}
