//! Several models: loaded on demand, within the memory, and unloaded when they are not used.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pipelines::config::{Auto, PipelineConfig};
use serde_json::{Value, json};
use serve::{KeepAlive, ModelConfig, ModelSettings, ServerConfig};

use crate::server::{TestServer, model, storyteller};

const PATH: &str = "/v1/completions";

/// Models that are all the storyteller.
fn storytellers(names: &[&str]) -> Vec<ModelConfig> {
    names.iter().map(|name| model(name, PipelineConfig::default())).collect()
}

fn serve(models: Vec<ModelConfig>, settings: ModelSettings) -> TestServer {
    TestServer::new(ServerConfig { models: settings, ..ServerConfig::default() }, models)
}

/// A server that loads models when they are needed, with memory for so many of them.
fn with_room_for(models: f64, names: &[&str]) -> TestServer {
    let lazy = || ModelSettings { lazy: true, ..ModelSettings::default() };
    let server = serve(storytellers(&names[..1]), lazy());
    let need = meta(&server, names[0])["memory_bytes"].as_f64().unwrap();
    // The default of gpu_memory_utilization.
    let memory = Some((need * models / 0.9) as u64);
    serve(storytellers(names), ModelSettings { memory, ..lazy() })
}

fn meta(server: &TestServer, model: &str) -> Value {
    server.get(&format!("/v1/models/{model}")).ok()["meta"].clone()
}

fn state(server: &TestServer, model: &str) -> String {
    meta(server, model)["state"].as_str().unwrap().to_string()
}

