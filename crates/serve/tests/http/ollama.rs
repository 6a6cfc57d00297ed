//! The routes of Ollama.

use pipelines::config::PipelineConfig;
use serde_json::{Value, json};
use serve::ServerConfig;

use crate::raw;
use crate::server::{TestServer, model};

const GENERATE: &str = "/api/generate";
const CHAT: &str = "/api/chat";

fn options() -> Value {
    json!({"num_predict": 20, "temperature": 0})
}

fn lines(server: &TestServer, path: &str, body: &Value) -> Vec<Value> {
    let lines = server.lines(path, body, "application/x-ndjson");
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn error(server: &TestServer, path: &str, body: &Value) -> (u16, String) {
    let reply = server.post(path, body);
    let object = reply.json();
    assert_eq!(object.as_object().unwrap().len(), 1, "{}", reply.text);
    (reply.status, object["error"].as_str().unwrap().to_string())
}

fn encoder() -> Option<TestServer> {
    let folder = testdata::shared("minilm-l6-v2")?;
    let config = PipelineConfig::new(folder.display().to_string());
    Some(TestServer::new(ServerConfig::default(), vec![model("minilm", config)]))
}

#[test]
fn answers_come_line_by_line_unless_stream_is_false() {
    let server = TestServer::storyteller();
    let mut body = json!({"model": "storyteller:latest", "prompt": "Once upon a time", "options": options()});
    let lines = lines(&server, GENERATE, &body);
    body["stream"] = json!(false);
    let whole = server.post(GENERATE, &body).ok();
    let (last, pieces) = lines.split_last().unwrap();
    assert!(pieces.len() > 5 && pieces.iter().all(|line| line["done"] == false));
    let text: String = lines.iter().map(|line| line["response"].as_str().unwrap()).collect();
    assert_eq!(text, whole["response"].as_str().unwrap());
    for end in [last, &whole] {
        assert_eq!((&end["done"], &end["done_reason"]), (&json!(true), &json!("length")));
        assert_eq!((&end["model"], &end["eval_count"]), (&json!("storyteller"), &json!(20)));
        let nanoseconds = |name: &str| end[name].as_u64().unwrap();
        let parts = ["load_duration", "prompt_eval_duration", "eval_duration"].map(nanoseconds);
        assert_eq!(nanoseconds("total_duration"), parts.iter().sum::<u64>());
        assert!(parts[1] > 0 && parts[2] > 0, "{end}");
    }
}

#[test]
fn a_conversation_is_answered_as_by_other_routes() {
    let server = TestServer::storyteller();
    let messages =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Once upon a time"}]);
    let chat = json!({"messages": messages, "options": options(), "stream": false, "logprobs": true});
    let answer = server.post(CHAT, &chat).ok();
    assert_eq!(answer["message"]["role"], "assistant");
    assert_eq!(answer["logprobs"].as_array().unwrap().len(), 20);
    let same = json!({"messages": messages, "max_tokens": 20, "temperature": 0});
    let same = server.post("/v1/chat/completions", &same).ok();
    assert_eq!(answer["message"]["content"], same["choices"][0]["message"]["content"]);
    let generate = json!({
        "prompt": "Once upon a time", "system": "Be brief.", "options": options(), "stream": false,
    });
    assert_eq!(server.post(GENERATE, &generate).ok()["response"], answer["message"]["content"]);
    let streamed: String = lines(&server, CHAT, &json!({"messages": messages, "options": options()}))
        .iter()
        .map(|line| line["message"]["content"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(streamed, answer["message"]["content"].as_str().unwrap());
}

#[test]
fn a_raw_prompt_is_read_as_it_is() {
    let server = TestServer::storyteller();
    let raw = |prompt: &str| {
        let body = json!({"prompt": prompt, "raw": true, "dry_run": true});
        server.post(GENERATE, &body).ok()["prompt_token_ids"][0].clone()
    };
    let plain = server.post("/tokenize", &json!({"prompt": "Once"})).ok()["tokens"].clone();
    assert_eq!(raw("Once"), plain);
    assert_eq!(raw("<|bos|>Once"), plain, "a prompt with its first special token gets no other");
    let (status, message) = error(&server, GENERATE, &json!({"prompt": "a", "raw": true, "system": "b"}));
    assert_eq!((status, &message[..]), (400, "a prompt with `raw: true` has no `system`"));
}

#[test]
fn num_ctx_is_bounded_and_never_cuts_unless_asked() {
    let server = TestServer::storyteller();
    let body = |options: Value, truncate: bool| json!({"prompt": "word ".repeat(40), "options": options, "truncate": truncate, "stream": false});
    let beyond = server.post(GENERATE, &body(json!({"num_ctx": 1000, "num_predict": 1}), false));
    assert_eq!((beyond.status, beyond.header("x-peri-ignored")), (200, Some("options.num_ctx")));
    let kept = server.post(GENERATE, &body(json!({"num_ctx": 256, "num_predict": 1}), false));
    assert_eq!((kept.status, kept.header("x-peri-ignored")), (200, None));
    let (status, message) = error(&server, GENERATE, &body(json!({"num_ctx": 0}), false));
    assert_eq!((status, &message[..]), (400, "options.num_ctx is 0: give 1 to 256"));
    let (status, message) = error(&server, GENERATE, &body(json!({"num_ctx": 20}), false));
    assert_eq!(status, 400);
    assert!(message.contains("tokens, but options.num_ctx is 20"), "{message}");
    let whole = server.post(GENERATE, &body(json!({"num_predict": 1}), false)).ok();
    let cut = server.post(GENERATE, &body(json!({"num_ctx": 20, "num_predict": 4}), true)).ok();
    assert_eq!(cut["prompt_eval_count"], 16);
    let truncated = whole["prompt_eval_count"].as_u64().unwrap() - 16;
    assert_eq!(cut["truncated_tokens"], truncated);
    let open = json!({"num_ctx": 20, "num_predict": -1, "ignore_eos": true});
    let full = server.post(GENERATE, &json!({"prompt": "Once", "options": open, "stream": false})).ok();
    let total = full["prompt_eval_count"].as_u64().unwrap() + full["eval_count"].as_u64().unwrap();
    assert_eq!((total, &full["done_reason"]), (20, &json!("length")));
}

#[test]
fn a_seed_gives_the_same_answer_and_minus_one_another() {
    let server = TestServer::storyteller();
    let answer = |seed: i64| {
        let options = json!({"seed": seed, "temperature": 1.0, "num_predict": 30});
        let body = json!({"prompt": "Once", "options": options, "stream": false});
        server.post(GENERATE, &body).ok()["response"].clone()
    };
    assert_eq!(answer(7), answer(7));
    assert_ne!(answer(-1), answer(-1));
}

#[test]
fn an_empty_prompt_only_loads_the_model() {
    let server = TestServer::storyteller();
    let answer = server.post(GENERATE, &json!({"model": "storyteller", "keep_alive": -1})).ok();
    assert_eq!((&answer["done_reason"], &answer["response"]), (&json!("load"), &json!("")));
    let answer = server.post(CHAT, &json!({"messages": []})).ok();
    assert_eq!((&answer["done_reason"], &answer["message"]["content"]), (&json!("load"), &json!("")));
}

#[test]
fn options_without_effect_are_named_and_wrong_ones_refused() {
    let server = TestServer::storyteller();
    let options = json!({"num_predict": 1, "mirostat": 2, "num_gpu": 1});
    let body =
        json!({"prompt": "Once", "options": options, "stream": false, "keep_alive": "5m", "think": false});
    let reply = server.post(GENERATE, &body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.header("x-peri-ignored"), Some("options.mirostat, options.num_gpu, think"));
    let check = |extra: Value, part: &str| {
        let mut body = json!({"prompt": "Once"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let (status, message) = error(&server, GENERATE, &body);
        assert_eq!(status, 400, "{message}");
        assert!(message.contains(part), "{message}");
    };
    check(json!({"options": {"temperature": "hot"}}), "options.temperature: invalid type");
    check(json!({"options": {"top_p": 7}}), "options.top_p is 7");
    check(json!({"options": []}), "options: give an object");
    check(json!({"prompt": "", "options": {"top_p": 7}}), "options.top_p is 7");
    check(json!({"template": "{{ .Prompt }}"}), "template is not supported");
    check(json!({"suffix": "end"}), "suffix: the vocabulary of storyteller has no marks");
    check(json!({"context": [1, 2]}), "send conversations to /api/chat");
    check(json!({"images": ["aGk="]}), "the models read text only");
    check(json!({"format": "xml"}), "format is \"xml\": give \"json\" or a JSON schema");
    check(json!({"think": "hard"}), "think is `hard`: give none, minimal");
    let (_, message) = error(&server, CHAT, &json!({"messages": [{"role": "user", "images": ["aGk="]}]}));
    assert!(message.starts_with("messages[0].images"), "{message}");
    let (_, message) = error(&server, CHAT, &json!({"messages": [], "options": {"stop_token_ids": [5000]}}));
    assert!(message.starts_with("options.stop_token_ids is 5000"), "{message}");
    let (_, message) = error(&server, CHAT, &json!({"messages": [{"content": "Hi"}]}));
    assert_eq!(message, "messages[0].role is missing: give a string, such as \"user\"");
    assert_eq!(error(&server, CHAT, &json!({"model": "llama3"})).0, 404);
}

#[test]
fn models_are_listed_and_shown() {
    let server = TestServer::storyteller();
    let tag = server.get("/api/tags").ok()["models"][0].clone();
    assert_eq!((&tag["name"], &tag["model"]), (&json!("storyteller"), &json!("storyteller")));
    assert!(tag["size"].as_u64().unwrap() > 1000 && tag["modified_at"].as_str().unwrap().ends_with('Z'));
    let process = server.get("/api/ps").ok()["models"][0].clone();
    assert_eq!((&process["details"], &process["context_length"]), (&tag["details"], &json!(256)));
    let shown = server.post("/api/show", &json!({"model": "storyteller"})).ok();
    assert_eq!(shown["capabilities"], json!(["completion"]));
    assert!(shown["template"].as_str().unwrap().contains("messages"));
    assert_eq!(server.post("/api/show", &json!({"name": "storyteller"})).ok(), shown);
    assert!(server.get("/api/version").ok()["version"].is_string());
    assert_eq!(server.get("/").text, "Perihelion is running");
}

#[test]
fn routes_that_upload_models_are_refused() {
    let server = TestServer::storyteller();
    for path in ["/api/push", "/api/blobs/sha256:0"] {
        let (status, message) = error(&server, path, &json!({"model": "x"}));
        assert_eq!(status, 501);
        assert!(message.starts_with(path), "{message}");
    }
    assert_eq!(error(&server, "/api/nothing", &json!({})).0, 404);
}

#[test]
fn vectors_are_those_of_the_openai_route() {
    let Some(server) = encoder() else { return };
    let expected = server.post("/v1/embeddings", &json!({"input": ["a cat", "a dog"]})).ok();
    let answer = server.post("/api/embed", &json!({"model": "minilm", "input": ["a cat", "a dog"]})).ok();
    for index in 0..2 {
        assert_eq!(answer["embeddings"][index], expected["data"][index]["embedding"]);
    }
    assert_eq!(answer["prompt_eval_count"], expected["usage"]["prompt_tokens"]);
    let one = server.post("/api/embeddings", &json!({"prompt": "a cat"})).ok();
    assert_eq!(one["embedding"], expected["data"][0]["embedding"]);
    let long = "word ".repeat(2000);
    assert_eq!(error(&server, "/api/embed", &json!({"input": long, "truncate": false})).0, 400);
    let body = json!({"prompt": long, "truncate": false});
    assert_eq!(error(&server, "/api/embeddings", &body).0, 400);
    let cut = server.post("/api/embeddings", &json!({"prompt": long})).ok();
    for truncate in [Value::Null, json!(true)] {
        let body = json!({"input": ["a cat", long], "truncate": truncate, "options": {"num_ctx": 100}});
        let reply = server.post("/api/embed", &body);
        assert_eq!(reply.header("x-peri-ignored"), Some("options"));
        let answer = reply.ok();
        assert_eq!(answer["embeddings"][0], expected["data"][0]["embedding"]);
        assert_eq!(answer["embeddings"][1], cut["embedding"]);
        assert!(answer["prompt_eval_count"].as_u64().unwrap() <= 512, "{}", answer["prompt_eval_count"]);
        assert!(answer["truncated_tokens"].as_u64().unwrap() > 1000);
    }
    for body in [json!({}), json!({"input": ""}), json!({"input": []})] {
        assert_eq!(server.post("/api/embed", &body).ok()["embeddings"], json!([]), "{body}");
    }
    assert_eq!(server.post("/api/embeddings", &json!({"prompt": ""})).ok()["embedding"], json!([]));
}

#[test]
fn bodies_of_any_type_are_read_unless_a_browser_sends_them() {
    let server = TestServer::storyteller();
    let status = |path: &str, headers: &[(&str, &str)]| {
        let body = r#"{"prompt": "Once", "stream": false, "max_tokens": 1, "options": {"num_predict": 1}}"#;
        let headers = [&[("Host", "localhost")], headers].concat();
        raw::status(&raw::exchange(server.address(), &raw::request("POST", path, &headers, body)))
    };
    let (form, plain) =
        (("Content-Type", "application/x-www-form-urlencoded"), ("Content-Type", "text/plain"));
    for headers in [&[][..], &[form], &[plain], &[("User-Agent", "Mozilla/5.0")]] {
        assert_eq!(
            (status(GENERATE, headers), status("/v1/completions", headers)),
            (200, 415),
            "{headers:?}"
        );
    }
    let json = ("Content-Type", "application/json");
    for browser in
        [("Origin", "http://localhost"), ("Sec-Fetch-Site", "same-origin"), ("sec-fetch-mode", "cors")]
    {
        assert_eq!(
            (status(GENERATE, &[browser]), status(GENERATE, &[browser, plain])),
            (415, 415),
            "{browser:?}"
        );
        assert_eq!(status(GENERATE, &[browser, json]), 200, "{browser:?}");
    }
    assert_eq!(status(GENERATE, &[("Content-Encoding", "gzip")]), 415);
}

#[test]
fn images_are_refused_in_the_newest_message_of_the_user_only() {
    let server = TestServer::storyteller();
    let image = |role: &str| json!({"role": role, "content": "See", "images": ["aGk="]});
    let text = |role: &str| json!({"role": role, "content": "Hi"});
    let (_, message) = error(&server, CHAT, &json!({"messages": [text("user"), image("user")]}));
    assert!(message.starts_with("messages[1].images"), "{message}");
    let messages = json!([image("user"), text("assistant"), text("user"), image("tool")]);
    let reply = server.post(CHAT, &json!({"messages": messages, "dry_run": true}));
    assert_eq!(reply.header("x-peri-ignored"), Some("messages[0].images, messages[3].images"));
    let tokens = reply.ok()["prompt_token_ids"][0].clone();
    let prompt = server.post("/detokenize", &json!({"tokens": tokens})).ok()["prompt"].clone();
    assert_eq!(prompt.as_str().unwrap().matches("See\n[image: ").count(), 2, "{prompt}");
    let empty = json!({"messages": [{"role": "user", "content": "Hi", "images": []}], "dry_run": true});
    assert_eq!(server.post(CHAT, &empty).status, 200);
}

#[test]
fn values_that_ask_for_nothing_have_no_effect() {
    let server = TestServer::storyteller();
    let body = |extra: Value| {
        let mut body =
            json!({"prompt": "Once", "stream": false, "options": {"num_predict": 3, "temperature": 0}});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let reply = server.post(GENERATE, &body);
        assert_eq!((reply.status, reply.header("x-peri-ignored")), (200, None), "{body}: {}", reply.text);
        reply.json()["response"].clone()
    };
    let plain = body(json!({}));
    for extra in [
        json!({"format": "", "think": null, "suffix": "", "system": "", "template": "", "context": [], "images": []}),
        json!({"format": null, "think": "", "keep_alive": null, "suffix": null, "raw": null, "truncate": null}),
        json!({"keep_alive": "5m"}),
        json!({"keep_alive": -1}),
        json!({"keep_alive": "-1"}),
        json!({"keep_alive": 300}),
        json!({"options": {"num_predict": 3, "temperature": 0, "num_ctx": null, "stop": [], "seed": null}}),
    ] {
        assert_eq!(body(extra.clone()), plain, "{extra}");
    }
}
