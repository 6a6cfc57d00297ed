//! `/v1/embeddings`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pipelines::config::PipelineConfig;
use serde_json::{Value, json};
use serve::ServerConfig;

use crate::server::{TestServer, model};

const PATH: &str = "/v1/embeddings";

fn encoder() -> Option<TestServer> {
    let folder = testdata::shared("minilm-l6-v2")?;
    let config = PipelineConfig::new(folder.display().to_string());
    Some(TestServer::new(ServerConfig::default(), vec![model("minilm", config)]))
}

#[test]
fn vectors_come_as_numbers_and_as_base64() {
    let Some(server) = encoder() else { return };
    let numbers = server.post(PATH, &json!({"input": ["a cat", "a dog"]})).ok();
    assert_eq!((&numbers["data"][1]["index"], &numbers["model"]), (&json!(1), &json!("minilm")));
    let vector: Vec<f32> = serde_json::from_value(numbers["data"][0]["embedding"].clone()).unwrap();
    let coded = server.post(PATH, &json!({"input": "a cat", "encoding_format": "base64"})).ok();
    let bytes = STANDARD.decode(coded["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let decoded: Vec<f32> =
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(vector, decoded);
    assert!(numbers["usage"]["prompt_tokens"].as_u64() > coded["usage"]["prompt_tokens"].as_u64());
}

#[test]
fn pooling_gives_the_same_vectors_in_the_shape_of_vllm() {
    let Some(server) = encoder() else { return };
    let body = json!({"model": "minilm", "input": ["a cat", "a dog"]});
    let (embedded, pooled) = (server.post(PATH, &body).ok(), server.post("/v1/pooling", &body).ok());
    assert_eq!((&pooled["object"], &pooled["model"]), (&json!("list"), &json!("minilm")));
    assert_eq!((&pooled["usage"], &pooled["data"][1]["index"]), (&embedded["usage"], &json!(1)));
    for index in 0..2 {
        assert_eq!(pooled["data"][index]["object"], "pooling");
        assert_eq!(pooled["data"][index]["data"], embedded["data"][index]["embedding"]);
    }
}

#[test]
fn wrong_inputs_are_refused() {
    let Some(server) = encoder() else { return };
    let check = |body: Value, param: &str| {
        let (status, _, named, message) = server.post(PATH, &body).error();
        assert_eq!((status, named), (400, json!(param)), "{message}");
    };
    check(json!({"input": []}), "input");
    check(json!({"input": [[1], 5]}), "input");
    check(json!({"input": "a", "dimensions": 100_000}), "dimensions");
    check(json!({"input": "a", "encoding_format": "hex"}), "encoding_format");
}

#[test]
fn lists_may_mix_texts_and_tokens() {
    let Some(server) = encoder() else { return };
    let vectors = |body: Value| server.post(PATH, &body).ok()["data"].clone();
    let tokens = server.post("/tokenize", &json!({"prompt": "a dog"})).ok()["tokens"].clone();
    let texts = vectors(json!({"input": ["a cat", "a dog"]}));
    assert_eq!(vectors(json!({"input": ["a cat", tokens]})), texts);
    assert_eq!(vectors(json!({"input": tokens}))[0]["embedding"], texts[1]["embedding"]);
}

#[test]
fn texts_have_the_forms_of_llama_cpp() {
    let Some(server) = encoder() else { return };
    let vectors = |body: Value| server.post(PATH, &body).ok()["data"].clone();
    let text = vectors(json!({"input": "a dog"}))[0]["embedding"].clone();
    let tokens = server.post("/tokenize", &json!({"content": "a dog"})).ok()["tokens"].clone();
    let around = server.post("/tokenize", &json!({"prompt": ""})).ok()["tokens"].clone();
    let parts = json!([{"type": "text", "text": "a "}, {"type": "text", "text": "dog"}]);
    let list =
        json!(["a dog", {"prompt_string": "a dog"}, {"content": parts}, [around[0], "a dog", around[1]]]);
    for vector in vectors(json!({"input": list})).as_array().unwrap() {
        assert_eq!(vector["embedding"], text);
    }
    let mixed = vectors(json!({"input": [around[0], "a dog", around[1]]}));
    assert_eq!((mixed.as_array().unwrap().len(), &mixed[0]["embedding"]), (1, &text));
    let piece = json!([around[0], tokens[0], "dog", around[1]]);
    assert_eq!(vectors(json!({"input": piece}))[0]["embedding"], text);
    let native = server.post("/embedding", &json!({"content": "a dog"})).ok();
    assert_eq!(native, json!([{"index": 0, "embedding": [text]}]));
    for wrong in [json!({"content": "a dog"}), json!({"content": [{"type": "image_url"}]}), json!([])] {
        let (status, _, param, message) = server.post(PATH, &json!({"input": wrong})).error();
        assert_eq!((status, param), (400, json!("input")), "{message}");
    }
}

#[test]
fn null_is_a_field_that_is_not_given() {
    let Some(server) = encoder() else { return };
    for path in [PATH, "/v1/pooling", "/embeddings"] {
        let body = json!({
            "model": null, "input": "a cat", "encoding_format": null, "dimensions": null, "user": null,
            "truncate_prompt_tokens": null, "truncation_side": null,
        });
        let reply = server.post(path, &body);
        assert_eq!((reply.status, reply.header("x-peri-ignored")), (200, None), "{}", reply.text);
    }
    let (status, _, param, _) = server.post(PATH, &json!({"input": null})).error();
    assert_eq!((status, param), (400, json!("input")));
}

#[test]
fn texts_are_cut_to_a_number_of_tokens_on_either_side() {
    let Some(server) = encoder() else { return };
    let embed = |body: Value| {
        let answer = server.post(PATH, &body).ok();
        let vector: Vec<f32> = serde_json::from_value(answer["data"][0]["embedding"].clone()).unwrap();
        (vector, answer["usage"]["prompt_tokens"].as_u64().unwrap())
    };
    let whole = embed(json!({"input": "a cat and a dog"}));
    let cut = |length: i64, side: Value| {
        let body =
            json!({"input": "a cat and a dog", "truncate_prompt_tokens": length, "truncation_side": side});
        embed(body)
    };
    // The tokens around a text stay.
    assert_eq!(cut(4, Value::Null), embed(json!({"input": "a cat"})));
    assert_eq!(cut(4, json!("right")), cut(4, Value::Null));
    assert_eq!(cut(4, json!("left")), embed(json!({"input": "a dog"})));
    assert_eq!((cut(-1, Value::Null), cut(256, json!("left"))), (whole.clone(), whole));
    let long = "word ".repeat(2000);
    assert_eq!(embed(json!({"input": long, "truncate_prompt_tokens": -1})).1, 256);
    for length in [0, -2, 257] {
        let body = json!({"input": "a", "truncate_prompt_tokens": length});
        let (status, _, param, message) = server.post(PATH, &body).error();
        assert_eq!((status, param), (400, json!("truncate_prompt_tokens")));
        assert!(message.contains("give 1 to 256"), "{message}");
    }
}

#[test]
fn a_text_model_makes_no_embeddings() {
    let server = TestServer::storyteller();
    let (status, _, param, message) = server.post(PATH, &json!({"input": "a cat"})).error();
    assert_eq!((status, param), (400, json!("model")), "{message}");
}
