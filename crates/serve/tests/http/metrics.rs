//! Metrics: their names, their forms, and what they say once requests are over.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use serve::ServerConfig;

use crate::raw::{exchange, request};
use crate::server::{TestServer, storyteller};

/// The samples that vLLM's own tests and the pickers of endpoints expect.
const NAMES: &[&str] = &[
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:lora_requests_info",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:num_preemptions_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "peri_model_state",
    "peri_model_load_seconds",
    "peri_memory_bytes",
    "peri_planned_memory_bytes",
    "peri_state_slots_live",
    "peri_state_slots_cached",
    "peri_state_slots_free",
];
const HISTOGRAMS: &[&str] = &[
    "vllm:iteration_tokens_total",
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:request_inference_time_seconds",
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:request_params_n",
    "vllm:request_params_max_tokens",
    "peri_step_seconds",
    "peri_step_prefill_tokens",
    "peri_grammar_compile_seconds",
];

/// The sum of the samples of a name whose labels contain a text.
pub(crate) fn sample(text: &str, name: &str, labels: &str) -> Option<f64> {
    let values = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, given) = series.split_once('{').unwrap_or((series, ""));
        (found == name && given.contains(labels)).then(|| value.parse::<f64>().unwrap())
    });
    values.reduce(|a, b| a + b)
}

fn scrape(server: &TestServer) -> String {
    let reply = server.get("/metrics");
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    reply.text
}

