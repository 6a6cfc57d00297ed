//! `/v1/completions`.

use pipelines::config::PipelineConfig;
use serde_json::{Value, json};
use serve::{ModelSettings, ServerConfig};

use crate::server::{TestServer, model};

const PATH: &str = "/v1/completions";

#[test]
fn prompts_and_samples_are_numbered_in_order() {
    let server = TestServer::storyteller();
    let request = json!({"prompt": ["Once", "There was"], "n": 2, "max_tokens": 5, "seed": 1});
    let answer = server.post(PATH, &request).ok();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(
        choices.iter().map(|choice| choice["index"].as_u64().unwrap()).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    let single = server.post(PATH, &json!({"prompt": "There was", "max_tokens": 5, "seed": 1})).ok();
    assert_eq!(choices[2]["text"], single["choices"][0]["text"]);
    assert_eq!(answer["usage"]["completion_tokens"], 20);
}

#[test]
fn echo_with_log_probabilities_scores_a_prompt() {
    let server = TestServer::storyteller();
    let request = json!({"prompt": "Once upon a time", "max_tokens": 0, "echo": true, "logprobs": 1});
    let choice = server.post(PATH, &request).ok()["choices"][0].clone();
    assert_eq!(choice["text"], "Once upon a time");
    let logprobs = &choice["logprobs"];
    let tokens: Vec<&str> =
        logprobs["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    let offsets: Vec<u64> =
        logprobs["text_offset"].as_array().unwrap().iter().map(|o| o.as_u64().unwrap()).collect();
    assert_eq!(tokens.len(), offsets.len());
    assert_eq!(logprobs["token_logprobs"][0], Value::Null);
    assert!(logprobs["token_logprobs"][1].as_f64().unwrap() < 0.0);
    assert!(offsets.is_sorted() && *offsets.last().unwrap() < 16);
}

#[test]
fn echo_gives_log_probabilities_only_if_asked() {
    let server = TestServer::storyteller();
    let request = |logprobs: Value, max_tokens: u32| json!({"prompt": "Once upon", "max_tokens": max_tokens, "echo": true, "logprobs": logprobs, "temperature": 0});
    for max_tokens in [0, 3] {
        let plain = request(Value::Null, max_tokens);
        assert_eq!(server.post(PATH, &plain).ok()["choices"][0]["logprobs"], Value::Null);
        let mut streamed = plain.clone();
        streamed["stream"] = json!(true);
        let events = server.events(PATH, &streamed);
        assert!(events.iter().all(|event| event["choices"][0]["logprobs"].is_null()), "{events:?}");
        let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(server.post(PATH, &plain).ok()["choices"][0]["text"], text);
        let scored = server.post(PATH, &request(json!(0), max_tokens)).ok();
        let tokens = scored["choices"][0]["logprobs"]["tokens"].as_array().unwrap();
        assert_eq!(tokens.len() as u64, scored["usage"]["total_tokens"].as_u64().unwrap());
    }
}

#[test]
fn limits_of_minus_one_are_none() {
    let server = TestServer::storyteller();
    let count = |extra: Value| {
        let mut body = json!({"prompt": "Once", "ignore_eos": true});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let usage = server.post(PATH, &body).ok()["usage"].clone();
        (usage["completion_tokens"].as_u64().unwrap(), usage["total_tokens"].as_u64().unwrap())
    };
    for field in ["max_tokens", "n_predict", "max_completion_tokens"] {
        assert_eq!(count(json!({field: -1})).1, 256, "{field}");
        assert_eq!(count(json!({field: 7})).0, 7, "{field}");
    }
    assert_eq!(count(json!({"max_tokens": null, "n_predict": 7})).0, 7);
    assert_eq!(count(json!({})).0, 16);
}

#[test]
fn empty_stop_texts_end_nothing() {
    let server = TestServer::storyteller();
    let text = |stop: Value| {
        let body = json!({"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0, "stop": stop});
        server.post(PATH, &body).ok()["choices"][0]["text"].clone()
    };
    let whole = text(Value::Null);
    for stop in [json!(""), json!([]), json!([""])] {
        assert_eq!(text(stop.clone()), whole, "{stop}");
    }
    assert_eq!(text(json!(["", " the"])), text(json!(" the")));
}

#[test]
fn a_seed_of_minus_one_is_random() {
    let server = TestServer::storyteller();
    let text = |seed: i64| {
        let body = json!({"prompt": "Once", "max_tokens": 30, "temperature": 1.0, "seed": seed});
        server.post(PATH, &body).ok()["choices"][0]["text"].clone()
    };
    assert_eq!(text(7), text(7));
    assert_ne!(text(-1), text(-1));
}

#[test]
fn gaps_are_filled_only_by_models_with_marks() {
    let server = TestServer::storyteller();
    let gap = |suffix: &str| json!({"prompt": "Once", "max_tokens": 2, "suffix": suffix});
    let (status, _, param, message) = server.post(PATH, &gap("the end")).error();
    assert_eq!((status, param), (400, json!("suffix")));
    assert!(message.contains("the vocabulary of storyteller has no marks"), "{message}");
    assert_eq!(server.post(PATH, &gap("")).status, 200);
}

#[test]
fn a_stream_gives_the_same_text() {
    let server = TestServer::storyteller();
    let mut request = json!({"prompt": "Once upon a time", "max_tokens": 40, "seed": 3, "stop": [" the"]});
    let whole = server.post(PATH, &request).ok();
    request["stream"] = json!(true);
    let events = server.events(PATH, &request);
    let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, whole["choices"][0]["text"].as_str().unwrap());
    let last = &events.last().unwrap()["choices"][0];
    assert_eq!(last["finish_reason"], whole["choices"][0]["finish_reason"]);
}

#[test]
fn the_servers_top_k_is_the_default_of_requests() {
    let models = vec![model("storyteller", PipelineConfig::default().top_k(1))];
    let server = TestServer::new(ServerConfig::default(), models);
    let text = |body: Value| server.post(PATH, &body).ok()["choices"][0]["text"].clone();
    let body = |seed: u64| json!({"prompt": "Once upon a time", "max_tokens": 30, "seed": seed});
    assert_eq!(text(body(1)), text(body(2)), "one candidate is the likeliest");
    let all = |seed: u64| json!({"prompt": "Once upon a time", "max_tokens": 30, "seed": seed, "top_k": -1});
    assert_ne!(text(all(1)), text(all(2)));
}

#[test]
fn extreme_penalties_and_biases_are_refused_before_anything_runs() {
    let server = TestServer::storyteller();
    for (field, value) in [
        ("frequency_penalty", json!(3e38)),
        ("presence_penalty", json!(-1e30)),
        ("repetition_penalty", json!(1e-40)),
        ("repetition_penalty", json!(3e38)),
        ("logit_bias", json!({"5": -3e38})),
    ] {
        for stream in [false, true] {
            let body = json!({"prompt": "Once", "max_tokens": 4, field: value, "stream": stream});
            let reply = server.post(PATH, &body);
            assert_eq!(reply.status, 400, "{field} {value}: {}", reply.text);
            assert_eq!(reply.json()["error"]["param"], field);
        }
    }
}

#[test]
fn more_samples_than_may_wait_are_refused() {
    let models = ModelSettings { max_queue: 2, ..ModelSettings::default() };
    let config = ServerConfig { models, ..ServerConfig::default() };
    let server = TestServer::new(config, vec![model("storyteller", PipelineConfig::default())]);
    let samples = |n: usize| server.post(PATH, &json!({"prompt": "Once", "max_tokens": 2, "n": n}));
    assert_eq!(samples(2).status, 200);
    let refused = samples(3);
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("give at most 2, as many as may wait"), "{}", refused.text);
}

#[test]
fn prompts_of_tokens_are_taken() {
    let server = TestServer::storyteller();
    let answer = server.post(PATH, &json!({"prompt": [[5, 6, 7], [5]], "max_tokens": 2})).ok();
    assert_eq!(answer["usage"]["prompt_tokens"], 4);
    let mixed = server.post(PATH, &json!({"prompt": [[5, 6, 7], "Once"], "max_tokens": 2})).ok();
    assert_eq!(mixed["choices"].as_array().unwrap().len(), 2);
    let (status, _, param, message) = server.post(PATH, &json!({"prompt": []})).error();
    assert_eq!((status, param), (400, json!("prompt")), "{message}");
}

/// Attack S9: small requests that ask for much.
#[test]
fn amounts_beyond_their_bounds_are_refused_with_their_field() {
    let server = TestServer::storyteller();
    let strings = vec!["x"; 100_000];
    let biases: serde_json::Map<String, Value> = (0..100_000).map(|id| (id.to_string(), json!(1))).collect();
    for (field, values) in [
        ("n", vec![json!(1_000_000), json!(0), json!(-1), json!(1.5), json!(1e308)]),
        ("logprobs", vec![json!(1_000_000), json!(-1), json!(1e308)]),
        ("top_k", vec![json!(-2), json!(1e30), json!(u64::MAX)]),
        ("top_p", vec![json!(0), json!(-1), json!(1.5), json!(1e308)]),
        ("min_p", vec![json!(-1), json!(2), json!(1e308)]),
        ("temperature", vec![json!(-1), json!(1e308), json!("NaN")]),
        ("max_tokens", vec![json!(-3), json!(0.5), json!(1e30)]),
        ("min_tokens", vec![json!(-1), json!(1_000_000)]),
        ("seed", vec![json!(1e30), json!(0.5)]),
        ("stop", vec![json!(strings), json!("x".repeat(1 << 20))]),
        ("stop_token_ids", vec![json!(vec![1; 100_000]), json!([-1]), json!([1u64 << 40])]),
        ("logit_bias", vec![json!(biases), json!({"5": 1e308}), json!({"-1": 1}), json!({"99999999": 1})]),
        ("repetition_penalty", vec![json!(0), json!(-1), json!(1e308)]),
        ("prompt", vec![json!(strings), json!([]), json!([-1]), json!([1u64 << 40])]),
    ] {
        for value in values {
            let mut body = json!({"prompt": "Once", "max_tokens": 4});
            body[field] = value;
            let (status, _, param, message) = server.post(PATH, &body).error();
            let param = param.as_str().unwrap_or_default();
            assert!(status == 400 && param.split('[').next() == Some(field), "{field}: {param}: {message}");
        }
    }
    let many = json!({"prompt": "Once", "max_tokens": 200, "n": 64, "logprobs": 250});
    let (status, _, param, message) = server.post(PATH, &many).error();
    assert_eq!((status, param), (400, json!("logprobs")), "{message}");
    assert!(message.contains("may have 3212800 log-probabilities"), "{message}");
}
