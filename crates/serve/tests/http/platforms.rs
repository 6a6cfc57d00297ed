//! The routes of KServe and SageMaker.

use serde_json::{Value, json};

use crate::server::TestServer;

const INFER: &str = "/v2/models/storyteller/infer";

fn completion(server: &TestServer, prompt: &str) -> Value {
    let body = json!({"prompt": prompt, "max_tokens": 8, "seed": 3});
    server.post("/v1/completions", &body).ok()["choices"][0]["text"].clone()
}

#[test]
fn texts_as_tensors_are_continued_as_by_other_routes() {
    let server = TestServer::storyteller();
    let texts = ["Once upon a time", "The raven said"];
    let input = json!({"name": "text_input", "datatype": "BYTES", "shape": [2], "data": texts});
    let parameters = json!({"max_tokens": 8, "seed": 3});
    let body = json!({"id": "mine", "inputs": [input], "parameters": parameters});
    let answer = server.post(INFER, &body).ok();
    assert_eq!((&answer["model_name"], &answer["id"]), (&json!("storyteller"), &json!("mine")));
    let expected = texts.map(|text| completion(&server, text));
    let output = json!({"name": "text_output", "datatype": "BYTES", "shape": [2], "data": expected});
    assert_eq!(answer["outputs"], json!([output]));

    let check = |change: Value, param: &str| {
        let mut wrong = body.clone();
        wrong["inputs"][0].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let (status, _, got, message) = server.post(INFER, &wrong).error();
        assert_eq!((status, got), (400, json!(param)), "{message}");
    };
    check(json!({"name": "prompt"}), "inputs[0].name");
    check(json!({"datatype": "FP32"}), "inputs[0].datatype");
    check(json!({"shape": [3]}), "inputs[0].shape");
    check(json!({"shape": [0], "data": []}), "inputs[0].shape");
    // Its product is 1 in 64 bits.
    check(json!({"shape": [3, 0xAAAA_AAAA_AAAA_AAAB_u64]}), "inputs[0].shape");
    assert_eq!(server.post(INFER, &json!({"inputs": []})).error().2, json!("inputs"));
    let hot = json!({"inputs": body["inputs"], "parameters": {"temperature": "hot"}});
    assert_eq!(server.post(INFER, &hot).error().2, json!("parameters.temperature"));
}

#[test]
fn models_say_what_they_take() {
    let server = TestServer::storyteller();
    assert_eq!(server.get("/v2/health/live").ok(), json!({"live": true}));
    assert_eq!(server.get("/v2/health/ready").ok(), json!({"ready": true}));
    let model = server.get("/v2/models/storyteller-alias").ok();
    assert_eq!((&model["name"], &model["inputs"][0]["name"]), (&json!("storyteller"), &json!("text_input")));
    let ready = server.get("/v2/models/storyteller/ready").ok();
    assert_eq!(ready, json!({"name": "storyteller", "ready": true}));
    assert_eq!(server.get("/v2/models/other/ready").status, 404);
}

#[test]
fn invocations_are_answered_by_the_shape_of_their_body() {
    let server = TestServer::storyteller();
    assert_eq!((server.get("/ping").status, &server.get("/ping").text[..]), (200, ""));
    let completion_body = json!({"prompt": "Once upon a time", "max_tokens": 8, "seed": 3});
    let answer = server.post("/invocations", &completion_body).ok();
    assert_eq!(answer["choices"][0]["text"], completion(&server, "Once upon a time"));
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "seed": 3});
    let expected = server.post("/v1/chat/completions", &chat).ok()["choices"].clone();
    assert_eq!(server.post("/invocations", &chat).ok()["choices"], expected);
    let (_, _, _, message) = server.post("/invocations", &json!({"input": "a text"})).error();
    assert!(message.starts_with("the model only makes text"), "{message}");
    let (_, _, param, _) = server.post("/invocations", &json!({"prompt": "x", "temprature": 1})).error();
    assert_eq!(param, json!("temprature"));
}
