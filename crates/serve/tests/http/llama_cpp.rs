//! Routes and fields of llama.cpp's server.

use pipelines::config::PipelineConfig;
use serde_json::{Value, json};
use serve::{KeepAlive, ModelConfig, ModelSettings, ServerConfig};

use crate::server::{TestServer, model, storyteller};

const PATH: &str = "/completion";

fn body(extra: &Value) -> Value {
    let mut body = json!({"prompt": "Once upon a time", "n_predict": 8, "seed": 1});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// The events of a stream, which has no end mark.
fn events(server: &TestServer, body: &Value) -> Vec<Value> {
    let lines = server.lines(PATH, body, "text/event-stream; charset=utf-8");
    let events = lines.iter().filter_map(|line| line.strip_prefix("data: "));
    events.map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn texts(events: &[Value]) -> String {
    events.iter().map(|event| event["content"].as_str().unwrap()).collect()
}

#[test]
fn an_answer_tells_how_it_was_made() {
    let server = TestServer::storyteller();
    let answer = server.post(PATH, &body(&json!({"stop": ["zzz"], "temperature": 0.5, "top_k": 40}))).ok();
    assert_eq!((&answer["tokens_predicted"], &answer["stop"]), (&json!(8), &json!(true)));
    assert_eq!((&answer["stop_type"], &answer["stopping_word"]), (&json!("limit"), &json!("")));
    assert_eq!((&answer["truncated"], &answer["tokens"]), (&json!(false), &json!([])));
    let timings = &answer["timings"];
    let count = |name: &str| timings[name].as_u64().unwrap();
    assert_eq!(count("cache_n") + count("prompt_n"), answer["tokens_evaluated"].as_u64().unwrap());
    assert_eq!(count("predicted_n"), 8);
    for name in ["prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second"] {
        assert!(timings[name].as_f64().unwrap() > 0.0, "{timings}");
    }
    let settings = &answer["generation_settings"];
    assert_eq!((&settings["n_predict"], &settings["seed"]), (&json!(8), &json!(1)));
    assert_eq!((&settings["temperature"], &settings["top_k"]), (&json!(0.5), &json!(40)));
    assert_eq!(settings["stop"], json!(["zzz"]));
    let prompt = answer["prompt"].as_str().unwrap();
    assert!(prompt.ends_with("Once upon a time"), "{prompt}");
    let same = server.post("/v1/completions", &body(&json!({"temperature": 0.5, "top_k": 40}))).ok();
    assert_eq!(same["choices"][0]["text"], answer["content"]);
}

#[test]
fn a_stream_gives_the_tokens_and_text_of_the_whole_answer() {
    let server = TestServer::storyteller();
    let stop = &json!({"n_predict": 60, "stop": [" the"], "return_tokens": true});
    let whole = server.post(PATH, &body(stop)).ok();
    let mut streamed = body(stop);
    streamed["stream"] = json!(true);
    let events = events(&server, &streamed);
    assert_eq!(texts(&events), whole["content"].as_str().unwrap());
    let (last, parts) = events.split_last().unwrap();
    assert!(parts.iter().all(|part| part["stop"] == false && part.get("timings").is_none()));
    let tokens: Vec<&Value> = parts.iter().flat_map(|part| part["tokens"].as_array().unwrap()).collect();
    assert_eq!(tokens, whole["tokens"].as_array().unwrap().iter().collect::<Vec<_>>());
    assert_eq!((&last["stop_type"], &last["stopping_word"]), (&json!("word"), &json!(" the")));
    for name in ["has_new_line", "tokens_predicted", "tokens_evaluated", "prompt", "generation_settings"] {
        assert_eq!(last[name], whole[name], "{name}");
    }
}

#[test]
fn timings_and_progress_come_with_events_if_they_are_asked_for() {
    let server = TestServer::storyteller();
    let more = &json!({"stream": true, "timings_per_token": true, "return_progress": true});
    let check = |events: &[Value], is_end: &dyn Fn(&Value) -> bool| {
        let progress: Vec<&Value> = events.iter().filter_map(|event| event.get("prompt_progress")).collect();
        let [first, last] = progress[..] else { panic!("{events:?}") };
        assert_eq!((&first["processed"], &last["processed"]), (&first["cache"], &first["total"]));
        assert!(last["time_ms"].as_u64() >= first["time_ms"].as_u64());
        let counts: Vec<u64> =
            events.iter().filter_map(|event| event["timings"]["predicted_n"].as_u64()).collect();
        assert!(counts.len() >= 8 && counts.is_sorted() && counts[0] == 1, "{counts:?}");
        let end = events.iter().find(|event| is_end(event)).unwrap();
        assert_eq!(end["timings"]["predicted_n"], 8);
    };
    check(&events(&server, &body(more)), &|event| event["stop"] == true);
    let mut request = body(more);
    request["stream_options"] = json!({"include_usage": true});
    let is_usage = |event: &Value| event["choices"] == json!([]);
    check(&server.events("/v1/completions", &request), &is_usage);
    request["messages"] = json!([{"role": "user", "content": request["prompt"].take()}]);
    check(&server.events("/v1/chat/completions", &request), &is_usage);
    request["stream"] = json!(false);
    assert_eq!(server.post("/v1/chat/completions", &request).ok()["timings"]["predicted_n"], 8);
    let plain = server.post("/v1/completions", &body(&json!({}))).ok();
    assert_eq!(plain.get("timings"), None);
    let mut response = json!({"input": "Once upon a time", "max_output_tokens": 8, "temperature": 0,
        "timings_per_token": true, "return_progress": true, "stream": true});
    let (_, events): (Vec<String>, Vec<Value>) =
        server.named_events("/v1/responses", &response).into_iter().unzip();
    check(&events, &|event| event["type"] == "response.incomplete");
    response["stream"] = json!(false);
    response.as_object_mut().unwrap().remove("return_progress");
    assert_eq!(server.post("/v1/responses", &response).ok()["timings"]["predicted_n"], 8);
}

#[test]
fn log_probabilities_name_tokens_by_id() {
    let server = TestServer::storyteller();
    let probes = &json!({"n_probs": 10, "temperature": 0, "n_predict": 5, "return_tokens": true});
    let answer = server.post(PATH, &body(probes)).ok();
    let list = answer["completion_probabilities"].as_array().unwrap();
    let ids: Vec<&Value> = list.iter().map(|token| &token["id"]).collect();
    assert_eq!(ids, answer["tokens"].as_array().unwrap().iter().collect::<Vec<_>>());
    for token in list {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["id"], &top[0]["bytes"]), (10, &token["id"], &token["bytes"]));
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
    }
    let mut streamed = body(probes);
    streamed["stream"] = json!(true);
    let events = events(&server, &streamed);
    let streamed: Vec<&Value> = events
        .iter()
        .filter_map(|event| event.get("completion_probabilities"))
        .map(|list| &list[0])
        .collect();
    assert_eq!(streamed, list.iter().collect::<Vec<_>>());
    let none = server.post(PATH, &body(&json!({"n_probs": 0}))).ok();
    assert_eq!(none.get("completion_probabilities"), None);
    let (status, _, param, message) = server.post(PATH, &body(&json!({"n_probs": 1000}))).error();
    assert_eq!((status, param), (400, json!("n_probs")), "{message}");
}

