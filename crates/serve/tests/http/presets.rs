//! Presets and copies: other names for a model, with settings of their own, that survive the server.

use std::path::Path;

use pipelines::config::{PipelineConfig, Reproducible};
use serde_json::{Value, json};
use serve::{ModelSettings, ServerConfig};

use crate::server::{Reply, TestServer, model, session, storyteller};

const CREATE: &str = "/api/create";
const CHAT: &str = "/api/chat";

fn serve(catalog: &Path) -> TestServer {
    let models = ModelSettings { catalog: Some(catalog.to_path_buf()), ..ModelSettings::default() };
    TestServer::new(ServerConfig { models, ..ServerConfig::default() }, vec![storyteller()])
}

fn names(server: &TestServer) -> Vec<String> {
    let models = server.get("/api/tags").ok()["models"].as_array().unwrap().clone();
    models.iter().map(|model| model["name"].as_str().unwrap().to_string()).collect()
}

fn refusal(reply: &Reply) -> (u16, String) {
    (reply.status, reply.json()["error"].as_str().unwrap_or_else(|| panic!("{}", reply.text)).to_string())
}

/// The fields of an object of numbers, whole or not.
fn as_numbers(value: &Value) -> Vec<(String, f64)> {
    value.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value.as_f64().unwrap())).collect()
}

fn tokens(server: &TestServer, model: &str, extra: Value) -> Value {
    let mut body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "dry_run": true});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    server.post(CHAT, &body).ok()["prompt_token_ids"][0].clone()
}

#[test]
fn a_copy_is_another_name_until_it_is_deleted() {
    let server = TestServer::storyteller();
    let copy = json!({"source": "storyteller", "destination": "bard:latest"});
    assert_eq!(
        (server.post("/api/copy", &copy).status, names(&server)),
        (200, vec!["storyteller".into(), "bard".into()])
    );
    server.post("/api/copy", &json!({"source": "bard", "destination": "team/bard:2"})).ok_without_body();
    let generate = |model: &str| {
        let options = json!({"num_predict": 8, "temperature": 0});
        let body = json!({"model": model, "prompt": "Once", "options": options, "stream": false});
        server.post("/api/generate", &body).ok()
    };
    for name in ["bard", "bard:latest", "team/bard:2"] {
        assert_eq!(generate(name)["response"], generate("storyteller")["response"]);
    }
    assert_eq!(generate("bard:latest")["model"], "bard");
    // Both names are one model in memory.
    assert_eq!(server.get("/api/ps").ok()["models"].as_array().unwrap().len(), 1);
    let shown = server.get("/v1/models/bard").ok();
    assert_eq!(
        (&shown["id"], &shown["parent"], &shown["meta"]["state"]),
        (&json!("bard"), &json!("storyteller"), &json!("ready"))
    );
    assert_eq!(server.delete_with("/api/delete", &json!({"model": "bard"})).status, 200);
    assert_eq!(names(&server), ["storyteller", "team/bard:2"]);
    assert_eq!(server.delete_with("/api/delete", &json!({"name": "bard"})).status, 404);
}

