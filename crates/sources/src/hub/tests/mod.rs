//! Downloads from a hub that plays tricks.

mod headers;
mod web;

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;
use testdata::hub::{COMMIT, Server, What, etag};

use super::*;
use crate::{Error, HuggingFaceRepo, ModelRequest, Pull, RepoOptions, SupportedEncoding, Wanted, locate};

/// A hub, and an empty cache next to it.
struct World {
    server: Server,
    folder: TempDir,
}

/// Larger than what is written at once.
fn large() -> Vec<u8> {
    (0..700_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

impl World {
    fn new() -> World {
        let files = [
            ("config.json", b"{}".to_vec()),
            ("sub/a b.txt", b"nested".to_vec()),
            ("empty", Vec::new()),
            ("model.gguf", large()),
        ];
        World { server: Server::start(&files), folder: tempfile::tempdir().unwrap() }
    }

    fn hub(&self) -> Hub {
        let token = Token::new("hf_secret").unwrap();
        let retry_delay = Duration::from_millis(1);
        Hub { token, retry_delay, ..Hub::new(self.folder.path(), &self.server.address) }
    }

    fn repo(&self) -> Result<HuggingFaceRepo, Error> {
        let options = RepoOptions { hub: Some(self.hub()), ..RepoOptions::default() };
        HuggingFaceRepo::open("ada/tiny", options)
    }

    fn download(&self, name: &str) -> Result<PathBuf, Error> {
        self.repo()?.download(name, false)
    }

    fn storage(&self) -> PathBuf {
        self.folder.path().join("models--ada--tiny")
    }

    /// What is in `blobs`, by name.
    fn blobs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.storage().join("blobs")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// What a run that broke off has left of `model.gguf`.
    fn leave(&self, bytes: &[u8]) {
        let blobs = self.storage().join("blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(format!("{}.incomplete", etag(&large()))), bytes).unwrap();
    }
}

#[test]
fn files_lie_where_other_tools_look() {
    let world = World::new();
    let names = ["sub/a b.txt", "model.gguf", "config.json", "empty"].map(str::to_string);
    let paths = world.repo().unwrap().download_all(&names, false, &|_| ()).unwrap();
    let snapshot = world.storage().join("snapshots").join(COMMIT);
    for ((path, name), content) in
        paths.iter().zip(&names).zip([b"nested".to_vec(), large(), b"{}".to_vec(), vec![]])
    {
        assert_eq!(path, &snapshot.join(name));
        assert_eq!(fs::read(path).unwrap(), content, "{name}");
    }
    assert_eq!(fs::read_to_string(world.storage().join("refs/main")).unwrap(), COMMIT);
    let mut blobs = [b"nested".to_vec(), large(), b"{}".to_vec(), vec![]].map(|content| etag(&content));
    blobs.sort();
    assert_eq!(world.blobs(), blobs);
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(snapshot.join("sub/a b.txt")).unwrap(),
        PathBuf::from("../../../blobs").join(etag(b"nested"))
    );
    // Git knows the small ones by the same name.
    assert_eq!(etag(b"{}"), "9e26dfeeb6e641a33dae4961196235bdb965b21b");
}

#[test]
fn the_token_is_for_the_hub_alone() {
    let world = World::new();
    world.download("model.gguf").unwrap();
    let asked = world.server.asked();
    let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "GET /api/models/ada/tiny/revision/main?blobs=true",
            // At the commit, so that all files are of one.
            &format!("HEAD /ada/tiny/resolve/{COMMIT}/model.gguf"),
            &format!("GET /ada/tiny/resolve/{COMMIT}/model.gguf"),
            "GET /cdn/model.gguf",
        ]
    );
    for asked in asked {
        let at_hub = !asked.line.contains("/cdn/");
        assert_eq!(asked.token, at_hub.then(|| "Bearer hf_secret".to_string()), "{}", asked.line);
    }
}