#[test]
fn probabilities_after_the_filters_come_under_names_of_their_own() {
    let server = TestServer::storyteller();
    let probes = |more: &Value| {
        let mut request =
            body(&json!({"n_probs": 6, "n_predict": 12, "seed": 5, "post_sampling_probs": true}));
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post(PATH, &request).ok()
    };
    let answer = probes(&json!({"temperature": 1.0, "top_k": 4, "top_p": 0.95}));
    assert_eq!(answer["generation_settings"]["post_sampling_probs"], true);
    for place in answer["completion_probabilities"].as_array().unwrap() {
        assert!(place.get("logprob").is_none() && place.get("top_logprobs").is_none());
        let top = place["top_probs"].as_array().unwrap();
        assert!((1..=4).contains(&top.len()));
        let sum: f64 = top.iter().map(|token| token["prob"].as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{top:?}");
        let own = top.iter().find(|token| token["id"] == place["id"]).unwrap();
        assert!(own["prob"] == place["prob"] && place["prob"].as_f64().unwrap() > 0.0);
    }
    let greedy = probes(&json!({"temperature": 0}));
    for place in greedy["completion_probabilities"].as_array().unwrap() {
        assert_eq!((&place["prob"], place["top_probs"].as_array().unwrap().len()), (&json!(1.0), 1));
    }
}

#[test]
fn ends_that_are_ignored_are_among_the_biases() {
    let server = TestServer::storyteller();
    let biases = |ignore_eos: bool| {
        let request = body(&json!({"ignore_eos": ignore_eos, "logit_bias": [[5, -1.5]]}));
        server.post(PATH, &request).ok()["generation_settings"]["logit_bias"].clone()
    };
    assert_eq!(biases(false), json!([{"token": 5, "bias": -1.5}]));
    let with_ends = biases(true);
    assert_eq!(with_ends[0], json!({"token": 5, "bias": -1.5}));
    assert!(with_ends[1]["token"].is_u64() && with_ends[1]["bias"].is_null(), "{with_ends}");
}

#[test]
fn answers_have_the_fields_that_are_asked_for() {
    let server = TestServer::storyteller();
    let fields = json!(["content", "generation_settings/n_predict", "prompt", "nothing"]);
    for stream in [false, true] {
        let request = body(&json!({"response_fields": fields, "stream": stream}));
        let answer = match stream {
            true => events(&server, &request).pop().unwrap(),
            false => server.post(PATH, &request).ok(),
        };
        let names: Vec<&String> = answer.as_object().unwrap().keys().collect();
        assert_eq!(names, ["content", "generation_settings/n_predict", "prompt"]);
        assert_eq!(answer["generation_settings/n_predict"], 8);
    }
}

#[test]
fn several_prompts_have_a_list_of_answers() {
    let server = TestServer::storyteller();
    let tokens = server.post("/tokenize", &json!({"content": "Once upon a time", "add_special": true})).ok();
    let tokens = &tokens["tokens"];
    let greedy = |prompt: Value| server.post(PATH, &body(&json!({"prompt": prompt, "temperature": 0}))).ok();
    let one = greedy(tokens.clone());
    assert_eq!(greedy(json!("Once upon a time"))["content"], one["content"]);
    for prompt in [json!([tokens, tokens]), json!([tokens, "Once upon a time"])] {
        let answers = greedy(prompt);
        assert_eq!((answers[0]["index"].clone(), answers[1]["index"].clone()), (json!(0), json!(1)));
        assert!(answers.as_array().unwrap().iter().all(|answer| answer["content"] == one["content"]));
    }
    assert_eq!(greedy(json!(["Once upon a time"]))["content"], one["content"]);
    let samples = server.post(PATH, &body(&json!({"n_cmpl": 2, "temperature": 1}))).ok();
    assert_eq!(samples.as_array().unwrap().len(), 2);
}

#[test]
fn prompts_may_mix_tokens_and_texts() {
    let server = TestServer::storyteller();
    let count = |path: &str, prompt: Value| {
        let answer = server.post(path, &json!({"prompt": prompt, "max_tokens": 1, "model": "storyteller"}));
        answer.ok()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let prompt = |prompt: Value| server.post(PATH, &body(&json!({"prompt": prompt}))).ok()["prompt"].clone();
    let of_text = server.post("/tokenize", &json!({"content": " upon"})).ok()["count"].as_u64().unwrap();
    let mixed = json!([5, 6, " upon", 7, " upon"]);
    for path in ["/v1/completions", "/completions"] {
        assert_eq!(count(path, mixed.clone()), 3 + 2 * of_text);
    }
    // A text at the start begins like one alone.
    assert_eq!(
        prompt(json!(["Once", 5])).as_str().unwrap().find("Once"),
        prompt(json!("Once")).as_str().unwrap().find("Once")
    );
    assert_eq!(prompt(json!({"prompt_string": "Once"})), prompt(json!("Once")));
    assert_eq!(
        prompt(json!({"content": [{"type": "text", "text": "On"}, {"type": "text", "text": "ce"}]})),
        prompt(json!("Once"))
    );
    for wrong in [
        json!({"prompt_string": "Once", "multimodal_data": ["aGk="]}),
        json!({"content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}),
        json!([5, {"prompt_string": "Once"}]),
        json!([5, -1]),
        json!([]),
    ] {
        let (status, _, param, message) = server.post(PATH, &body(&json!({"prompt": wrong}))).error();
        assert_eq!((status, param), (400, json!("prompt")), "{wrong}: {message}");
    }
}

#[test]
fn the_unversioned_route_answers_in_both_shapes() {
    let server = TestServer::storyteller();
    let native = server.post("/completions", &body(&json!({}))).ok();
    let named = server.post("/completions", &body(&json!({"model": "storyteller"}))).ok();
    assert_eq!(native["content"], named["choices"][0]["text"]);
    assert_eq!((native.get("choices"), named.get("content")), (None, None));
    let (status, _, param, message) = server.post("/completions", &body(&json!({"promt": "x"}))).error();
    assert_eq!((status, param), (400, json!("promt")), "{message}");
}

#[test]
fn biases_may_be_lists_of_pairs() {
    let server = TestServer::storyteller();
    let text = |bias: Value| {
        let answer =
            server.post(PATH, &body(&json!({"temperature": 0, "logit_bias": bias, "return_tokens": true})));
        answer.ok()["tokens"].clone()
    };
    let first = text(json!([]))[0].clone();
    for bias in [json!([[first, -100]]), json!([[first, false]]), json!({first.to_string(): -100})] {
        assert_ne!(text(bias)[0], first);
    }
    assert_eq!(text(json!([[first, false]])), text(json!({first.to_string(): -1e6})));
    let piece = server.post("/detokenize", &json!({"tokens": [first]})).ok()["content"].clone();
    let tokens = server.post("/tokenize", &json!({"content": piece})).ok()["tokens"].clone();
    let of_tokens: Vec<Value> = tokens.as_array().unwrap().iter().map(|id| json!([id, -100])).collect();
    let of_text = text(json!([[piece, -100]]));
    assert_ne!(of_text[0], first);
    assert_eq!(of_text, text(json!(of_tokens)));
    assert_eq!(of_text, text(json!({piece.as_str().unwrap(): -100})));
    for wrong in [
        json!([[first, true]]),
        json!([["", 1]]),
        json!([["a".repeat(5000), 1]]),
        json!([[first]]),
        json!([first]),
    ] {
        let (status, _, param, message) = server.post(PATH, &body(&json!({"logit_bias": wrong}))).error();
        let param = param.as_str().unwrap_or_default().split('[').next() == Some("logit_bias");
        assert!(status == 400 && param, "{wrong}: {message}");
    }
}

#[test]
fn an_answer_that_fills_the_context_is_truncated() {
    let server = TestServer::storyteller();
    let filled = server.post(PATH, &body(&json!({"n_predict": -1, "ignore_eos": true}))).ok();
    assert_eq!((&filled["truncated"], &filled["tokens_cached"]), (&json!(true), &json!(256)));
    assert_eq!(filled["generation_settings"]["n_predict"], -1);
    let long = json!({"prompt": "word ".repeat(400)});
    for (path, extra) in [(PATH, json!({})), ("/v1/completions", json!({"stream": true}))] {
        let mut request = long.clone();
        request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let error = server.post(path, &request).json()["error"].clone();
        assert!(error["n_prompt_tokens"].as_u64().unwrap() > 400, "{error}");
        assert_eq!((&error["n_ctx"], &error["code"]), (&json!(256), &json!("context_length_exceeded")));
    }
    let other = server.post(PATH, &json!({"prompt": "Once", "top_p": 7})).json()["error"].clone();
    assert_eq!(other.get("n_ctx"), None);
}

#[test]
fn gaps_need_a_model_with_marks_and_files_with_texts() {
    let server = TestServer::storyteller();
    let gap =
        |extra: Value| json!({"input_prefix": "int main() {", "input_suffix": "}", "input_extra": [extra]});
    for extra in [json!({}), json!({"filename": "x"}), json!({"filename": 5, "text": "x"}), json!("x")] {
        let (status, _, param, message) = server.post("/infill", &gap(extra)).error();
        let param = param.as_str().unwrap_or_default().starts_with("input_extra");
        assert!(status == 400 && param, "{message}");
    }
    let reply = server.post("/infill", &gap(json!({"filename": "x.h", "text": "int x;"})));
    let (status, _, param, message) = reply.error();
    assert_eq!((status, param), (400, json!("input_prefix")));
    assert!(message.contains("the vocabulary of storyteller has no marks"), "{message}");
    let (_, _, param, _) = server.post("/infill", &json!({"input_prefix": "x"})).error();
    assert_eq!(param, "input_suffix");
}

#[test]
fn props_and_slots_show_a_model_and_load_none() {
    let server = TestServer::storyteller();
    let props = server.get("/props").ok();
    let defaults = &props["default_generation_settings"];
    assert_eq!((&defaults["n_ctx"], &props["model_alias"]), (&json!(256), &json!("storyteller")));
    assert_eq!((&props["total_slots"], &props["is_sleeping"]), (&json!(64), &json!(false)));
    assert!(props["chat_template"].as_str().unwrap().contains("messages"), "{props}");
    assert!(!props["bos_token"].as_str().unwrap().is_empty());
    assert_eq!(props["modalities"]["vision"], false);
    let slots = server.get("/slots").ok();
    assert_eq!(slots.as_array().unwrap().len(), 64);
    assert_eq!(slots[0], json!({"id": 0, "n_ctx": 256, "speculative": false, "is_processing": false}));
    assert_eq!(server.get("/slots?fail_on_no_slot=1").status, 200);
    assert_eq!(server.get("/props?model=nothing").status, 404);

    let models = ModelSettings { lazy: true, ..ModelSettings::default() };
    let small = PipelineConfig::default().max_cache_batch_size(1);
    let other = ModelConfig { keep_alive: Some(KeepAlive::Forever), ..model("small", small) };
    let lazy =
        TestServer::new(ServerConfig { models, ..ServerConfig::default() }, vec![storyteller(), other]);
    let asleep = lazy.get("/props?model=small").ok();
    assert_eq!((&asleep["total_slots"], &asleep["is_sleeping"]), (&json!(0), &json!(true)));
    assert_eq!(lazy.get("/slots?model=small").ok(), json!([]));
    assert_eq!(lazy.get("/v1/models").ok()["data"][1]["meta"]["state"], "absent");
}

#[test]
fn routes_have_their_other_names() {
    let server = TestServer::storyteller();
    assert_eq!(server.get("/v1/health").ok(), server.get("/health").ok());
    let (status, _, param, _) = server.post("/reranking", &json!({"query": "q", "documents": ["d"]})).error();
    assert_eq!((status, param), (400, json!("model")));
}