/// Waits until a model is in a state.
fn wait_for(server: &TestServer, model: &str, expected: &str) {
    let began = Instant::now();
    while state(server, model) != expected {
        assert!(began.elapsed() < Duration::from_secs(60), "{model} is {}", state(server, model));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn body(model: &str, extra: Value) -> Value {
    let mut body = json!({"model": model, "prompt": "Once upon a time", "max_tokens": 12, "seed": 5});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn text(server: &TestServer, model: &str) -> String {
    server.post(PATH, &body(model, json!({}))).ok()["choices"][0]["text"].as_str().unwrap().to_string()
}

fn streamed(server: &TestServer, model: &str) -> String {
    let events = server.events(PATH, &body(model, json!({"stream": true})));
    events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect()
}

#[test]
fn models_that_fit_together_are_loaded_at_the_start() {
    let server = serve(storytellers(&["a", "b"]), ModelSettings::default());
    assert_eq!((state(&server, "a"), state(&server, "b")), ("ready".to_string(), "ready".to_string()));
    let expires_in = meta(&server, "a")["expires_in"].as_f64().unwrap();
    assert!((200.0..=300.0).contains(&expires_in), "{expires_in}");
    let one = serve(vec![storyteller()], ModelSettings::default());
    assert_eq!(meta(&one, "storyteller")["expires_in"], Value::Null, "one model stays");
    let memory = one.get("/debug/memory").ok();
    assert_eq!(memory["models"][0]["weights"], meta(&one, "storyteller")["weight_bytes"]);
}

#[test]
fn a_model_makes_room_for_another() {
    let server = with_room_for(2.5, &["a", "b", "c"]);
    assert_eq!(server.get("/api/ps").ok()["models"], json!([]));
    let expected = text(&server, "a");
    assert_eq!(
        [text(&server, "b"), text(&server, "a"), text(&server, "c")],
        [(); 3].map(|()| expected.clone())
    );
    // `b` was used least recently.
    let states = ["a", "b", "c"].map(|name| state(&server, name));
    assert_eq!(states, ["ready", "absent", "ready"]);
    let names: Vec<Value> = server.get("/api/ps").ok()["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["name"].clone())
        .collect();
    assert_eq!(names, ["a", "c"]);
}

/// The planned bytes of the weights and the cache of a model.
fn planned(server: &TestServer, model: &str) -> [u64; 2] {
    let text = server.get("/metrics").text;
    let of = |part: &str| {
        let start = format!("peri_planned_memory_bytes{{model_name=\"{model}\",part=\"{part}\"}} ");
        let value =
            text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{text}"));
        value.parse::<f64>().unwrap() as u64
    };
    [of("weights"), of("cache")]
}

/// Models whose caches may be of any size share the memory that their weights leave, and are in memory together.
#[test]
fn caches_of_models_that_do_not_fit_as_they_are_share_the_memory() {
    let open = |id: &str| {
        let ModelConfig { config, .. } = model(id, PipelineConfig::default());
        ModelConfig {
            config: config.max_cache_batch_size(Auto::Auto),
            ..model(id, PipelineConfig::default())
        }
    };
    let lazy = || ModelSettings { lazy: true, ..ModelSettings::default() };
    let [weights, cache] = planned(&serve(vec![open("a")], lazy()), "a");
    let total = |budget: u64| Some((budget as f64 / 0.9) as u64 + 2);
    let budget = 2 * weights + cache + cache / 2;
    let server = serve(
        vec![open("a"), open("b")],
        ModelSettings { memory: total(budget), ..ModelSettings::default() },
    );
    assert_eq!(["a", "b"].map(|name| state(&server, name)), ["ready", "ready"]);
    let [own, other] = ["a", "b"].map(|name| planned(&server, name)[1]);
    assert!(own == other && own < cache && own > cache / 2, "{own} and {other} of {cache}");
    let memory = server.get("/debug/memory").ok();
    assert!(memory["used"].as_u64() <= memory["budget"].as_u64(), "{memory}");
    assert_eq!(memory["models"][0]["kv_free"], own);
    assert_eq!(server.get("/v1/models/a").ok()["max_model_len"], 256, "sequences are as long as alone");
    // It comes back with the same share.
    let expected = text(&server, "a");
    server.post("/admin/unload", &json!({"model": "a"})).ok();
    wait_for(&server, "a", "absent");
    assert_eq!(text(&server, "a"), expected);
    assert_eq!((planned(&server, "a")[1], state(&server, "b")), (own, "ready".to_string()));

    // A number of sequences that was set keeps its cache, and the other model has what remains.
    let [_, set] = planned(&serve(vec![storyteller()], lazy()), "storyteller");
    let budget = 2 * weights + set + cache / 4;
    let models = vec![storyteller(), open("b")];
    let server = serve(models, ModelSettings { memory: total(budget), ..lazy() });
    assert_eq!(planned(&server, "storyteller")[1], set);
    let own = planned(&server, "b")[1];
    assert!(own <= cache / 4 && own > cache / 8, "{own} of {cache}");

    // Not even two caches of one sequence fit: the models make room for each other, as they are planned alone.
    let sequence = cache / 32_768 * 256;
    let budget = 2 * weights + sequence + sequence / 2;
    let server = serve(vec![open("a"), open("b")], ModelSettings { memory: total(budget), ..lazy() });
    let alone = ["a", "b"].map(|name| planned(&server, name)[1]);
    assert!(alone[0] == alone[1] && alone[0] > sequence + sequence / 2, "{alone:?}");
    assert_eq!(text(&server, "b"), expected);
}

/// Fault F16: all answers are right, whatever comes and goes meanwhile.
#[test]
fn models_swap_under_load_without_a_failed_request() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    const CLIENTS: usize = 64;
    const REQUESTS: usize = 1000;
    let server = with_room_for(2.5, &NAMES);
    let expected = text(&server, "a");
    let (next, over, loads) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let steer = scope.spawn(|| {
            let mut turn = 0;
            let mut before = BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                let memory = server.get("/debug/memory").ok();
                assert!(memory["used"].as_u64() <= memory["budget"].as_u64(), "{memory}");
                let now: BTreeSet<String> = memory["models"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|model| model["model"].to_string())
                    .collect();
                assert!(now.len() <= 2, "{memory}");
                loads.fetch_add(now.difference(&before).count(), Ordering::Relaxed);
                before = now;
                turn += 1;
                let name = NAMES[turn % 3];
                match turn % 8 {
                    1 => drop(server.post("/admin/unload", &json!({"model": name})).ok()),
                    3 => drop(server.post("/admin/pin", &json!({"model": "a"})).ok()),
                    6 => drop(server.post("/admin/pin", &json!({"model": "a", "pin": false})).ok()),
                    _ => {}
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= REQUESTS {
                            return;
                        }
                        let name = NAMES[number % 3];
                        let answer =
                            if number % 2 == 0 { text(&server, name) } else { streamed(&server, name) };
                        assert_eq!(answer, expected, "request {number}");
                    }
                })
            })
            .collect();
        let failed = clients.into_iter().filter_map(|client| client.join().err()).count();
        over.store(true, Ordering::Relaxed);
        steer.join().unwrap();
        assert_eq!(failed, 0);
    });
    assert!(loads.load(Ordering::Relaxed) >= 3, "models did come and go");
}