#[test]
fn the_settings_of_a_preset_are_those_of_requests_that_set_none() {
    let server = TestServer::storyteller();
    let parameters = json!({"temperature": 0, "num_predict": 5, "num_ctx": 64, "stop": ["zebra"]});
    let create =
        json!({"model": "bard", "from": "storyteller", "system": "Be brief.", "parameters": parameters});
    let lines = server.lines(CREATE, &create, "application/x-ndjson");
    assert_eq!(lines.last().map(String::as_str), Some(r#"{"status":"success"}"#));
    let sampling = |model: &str| server.get(&format!("/v1/models/{model}")).ok()["meta"]["sampling"].clone();
    let of_model = json!({"temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1});
    assert_eq!(as_numbers(&sampling("bard")), as_numbers(&of_model));
    assert_ne!(sampling("storyteller")["temperature"], sampling("bard")["temperature"]);
    assert_eq!(tokens(&server, "bard", json!({})), tokens(&server, "storyteller", with_system("Be brief.")));
    assert_eq!(
        tokens(&server, "bard", with_system("Be long.")),
        tokens(&server, "storyteller", with_system("Be long."))
    );

    let messages = json!([{"role": "user", "content": "Hi"}]);
    let chat = |extra: Value| {
        let mut body = json!({"model": "bard", "messages": messages});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        server.post("/v1/chat/completions", &body)
    };
    let own = chat(json!({})).ok();
    assert_eq!((&own["usage"]["completion_tokens"], &own["model"]), (&json!(5), &json!("bard")));
    assert_eq!(chat(json!({})).ok()["choices"], own["choices"], "the temperature is 0");
    assert_eq!(chat(json!({"max_tokens": 3})).ok()["usage"]["completion_tokens"], 3);
    let text = json!({"model": "bard", "prompt": "Once", "stream": false});
    assert_eq!(server.post("/api/generate", &text).ok()["eval_count"], 5);
    let all = json!({"model": "bard", "prompt": "Once", "stream": false, "options": {"num_predict": -1, "ignore_eos": true}});
    let all = server.post("/api/generate", &all).ok();
    assert_eq!(all["prompt_eval_count"].as_u64().unwrap() + all["eval_count"].as_u64().unwrap(), 64);
    let long = chat(json!({"messages": [{"role": "user", "content": "word ".repeat(70)}]}));
    assert_eq!((long.status, long.error().1), (400, "context_length_exceeded".to_string()));
    assert_eq!(server.get("/v1/models/bard").ok()["max_model_len"], 64);

    let shown = server.post("/api/show", &json!({"model": "bard"})).ok();
    assert_eq!(
        (&shown["system"], &shown["details"]["parent_model"]),
        (&json!("Be brief."), &json!("storyteller"))
    );
    assert_eq!(shown["parameters"], "temperature 0\nnum_predict 5\nnum_ctx 64\nstop \"zebra\"");
    let file =
        "FROM storyteller\nSYSTEM \"\"\"Be brief.\"\"\"\nPARAMETER temperature 0\nPARAMETER num_predict 5\n";
    assert!(shown["modelfile"].as_str().unwrap().starts_with(file), "{shown}");
}

/// The server's own messages do not count.
#[test]
fn errors_of_conversations_name_the_messages_of_the_request() {
    let server = TestServer::storyteller();
    let template = "{% for message in messages %}{% if message.content == 'No' %}{{ raise_exception('refused') }}\
        {% endif %}{{ message.content }}{% endfor %}";
    let create =
        json!({"model": "bard", "from": "storyteller", "system": "S", "template": template, "stream": false});
    server.post(CREATE, &create).ok();
    let create = json!({"model": "strict", "from": "bard", "system": "No", "stream": false});
    server.post(CREATE, &create).ok();
    let user = |content: Value| json!({"role": "user", "content": content});
    let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    let check = |path: &str, extra: Value, param: &str, problem: &str| {
        let mut body = json!({"model": "bard"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let reply = server.post(path, &body);
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status, error["param"].as_str()),
            (400, Some(param).filter(|param| !param.is_empty())),
            "{error}"
        );
        assert!(error["message"].as_str().unwrap().contains(problem), "{error}");
    };
    let (chat, hi, no) = ("/v1/chat/completions", user(json!("Hi")), user(json!("No")));
    let second = json!([hi, no]);
    check(chat, json!({"messages": second}), "messages", "conversation: messages[1]: refused");
    check("/apply-template", json!({"messages": second}), "messages", "conversation: messages[1]: refused");
    check(
        chat,
        json!({"messages": [hi, user(image)]}),
        "messages[1].content[0]",
        "messages[1].content[0]: has the type",
    );
    check(chat, json!({"model": "strict", "messages": [hi]}), "messages", "conversation: refused");
    let answered = json!([hi, {"role": "assistant", "content": "Yes"}, no]);
    check(
        "/v1/messages",
        json!({"messages": answered, "system": "S", "max_tokens": 1}),
        "",
        "conversation: messages[2]: refused",
    );
    let input = json!({"input": answered, "instructions": "S", "max_output_tokens": 16});
    check("/v1/responses", input, "input", "conversation: input[2]: refused");
}

fn with_system(text: &str) -> Value {
    json!({"messages": [{"role": "system", "content": text}, {"role": "user", "content": "Hi"}]})
}

#[test]
fn a_preset_may_have_a_template_and_be_made_from_another() {
    let server = TestServer::storyteller();
    let template = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}";
    let create = json!({"model": "plain", "from": "storyteller", "template": template, "stream": false});
    assert_eq!(server.post(CREATE, &create).ok(), json!({"status": "success"}));
    let create = json!({"model": "bard", "from": "plain", "system": "S", "parameters": {"num_predict": 2}, "stream": false});
    server.post(CREATE, &create).ok();
    let prompt = |model: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "U"}]});
        server.post("/apply-template", &body).ok()["prompt"].clone()
    };
    assert_eq!((prompt("plain"), prompt("bard")), (json!("<user>U"), json!("<system>S<user>U")));
    assert_eq!(server.post("/api/show", &json!({"model": "bard"})).ok()["template"], template);
    // A model that is not in memory is rendered alike.
    server.post("/admin/unload", &json!({"model": "bard"})).ok();
    assert_eq!(prompt("bard"), "<system>S<user>U");
    let answer = json!({"model": "bard", "prompt": "U", "stream": false});
    assert_eq!(server.post("/api/generate", &answer).ok()["eval_count"], 2);
}

