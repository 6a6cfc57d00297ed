//! `/v1/completions`.

use serde_json::{Value, json};

use crate::server::TestServer;

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
fn prompts_of_tokens_are_taken() {
    let server = TestServer::storyteller();
    let answer = server.post(PATH, &json!({"prompt": [[5, 6, 7], [5]], "max_tokens": 2})).ok();
    assert_eq!(answer["usage"]["prompt_tokens"], 4);
    let (status, _, param, message) = server.post(PATH, &json!({"prompt": []})).error();
    assert_eq!((status, param), (400, json!("prompt")), "{message}");
}
