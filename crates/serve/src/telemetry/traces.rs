//! Traces for OpenTelemetry: a span for each request to a model, sent to a collector by OTLP over HTTP.
//!
//! Names are those of OpenTelemetry's conventions for generative AI, version 1.41.1.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use axum::http::{HeaderMap, Request as HttpRequest, Response as HttpResponse};
pub(crate) use opentelemetry::Context as TraceParent;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Event, Span, SpanBuilder, SpanKind, Status, TracerProvider};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use pipelines::{Answer, AnswerEvent, AnswerPart, Prompt, Request};
use serde_json::json;

use super::{Answers, RequestReport};
use crate::Error;

/// The schema of the names of attributes.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.41.1";
/// The name of the service, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` give one.
const SERVICE: &str = "peri";
/// How long the collector may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The operations of routes; other routes have no spans.
const OPERATIONS: &[(&str, &str)] = &[
    ("/v1/chat/completions", "chat"),
    ("/v1/responses", "chat"),
    ("/v1/messages", "chat"),
    ("/api/chat", "chat"),
    ("/v1/completions", "text_completion"),
    ("/api/generate", "text_completion"),
    ("/v2/models/{model}/infer", "text_completion"),
    ("/v1/embeddings", "embeddings"),
    ("/v1/pooling", "embeddings"),
    ("/api/embed", "embeddings"),
    ("/api/embeddings", "embeddings"),
    ("/v1/rerank", "rerank"),
    ("/rerank", "rerank"),
    ("/v1/score", "score"),
    ("/score", "score"),
    ("/v1/classify", "classify"),
    ("/classify", "classify"),
    ("/invocations", "invoke_model"),
];

/// Where a server sends its traces.
#[derive(Debug, Clone, Default)]
pub struct TraceConfig {
    /// The address that takes traces, such as `http://localhost:4318/v1/traces`; `None` takes it from the environment
    /// variables of OpenTelemetry.
    pub endpoint: Option<String>,
    /// Whether spans have the prompts and the answers.
    pub content: bool,
}

/// Sends spans from a thread of its own.
pub(crate) struct Traces {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
    content: bool,
}

/// The facts of a request that only its span holds.
#[derive(Default)]
pub(crate) struct SpanFacts {
    /// How tokens are chosen.
    parameters: Vec<KeyValue>,
    /// The messages of the prompts, if spans have them.
    input: Vec<serde_json::Value>,
    /// The answers, if spans have them.
    output: Vec<Answer>,
}

impl Traces {
    /// # Errors
    /// If the address of the collector is not one.
    pub(crate) fn start(config: &TraceConfig, version: &str) -> Result<Traces, Error> {
        let exporter = SpanExporter::builder().with_http().with_http_client(Client::new());
        let exporter = match &config.endpoint {
            Some(endpoint) => exporter.with_endpoint(endpoint),
            None => exporter,
        };
        let exporter = exporter.build().map_err(|error| Error::Traces(error.to_string()))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource(version))
            .build();
        let scope = InstrumentationScope::builder("perihelion-serve").with_schema_url(SCHEMA).build();
        Ok(Traces { tracer: provider.tracer_with_scope(scope), provider, content: config.content })
    }

    /// Whether spans have prompts and answers.
    pub(crate) fn has_content(&self) -> bool {
        self.content
    }

    /// Sends the span of a request that is over. Its trace goes on from the one that the client gave.
    pub(crate) fn send(
        &self,
        report: &RequestReport,
        span_facts: &SpanFacts,
        answers: Option<&Answers>,
        parent: &TraceParent,
    ) {
        let Some((_, operation)) = OPERATIONS.iter().find(|(route, _)| *route == report.route) else {
            return;
        };
        let name =
            report.model.as_ref().map_or(operation.to_string(), |model| format!("{operation} {model}"));
        let clock = Clock::now();
        let mut attributes = attributes(operation, report);
        attributes.extend(span_facts.parameters.iter().cloned());
        attributes.extend(span_facts.content(report.finish));
        let events = events(answers, &clock);
        let mut span = SpanBuilder::from_name(name)
            .with_kind(SpanKind::Server)
            .with_start_time(clock.now - Duration::from_secs_f64(report.seconds))
            .with_attributes(attributes)
            .with_events(events)
            .start_with_context(&self.tracer, parent);
        if let Some(error) = report.error {
            span.set_attribute(KeyValue::new("error.type", error));
            if report.status.is_none_or(|status| !(400..500).contains(&status)) {
                span.set_status(Status::error(error));
            }
        }
        span.end_with_timestamp(clock.now);
    }

    /// Sends the remaining spans and stops.
    pub(crate) fn finish(&self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::warn!("the last traces were not sent: {error}");
        }
    }
}