#[test]
fn what_is_cached_is_not_asked_for() {
    let world = World::new();
    let first = world.download("config.json").unwrap();
    assert!(!world.server.asked().is_empty());
    assert_eq!(world.download("config.json").unwrap(), first);
    let repo = world.repo().unwrap();
    assert_eq!((repo.commit(), repo.size_of("config.json").unwrap()), (Some(COMMIT), Some(2)));
    assert_eq!(world.server.lines(), Vec::<String>::new());
    // It is, if someone insists.
    repo.download("config.json", true).unwrap();
    assert_eq!(world.server.lines().len(), 2);
    // Of what is not there, the hub may say the size, or not.
    assert_eq!(repo.size_of("model.gguf").unwrap(), Some(700_000));
    world.server.fail(1, "HEAD /", What::Header("X-Linked-Size", "unknown"));
    assert_eq!(repo.size_of("model.gguf").unwrap(), None);
    world.server.asked();
    let options = RepoOptions { hub: Some(world.hub()), refresh: true, ..RepoOptions::default() };
    HuggingFaceRepo::open("ada/tiny", options).unwrap();
    assert_eq!(world.server.lines(), ["GET /api/models/ada/tiny/revision/main?blobs=true"]);
}

#[test]
fn offline_means_offline() {
    let world = World::new();
    world.download("config.json").unwrap();
    world.server.asked();
    let hub = Hub { offline: true, ..world.hub() };
    let options = RepoOptions { hub: Some(hub), refresh: true, ..RepoOptions::default() };
    let repo = HuggingFaceRepo::open("ada/tiny", options.clone()).unwrap();
    assert!(repo.download("config.json", false).is_ok());
    for error in [
        repo.download("config.json", true).unwrap_err(),
        repo.download("model.gguf", false).unwrap_err(),
        repo.info().unwrap_err(),
        repo.size_of("model.gguf").unwrap_err(),
        HuggingFaceRepo::open("ada/other", options).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Offline { .. }), "{error}");
    }
    assert_eq!(world.server.lines(), Vec::<String>::new());
}

#[test]
fn what_breaks_off_is_resumed() {
    let world = World::new();
    for bytes in [1000, 300_000, 0] {
        world.server.fail(1, "GET /cdn/", What::Truncated(bytes));
    }
    let path = world.download("model.gguf").unwrap();
    assert_eq!(fs::read(path).unwrap(), large());
    let asked = world.server.asked();
    let ranges: Vec<_> =
        asked.iter().filter(|asked| asked.line.contains("/cdn/")).map(|asked| asked.range.clone()).collect();
    let from = |start: usize| Some(format!("bytes={start}-"));
    assert_eq!(ranges, [None, from(1000), from(301_000), from(301_000)]);
}

#[test]
fn an_earlier_run_is_resumed() {
    let world = World::new();
    world.leave(&large()[..500_000]);
    let wanted = Wanted { files: vec!["model.gguf".into()], ..Wanted::default() };
    let pull = Pull::plan(world.repo().unwrap(), &wanted).unwrap();
    assert_eq!((pull.files()[0].arrived, pull.bytes()), (500_000, large().len() as u64 - 500_000));
    let path = world.download("model.gguf").unwrap();
    assert_eq!(fs::read(path).unwrap(), large());
    assert_eq!(world.server.asked().last().unwrap().range.as_deref(), Some("bytes=500000-"));
    assert_eq!(world.blobs(), [etag(&large())]);
}

#[test]
fn what_an_earlier_run_left_may_be_of_no_use() {
    let whole = large();
    let longer = [&whole[..], b"x"].concat();
    for left in [&vec![7; 1000][..], &longer, &vec![7; whole.len()], &whole] {
        let world = World::new();
        world.leave(left);
        assert_eq!(fs::read(world.download("model.gguf").unwrap()).unwrap(), whole, "{}", left.len());
        assert_eq!(world.blobs(), [etag(&whole)]);
    }
    // Nor does every server know ranges.
    for fault in [What::WholeContent, What::Status(416, "")] {
        let world = World::new();
        world.leave(&whole[..1000]);
        world.server.fail(1, "GET /cdn/", fault);
        assert_eq!(fs::read(world.download("model.gguf").unwrap()).unwrap(), whole);
    }
}