#[test]
fn fingerprints_are_those_of_the_model_and_the_settings() {
    let server = TestServer::storyteller();
    let fingerprint = |model: &str| {
        let body = json!({"model": model, "prompt": "Once", "max_tokens": 1});
        server.post("/v1/completions", &body).ok()["system_fingerprint"].as_str().unwrap().to_string()
    };
    let create = |name: &str, system: &str| {
        let body = json!({"model": name, "from": "storyteller", "system": system, "stream": false});
        server.post(CREATE, &body).ok();
        fingerprint(name)
    };
    let own = fingerprint("storyteller");
    let parts: Vec<&str> = own.splitn(4, '-').collect();
    assert_eq!((parts[0], parts[1], parts[2].len()), ("peri", env!("CARGO_PKG_VERSION"), 12), "{own}");
    assert_eq!((create("a", "A"), create("b", "A")), (fingerprint("a"), fingerprint("a")));
    assert!(fingerprint("a") != own && create("a", "B") != fingerprint("b"));
    let digest = server.get("/api/tags").ok()["models"][0]["digest"].as_str().unwrap().to_string();
    assert!(digest.len() == 64 && digest.starts_with(parts[2]), "{digest}");
}

#[test]
fn fingerprints_name_the_products_of_the_machine_if_results_depend_on_them() {
    let model = model("storyteller", PipelineConfig::default().reproducible(Reproducible::Machine));
    let server = TestServer::new(ServerConfig::default(), vec![model]);
    let body = json!({"model": "storyteller", "prompt": "Once", "max_tokens": 1});
    let reply = server.post("/v1/completions", &body).ok();
    let fingerprint = reply["system_fingerprint"].as_str().unwrap();
    let products =
        session().devices()[0].own_products().map_or(String::new(), |products| format!(".{products}"));
    let model = fingerprint.split('-').nth(2).unwrap();
    assert_eq!(&model[12..], products, "{fingerprint}");
}

#[test]
fn presets_survive_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = folder.path().join("state/models.json");
    let server = serve(&catalog);
    let create = json!({"model": "bard", "from": "storyteller", "system": "Be brief.", "stream": false});
    server.post(CREATE, &create).ok();
    let other = serve(&catalog);
    assert_eq!(names(&other), ["storyteller", "bard"]);
    // Both servers write it.
    other.post("/api/copy", &json!({"source": "bard", "destination": "two"})).ok_without_body();
    server.post("/api/copy", &json!({"source": "bard", "destination": "three"})).ok_without_body();
    drop((server, other));
    let server = serve(&catalog);
    assert_eq!(names(&server), ["storyteller", "bard", "three", "two"]);
    assert_eq!(tokens(&server, "two", json!({})), tokens(&server, "storyteller", with_system("Be brief.")));
    // The requests that name no model mean the one that the server was started with.
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "Once"})).ok()["model"], "storyteller");
    std::fs::remove_dir_all(catalog.parent().unwrap()).unwrap();
    std::fs::write(catalog.parent().unwrap(), "no folder").unwrap();
    let (status, message) = refusal(&server.post(CREATE, &create));
    assert_eq!(status, 500);
    assert!(message.starts_with(&format!("{}: ", catalog.display())), "{message}");
}

