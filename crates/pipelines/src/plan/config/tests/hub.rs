//! Models of a hub, and of its cache: what is taken, and what is asked for.
//!
//! Each test runs itself again in a process whose environment names the hub, as the environment is not to be changed in
//! this one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use engine::InferenceSession;
use tempfile::TempDir;
use testdata::hub::{COMMIT, Server, What};

use super::files::in_shards;
use super::*;
use crate::{TextGenerator, TextRequest};

/// What the process with the hub is to do.
const TASK: &str = "PERIHELION_TEST_TASK";

fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// A hub with the repo `ada/tiny`, a cache, and a folder to work in.
struct World {
    server: Server,
    cache: TempDir,
    folder: TempDir,
}

impl World {
    fn new(files: &[(String, Vec<u8>)]) -> World {
        let files: Vec<(&str, Vec<u8>)> =
            files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
        let folder = || tempfile::tempdir().unwrap();
        World { server: Server::start(&files), cache: folder(), folder: folder() }
    }

    /// The folder of the one commit that the cache has of a repo.
    fn snapshot(&self, repo: &str) -> PathBuf {
        let root = self.cache.path().join(format!("models--{}", repo.replace('/', "--")));
        fs::create_dir_all(root.join("refs")).unwrap();
        fs::write(root.join("refs/main"), COMMIT).unwrap();
        let snapshot = root.join("snapshots").join(COMMIT);
        fs::create_dir_all(&snapshot).unwrap();
        snapshot
    }

    fn cache(&self, repo: &str, files: &[(String, Vec<u8>)]) {
        let snapshot = self.snapshot(repo);
        for (name, content) in files {
            fs::write(snapshot.join(name), content).unwrap();
        }
    }

    /// Does a task of a test, and gives what the hub was asked.
    fn run(&self, test: &str, task: &str, offline: bool) -> Vec<String> {
        let module = module_path!().split_once("::").unwrap().1;
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::{test}")])
            .current_dir(self.folder.path())
            .env(TASK, task)
            .env("HF_ENDPOINT", &self.server.address)
            .env("HF_HUB_OFFLINE", if offline { "1" } else { "0" })
            .env("HF_HUB_CACHE", self.cache.path())
            .env("HF_HOME", self.cache.path())
            .env_remove("HF_TOKEN")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{task}: {told}");
        self.server.lines()
    }
}