#[test]
fn what_passes_is_tried_again() {
    let world = World::new();
    world.server.fail(2, "GET /api/", What::Status(500, ""));
    world.server.fail(1, "HEAD /", What::Status(503, ""));
    world.server.fail(1, "GET /cdn/", What::Status(502, ""));
    let retries = Mutex::new(Vec::new());
    let progress = |progress: Progress<'_>| {
        if let Progress::Retrying { problem, .. } = progress {
            retries.lock().unwrap().push(problem.to_string());
        }
    };
    let names = ["model.gguf".to_string()];
    world.repo().unwrap().download_all(&names, false, &progress).unwrap();
    assert_eq!(retries.into_inner().unwrap(), ["status 503", "status 502"]);
}

#[test]
fn patience_ends() {
    let world = World::new();
    world.server.fail(100, "GET /api/", What::Status(500, ""));
    let error = world.repo().unwrap_err();
    assert!(matches!(error, Error::Network { tries: 6, .. }), "{error}");
    assert_eq!(world.server.lines().len(), 6);
    // No server listens on this port.
    let hub = Hub { endpoint: "http://127.0.0.1:1".into(), ..world.hub() };
    let error = HuggingFaceRepo::open("ada/tiny", RepoOptions { hub: Some(hub), ..RepoOptions::default() })
        .unwrap_err();
    assert!(matches!(error, Error::Network { .. }), "{error}");
}

#[test]
fn refusals_are_understood_and_not_repeated() {
    let cases = [
        ("GET /api/", What::Status(401, "X-Error-Code: GatedRepo\r\n"), "is gated or private (status 401)"),
        ("GET /api/", What::Status(403, ""), "accept its terms"),
        ("GET /api/", What::Status(401, "X-Error-Code: RepoNotFound\r\n"), "no repository ada/tiny at http"),
        ("GET /api/", What::Status(404, ""), "check the spelling"),
        (
            "GET /api/",
            What::Status(404, "X-Error-Code: RevisionNotFound\r\n"),
            "ada/tiny has no revision `main`",
        ),
        ("GET /api/", What::Status(429, "Retry-After: 77\r\n"), "status 429): try again in 77 s"),
        ("HEAD /", What::Status(404, ""), "ada/tiny has no file `config.json`"),
        ("HEAD /", What::Status(418, ""), "status 418"),
        ("GET /ada/tiny/resolve", What::Status(403, ""), "the token does not give access"),
        (
            "GET /ada/tiny/resolve",
            What::Status(302, "Location: ftp://x/y\r\n"),
            "the redirect does not lead to a web address",
        ),
    ];
    for (on, fault, message) in cases {
        let world = World::new();
        world.server.fail(1, on, fault);
        let error = world.download("config.json").unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        let (method, part) = on.split_once(' ').unwrap();
        let lines = world.server.lines();
        let same = lines.iter().filter(|line| line.starts_with(method) && line.contains(part));
        assert_eq!(same.count(), 1, "{lines:?}");
    }
    let world = World::new();
    world.server.fail(100, "HEAD /", What::Status(302, "Location: /ada/tiny/resolve/x/round\r\n"));
    assert!(world.download("config.json").unwrap_err().to_string().contains("redirects without end"));
    let error = world.repo().unwrap().download("gone.json", false).unwrap_err();
    assert!(error.to_string().contains("without end"), "{error}");
}

#[test]
fn damage_is_found_and_removed() {
    for name in ["model.gguf", "config.json"] {
        let world = World::new();
        let on = if name == "model.gguf" { "GET /cdn/" } else { "GET /ada/tiny/resolve" };
        world.server.fail(1, on, What::Garbled);
        let error = world.download(name).unwrap_err();
        assert!(matches!(error, Error::WrongDigest { .. }), "{error}");
        assert_eq!(world.blobs(), Vec::<String>::new());
        assert!(!world.storage().join("refs").exists());
        // Nothing of it is in the way of another try.
        assert!(world.download(name).is_ok());
    }
}