#[test]
fn what_cannot_be_made_or_deleted_is_refused() {
    let server = TestServer::storyteller();
    let create = |extra: Value| {
        let mut body = json!({"model": "bard", "from": "storyteller"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        refusal(&server.post(CREATE, &body))
    };
    let check = |extra: Value, status: u16, part: &str| {
        let (found, message) = create(extra);
        assert!(found == status && message.contains(part), "{found} {message}");
    };
    check(json!({"files": {"a.gguf": "sha256:0"}}), 400, "files is not supported");
    check(json!({"adapters": {}}), 400, "adapters is not supported");
    check(json!({"quantize": "q4_K_M"}), 400, "quantize is not supported: run `peri quantize`");
    check(json!({"messages": []}), 400, "messages is not supported");
    check(json!({"modelfile": "FROM x"}), 400, "modelfile is not supported");
    check(json!({"from": "/etc/passwd"}), 404, "there is no model `/etc/passwd`");
    check(json!({"from": "nothing"}), 404, "there is no model `nothing`; the models are storyteller");
    check(json!({"model": "storyteller"}), 400, "`storyteller` is the name of a model");
    check(json!({"model": "storyteller-alias:latest"}), 400, "is the name of a model");
    check(json!({"model": "../bard"}), 400, "the name `../bard` cannot be used");
    check(json!({"parameters": {"temperature": "hot"}}), 400, "parameters.temperature: invalid type");
    check(json!({"template": "{{ .Prompt }}"}), 400, "templates are Jinja");
    check(json!({"templat": "x"}), 400, "did you mean `template`?");
    let copy = |source: &str, destination: &str| {
        refusal(&server.post("/api/copy", &json!({"source": source, "destination": destination})))
    };
    assert_eq!(copy("nothing", "x").0, 404);
    for name in ["/etc/passwd", "a/../b", "..", "", "a\nb"] {
        assert_eq!(copy("storyteller", name).0, 400, "{name:?}");
    }
    let delete = |name: &str| refusal(&server.delete_with("/api/delete", &json!({"model": name})));
    let (status, message) = delete("storyteller");
    assert_eq!(status, 400);
    assert!(message.starts_with("the server was started with storyteller"), "{message}");
    for name in ["../../etc", "/", "*", ""] {
        assert_eq!(delete(name).0, 404, "{name:?}");
    }
    assert_eq!(names(&server), ["storyteller"]);
    assert_eq!(server.get("/api/pull").status, 405);
}

#[test]
fn a_num_ctx_beyond_the_model_is_that_of_the_model() {
    let server =
        TestServer::new(ServerConfig::default(), vec![model("storyteller", PipelineConfig::default())]);
    let parameters =
        json!({"num_ctx": 100_000, "repeat_penalty": null, "repetition_penalty": 1.1, "ignore_eos": true});
    let body = json!({"model": "bard", "from": "storyteller", "parameters": parameters, "stream": false});
    let reply = server.post(CREATE, &body);
    assert_eq!(
        (reply.status, reply.header("x-peri-ignored")),
        (200, Some("parameters.num_ctx")),
        "{}",
        reply.text
    );
    let full =
        server.post("/api/generate", &json!({"model": "bard", "prompt": "Once", "stream": false})).ok();
    let count = |name: &str| full[name].as_u64().unwrap();
    assert_eq!(count("prompt_eval_count") + count("eval_count"), 256);
}

#[test]
fn an_encoder_has_other_names_but_no_settings() {
    let Some(folder) = testdata::shared("minilm-l6-v2") else { return };
    let config = PipelineConfig::new(folder.display().to_string());
    let server = TestServer::new(ServerConfig::default(), vec![model("minilm", config)]);
    server.post("/api/copy", &json!({"source": "minilm", "destination": "vectors"})).ok_without_body();
    let vectors = |model: &str| {
        server.post("/api/embed", &json!({"model": model, "input": "a"})).ok()["embeddings"].clone()
    };
    assert_eq!(vectors("vectors"), vectors("minilm"));
    let (status, message) =
        refusal(&server.post(CREATE, &json!({"model": "x", "from": "vectors", "system": "S"})));
    assert_eq!(
        (status, &message[..]),
        (400, "minilm makes no text: it takes no system prompt, template or parameters")
    );
}

#[test]
fn names_that_are_no_repositories_are_not_pulled() {
    let server = TestServer::storyteller();
    let pull = |name: &str| refusal(&server.post("/api/pull", &json!({"model": name})));
    let names = [
        "",
        "llama3",
        "../../etc/passwd",
        "/etc/passwd",
        "a/../b",
        "https://example.com/a/b",
        "a/b/c.gguf",
        "a//b",
        "hf.co/a/b/resolve/main/x.gguf",
        "a/b@../../x",
        "file:///etc/passwd",
        "a/b\u{1b}[31m",
        "datasets/a/b",
    ];
    for name in names {
        let (status, message) = pull(name);
        assert!(
            status == 400 && message.starts_with('`') && !message.contains('\u{1b}'),
            "{name}: {status} {message}"
        );
    }
}
