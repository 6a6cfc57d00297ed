//! Models in the cache of a hub, without a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use perihelion::pipelines::config::{Devices, PipelineConfig, RepoType, machine};

use crate::support::{answer, config, copy, folder, refused};

/// Set in the process that has a hub.
const HAS_HUB: &str = "PERIHELION_TEST_HAS_HUB";
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

/// Runs itself in a process whose environment names a cache, as the environment is not to be changed in this one.
#[test]
fn a_cache_of_a_hub_holds_models() {
    let Some(data) = testdata::shared("stories260k") else { return };
    if std::env::var_os(HAS_HUB).is_some() {
        return check(&data);
    }
    let cache = folder("hub");
    copy(&data.join("hf"), &snapshot(&cache, "ada/tiny"));
    fs::write(snapshot(&cache, "ada/packed").join(PACKED), fs::read(data.join("gguf").join(PACKED)).unwrap())
        .unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hub::a_cache_of_a_hub_holds_models"])
        .envs([(HAS_HUB, "1"), ("HF_HUB_OFFLINE", "1")])
        .env("HF_HUB_CACHE", &cache)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
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