/// Fault F17: a model sleeps while others look, and wakes for the next request.
#[test]
fn an_unused_model_is_unloaded_and_polls_do_not_wake_it() {
    let keep_alive = Some(KeepAlive::For(Duration::from_secs(1)));
    let server = serve(vec![storyteller()], ModelSettings { keep_alive, ..ModelSettings::default() });
    let expected = text(&server, "storyteller");
    let used = Instant::now();
    let mut slept = None;
    while slept.is_none_or(|slept| used.elapsed() < slept + Duration::from_secs(1)) {
        assert!(used.elapsed() < Duration::from_secs(60), "it is not unloaded");
        for path in
            ["/health", "/ready", "/live", "/v1/models", "/v1/models/storyteller", "/api/tags", "/api/ps"]
        {
            assert_eq!(server.get(path).status, 200, "{path}");
        }
        if state(&server, "storyteller") == "absent" {
            slept = slept.or(Some(used.elapsed()));
        } else {
            assert_eq!(slept, None, "a poll woke it");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(slept.is_some_and(|slept| slept > Duration::from_millis(900)), "{slept:?}");
    let tokens = server.post("/tokenize", &json!({"prompt": "Once"})).ok();
    assert_eq!(server.post("/detokenize", &json!({"tokens": tokens["tokens"]})).status, 200);
    let messages = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let prompt = server.post("/apply-template", &messages).ok();
    server.post("/api/show", &json!({"model": "storyteller"})).ok();
    assert_eq!(state(&server, "storyteller"), "absent", "its tokenizer is enough");
    assert_eq!(text(&server, "storyteller"), expected);
    assert_eq!(server.post("/tokenize", &json!({"prompt": "Once"})).ok(), tokens);
    assert_eq!(server.post("/apply-template", &messages).ok(), prompt);
}

#[test]
fn a_request_says_how_long_its_model_stays() {
    let server = serve(vec![storyteller()], ModelSettings::default());
    let expires_in = |extra: Value| {
        server.post(PATH, &body("storyteller", extra)).ok();
        meta(&server, "storyteller")["expires_in"].as_f64()
    };
    assert_eq!(expires_in(json!({})), None);
    assert!(expires_in(json!({"keep_alive": 60})).is_some_and(|seconds| (50.0..=60.0).contains(&seconds)));
    assert!(expires_in(json!({"keep_alive": "2h"})).is_some_and(|seconds| seconds > 7000.0));
    assert_eq!(expires_in(json!({"keep_alive": -1})), None);
    let generate =
        json!({"prompt": "Once", "stream": false, "options": {"num_predict": 2}, "keep_alive": "1m"});
    server.post("/api/generate", &generate).ok();
    assert!(meta(&server, "storyteller")["expires_in"].as_f64().is_some());
    server.post(PATH, &body("storyteller", json!({"keep_alive": 0}))).ok();
    wait_for(&server, "storyteller", "absent");
    let answer = server.post("/api/generate", &json!({"model": "storyteller"})).ok();
    assert_eq!(
        (&answer["done_reason"], state(&server, "storyteller")),
        (&json!("load"), "ready".to_string())
    );
    let answer = server.post("/api/generate", &json!({"model": "storyteller", "keep_alive": 0})).ok();
    assert_eq!(answer["done_reason"], "unload");
    wait_for(&server, "storyteller", "absent");
    let refused = server.post(PATH, &body("storyteller", json!({"keep_alive": "soon"}))).error();
    assert_eq!((refused.0, refused.2), (400, json!("keep_alive")));
}

#[test]
fn a_model_in_use_is_unloaded_after_its_answers() {
    let server = serve(storytellers(&["a", "b"]), ModelSettings::default());
    let long = body("a", json!({"max_tokens": 200, "ignore_eos": true, "stream": true}));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| server.events(PATH, &long).len());
        while meta(&server, "a")["running"] != 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = server.post("/admin/unload", &json!({"model": "a"})).ok();
        assert_eq!(status["meta"]["state"], "draining");
        assert!(client.join().unwrap() > 100, "the stream goes on to its end");
    });
    wait_for(&server, "a", "absent");
    assert_eq!(server.post("/admin/load", &json!({"model": "a"})).ok()["meta"]["state"], "ready");
}

