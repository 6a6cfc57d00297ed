//! Traces: the spans that a collector gets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use prost::Message;
use serde_json::{Value, json};
use serve::{ServerConfig, TraceConfig};

use crate::server::{TestServer, storyteller};

/// The fields of `ExportTraceServiceRequest` that the tests read.
#[derive(Message)]
struct Export {
    #[prost(message, repeated, tag = 1)]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = 1)]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = 2)]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Message)]
struct Resource {
    #[prost(message, repeated, tag = 1)]
    attributes: Vec<Attribute>,
}

#[derive(Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = 2)]
    spans: Vec<Span>,
    #[prost(string, tag = 3)]
    schema_url: String,
}

#[derive(Message)]
struct Span {
    #[prost(bytes = "vec", tag = 1)]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = 2)]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = 4)]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = 5)]
    name: String,
    #[prost(int32, tag = 6)]
    kind: i32,
    #[prost(fixed64, tag = 7)]
    start: u64,
    #[prost(fixed64, tag = 8)]
    end: u64,
    #[prost(message, repeated, tag = 9)]
    attributes: Vec<Attribute>,
    #[prost(message, repeated, tag = 11)]
    events: Vec<Event>,
}

#[derive(Message)]
struct Event {
    #[prost(fixed64, tag = 1)]
    time: u64,
    #[prost(string, tag = 2)]
    name: String,
}

#[derive(Message)]
struct Attribute {
    #[prost(string, tag = 1)]
    key: String,
    #[prost(message, optional, tag = 2)]
    value: Option<AnyValue>,
}

#[derive(Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3, 4, 5")]
    kind: Option<AnyValueKind>,
}

#[derive(prost::Oneof)]
enum AnyValueKind {
    #[prost(string, tag = 1)]
    String(String),
    #[prost(int64, tag = 3)]
    Int(i64),
    #[prost(double, tag = 4)]
    Double(f64),
    #[prost(message, tag = 5)]
    Array(ArrayValue),
}

#[derive(Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = 1)]
    values: Vec<AnyValue>,
}

impl AnyValue {
    fn json(&self) -> Value {
        match &self.kind {
            None => Value::Null,
            Some(AnyValueKind::String(text)) => json!(text),
            Some(AnyValueKind::Int(number)) => json!(number),
            Some(AnyValueKind::Double(number)) => json!(number),
            Some(AnyValueKind::Array(array)) => array.values.iter().map(AnyValue::json).collect(),
        }
    }
}

/// The value of an attribute.
fn value(attributes: &[Attribute], key: &str) -> Value {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    found.and_then(|attribute| attribute.value.as_ref()).map_or(Value::Null, AnyValue::json)
}

impl Span {
    fn get(&self, key: &str) -> Value {
        value(&self.attributes, key)
    }

    fn event_names(&self) -> Vec<&str> {
        self.events.iter().map(|event| &event.name[..]).collect()
    }
}

/// A collector on this machine.
struct Collector {
    address: SocketAddr,
    received: Receiver<Export>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, received) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Some(body) = receive(stream.unwrap()) else { continue };
                if sender.send(Export::decode(&body[..]).unwrap()).is_err() {
                    return;
                }
            }
        });
        Collector { address, received }
    }

    /// A server that sends its traces here.
    fn server(&self, content: bool) -> TestServer {
        let endpoint = Some(format!("http://{}/v1/traces", self.address));
        let traces = Some(TraceConfig { endpoint, content });
        TestServer::new(ServerConfig { traces, ..ServerConfig::default() }, vec![storyteller()])
    }

    /// The spans of a server that has ended.
    fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        while let Ok(export) = self.received.recv_timeout(Duration::from_secs(1)) {
            for of_resource in export.resource_spans {
                let resource = of_resource.resource.unwrap();
                assert_eq!(value(&resource.attributes, "service.name"), "peri");
                for of_scope in of_resource.scope_spans {
                    assert_eq!(of_scope.schema_url, "https://opentelemetry.io/schemas/1.41.1");
                    spans.extend(of_scope.spans);
                }
            }
        }
        spans
    }
}

