//! Models of a hub on this machine, and of its cache without a network.

use std::fs;
use std::path::{Path, PathBuf};

use perihelion::pipelines::config::{Devices, PipelineConfig, RepoType, machine};

use testdata::child::in_child;
use testdata::hub::{Server, What};

use crate::support::{answer, config, copy, folder, refused};

const PACKED: &str = "stories260K-Q8_0.gguf";

/// The folder of the one commit that the cache has of a repository.
fn snapshot(cache: &Path, repo: &str) -> PathBuf {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let root = cache.join(format!("models--{}", repo.replace('/', "--")));
    fs::create_dir_all(root.join("refs")).unwrap();
    fs::write(root.join("refs/main"), commit).unwrap();
    let snapshot = root.join("snapshots").join(commit);
    fs::create_dir_all(&snapshot).unwrap();
    snapshot
}

#[test]
fn models_run_from_the_cache_of_a_hub() {
    const TEST: &str = "hub::models_run_from_the_cache_of_a_hub";
    let Some(data) = testdata::shared("stories260k") else { return };
    let cache = folder("hub");
    copy(&data.join("hf"), &snapshot(&cache, "ada/tiny"));
    let packed = fs::read(data.join("gguf").join(PACKED)).unwrap();
    fs::write(snapshot(&cache, "ada/packed").join(PACKED), packed).unwrap();
    let variables = [("HF_HUB_OFFLINE", "1"), ("HF_HUB_CACHE", cache.to_str().unwrap())];
    in_child(TEST, "offline", &variables, || check(&data));
}

fn check(data: &Path) {
    let tiny = PipelineConfig::new("ada/tiny");
    let expected = answer(&config(&data.join("hf")));
    assert_eq!(answer(&tiny), expected);
    assert_eq!(tiny.huggingface_weights_repo().unwrap().repo_type(), RepoType::Online);
    assert!(tiny.device().unwrap().is_host());

    let mut fetched = tiny.clone();
    fetched.download_weights().unwrap();
    assert!(fetched.weight_path.len() == 1 && fetched.weight_path[0].ends_with("model.safetensors"));
    let size = fetched.weight_path[0].metadata().unwrap().len();
    assert_eq!(fetched.weights_size().unwrap(), Some(size));

    // The weights of another repo, and that repo by itself.
    let packed = answer(&config(&data.join("gguf").join(PACKED)));
    let mut other = tiny.clone().weight_path(vec![Path::new("ada/packed").join(PACKED)]);
    assert_eq!(answer(&other), packed);
    other.download_weights().unwrap();
    assert_eq!(other._weights_repo_id.as_deref(), Some("ada/packed"));
    assert_eq!(other.huggingface_weights_repo().unwrap().repo_id(), "ada/packed");
    assert_eq!(answer(&PipelineConfig::default().weight_path(vec!["ada/packed".into()])), packed);
    // One of the model's own is named with the repo or without.
    for own in ["model.safetensors", "ada/tiny/model.safetensors"] {
        assert_eq!(answer(&tiny.clone().weight_path(vec![own.into()])), expected, "{own}");
    }

    let trusted = tiny.clone().trust_remote_code(true);
    assert!(trusted.huggingface_weights_repo().unwrap().trust_remote_code());
    assert!(trusted.validate(machine()).unwrap()[0].starts_with("trust_remote_code has no effect"));
    for (config, parts) in [
        (tiny.clone().force_download(true), &["a newer copy of ", " of ada/tiny", "HF_HUB_OFFLINE"][..]),
        (PipelineConfig::new("ada/other"), &["ada/other is not in the cache"]),
        (
            tiny.clone().weight_path(vec!["lost.safetensors".into()]),
            &["lost.safetensors of ada/tiny", "HF_HUB_OFFLINE"],
        ),
        (
            tiny.weight_path(vec!["ada/packed/lost.gguf".into()]),
            &["lost.gguf of ada/packed", "HF_HUB_OFFLINE"],
        ),
    ] {
        let (_, message) = refused(&config);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

/// A hub with the files of a model as `ada/tiny`.
fn server(model: &Path) -> Server {
    let entries = fs::read_dir(model).unwrap().map(Result::unwrap);
    let files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    Server::start(&files.iter().map(|(name, content)| (&name[..], content.clone())).collect::<Vec<_>>())
}

#[test]
fn a_model_is_downloaded_once_unless_forced() {
    const TEST: &str = "hub::a_model_is_downloaded_once_unless_forced";
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let (server, cache) = (server(&hf), folder("hub_once"));
    let variables = [
        ("HF_ENDPOINT", &server.address[..]),
        ("HF_HUB_OFFLINE", "0"),
        ("HF_HUB_CACHE", cache.to_str().unwrap()),
        ("HF_HOME", cache.to_str().unwrap()),
    ];
    let run = || drop(answer(&PipelineConfig::new("ada/tiny")));
    in_child(TEST, "first", &variables, run);
    let first = server.lines();
    in_child(TEST, "second", &variables, run);
    let second = server.lines();
    in_child(TEST, "forced", &variables, || {
        drop(answer(&PipelineConfig::new("ada/tiny").force_download(true)))
    });
    let forced = server.lines();
    let weights = |lines: &[String]| lines.iter().any(|line| line.contains("GET /cdn/model.safetensors"));
    assert!(weights(&first) && weights(&forced), "{first:?} {forced:?}");
    assert_eq!(second, [""; 0], "no request at all");
}

#[test]
fn the_size_of_weights_is_unknown_if_the_hub_does_not_say() {
    const TEST: &str = "hub::the_size_of_weights_is_unknown_if_the_hub_does_not_say";
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let (server, cache) = (server(&hf), folder("hub_sizes"));
    let variables = [
        ("HF_ENDPOINT", &server.address[..]),
        ("HF_HUB_OFFLINE", "0"),
        ("HF_HUB_CACHE", cache.to_str().unwrap()),
        ("HF_HOME", cache.to_str().unwrap()),
    ];
    let size = hf.join("model.safetensors").metadata().unwrap().len();
    let tiny = || PipelineConfig::new("ada/tiny");
    in_child(TEST, "known", &variables, || assert_eq!(tiny().weights_size().unwrap(), Some(size)));
    server.fail(1, "GET /api/", What::NoSizes);
    server.fail(1, "HEAD /model.safetensors", What::Header("X-Linked-Size", "unknown"));
    in_child(TEST, "unknown", &variables, || assert_eq!(tiny().weights_size().unwrap(), None));
}
