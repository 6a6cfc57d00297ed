//! `/tokenize`, `/detokenize`, `/apply-template`, and `dry_run`.

use pipelines::config::PipelineConfig;
use serde_json::{Value, json};
use serve::ServerConfig;

use crate::server::{TestServer, model};

fn conversation() -> Value {
    json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Once upon a time"}])
}

#[test]
fn tokens_become_the_same_text_again() {
    let server = TestServer::storyteller();
    let text = "Once upon a time, a fox 🦊 said: “Überall!”";
    let whole = server.post("/tokenize", &json!({"prompt": text})).ok();
    let tokens = whole["tokens"].as_array().unwrap();
    assert_eq!((&whole["count"], &whole["max_model_len"]), (&json!(tokens.len()), &json!(256)));
    let bare = server.post("/v1/tokenize", &json!({"content": text})).ok();
    assert_eq!(bare["tokens"], json!(tokens[1..]), "llama.cpp's name adds no special tokens");
    assert_eq!(server.post("/tokenize", &json!({"prompt": text, "add_special_tokens": false})).ok(), bare);
    let back = server.post("/detokenize", &json!({"tokens": bare["tokens"]})).ok();
    assert_eq!((&back["prompt"], &back["content"]), (&json!(text), &json!(text)));
    assert_eq!(server.post("/v1/detokenize", &json!({"tokens": bare["tokens"]})).ok(), back);
    let floats: Vec<f64> =
        bare["tokens"].as_array().unwrap().iter().map(|token| token.as_f64().unwrap()).collect();
    assert_eq!(server.post("/detokenize", &json!({"tokens": floats})).ok(), back, "7.0 is an integer");
}

#[test]
fn pieces_end_to_end_are_the_text() {
    let server = TestServer::storyteller();
    let text = "a fox 🦊";
    let request = json!({"content": text, "with_pieces": true, "return_token_strs": true});
    let answer = server.post("/tokenize", &request).ok();
    let bytes: Vec<u8> = answer["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|token| match &token["piece"] {
            Value::String(piece) => piece.as_bytes().to_vec(),
            piece => serde_json::from_value(piece.clone()).unwrap(),
        })
        .collect();
    assert_eq!(String::from_utf8(bytes).unwrap().trim_start(), text);
    assert_eq!(answer["token_strs"].as_array().unwrap().len(), answer["count"].as_u64().unwrap() as usize);
}

#[test]
fn a_conversation_has_the_tokens_that_chat_reads() {
    let server = TestServer::storyteller();
    let request = json!({"messages": conversation()});
    let rendered = server.post("/apply-template", &request).ok();
    assert_eq!(rendered["prompt"], "<|bos|>Be brief.\nOnce upon a time");
    assert_eq!(server.post("/v1/apply-template", &request).ok(), rendered);
    let tokens = server.post("/tokenize", &request).ok();
    let dry = server.post("/v1/chat/completions", &json!({"messages": conversation(), "dry_run": true})).ok();
    assert_eq!(dry["prompt_token_ids"][0], tokens["tokens"]);
    assert_eq!(
        dry["usage"],
        json!({"prompt_tokens": tokens["count"], "completion_tokens": 0, "total_tokens": tokens["count"]})
    );
}

#[test]
fn all_generating_routes_can_be_run_dry() {
    let server = TestServer::storyteller();
    let dry = |path: &str, body: Value| server.post(path, &body).ok()["prompt_token_ids"].clone();
    let one = dry("/v1/completions", json!({"prompt": ["Once", "Twice"], "dry_run": true}));
    assert_eq!(one[0], server.post("/tokenize", &json!({"prompt": "Once"})).ok()["tokens"]);
    let messages = json!([{"role": "user", "content": "Once"}]);
    let chat = dry("/v1/chat/completions", json!({"messages": messages, "dry_run": true, "stream": true}));
    assert_eq!(chat, dry("/v1/messages", json!({"messages": messages, "max_tokens": 5, "dry_run": true})));
}

#[test]
fn long_texts_are_counted_beyond_the_context() {
    let server = TestServer::storyteller();
    let text = "word ".repeat(20_000);
    let answer = server.post("/tokenize", &json!({"prompt": text})).ok();
    assert!(answer["count"].as_u64().unwrap() > 20_000);
}

#[test]
fn models_that_embed_have_tokens_but_no_conversations() {
    let Some(folder) = testdata::shared("minilm-l6-v2") else { return };
    let config = PipelineConfig::new(folder.display().to_string());
    let server = TestServer::new(ServerConfig::default(), vec![model("minilm", config)]);
    let answer = server.post("/tokenize", &json!({"prompt": "a cat", "return_token_strs": true})).ok();
    assert_eq!(answer["token_strs"], json!(["[CLS]", "a", "cat", "[SEP]"]));
    let (status, _, param, message) = server.post("/tokenize", &json!({"messages": conversation()})).error();
    assert_eq!((status, param), (400, json!("model")), "{message}");
}

#[test]
fn wrong_fields_are_named() {
    let server = TestServer::storyteller();
    let check = |path: &str, body: Value, param: &str, part: &str| {
        let (status, _, named, message) = server.post(path, &body).error();
        assert_eq!((status, named), (400, json!(param)), "{message}");
        assert!(message.contains(part), "{message}");
    };
    check("/tokenize", json!({}), "prompt", "give one of");
    check("/tokenize", json!({"prompt": "a", "content": "b"}), "prompt", "give one of");
    check(
        "/detokenize",
        json!({"tokens": [5, 4_000_000]}),
        "tokens[1]",
        "tokens[1] is 4000000: the vocabulary has",
    );
    check("/detokenize", json!({"tokens": [-1]}), "tokens[0]", "invalid value");
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]);
    check("/apply-template", json!({"messages": image}), "messages[0].content[0]", "has the type image_url");
    let no_role = json!({"messages": [{"role": null, "content": "Hi"}]});
    check("/apply-template", no_role, "messages[0].role", "messages[0].role is null: give a string");
    for name in ["tokenize", "messages", "bos_token", "eos_token", "unk_token", "image_token", "strftime_now"]
    {
        let kwargs = json!({"messages": conversation(), "chat_template_kwargs": {name: "x"}});
        check("/apply-template", kwargs, &format!("chat_template_kwargs.{name}"), "cannot be set");
    }
    let both =
        json!({"messages": conversation(), "add_generation_prompt": true, "continue_final_message": true});
    check("/apply-template", both, "add_generation_prompt", "set one of them");
}

#[test]
fn pictures_in_earlier_messages_become_a_line_and_are_named() {
    let server = TestServer::storyteller();
    let image = json!({"type": "image_url", "image_url": {"url": "data:"}});
    let look = json!([{"type": "text", "text": "Look:"}, image]);
    let messages = json!([
        {"role": "user", "content": look}, {"role": "assistant", "content": "I see."}, {"role": "user", "content": "Well?"},
    ]);
    let reply = server.post("/apply-template", &json!({"messages": messages}));
    assert_eq!((reply.status, reply.header("x-peri-ignored")), (200, Some("messages[0].content[1]")));
    let prompt = reply.ok()["prompt"].as_str().unwrap().to_string();
    assert!(prompt.contains("Look:\n[image omitted: this model reads text only]"), "{prompt}");
}
