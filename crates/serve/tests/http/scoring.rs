//! `/v1/rerank`, `/v1/score` and `/v1/classify`.

use pipelines::config::PipelineConfig;
use serde_json::{Value, json};
use serve::{ModelConfig, ServerConfig};

use crate::server::{TestServer, storyteller};

const QUERY: &str = "is a cat here";
const DOCUMENTS: [&str; 3] = ["the cat sat on a mat", "dogs run", "the fast dog ran on and on"];

/// A tiny model with a head: one label (`roberta_classifier`) or three (`bert_classifier`).
fn classifier(name: &str) -> ModelConfig {
    let folder = testdata::asset("perihelion/tests/models/encoders").join(name);
    ModelConfig::new(PipelineConfig::new(folder.display().to_string()))
}

fn server(name: &str) -> TestServer {
    TestServer::new(ServerConfig::default(), vec![classifier(name)])
}

fn scores(list: &Value, key: &str) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|object| object[key].as_f64().unwrap()).collect()
}

#[test]
fn documents_come_best_first() {
    let server = server("roberta_classifier");
    let body = json!({"model": "roberta_classifier", "query": QUERY, "documents": DOCUMENTS});
    let all = server.post("/v1/rerank", &body).ok();
    let found = scores(&all["results"], "relevance_score");
    for (found, expected) in found.iter().zip([0.627_840_4, 0.561_084_4, 0.453_378_4]) {
        assert!((found - expected).abs() < 1e-4, "{all}");
    }
    let indices: Vec<u64> =
        all["results"].as_array().unwrap().iter().map(|one| one["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [2, 0, 1]);
    assert_eq!(all["results"][0]["document"]["text"], DOCUMENTS[2]);
    assert_eq!((&all["usage"]["total_tokens"], &all["model"]), (&json!(40), &body["model"]));
    let objects: Vec<Value> = DOCUMENTS.iter().map(|text| json!({"text": text})).collect();
    let body = json!({"query": QUERY, "documents": objects, "top_n": 1, "return_documents": false});
    let best = server.post("/rerank", &body).ok();
    assert_eq!(
        best["results"],
        json!([{"index": 2, "relevance_score": all["results"][0]["relevance_score"]}])
    );
    assert_eq!(best["usage"], all["usage"]);
}

#[test]
fn texts_are_ranked_in_the_shape_of_tei() {
    let server = server("roberta_classifier");
    let ranked = server.post("/rerank", &json!({"query": QUERY, "documents": DOCUMENTS})).ok();
    let ranks = server.post("/rerank", &json!({"query": QUERY, "texts": DOCUMENTS})).ok();
    assert_eq!(scores(&ranks, "score"), scores(&ranked["results"], "relevance_score"));
    assert_eq!(ranks[0], json!({"index": 2, "score": ranked["results"][0]["relevance_score"]}));
    let body =
        json!({"query": QUERY, "texts": DOCUMENTS, "return_text": true, "top_n": 1, "raw_scores": true});
    let raw = server.post("/v1/rerank", &body).ok();
    assert_eq!((raw.as_array().unwrap().len(), &raw[0]["text"]), (1, &json!(DOCUMENTS[2])));
    let logit = raw[0]["score"].as_f64().unwrap();
    assert!((1.0 / (1.0 + (-logit).exp()) - ranks[0]["score"].as_f64().unwrap()).abs() < 1e-4, "{raw}");
    let long = "word ".repeat(2000);
    let body = |truncate: bool| json!({"query": QUERY, "texts": [long], "truncate": truncate, "truncation_direction": "Left"});
    assert_eq!(server.post("/rerank", &body(true)).status, 200);
    assert_eq!(server.post("/rerank", &body(false)).status, 400);
    let (status, _, param, message) = server.post("/rerank", &json!({"query": QUERY, "texts": []})).error();
    assert_eq!((status, param), (400, json!("texts")), "{message}");
}

#[test]
fn pairs_are_scored_in_their_order() {
    let server = server("roberta_classifier");
    let body = json!({"text_1": QUERY, "text_2": DOCUMENTS});
    let scored = server.post("/v1/score", &body).ok();
    let ranked = server.post("/v1/rerank", &json!({"query": QUERY, "documents": DOCUMENTS})).ok();
    let sorted = |mut scores: Vec<f64>| {
        scores.sort_by(|a, b| b.total_cmp(a));
        scores
    };
    let found = scores(&scored["data"], "score");
    assert_eq!(sorted(found.clone()), scores(&ranked["results"], "relevance_score"));
    let each = json!({"text_1": [QUERY, QUERY, QUERY], "text_2": DOCUMENTS});
    assert_eq!(server.post("/score", &each).ok()["data"], scored["data"]);
    let raw = json!({"text_1": QUERY, "text_2": DOCUMENTS, "use_activation": false});
    for (raw, score) in scores(&server.post("/v1/score", &raw).ok()["data"], "score").iter().zip(found) {
        assert!((1.0 / (1.0 + (-raw).exp()) - score).abs() < 1e-6);
    }
    let metrics = server.get("/metrics").text;
    assert!(
        metrics.contains("peri_classification_texts_total{model_name=\"roberta_classifier\""),
        "{metrics}"
    );
}

/// A decoder that scores by tokens, with the instruction of its files or of the request.
#[test]
fn decoders_rank_as_they_are_instructed() {
    let folder = testdata::asset("perihelion/tests/models/rerankers/qwen3_reranker");
    let model = ModelConfig::new(PipelineConfig::new(folder.display().to_string()));
    let server = TestServer::new(ServerConfig::default(), vec![model]);
    let golden: Value = serde_json::from_slice(&std::fs::read(folder.join("texts.json")).unwrap()).unwrap();
    let documents: Vec<&Value> =
        golden["pairs"].as_array().unwrap()[..4].iter().map(|pair| &pair[1]).collect();
    for (instruction, key) in [(Value::Null, "scores"), (json!("Judge well"), "instructed")] {
        let mut body = json!({"text_1": QUERY, "text_2": documents});
        if !instruction.is_null() {
            body["instruction"] = instruction;
        }
        let scored = server.post("/v1/score", &body).ok();
        for (found, expected) in scores(&scored["data"], "score").iter().zip(golden[key].as_array().unwrap())
        {
            assert!((found - expected[0].as_f64().unwrap()).abs() < 1e-3, "{scored}");
        }
    }
    let ranked = server.post("/rerank", &json!({"query": QUERY, "documents": documents})).ok();
    assert_eq!(ranked["results"][0]["index"], 0);
    let cut = |side: &str| {
        let body = json!({"query": QUERY, "documents": documents, "truncate_prompt_tokens": -1, "truncation_side": side});
        server.post("/rerank", &body)
    };
    assert_eq!(cut("right").ok()["results"], ranked["results"]);
    let (status, _, param, message) = cut("left").error();
    assert_eq!((status, param), (400, json!("truncation_side")));
    assert!(
        message.ends_with("the model joins pairs by a chat template: they are cut on the right only"),
        "{message}"
    );
    let refused = server.post("/v1/completions", &json!({"prompt": "x"}));
    assert!(refused.text.contains("the model only scores texts"), "{}", refused.text);
}

#[test]
fn texts_get_the_label_of_the_highest_score() {
    let server = server("bert_classifier");
    let labelled = server.post("/v1/classify", &json!({"input": ["a cat sat", "the dog ran"]})).ok();
    let first = &labelled["data"][0];
    assert_eq!((&first["label"], &first["num_classes"]), (&json!("perhaps"), &json!(3)));
    assert!((first["probs"][1].as_f64().unwrap() - 3.233_371).abs() < 1e-3, "{first}");
    assert_eq!(server.post("/classify", &json!({"input": "a cat sat"})).ok()["data"][0], *first);
    let (status, _, _, message) =
        server.post("/v1/rerank", &json!({"query": "a", "documents": ["b"]})).error();
    assert_eq!(status, 400);
    assert!(message.contains("scores 3 labels: ranking needs a model with one label"), "{message}");
}

#[test]
fn wrong_bodies_are_refused() {
    let server = server("roberta_classifier");
    let check = |path: &str, body: Value, param: Value| {
        let (status, _, named, message) = server.post(path, &body).error();
        assert_eq!((status, named), (400, param), "{message}");
        message
    };
    check("/v1/rerank", json!({"query": "a", "documents": []}), json!("documents"));
    check("/v1/rerank", json!({"query": "a", "documents": [7]}), json!("documents[0]"));
    check("/v1/rerank", json!({"query": "a", "documents": vec!["b"; 2049]}), json!("documents"));
    check("/v1/rerank", json!({"query": "a", "documents": ["b"], "top_n": 0}), json!("top_n"));
    check("/v1/score", json!({"text_1": ["a", "b"], "text_2": ["c", "d", "e"]}), json!("text_1"));
    check("/v1/classify", json!({"input": []}), json!("input"));
    let empty = json!({"input": "a", "truncate_prompt_tokens": 0});
    check("/v1/classify", empty, json!("truncate_prompt_tokens"));
    let long = "cat ".repeat(60);
    let body = json!({"query": "a dog", "documents": ["b", long]});
    let message = check("/v1/rerank", body, Value::Null);
    assert!(message.contains("pair 1 (counted from 0) has 2 + 60 tokens and 4 around them"), "{message}");
    let cut = json!({"query": "a dog", "documents": ["b", long], "truncate_prompt_tokens": -1});
    assert_eq!(server.post("/v1/rerank", &cut).ok()["results"].as_array().unwrap().len(), 2);
    let tokens = |length: i64| {
        let body = json!({"text_1": "a dog", "text_2": long, "truncate_prompt_tokens": length});
        server.post("/v1/score", &body).ok()["usage"]["prompt_tokens"].clone()
    };
    assert_eq!([tokens(9), tokens(20)], [9, 20]);
}

#[test]
fn each_kind_of_model_has_its_routes() {
    let models = vec![storyteller(), classifier("roberta_classifier")];
    let server = TestServer::new(ServerConfig::default(), models);
    let check = |path: &str, body: Value, expected: &str| {
        let (status, _, param, message) = server.post(path, &body).error();
        assert_eq!((status, param), (400, json!("model")), "{message}");
        assert!(message.contains(expected), "{message}");
    };
    let scores = "the model only scores texts: use /v1/rerank, /v1/score or /v1/classify";
    check("/v1/completions", json!({"model": "roberta_classifier", "prompt": "a"}), scores);
    check("/v1/embeddings", json!({"model": "roberta_classifier", "input": "a"}), scores);
    let text = "the model only makes text: use /v1/completions or /v1/chat/completions";
    check("/v1/rerank", json!({"model": "storyteller", "query": "a", "documents": ["b"]}), text);
    let listed = server.get("/v1/models/roberta_classifier").ok();
    assert_eq!(listed["meta"]["kind"], "classifier");
}