#[test]
fn hostile_answers_are_refused() {
    let cases = [
        ("ETag", "\"../../../evil\"", "unexpected ETag"),
        ("ETag", "", "unexpected ETag"),
        ("X-Repo-Commit", "../../x", "of commit ../../x"),
        ("X-Linked-Size", "1", "sends more than the 1 bytes"),
        ("X-Linked-Size", "999999999999999999", "but"),
    ];
    for (header, value, message) in cases {
        let world = World::new();
        world.server.fail(1, "HEAD /", What::Header(header, value));
        let error = world.download("config.json").unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(!world.folder.path().join("evil").exists() && !world.storage().join("refs").exists());
    }
    let error = World::new().download("../config.json").unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
}

#[test]
fn the_same_file_is_fetched_once() {
    let world = World::new();
    world.server.fail(1, "GET /cdn/", What::Slow);
    // Locks are held by open files, so threads meet as processes do.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(fs::read(world.download("model.gguf").unwrap()).unwrap(), large()));
        }
    });
    let lines = world.server.lines();
    assert_eq!(lines.iter().filter(|line| line.contains("/cdn/")).count(), 1, "{lines:?}");
    assert_eq!(world.blobs(), [etag(&large())]);
}

#[test]
fn progress_ends_with_the_whole() {
    let world = World::new();
    world.server.fail(1, "GET /cdn/", What::Truncated(400_000));
    let seen = Mutex::new(Vec::new());
    let progress = |progress: Progress<'_>| match progress {
        Progress::Bytes { file, done, total } => {
            assert_eq!((file, total), ("model.gguf", 700_000));
            seen.lock().unwrap().push(done);
        }
        Progress::Done { .. } => seen.lock().unwrap().push(u64::MAX),
        _ => {}
    };
    world.repo().unwrap().download_all(&["model.gguf".to_string()], false, &progress).unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_sorted() && seen.contains(&400_000), "{seen:?}");
    assert_eq!(seen[seen.len() - 2..], [700_000, u64::MAX]);
}

/// A hub with models in several encodings.
fn library(files: &[(&str, Vec<u8>)]) -> World {
    World { server: Server::start(files), folder: tempfile::tempdir().unwrap() }
}

impl World {
    /// The names of the files that are fetched for what is wanted.
    fn plan(&self, wanted: &Wanted) -> Result<Vec<String>, String> {
        let pull = Pull::plan(self.repo().unwrap(), wanted).map_err(|error| error.to_string())?;
        Ok(pull.files().iter().map(|file| file.name.clone()).collect())
    }
}