impl SpanFacts {
    /// Takes note of how tokens are chosen, in `n` answers to each prompt. `content` is whether spans have texts.
    pub(crate) fn begin(&mut self, requests: &[Request], n: usize, content: bool) {
        let Some(request) = requests.first() else { return };
        if content {
            self.output = requests.iter().map(|_| Answer::default()).collect();
        }
        let sampling = &request.sampling;
        let float = |name, value: Option<f32>| value.map(|value| KeyValue::new(name, f64::from(value)));
        let count = |name, value: Option<usize>| {
            value.and_then(|value| i64::try_from(value).ok()).map(|value| KeyValue::new(name, value))
        };
        let stops = (!request.stop.is_empty())
            .then(|| KeyValue::new("gen_ai.request.stop_sequences", texts(request.stop.iter().cloned())));
        let all = [
            count("gen_ai.request.choice.count", Some(n).filter(|&n| n > 1)),
            count("gen_ai.request.max_tokens", request.max_new_tokens),
            // `usize::MAX` means no limit.
            count("gen_ai.request.top_k", sampling.top_k),
            float("gen_ai.request.temperature", sampling.temperature),
            float("gen_ai.request.top_p", sampling.top_p),
            float("gen_ai.request.frequency_penalty", sampling.frequency_penalty),
            float("gen_ai.request.presence_penalty", sampling.presence_penalty),
            Some(KeyValue::new("gen_ai.request.seed", request.seed.cast_signed())),
            stops,
        ];
        self.parameters = all.into_iter().flatten().collect();
    }

    /// Takes note of what an answer gains.
    pub(crate) fn note(&mut self, index: usize, events: &[AnswerEvent], content: bool) {
        if content {
            events.iter().for_each(|event| self.output[index].push(event.clone()));
        }
    }

    /// Takes note of a prompt.
    pub(crate) fn note_prompt(&mut self, prompt: &Prompt, content: bool) {
        if !content {
            return;
        }
        match prompt {
            Prompt::Text { text, .. } => self.input.push(message("user", json!(text))),
            Prompt::Chat(chat) => self.input.extend(chat.messages.iter().map(|given| {
                let role = given["role"].as_str().unwrap_or("user");
                message(role, given["content"].clone())
            })),
            Prompt::Tokens(tokens) => self.input.push(message("user", json!({ "tokens": tokens }))),
        }
    }

    /// The attributes with prompts and answers.
    fn content(&self, finish: Option<&str>) -> Vec<KeyValue> {
        let output: Vec<serde_json::Value> =
            self.output.iter().map(|answer| answer_message(answer, finish)).collect();
        let attribute = |name, messages: &[serde_json::Value]| {
            (!messages.is_empty()).then(|| KeyValue::new(name, json!(messages).to_string()))
        };
        let all =
            [attribute("gen_ai.input.messages", &self.input), attribute("gen_ai.output.messages", &output)];
        all.into_iter().flatten().collect()
    }
}

/// The trace that a client's request is part of, by its headers.
pub(crate) fn parent(headers: &HeaderMap) -> TraceParent {
    TraceContextPropagator::new().extract_with_context(&TraceParent::new(), &HeaderExtractor(headers))
}