/// Polls until nothing runs, waits or holds pages.
pub(crate) fn assert_idle(server: &TestServer) {
    let names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"];
    let began = Instant::now();
    loop {
        let text = scrape(server);
        let values = names.map(|name| sample(&text, name, "").unwrap());
        if values == [0.0; 3] {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{values:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn figures_of_the_build_and_the_process_have_their_usual_names() {
    let text = scrape(&TestServer::storyteller());
    assert_eq!(sample(&text, "peri_build_info", env!("CARGO_PKG_VERSION")), Some(1.0));
    let names = [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
    ];
    for name in names.into_iter().filter(|_| cfg!(target_os = "linux")) {
        assert!(sample(&text, name, "") > Some(0.0), "{name} in {text}");
    }
    let of = |name: &str| sample(&text, name, "").unwrap_or_default();
    assert!(of("process_resident_memory_bytes") <= of("process_virtual_memory_bytes"), "{text}");
    assert!(of("process_open_fds") <= of("process_max_fds"), "{text}");
}

#[test]
fn models_show_their_state_their_load_and_their_memory() {
    let server = TestServer::storyteller();
    let body = json!({"prompt": "Once", "max_tokens": 4, "guided_regex": "[a-z ]+"});
    assert_eq!(server.post("/v1/completions", &body).status, 200);
    let text = scrape(&server);
    let of = |name: &str, labels: &str| sample(&text, name, labels);
    assert_eq!(of("peri_model_state", "state=\"ready\""), Some(1.0));
    assert_eq!(of("peri_model_state", ""), Some(1.0), "one state at a time");
    for phase in ["planning", "fetching", "compiling", "packing"] {
        let seconds = of("peri_model_load_seconds", &format!("phase=\"{phase}\""));
        assert!(seconds.is_some_and(|seconds| (0.0..60.0).contains(&seconds)), "{phase}: {seconds:?}");
    }
    for part in ["weights", "kv_free", "scratch"] {
        assert!(of("peri_memory_bytes", &format!("part=\"{part}\"")) > Some(0.0), "{part}");
    }
    assert_eq!(of("peri_grammar_compile_seconds_count", ""), Some(1.0));
    let memory = server.get("/debug/memory").ok();
    let weights = of("peri_memory_bytes", "part=\"weights\"");
    assert_eq!(memory["models"][0]["weights"].as_f64(), weights);
}

#[test]
fn every_name_has_samples_with_the_labels_of_the_model() {
    let server = TestServer::storyteller();
    server
        .post("/v1/completions", &json!({"prompt": "Once upon", "max_tokens": 4, "n": 2, "ignore_eos": true}))
        .ok();
    server.post("/v1/completions", &json!({"prompt": "Once upon", "max_tokens": 4, "ignore_eos": true})).ok();
    // The counters of a step follow its events.
    assert_idle(&server);
    let text = scrape(&server);
    let labels = "model_name=\"storyteller\",engine=\"0\"";
    for name in NAMES {
        // Of the model, whatever runs it.
        let labels = if name.starts_with("vllm:") { labels } else { "model_name=\"storyteller\"" };
        assert!(sample(&text, name, labels).is_some(), "{name} in {text}");
        assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{name} in {text}");
    }
    for name in HISTOGRAMS {
        let count = sample(&text, &format!("{name}_count"), labels).unwrap();
        // Nothing here has a form.
        assert_eq!(count > 0.0, *name != "peri_grammar_compile_seconds", "{name}");
        assert_eq!(sample(&text, &format!("{name}_bucket"), "le=\"+Inf\""), Some(count), "{name}");
        assert!(text.contains(&format!("# TYPE {name} histogram")), "{name}");
    }
    let value = |name: &str, labels: &str| sample(&text, name, labels).unwrap();
    assert_eq!(value("vllm:generation_tokens_total", ""), 12.0);
    assert_eq!(value("vllm:request_success_total", "finished_reason=\"length\""), 3.0);
    assert_eq!(value("vllm:request_params_n_sum", ""), 3.0);
    assert_eq!(value("vllm:request_generation_tokens_sum", ""), 12.0);
    assert_eq!(value("vllm:inter_token_latency_seconds_count", ""), 9.0);
    assert_eq!(value("peri_http_requests_total", "route=\"/v1/completions\",status=\"200\""), 2.0);
}

#[test]
fn the_form_follows_the_accept_header() {
    let server = TestServer::storyteller();
    let headers =
        [("Host", "localhost"), ("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let open = exchange(server.address(), &request("GET", "/metrics", &headers, ""));
    assert!(
        open.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{open}"
    );
    assert!(open.contains("# TYPE vllm:prompt_tokens counter\n") && open.ends_with("# EOF\n"), "{open}");
    let plain = scrape(&server);
    assert!(
        plain.contains("# TYPE vllm:prompt_tokens_total counter\n") && !plain.contains("# EOF"),
        "{plain}"
    );
}

#[test]
fn refusals_count_by_reason_and_leave_no_text_of_users() {
    let server = TestServer::storyteller();
    server.post("/v1/completions", &json!({"prompt": "Once", "n": 1000}));
    server.get("/a-route-of-mine?secret=1");
    let text = scrape(&server);
    assert_eq!(sample(&text, "peri_rejections_total", "reason=\"invalid_request_error\""), Some(1.0));
    assert_eq!(sample(&text, "peri_rejections_total", "reason=\"route_not_found\""), Some(1.0));
    assert_eq!(sample(&text, "peri_http_requests_total", "route=\"-\",status=\"404\""), Some(1.0));
    assert!(!text.contains("mine") && !text.contains("secret"), "{text}");
}

#[test]
fn gauges_return_to_zero_after_aborted_requests() {
    let server = TestServer::new(ServerConfig::default(), vec![storyteller()]);
    let body =
        json!({"prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true, "n": 2}).to_string();
    let headers = [("Host", "localhost"), ("Content-Type", "application/json")];
    let streams: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(request("POST", "/v1/completions", &headers, &body).as_bytes()).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    while sample(&scrape(&server), "vllm:num_requests_running", "") == Some(0.0) {
        assert!(began.elapsed() < Duration::from_secs(60), "no request runs");
    }
    drop(streams);
    assert_idle(&server);
    let text = scrape(&server);
    let aborted = sample(&text, "vllm:request_success_total", "finished_reason=\"abort\"").unwrap();
    assert!(aborted > 0.0, "{text}");
    assert!(sample(&text, "peri_cancels_total", "").unwrap() >= aborted, "{text}");
}
