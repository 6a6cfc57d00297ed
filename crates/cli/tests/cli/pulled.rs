//! Models that clients of a server pull, from a hub on this machine, and delete.

use std::path::Path;

use serde_json::{Value, json};
use testdata::hub::{COMMIT, Server as Hub, What, etag};

use crate::server::{Served, serve};
use crate::support::{Folder, peri, storyteller};

/// A hub whose repository is the built-in model.
fn hub() -> Hub {
    let model = std::fs::read(storyteller()).unwrap();
    Hub::start(&[("config.json", b"{}".to_vec()), ("storyteller.gguf", model)])
}

/// A server with a cache and a state of its own.
fn start(hub: &str, folder: &Folder, extra: &[(&str, &str)]) -> Served {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (cache, state) = (path("hub"), path("state"));
    let variables =
        [("HF_ENDPOINT", hub), ("HF_HUB_CACHE", &cache), ("HF_HOME", &cache), ("XDG_STATE_HOME", &state)];
    serve(&["--max-length", "64"], &[&variables[..], extra].concat())
}

fn send(served: &Served, method: &str, path: &str, body: &Value) -> (u16, String) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = served.reply(method, path, "", &body);
    let (head, text) = reply.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text.to_string())
}

/// The lines of a pull, without the marks of chunks.
fn pull(served: &Served, name: &str) -> Vec<Value> {
    let (status, text) = send(served, "POST", "/api/pull", &json!({"model": name}));
    assert_eq!(status, 200, "{text}");
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect()
}

fn names(served: &Served) -> Vec<String> {
    let models: Value = serde_json::from_str(&send(served, "GET", "/api/tags", &Value::Null).1).unwrap();
    let models = models["models"].as_array().unwrap().clone();
    models.iter().map(|model| model["name"].as_str().unwrap().to_string()).collect()
}

fn answer(served: &Served, model: &str) -> Value {
    let body = json!({"model": model, "prompt": "Once", "max_tokens": 8, "temperature": 0});
    let (status, text) = send(served, "POST", "/v1/completions", &body);
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["choices"].clone()
}

fn snapshot(folder: &Path) -> std::path::PathBuf {
    folder.join("hub/models--ada--tiny/snapshots").join(COMMIT).join("storyteller.gguf")
}

#[test]
fn a_pulled_model_is_served_until_it_is_deleted() {
    let (hub, folder) = (hub(), Folder::new("pulled"));
    let served = start(&hub.address, &folder, &[]);
    let lines = pull(&served, "ada/tiny");
    let status = |line: &Value| line["status"].as_str().unwrap_or_else(|| panic!("{line}")).to_string();
    let digest = etag(&std::fs::read(storyteller()).unwrap());
    let step = format!("pulling {}", &digest[..12]);
    let weights: Vec<&Value> = lines.iter().filter(|line| status(line) == step).collect();
    let last = weights.last().unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!((&last["digest"], &last["completed"]), (&json!(format!("sha256:{digest}")), &last["total"]));
    assert_eq!(status(&lines[0]), "pulling manifest");
    let ends: Vec<String> = lines[lines.len() - 3..].iter().map(status).collect();
    assert_eq!(ends, ["verifying sha256 digest", "writing manifest", "success"]);
    assert_eq!(names(&served), ["storyteller", "ada/tiny"]);
    let expected = answer(&served, "storyteller");
    for name in ["ada/tiny", "tiny", "ada/tiny:latest", "hf.co/ada/tiny"] {
        assert_eq!(answer(&served, name), expected, "{name}");
    }
    let (status, text) =
        send(&served, "POST", "/api/pull", &json!({"model": "hf.co/ada/tiny", "stream": false}));
    assert_eq!((status, &text[..]), (200, r#"{"status":"success"}"#));
    assert_eq!(names(&served), ["storyteller", "ada/tiny"]);

    // It survives the server, and needs no hub.
    drop(served);
    let served = start("http://127.0.0.1:1", &folder, &[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(names(&served), ["storyteller", "ada/tiny"]);
    assert_eq!(answer(&served, "ada/tiny"), expected);
    let create = json!({"model": "bard", "from": "ada/tiny", "system": "S", "stream": false});
    assert_eq!(send(&served, "POST", "/api/create", &create).0, 200);
    let delete = |name: &str| send(&served, "DELETE", "/api/delete", &json!({"model": name}));
    let (status, text) = delete("ada/tiny");
    assert_eq!((status, &text[..]), (400, r#"{"error":"`bard` is made from ada/tiny: delete it first"}"#));
    assert!(snapshot(folder.path()).exists());
    assert_eq!((delete("bard").0, delete("ada/tiny").0), (200, 200));
    assert!(!folder.path().join("hub/models--ada--tiny").exists());
    assert_eq!(names(&served), ["storyteller"]);
    drop(served);
    assert_eq!(names(&start(&hub.address, &folder, &[])), ["storyteller"]);
}

#[test]
fn a_pull_that_fails_ends_with_its_error_and_serves_nothing() {
    let (hub, folder) = (hub(), Folder::new("pull-fails"));
    let served = start(&hub.address, &folder, &[]);
    let error = |name: &str| {
        let lines = pull(&served, name);
        assert_eq!(lines[0]["status"], "pulling manifest", "{lines:?}");
        lines.last().unwrap()["error"].as_str().unwrap_or_else(|| panic!("{lines:?}")).to_string()
    };
    assert!(error("ada/other").starts_with("no repository ada/other"));
    hub.fail(1, "GET config.json", What::Garbled);
    let damaged = error("ada/tiny");
    assert!(damaged.contains("`config.json` arrived damaged and was removed"), "{damaged}");
    let missing = error("ada/tiny:q6_k");
    assert!(missing.contains("quantization_encoding is q6_k: ada/tiny has q4_k"), "{missing}");
    let (status, text) = send(&served, "POST", "/api/pull", &json!({"model": "ada/other", "stream": false}));
    assert!(status == 404 && text.starts_with(r#"{"error":"no repository ada/other"#), "{status} {text}");
    assert_eq!(names(&served), ["storyteller"]);
    assert_eq!(pull(&served, "ada/tiny").last().unwrap()["status"], "success");
    assert_eq!(names(&served), ["storyteller", "ada/tiny"]);
}

#[test]
fn clients_that_pull_the_same_model_share_the_download() {
    let (hub, folder) = (hub(), Folder::new("pull-shared"));
    let served = start(&hub.address, &folder, &[]);
    hub.fail(1, "GET /cdn/", What::Slow);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(pull(&served, "ada/tiny").last().unwrap()["status"], "success"));
        }
    });
    let asked = hub.asked();
    let whole =
        asked.iter().filter(|asked| asked.line == "GET /cdn/storyteller.gguf" && asked.range.is_none());
    assert_eq!(whole.count(), 1, "{asked:?}");
}

#[test]
fn a_model_whose_files_are_gone_is_left_out() {
    let (hub, folder) = (hub(), Folder::new("pull-gone"));
    let served = start(&hub.address, &folder, &[]);
    assert_eq!(pull(&served, "ada/tiny").last().unwrap()["status"], "success");
    drop(served);
    std::fs::remove_dir_all(folder.path().join("hub/models--ada--tiny")).unwrap();
    assert_eq!(names(&start(&hub.address, &folder, &[])), ["storyteller"]);
    let catalog = folder.file("broken.json", "{");
    let outcome = peri(&["serve", "--port", "0", "--quiet", "--catalog", &catalog]);
    assert!(
        outcome.code != Some(0) && outcome.stderr.contains("broken.json: EOF while parsing"),
        "{outcome:?}"
    );
}