#[test]
fn models_that_do_not_fit_beside_pinned_ones_are_refused() {
    let server = with_room_for(1.5, &["a", "b"]);
    server.post("/admin/pin", &json!({"model": "a"})).ok();
    text(&server, "a");
    let reply = server.post(PATH, &body("b", json!({})));
    let (status, code, _, message) = reply.error();
    assert_eq!((status, &code[..], reply.header("retry-after")), (503, "unavailable", Some("5")));
    assert!(message.starts_with("b needs ") && message.ends_with(": unpin one"), "{message}");
    server.post("/admin/pin", &json!({"model": "a", "pin": false})).ok();
    text(&server, "b");
    assert_eq!((state(&server, "a"), state(&server, "b")), ("absent".to_string(), "ready".to_string()));
}

#[test]
fn a_model_that_cannot_be_loaded_says_why_and_is_tried_again() {
    let Some(file) = testdata::shared("stories260k/gguf/stories260K-F32.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stories.gguf");
    std::fs::copy(&file, &path).unwrap();
    let models = vec![model("stories", PipelineConfig::new(path.display().to_string())), storyteller()];
    let server = serve(models, ModelSettings { lazy: true, ..ModelSettings::default() });
    std::fs::remove_file(&path).unwrap();
    let (status, code, _, message) = server.post(PATH, &body("stories", json!({}))).error();
    assert_eq!((status, &code[..]), (503, "unavailable"));
    assert!(message.starts_with("cannot load stories: "), "{message}");
    let meta = meta(&server, "stories");
    assert_eq!(meta["state"], "failed");
    assert!(message.ends_with(meta["failure"].as_str().unwrap()), "{message}");
    text(&server, "storyteller");
    std::fs::copy(&file, &path).unwrap();
    text(&server, "stories");
    assert_eq!(state(&server, "stories"), "ready");
}

#[test]
fn the_list_of_models_can_be_replaced() {
    let server = serve(storytellers(&["a", "b"]), ModelSettings::default());
    let mut list = storytellers(&["b", "c"]);
    list[0].aliases = vec!["beta".to_string()];
    server.handle().set_models(list).unwrap();
    let ids = || {
        let models = server.get("/v1/models").ok();
        models["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(), ["b", "c"]);
    assert_eq!(state(&server, "beta"), "ready", "it stays in memory under its new name");
    assert_eq!(server.post(PATH, &body("a", json!({}))).status, 404);
    text(&server, "c");
    let twice = storytellers(&["b", "b"]);
    assert!(server.handle().set_models(twice).unwrap_err().to_string().contains("two models are named `b"));
    assert_eq!(ids(), ["b", "c"]);
}

#[test]
fn template_and_sampling_of_the_settings_hold_where_requests_say_nothing() {
    let template = pipelines::ChatTemplate::new("{{ messages[0].content }}!").unwrap();
    let own = ModelConfig {
        template: Some(template),
        sampling: pipelines::SamplingOptions { temperature: Some(0.0), ..Default::default() },
        ..model("own", PipelineConfig::default())
    };
    let server = serve(vec![own, model("plain", PipelineConfig::default())], ModelSettings::default());
    let prompt = |model: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Once"}]});
        server.post("/apply-template", &body).ok()["prompt"].as_str().unwrap().to_string()
    };
    assert_eq!(prompt("own"), "Once!");
    assert_ne!(prompt("plain"), "Once!");
    let answer = |model: &str, temperature: Option<f64>| {
        let body = json!({"model": model, "prompt": "Once upon", "max_tokens": 24, "ignore_eos": true,
            "temperature": temperature});
        let answer = server.post("/v1/completions", &body).ok();
        (answer["choices"][0]["text"].clone(), answer["system_fingerprint"].clone())
    };
    let greedy = answer("plain", Some(0.0));
    assert_eq!(answer("own", None).0, greedy.0);
    assert_ne!(answer("own", None).1, greedy.1, "other answers have another fingerprint");
    let drawn: Vec<_> = (0..4).map(|_| answer("own", Some(2.0)).0).collect();
    assert!(drawn.iter().any(|text| *text != greedy.0), "{drawn:?}");
}
