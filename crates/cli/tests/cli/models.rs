//! `peri models`, on a hub cache made for the test.

use serde_json::Value;

use crate::support::{Folder, Outcome, command};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A cache with the repo `ada/tiny`: a blob, and a file that lies in its snapshot, as on systems without links.
fn cache(name: &str) -> Folder {
    let folder = Folder::new(name);
    let repo = folder.path().join("models--ada--tiny");
    let snapshot = repo.join("snapshots").join(COMMIT);
    std::fs::create_dir_all(repo.join("blobs")).unwrap();
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(repo.join("refs")).unwrap();
    std::fs::write(repo.join("refs/main"), COMMIT).unwrap();
    std::fs::write(repo.join("blobs/abc"), "12345").unwrap();
    std::fs::write(snapshot.join("config.json"), "{}").unwrap();
    folder
}

fn models(cache: &Folder, arguments: &[&str]) -> Outcome {
    let output = command(&[&["models"], arguments].concat())
        .env("HF_HUB_CACHE", cache.path())
        .env("PERIHELION_CACHE_DIR", "off")
        .output()
        .unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn models_of_the_cache_are_listed_and_shown() {
    let cache = cache("models-list");
    let text = models(&cache, &[]).text();
    assert!(text.contains("ada/tiny") && text.contains("0123456789ab"), "{text}");
    assert_eq!(models(&cache, &["list"]).text(), text);
    let list: Value = serde_json::from_str(&models(&cache, &["--json"]).text()).unwrap();
    assert_eq!((&list["models"][0]["name"], &list["models"][0]["bytes"]), (&"ada/tiny".into(), &7.into()));
    assert!(list["models"][0]["modified"].as_str().unwrap().ends_with('Z'), "{list}");

    let text = models(&cache, &["show", "ada/tiny"]).text();
    assert!(text.contains("config.json") && text.contains(COMMIT), "{text}");
    let shown: Value = serde_json::from_str(&models(&cache, &["show", "ada/tiny", "--json"]).text()).unwrap();
    assert_eq!(shown["commits"][0]["files"][0]["name"], "config.json");
    let du: Value = serde_json::from_str(&models(&cache, &["du", "--json"]).text()).unwrap();
    assert_eq!((&du["hub_cache"]["bytes"], &du["compile_cache"]), (&7.into(), &Value::Null));
    assert!(models(&cache, &["du"]).text().contains("compile cache  off"));
}

#[test]
fn removed_models_are_gone_and_unknown_ones_an_error() {
    let cache = cache("models-rm");
    let unknown = models(&cache, &["rm", "ada/tiny", "ada/other"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("ada/other is not in the cache"), "{unknown:?}");
    assert!(cache.path().join("models--ada--tiny").exists(), "a wrong name deletes nothing");
    assert!(models(&cache, &["rm", "ada/tiny"]).text().starts_with("removed ada/tiny"));
    assert!(!cache.path().join("models--ada--tiny").exists());
    assert!(models(&cache, &[]).text().contains("`peri pull OWNER/NAME`"));
    assert_eq!(models(&cache, &["rm"]).code, Some(2));
}