/// The files of a folder.
fn files_of(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn tiny() -> PipelineConfig {
    PipelineConfig::new("ada/tiny")
}

/// The name of the only file of weights, which must be in the cache.
fn weights_in_cache(config: &PipelineConfig) -> String {
    let resolved = plan_of(config).unwrap();
    let cache = PathBuf::from(std::env::var_os("HF_HUB_CACHE").unwrap());
    let [path] = &resolved.config().weight_path[..] else { panic!("{:?}", resolved.config().weight_path) };
    assert!(path.starts_with(&cache), "{}", path.display());
    path.file_name().unwrap().to_str().unwrap().to_string()
}

/// Lets the model of a configuration write a token. Its files are fetched on the way.
fn write(config: &PipelineConfig) {
    let resolved = config.plan(MACHINE).unwrap();
    let session = InferenceSession::new(resolved.config().devices_of(&HOST).unwrap()).unwrap();
    let mut request = TextRequest::from("Once");
    request.parameters.max_new_tokens = Some(1);
    let completion = TextGenerator::from_plan(&session, resolved).unwrap().generate(request).unwrap();
    assert_eq!(completion.tokens.len(), 1);
}

#[test]
fn a_cached_model_runs_without_a_request() {
    let Some(data) = testdata::shared("stories260k") else { return };
    if task().is_some() {
        assert_eq!(weights_in_cache(&tiny()), "model.safetensors");
        write(&tiny());
        assert!(tiny().plan(MACHINE).unwrap().is_local());
        assert!(tiny().weights_size().unwrap().unwrap() > 1_000_000);
        assert_eq!(tiny().huggingface_config().unwrap()["hidden_size"], 64);
        let packed = PipelineConfig::new("ada/packed");
        assert_eq!(weights_in_cache(&packed), "x-Q8_0.gguf");
        write(&packed);
        // As it is, and as paths of Python write it.
        for scheme in ["https://", "https:/"] {
            let address = format!("{scheme}huggingface.co/ada/tiny/resolve/main/model.safetensors");
            assert_eq!(weights_in_cache(&tiny().weight_path(vec![address.into()])), "model.safetensors");
        }
        let other = tiny().weight_path(vec!["https://example.com/model.zip".into()]);
        let error = plan_of(&other).unwrap_err().to_string();
        assert!(error.contains("weight_path") && error.contains("the address must end in .gguf"), "{error}");
        // What a user names is looked for where the user is.
        let own = tiny().weight_path(vec!["model.safetensors".into()]);
        assert!(plan_of(&own).unwrap_err().to_string().contains("model.safetensors"));
        return;
    }
    let files = files_of(&data.join("hf"));
    let world = World::new(&files);
    world.cache("ada/tiny", &files);
    let packed = fs::read(data.join("gguf/stories260K-Q8_0.gguf")).unwrap();
    world.cache("ada/packed", &[("x-Q8_0.gguf".to_string(), packed)]);
    for name in ["model.safetensors", "x-Q8_0.gguf"] {
        fs::write(world.folder.path().join(name), "of another model").unwrap();
    }
    assert_eq!(world.run("a_cached_model_runs_without_a_request", "run", false), Vec::<String>::new());
}

#[test]
fn a_model_is_fetched_once_and_its_weights_last() {
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    match task().as_deref() {
        Some("force") => {
            weights_in_cache(&tiny().force_download(true));
            return;
        }
        Some(_) => return write(&tiny()),
        None => {}
    }
    let world = World::new(&files_of(&hf));
    let run = |task| world.run("a_model_is_fetched_once_and_its_weights_last", task, false);
    let position = |lines: &[String], part: &str| lines.iter().position(|line| line.contains(part));
    let asked = run("write");
    // Their header was asked for before.
    let weights = asked.iter().rposition(|line| line.contains("GET /cdn/model.safetensors")).unwrap();
    // Nothing is asked for twice.
    for part in ["GET /api/models/ada/tiny", "GET /cdn/config.json", "GET /cdn/tokenizer.json"] {
        assert_eq!(asked.iter().filter(|line| line.contains(part)).count(), 1, "{part}: {asked:?}");
    }
    let of_weights = asked.iter().filter(|line| line.contains("GET /cdn/model.safetensors")).count();
    assert_eq!(of_weights, 2, "the header, and the file: {asked:?}");
    assert!(position(&asked, "GET /cdn/tokenizer.json").unwrap() < weights, "{asked:?}");
    assert!(position(&asked, "config.json").unwrap() < weights, "{asked:?}");
    assert_eq!(run("write"), Vec::<String>::new());
    let again = run("force");
    for part in ["GET /api/models/ada/tiny", "GET /cdn/model.safetensors", "GET /cdn/tokenizer.json"] {
        assert!(position(&again, part).is_some(), "{again:?}");
    }
}

#[test]
fn of_several_files_the_usual_one_is_fetched() {
    let Some(gguf) = testdata::shared("shakespeare-llama/gguf") else { return };
    if task().is_some() {
        let ahead = tiny().plan(MACHINE).unwrap();
        let files: Vec<_> = ahead.files().unwrap().into_iter().map(|file| (file.name, file.size)).collect();
        assert!(!ahead.is_local());
        assert_eq!(files, [("x-Q4_K_M.gguf".to_string(), Some(1_435_744))]);
        assert_eq!(weights_in_cache(&tiny()), "x-Q4_K_M.gguf");
        let named = tiny().quantization_encoding(SupportedEncoding::Q4K);
        assert_eq!(weights_in_cache(&named), "x-Q4_K_M.gguf");
        let lacking = tiny().quantization_encoding(SupportedEncoding::Float32);
        let error = plan_of(&lacking).unwrap_err().to_string();
        assert!(error.contains("float32") && error.contains("ada/tiny has q4_k, q8_0"), "{error}");
        for model in ["", "ada/tiny"] {
            let typo = PipelineConfig::new(model).weight_path(vec!["ada/tiny/x-Q4_K.gguf".into()]);
            let error = plan_of(&typo).unwrap_err().to_string();
            assert!(error.contains("ada/tiny has no file `x-Q4_K.gguf`: did you mean `x-Q4_K_"), "{error}");
        }
        return;
    }
    let q4_k = fs::read(gguf.join("shakespeare-llama-Q4_K_M.gguf")).unwrap();
    let files = ["x-Q4_K_S.gguf", "x-Q4_K_M.gguf", "x-Q4_K_L.gguf", "x-Q8_0.gguf"];
    let world = World::new(&files.map(|name| (name.to_string(), q4_k.clone())));
    fs::write(world.folder.path().join("x-Q4_K_M.gguf"), "of another model").unwrap();
    let asked = world.run("of_several_files_the_usual_one_is_fetched", "resolve", false);
    assert!(asked.iter().any(|line| line == "GET /cdn/x-Q4_K_M.gguf"), "{asked:?}");
    assert!(!asked.iter().any(|line| line.contains("_S.gguf") || line.contains("_L.gguf")), "{asked:?}");
}

#[test]
fn what_the_cache_lacks_is_told() {
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    if let Some(expected) = task() {
        for config in [tiny(), tiny().quantization_encoding(SupportedEncoding::Float32)] {
            let error = plan_of(&config).unwrap_err().to_string();
            assert!(expected.split('|').all(|part| error.contains(part)), "{error}");
        }
        return;
    }
    let world = |expected: &str, prepare: &dyn Fn(&World)| {
        let world = World::new(&[]);
        prepare(&world);
        assert_eq!(world.run("what_the_cache_lacks_is_told", expected, true), Vec::<String>::new());
    };
    let absent = "a model of ada/tiny is not in the cache|HF_HUB_OFFLINE";
    world(absent, &|world| drop(world.snapshot("ada/tiny")));
    let config = ("config.json".to_string(), fs::read(hf.join("config.json")).unwrap());
    world(absent, &|world| world.cache("ada/tiny", std::slice::from_ref(&config)));
    #[cfg(unix)]
    world(absent, &|world| {
        let link = world.snapshot("ada/tiny").join("model.safetensors");
        std::os::unix::fs::symlink("../../blobs/gone", link).unwrap();
    });
    let weights = ("model.safetensors".to_string(), fs::read(hf.join("model.safetensors")).unwrap());
    world("config.json of ada/tiny is not in the cache", &|world| {
        world.cache("ada/tiny", std::slice::from_ref(&weights));
    });
    let damaged = ("x.gguf".to_string(), b"GGUF".to_vec());
    world("malformed GGUF", &|world| world.cache("ada/tiny", std::slice::from_ref(&damaged)));
    let shards = in_shards(&hf);
    world("model-00002-of-00002.safetensors of ada/tiny|HF_HUB_OFFLINE", &|world| {
        world.cache("ada/tiny", &shards);
        fs::remove_file(world.snapshot("ada/tiny").join("model-00002-of-00002.safetensors")).unwrap();
    });
    world("not the name of a file next to it", &|world| {
        world.cache("ada/tiny", &shards);
        let index = world.snapshot("ada/tiny").join("model.safetensors.index.json");
        fs::write(index, r#"{"weight_map": {"a": "../x"}}"#).unwrap();
    });
}

#[test]
fn sizes_that_nobody_says_are_unknown() {
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    if task().is_some() {
        assert_eq!(tiny().weights_size().unwrap(), None);
        return;
    }
    let world = World::new(&files_of(&hf));
    world.server.fail(1, "GET /api/", What::NoSizes);
    world.server.fail(1, "HEAD /model.safetensors", What::Header("X-Linked-Size", "unknown"));
    let asked = world.run("sizes_that_nobody_says_are_unknown", "size", false);
    assert!(asked.iter().all(|line| !line.contains("GET /cdn/model")), "{asked:?}");
}

#[test]
fn weights_of_the_web_are_checked_by_their_headers_and_then_fetched() {
    let Some(data) = testdata::shared("stories260k") else { return };
    if let Some(address) = task() {
        let config = PipelineConfig::default().weight_path(vec![address.into()]);
        let plan = config.plan(MACHINE).unwrap();
        if !plan.is_local() {
            assert_eq!(plan.config().quantization_encoding, Some(SupportedEncoding::Q8_0));
            let refused = config.clone().max_length(4096_usize);
            assert!(plan_of(&refused).unwrap_err().to_string().contains("max_length"));
        }
        write(&config);
        assert_eq!(weights_in_cache(&config), "x-Q8_0.gguf");
        return;
    }
    let packed = fs::read(data.join("gguf/stories260K-Q8_0.gguf")).unwrap();
    let world = World::new(&[("x-Q8_0.gguf".to_string(), packed)]);
    let address = world.server.elsewhere("x-Q8_0.gguf");
    let test = "weights_of_the_web_are_checked_by_their_headers_and_then_fetched";
    let asked = world.run(test, &address, false);
    assert!(asked.iter().all(|line| line == "GET /cdn/x-Q8_0.gguf"), "{asked:?}");
    assert_eq!(world.run(test, &address, true), Vec::<String>::new());
}