#[test]
fn a_model_is_its_weights_and_what_stands_beside() {
    let config = br#"{"torch_dtype": "bfloat16"}"#.to_vec();
    let other = || b"x".to_vec();
    let world = library(&[
        ("config.json", config),
        ("tokenizer.json", other()),
        ("tokenizer.model", other()),
        ("README.md", other()),
        ("model-00001-of-00002.safetensors", other()),
        ("model-00002-of-00002.safetensors", other()),
        ("model.safetensors.index.json", other()),
        ("pytorch_model.bin", other()),
        ("pytorch_model.bin.index.json", other()),
        ("onnx/config.json", other()),
        ("1_Pooling/config.json", other()),
        ("additional_chat_templates/pairs.jinja", other()),
        ("tiny-Q4_K_M.gguf", other()),
        ("tiny-Q4_K_S.gguf", other()),
        ("tiny-Q8_0.gguf", other()),
    ]);
    let model = [
        "1_Pooling/config.json",
        "additional_chat_templates/pairs.jinja",
        "config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer.model",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    assert_eq!(world.plan(&Wanted::default()).unwrap(), model);
    let in_encoding = |encoding| world.plan(&Wanted { encoding: Some(encoding), ..Wanted::default() });
    assert_eq!(in_encoding(SupportedEncoding::Bfloat16).unwrap(), model);
    assert_eq!(in_encoding(SupportedEncoding::Q4K).unwrap(), ["config.json", "tiny-Q4_K_M.gguf"]);
    let error = in_encoding(SupportedEncoding::Q6K).unwrap_err();
    assert_eq!(error, "ada/tiny has no weights in q6_k: it has bfloat16, q4_k, q8_0");
    let gguf = Wanted { format: Some(crate::WeightsFormat::Gguf), ..Wanted::default() };
    assert!(world.plan(&gguf).unwrap_err().ends_with("choose one of q4_k, q8_0"));
    let none = library(&[("tiny-Q8_0.gguf", other()), ("config.json", b"{}".to_vec())]);
    let pytorch = Wanted { format: Some(crate::WeightsFormat::Pytorch), ..Wanted::default() };
    assert_eq!(none.plan(&pytorch).unwrap_err(), "ada/tiny has no weights in pytorch: it has gguf");
    let files = |patterns: &[&str]| {
        world.plan(&Wanted {
            files: patterns.iter().map(|name| name.to_string()).collect(),
            ..Wanted::default()
        })
    };
    assert_eq!(
        files(&["*Q4_K_?.gguf", "README.md"]).unwrap(),
        ["README.md", "tiny-Q4_K_M.gguf", "tiny-Q4_K_S.gguf"]
    );
    assert!(files(&["tiny-Q4_K.gguf"]).unwrap_err().contains("has no file `tiny-Q4_K.gguf`: did you mean"));
}

#[test]
fn what_quantized_a_model_is_known_before_it_is_fetched() {
    let model = |method: &str| {
        let config = format!(
            r#"{{"torch_dtype": "float16",
                "quantization_config": {{"quant_method": "{method}", "bits": 4, "group_size": 128}}}}"#
        );
        library(&[("config.json", config.into_bytes()), ("model.safetensors", large())])
    };
    let wanted = Wanted { encoding: Some(SupportedEncoding::Gptq), ..Wanted::default() };
    assert_eq!(model("gptq").plan(&wanted).unwrap(), ["config.json", "model.safetensors"]);
    let error = model("hqq").plan(&wanted).unwrap_err();
    assert!(error.starts_with("model.safetensors: ") && error.contains("quant_method is hqq"), "{error}");
}

#[test]
fn files_that_were_fetched_are_found_offline() {
    let world = library(&[("tiny-Q8_0.gguf", large()), ("config.json", b"{}".to_vec())]);
    let fetch = |model: &str, hub: Hub| {
        let request = ModelRequest { model: model.to_string(), hub: Some(hub), ..ModelRequest::default() };
        locate(&request)?.fetch(&|_| ())
    };
    let fetched = fetch("ada/tiny", world.hub()).unwrap();
    let folder = world.storage().join("snapshots").join(COMMIT);
    assert_eq!((&fetched.folder, &fetched.weights[..]), (&folder, &[folder.join("tiny-Q8_0.gguf")][..]));
    assert!(folder.join("config.json").exists());
    let offline = || Hub { offline: true, ..world.hub() };
    for model in ["ada/tiny", &folder.display().to_string()] {
        let found = fetch(model, offline()).unwrap();
        assert_eq!((found.folder, found.weights), (fetched.folder.clone(), fetched.weights.clone()));
    }
    let error = fetch("ada/other", offline()).unwrap_err().to_string();
    assert!(error.contains("not in the cache") && error.contains("HF_HUB_OFFLINE"), "{error}");
}