/// The body of a request for traces, which is answered.
fn receive(stream: TcpStream) -> Option<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    assert_eq!(head[0], "post /v1/traces http/1.1");
    assert!(head.contains(&"content-type: application/x-protobuf".to_string()), "{head:?}");
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    Some(body)
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_request_is_a_span_of_the_trace_of_its_client() {
    let collector = Collector::start();
    let mut server = collector.server(false);
    let body = json!({
        "messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 5, "temperature": 0.5,
        "top_p": 0.75, "seed": 7, "ignore_eos": true, "stop": ["zzzz"],
    });
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    server.post_with("/v1/chat/completions", &[("traceparent", &traceparent)], &body).ok();
    server.get("/health").ok();
    server.stop();

    let spans = collector.spans();
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&span.name[..], span.kind), ("chat storyteller", 2));
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.to_string(), PARENT.to_string()));
    assert!(span.span_id.len() == 8 && hex(&span.span_id) != PARENT);
    for (key, expected) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.provider.name", json!("perihelion")),
        ("gen_ai.request.model", json!("storyteller")),
        ("gen_ai.response.model", json!("storyteller")),
        ("gen_ai.request.max_tokens", json!(5)),
        ("gen_ai.request.temperature", json!(0.5)),
        ("gen_ai.request.top_p", json!(0.75)),
        ("gen_ai.request.seed", json!(7)),
        ("gen_ai.request.stop_sequences", json!(["zzzz"])),
        ("gen_ai.request.top_k", Value::Null),
        ("gen_ai.usage.output_tokens", json!(5)),
        ("gen_ai.usage.cache_read.input_tokens", json!(0)),
        ("gen_ai.response.finish_reasons", json!(["length"])),
        ("http.request.method", json!("POST")),
        ("http.route", json!("/v1/chat/completions")),
        ("http.response.status_code", json!(200)),
        ("error.type", Value::Null),
        ("gen_ai.input.messages", Value::Null),
        ("gen_ai.output.messages", Value::Null),
    ] {
        assert_eq!(span.get(key), expected, "{key}");
    }
    assert!(span.get("gen_ai.usage.input_tokens").as_i64().unwrap() > 4);
    assert!(!format!("{span:?}").contains("upon"));
    assert_eq!(span.event_names(), ["queue", "prefill", "first_token", "done"]);
    let times = span.events.iter().map(|event| event.time);
    let times: Vec<u64> = [span.start].into_iter().chain(times).chain([span.end]).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn operations_errors_and_samplers_are_those_of_requests() {
    let collector = Collector::start();
    let mut server = collector.server(false);
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let body = json!({"prompt": "Once", "max_tokens": 1});
    server.post_with("/v1/completions", &[("traceparent", &unsampled)], &body).ok();
    server.post_with("/v1/completions", &[("traceparent", "00-wrong-01")], &body).ok();
    let long = "Once upon a time. ".repeat(100);
    assert_eq!(server.post("/v1/completions", &json!({"prompt": long})).status, 400);
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "Once", "model": "other"})).status, 404);
    server.events("/v1/completions", &json!({"prompt": "Once", "max_tokens": 1, "n": 2, "stream": true}));
    server.stop();

    let spans = collector.spans();
    let all: Vec<_> = spans
        .iter()
        .map(|span| (&span.name[..], span.get("error.type"), span.get("gen_ai.request.choice.count")))
        .collect();
    let name = "text_completion storyteller";
    assert_eq!(
        all,
        [
            (name, Value::Null, Value::Null),
            ("text_completion", json!("context_length_exceeded"), Value::Null),
            ("text_completion", json!("model_not_found"), Value::Null),
            (name, Value::Null, json!(2)),
        ]
    );
    assert!(spans.iter().all(|span| span.parent_span_id.is_empty()));
}

#[test]
fn prompts_and_answers_are_in_spans_only_on_demand() {
    let collector = Collector::start();
    let mut server = collector.server(true);
    let messages = json!([{"role": "system", "content": "Tell."}, {"role": "user", "content": "Once"}]);
    let body = json!({"messages": messages, "max_tokens": 8, "seed": 1, "ignore_eos": true});
    let answer = server.post("/v1/chat/completions", &body).ok();
    server.stop();

    let spans = collector.spans();
    let [span] = &spans[..] else { panic!("{spans:?}") };
    let read = |key: &str| -> Value { serde_json::from_str(span.get(key).as_str().unwrap()).unwrap() };
    let text = |role: &str, text: &Value| json!({"role": role, "parts": [{"type": "text", "content": text}]});
    assert_eq!(
        read("gen_ai.input.messages"),
        json!([text("system", &json!("Tell.")), text("user", &json!("Once"))])
    );
    let mut output = text("assistant", &answer["choices"][0]["message"]["content"]);
    output["finish_reason"] = json!("length");
    assert_eq!(read("gen_ai.output.messages"), json!([output]));
}

#[test]
fn a_collector_that_is_gone_changes_no_answer() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let traces = Some(TraceConfig { endpoint: Some(format!("http://{address}/v1/traces")), content: false });
    let config = ServerConfig { traces, ..ServerConfig::default() };
    let mut server = TestServer::new(config, vec![storyteller()]);
    server.post("/v1/completions", &json!({"prompt": "Once", "max_tokens": 1})).ok();
    server.stop();

    let traces = Some(TraceConfig { endpoint: Some("not an address".to_string()), content: false });
    let config = ServerConfig { traces, ..ServerConfig::default() };
    let error = crate::server::listen(config, vec![storyteller()]).err().unwrap().to_string();
    assert!(error.contains("not an address"), "{error}");
}