/// The service that spans come from.
fn resource(version: &str) -> Resource {
    let named = Resource::builder().with_attribute(KeyValue::new("service.version", version.to_string()));
    let is_named = ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"].iter().any(|variable| {
        std::env::var(variable)
            .is_ok_and(|value| *variable == "OTEL_SERVICE_NAME" || value.contains("service.name"))
    });
    if is_named { named.build() } else { named.with_service_name(SERVICE).build() }
}

/// The attributes of a span that follow from its report.
fn attributes(operation: &'static str, report: &RequestReport) -> Vec<KeyValue> {
    let text = |name, value: &str| KeyValue::new(name, value.to_string());
    let count = |name, value: usize| KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX));
    let mut attributes = vec![
        KeyValue::new("gen_ai.operation.name", operation),
        KeyValue::new("gen_ai.provider.name", "perihelion"),
        count("gen_ai.usage.input_tokens", report.prompt_tokens),
        count("gen_ai.usage.cache_read.input_tokens", report.cached_tokens),
        count("gen_ai.usage.output_tokens", report.generated_tokens),
        text("http.request.method", &report.method),
        text("http.route", &report.route),
        text("peri.request.id", report.id()),
    ];
    if let Some(model) = &report.model {
        attributes.extend(["gen_ai.request.model", "gen_ai.response.model"].map(|name| text(name, model)));
    }
    if let Some(status) = report.status {
        attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
    }
    if let Some(finish) = report.finish {
        attributes.push(KeyValue::new("gen_ai.response.finish_reasons", texts([finish.to_string()])));
    }
    attributes
}

/// When the request came to the queue, to the model, to its first token and to its end.
fn events(answers: Option<&Answers>, clock: &Clock) -> Vec<Event> {
    let Some(answers) = answers else { return Vec::new() };
    let [queue, prefill, first_token] = answers.times();
    let named = [("queue", queue), ("prefill", prefill), ("first_token", first_token)];
    let times = named.into_iter().filter_map(|(name, at)| Some((name, clock.at(at?))));
    let all = times.chain([("done", clock.now)]);
    all.map(|(name, at)| Event::new(name, at, Vec::new(), 0)).collect()
}

/// A message in the shape of the conventions. Other content than text is passed on unchanged.
fn message(role: &str, content: serde_json::Value) -> serde_json::Value {
    json!({ "role": role, "parts": [{ "type": "text", "content": content }] })
}

fn answer_message(answer: &Answer, finish: Option<&str>) -> serde_json::Value {
    let part = |part: &AnswerPart| match part {
        AnswerPart::Text(text) => json!({ "type": "text", "content": text }),
        AnswerPart::Reasoning(text) => json!({ "type": "reasoning", "content": text }),
        AnswerPart::ToolCall(call) => {
            json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments })
        }
    };
    let parts: Vec<serde_json::Value> = answer.parts.iter().map(part).collect();
    json!({ "role": "assistant", "parts": parts, "finish_reason": finish })
}

fn texts(texts: impl IntoIterator<Item = String>) -> Value {
    Value::Array(Array::String(texts.into_iter().map(StringValue::from).collect()))
}

/// Says which time of the day an instant was.
struct Clock {
    instant: Instant,
    now: SystemTime,
}

impl Clock {
    fn now() -> Clock {
        Clock { instant: Instant::now(), now: SystemTime::now() }
    }

    fn at(&self, instant: Instant) -> SystemTime {
        self.now - self.instant.saturating_duration_since(instant)
    }
}

/// Sends bodies to the collector. It blocks: the exporter has a thread of its own.
struct Client(ureq::Agent);

impl Client {
    fn new() -> Client {
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false);
        Client(config.build().into())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl HttpClient for Client {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: HttpRequest<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let (head, body) = request.into_parts();
        let sent = self.0.run(HttpRequest::from_parts(head, &body[..]));
        let received = sent.and_then(|response| {
            let (head, mut body) = response.into_parts();
            Ok(HttpResponse::from_parts(head, body.read_to_vec()?.into()))
        });
        Box::pin(std::future::ready(received.map_err(Into::into)))
    }
}