#[test]
fn a_hub_that_asks_to_wait_is_waited_for() {
    let world = World::new();
    world.server.fail(1, "HEAD /", What::Status(429, "Retry-After: 1\r\n"));
    world.server.fail(1, "GET /ada/tiny/resolve", What::Status(429, ""));
    let start = std::time::Instant::now();
    let waits = Mutex::new(Vec::new());
    let told = |progress: Progress<'_>| {
        if let Progress::Retrying { wait, .. } = progress {
            waits.lock().unwrap().push(wait);
        }
    };
    world.repo().unwrap().download_all(&["config.json".to_string()], false, &told).unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
    let waits = waits.into_inner().unwrap();
    assert!(waits.len() == 2 && waits[0] >= Duration::from_secs(1) && waits[1] < waits[0], "{waits:?}");
    world.server.lines();
    // Not for ever.
    world.server.fail(100, "GET /ada/tiny/resolve", What::Status(429, ""));
    let error = world.repo().unwrap().download("config.json", true).unwrap_err();
    assert!(error.to_string().contains("try again later"), "{error}");
    let lines = world.server.lines();
    assert_eq!(lines.iter().filter(|line| line.starts_with("GET /ada/tiny/resolve")).count(), 6, "{lines:?}");
}

#[test]
fn what_another_revision_has_is_not_fetched_again() {
    let world = World::new();
    world.download("model.gguf").unwrap();
    world.server.lines();
    // As if that had been another commit.
    let snapshots = world.storage().join("snapshots");
    fs::rename(snapshots.join(COMMIT), snapshots.join("f".repeat(40))).unwrap();
    let wanted = Wanted { files: vec!["model.gguf".into(), "config.json".into()], ..Wanted::default() };
    let pull = Pull::plan(world.repo().unwrap(), &wanted).unwrap();
    let cached: Vec<_> = pull.files().iter().map(|file| (file.name.as_str(), file.cached)).collect();
    assert_eq!((cached, pull.bytes()), (vec![("config.json", false), ("model.gguf", true)], 2));
    pull.fetch(&|_| ()).unwrap();
    let lines = world.server.lines();
    assert!(!lines.iter().any(|line| line.contains("GET /cdn/model.gguf")), "{lines:?}");
}

#[test]
fn nothing_is_left_of_what_never_began() {
    let world = World::new();
    world.server.fail(1, "GET /cdn/", What::Status(403, ""));
    assert!(world.download("model.gguf").is_err());
    assert_eq!(world.blobs(), Vec::<String>::new());
}

#[test]
fn names_say_revisions_files_and_labels() {
    let gguf = fs::read(testdata::asset("storyteller/model.gguf")).unwrap();
    let names = ["x-Q4_K_S.gguf", "x-Q4_K_M.gguf", "x-UD-Q4_K_M.gguf", "sub/y.gguf"];
    let world = library(&names.map(|name| (name, gguf.clone())));
    let planned = |name: &str| {
        let options = RepoOptions { hub: Some(world.hub()), ..RepoOptions::default() };
        let pull = HuggingFaceRepo::open(name, options).and_then(|repo| Pull::plan(repo, &Wanted::default()));
        let files = pull.map(|pull| pull.files().iter().map(|file| file.name.clone()).collect::<Vec<_>>());
        files.map_err(|error| error.to_string())
    };
    let only = |name: &str| Ok(vec![name.to_string()]);
    assert_eq!(planned("ada/tiny:Q4_K_S"), only("x-Q4_K_S.gguf"));
    assert_eq!(planned("ada/tiny:q4_k_m"), only("x-Q4_K_M.gguf"));
    assert_eq!(planned("hf.co/ada/tiny:UD-Q4_K_M"), only("x-UD-Q4_K_M.gguf"));
    assert_eq!(planned("https://huggingface.co/ada/tiny/blob/main/x-Q4_K_S.gguf"), only("x-Q4_K_S.gguf"));
    assert_eq!(planned("https://huggingface.co/ada/tiny/tree/main/sub"), only("sub/y.gguf"));
    let error = planned("ada/tiny:Q5_K_M").unwrap_err();
    assert!(error.starts_with("ada/tiny has no weights labelled Q5_K_M: it has "), "{error}");
    world.server.lines();
    planned("ada/tiny@v2:Q4_K_S").unwrap();
    let lines = world.server.lines();
    assert!(lines.iter().any(|line| line == "GET /api/models/ada/tiny/revision/v2?blobs=true"), "{lines:?}");
}
