//! Repositories: folders, files, and a hub on this machine with its cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use perihelion::pipelines::config::{
    HuggingFaceRepo, RepoOptions, RepoType, SupportedEncoding, WeightsFormat,
};
use perihelion::sources::{Hub, ModelInfo};
use testdata::child::in_child;
use testdata::hub::{COMMIT, Server, What};

use crate::support::folder;

use SupportedEncoding::{Bfloat16, Float32, Q4K, Q6K, Q8_0};
use WeightsFormat::{Gguf, Pytorch, Safetensors};

/// A safetensors file of one matrix.
fn safetensors(dtype: &str) -> Vec<u8> {
    let bytes = if dtype == "F32" { 64 } else { 32 };
    let header = serde_json::json!({"a": {"dtype": dtype, "shape": [4, 4], "data_offsets": [0, bytes]}});
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; bytes]].concat()
}

/// The built-in model, in `q4_k`.
fn q4_k() -> Vec<u8> {
    fs::read(testdata::asset("storyteller/model.gguf")).unwrap()
}

/// A folder with weights in three encodings and two formats, and files that are not weights.
fn mixed(test: &str) -> (PathBuf, HuggingFaceRepo) {
    let folder = folder(test);
    for (name, content) in [
        ("config.json", b"{}".to_vec()),
        ("model-00001-of-00002.safetensors", safetensors("BF16")),
        ("model-00002-of-00002.safetensors", safetensors("BF16")),
        ("tiny-Q4_K_M.gguf", q4_k()),
        ("training_args.bin", b"x".to_vec()),
    ] {
        fs::write(folder.join(name), content).unwrap();
    }
    let repo = HuggingFaceRepo::new(folder.to_str().unwrap()).unwrap();
    (folder, repo)
}

fn found(
    repo: &HuggingFaceRepo,
    encoding: SupportedEncoding,
    format: Option<WeightsFormat>,
    alternate: Option<SupportedEncoding>,
) -> Vec<(WeightsFormat, Vec<PathBuf>)> {
    repo.files_for_encoding(encoding, format, alternate).unwrap().into_iter().collect()
}

#[test]
fn a_folder_lists_its_weights_formats_and_encodings() {
    let (folder, repo) = mixed("repo_lists");
    assert_eq!((repo.repo_id(), repo.to_string()), (folder.to_str().unwrap(), repo.repo_id().to_string()));
    assert_eq!(repo.repo_type(), RepoType::Local);
    assert_eq!(repo.formats_available().unwrap(), [Safetensors, Gguf]);
    assert_eq!(repo.supported_encodings().unwrap(), [Bfloat16, Q4K]);
    let files = repo.weight_files().unwrap();
    assert_eq!(files[&Safetensors], ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]);
    assert_eq!((files.len(), &files[&Gguf]), (2, &vec!["tiny-Q4_K_M.gguf".to_string()]));
    assert!(repo.info().unwrap_err().to_string().contains("exists only for repositories on a hub"));
}

#[test]
fn files_of_a_folder_are_found_below_its_root() {
    let (folder, repo) = mixed("repo_files");
    assert!(repo.file_exists("config.json").unwrap() && !repo.file_exists("lost.json").unwrap());
    assert_eq!(repo.size_of("config.json").unwrap(), Some(2));
    assert!(repo.size_of("lost.json").is_err());
    assert_eq!(repo.download("config.json", false).unwrap(), folder.join("config.json"));
    let error = repo.download("tiny-Q4_K_S.gguf", false).unwrap_err().to_string();
    assert!(error.ends_with("has no file `tiny-Q4_K_S.gguf`: did you mean `tiny-Q4_K_M.gguf`?"), "{error}");
    for outside in ["../config.json", "/etc/passwd", "a/../../b"] {
        assert!(repo.file_exists(outside).is_err() && repo.size_of(outside).is_err(), "{outside}");
        assert!(
            repo.download(outside, false).is_err() && repo.encoding_for_file(outside).is_err(),
            "{outside}"
        );
    }
}

#[test]
fn files_are_found_by_encoding_format_and_alternate() {
    let (_folder, repo) = mixed("repo_encodings");
    let shards: Vec<PathBuf> =
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"].map(PathBuf::from).to_vec();
    let bfloat16 = vec![(Safetensors, shards)];
    let q4_k = vec![(Gguf, vec![PathBuf::from("tiny-Q4_K_M.gguf")])];
    assert_eq!(found(&repo, Bfloat16, None, None), bfloat16);
    assert_eq!(found(&repo, Q4K, None, None), q4_k);
    assert_eq!(found(&repo, Q6K, None, None), []);
    assert_eq!(found(&repo, Q6K, None, Some(Q4K)), q4_k, "the alternate");
    assert_eq!(found(&repo, Bfloat16, None, Some(Q4K)), bfloat16, "it comes second");
    assert_eq!(found(&repo, Bfloat16, Some(Safetensors), None), bfloat16);
    assert_eq!(found(&repo, Bfloat16, Some(Gguf), None), []);
    assert_eq!(found(&repo, Bfloat16, Some(Pytorch), Some(Q4K)), [], "a format has no alternate");
}

#[test]
fn an_alternate_encoding_is_used_with_a_warning() {
    const TEST: &str = "repos::an_alternate_encoding_is_used_with_a_warning";
    let (_folder, repo) = mixed("repo_alternate");
    let written = in_child(TEST, "log", &[], || {
        perihelion::engine::show_logs().unwrap();
        assert_eq!(found(&repo, Q4K, None, Some(Q6K)).len(), 1);
        eprintln!("no warning so far");
        assert_eq!(found(&repo, Q6K, None, Some(Q4K)).len(), 1);
    });
    let (before, after) = written.errors.split_once("no warning so far\n").unwrap();
    assert_eq!(before, "");
    assert!(
        after.contains("WARN") && after.contains("has no weights in q6_k: taking those in q4_k"),
        "{after}"
    );
}

#[test]
fn encodings_are_read_from_tensors_and_names_must_not_contradict_them() {
    let (folder, repo) = mixed("repo_content");
    assert_eq!(repo.encoding_for_file("tiny-Q4_K_M.gguf").unwrap(), Q4K);
    assert_eq!(repo.encoding_for_file("model-00002-of-00002.safetensors").unwrap(), Bfloat16);
    fs::write(folder.join("plain.gguf"), q4_k()).unwrap();
    fs::write(folder.join("wrong-Q6_K.gguf"), q4_k()).unwrap();
    fs::write(folder.join("damaged.gguf"), b"GGUF").unwrap();
    assert_eq!(repo.encoding_for_file("plain.gguf").unwrap(), Q4K, "the name says nothing");
    let error = repo.encoding_for_file("wrong-Q6_K.gguf").unwrap_err().to_string();
    assert!(error.contains("the name says q6_k, the content is q4_k"), "{error}");
    let error = repo.encoding_for_file("damaged.gguf").unwrap_err().to_string();
    assert!(error.contains("malformed GGUF"), "{error}");
    assert_eq!(repo.supported_encodings().unwrap(), [Bfloat16, Q4K], "damaged files hide no others");
}

#[test]
fn real_files_have_the_encodings_of_their_names() {
    let Some(data) = testdata::shared("stories260k") else { return };
    let repo = |folder: &str| HuggingFaceRepo::new(data.join(folder).to_str().unwrap()).unwrap();
    let gguf = repo("gguf");
    let mut encodings: Vec<String> =
        gguf.supported_encodings().unwrap().iter().map(SupportedEncoding::to_string).collect();
    encodings.sort();
    assert_eq!(encodings, ["bfloat16", "float16", "float32", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]);
    assert_eq!(gguf.encoding_for_file("stories260K-Q8_0.gguf").unwrap(), Q8_0);
    assert_eq!(repo("hf").supported_encodings().unwrap(), [Float32]);
    assert!(repo("pytorch").formats_available().unwrap().contains(&Pytorch));
}

#[test]
fn a_gguf_file_is_a_repository() {
    let folder = folder("repo_file");
    for name in ["tiny.gguf", "other.gguf"] {
        fs::write(folder.join(name), q4_k()).unwrap();
    }
    let path = folder.join("tiny.gguf");
    let repo = HuggingFaceRepo::new(path.to_str().unwrap()).unwrap();
    assert_eq!(repo.weight_files().unwrap()[&Gguf], ["tiny.gguf"]);
    assert_eq!(repo.supported_encodings().unwrap(), [Q4K]);
    assert!(HuggingFaceRepo::new(folder.join("lost.gguf").to_str().unwrap()).is_err());
}

/// A hub with the repository `ada/tiny`.
fn server() -> Server {
    Server::start(&[
        ("config.json", br#"{"architectures": ["LlamaForCausalLM"]}"#.to_vec()),
        ("tiny-Q4_K_M.gguf", q4_k()),
    ])
}

fn open(
    server: &Server,
    cache: &Path,
    change: impl FnOnce(&mut RepoOptions),
) -> Result<HuggingFaceRepo, String> {
    let hub = Hub { retry_delay: Duration::from_millis(1), ..Hub::new(cache, &server.address) };
    let mut options = RepoOptions { hub: Some(hub), ..RepoOptions::default() };
    change(&mut options);
    HuggingFaceRepo::open("ada/tiny", options).map_err(|error| error.to_string())
}

#[test]
fn the_options_of_a_repository_say_where_to_look() {
    let (server, cache) = (server(), folder("repo_options"));
    let open = |repo_type: Option<RepoType>| open(&server, &cache, |options| options.repo_type = repo_type);
    assert_eq!(open(None).unwrap().repo_type(), RepoType::Online);
    assert_eq!(open(Some(RepoType::Online)).unwrap().repo_type(), RepoType::Online);
    assert!(open(Some(RepoType::Local)).unwrap_err().contains("ada/tiny"), "the folder does not exist");
    let trusted = self::open(&server, &cache, |options| options.trust_remote_code = true).unwrap();
    assert!(trusted.trust_remote_code() && !open(None).unwrap().trust_remote_code());
}

#[test]
fn the_hub_says_what_a_model_is() {
    let (server, cache) = (server(), folder("repo_info"));
    let repo = open(&server, &cache, |_| ()).unwrap();
    let info = repo.info().unwrap();
    assert_eq!(repo.commit(), Some(COMMIT));
    assert!(info.siblings.iter().any(|file| file.name == "tiny-Q4_K_M.gguf"), "{info:?}");
    server.asked();
    repo.info().unwrap();
    assert_eq!(server.lines(), [""; 0], "it is asked once");
    assert_eq!(repo.size_of("tiny-Q4_K_M.gguf").unwrap(), Some(q4_k().len() as u64));
    assert!(repo.file_exists("config.json").unwrap() && !repo.file_exists("lost").unwrap());
}

#[test]
fn descriptions_list_commit_tags_architectures_dtypes_and_files() {
    let read = |sibling: &str| {
        let answer = serde_json::json!({
            "id": "ada/tiny", "sha": COMMIT, "tags": ["gguf"], "config": {"architectures": ["LlamaForCausalLM"]},
            "safetensors": {"parameters": {"BF16": 100, "F32": 2}}, "siblings": [{"rfilename": sibling, "size": 5}],
        });
        ModelInfo::from_json("http://hub", answer.to_string().as_bytes())
    };
    let info = read("a/b.bin").unwrap();
    assert_eq!((&info.sha[..], &info.tags[..]), (COMMIT, &["gguf".to_string()][..]));
    assert_eq!(
        (&info.architectures[..], info.safetensors["BF16"]),
        (&["LlamaForCausalLM".to_string()][..], 100)
    );
    assert_eq!((&info.siblings[0].name[..], info.siblings[0].size), ("a/b.bin", Some(5)));
    assert!(read("../../.bashrc").is_err(), "a hostile answer");
}

#[test]
fn downloads_are_resumed_compared_and_kept() {
    let (server, cache) = (server(), folder("repo_download"));
    let repo = open(&server, &cache, |_| ()).unwrap();
    for bytes in [1000, 300_000] {
        server.fail(1, "GET /cdn/", What::Truncated(bytes));
    }
    let path = repo.download("tiny-Q4_K_M.gguf", false).unwrap();
    assert!(path.starts_with(&cache) && fs::read(&path).unwrap() == q4_k());
    let ranges: Vec<Option<String>> = server
        .asked()
        .into_iter()
        .filter(|asked| asked.line.contains("/cdn/"))
        .map(|asked| asked.range)
        .collect();
    assert_eq!(ranges, [None, Some("bytes=1000-".to_string()), Some("bytes=301000-".to_string())]);
    // The cache is enough.
    assert_eq!(open(&server, &cache, |_| ()).unwrap().download("tiny-Q4_K_M.gguf", false).unwrap(), path);
    assert_eq!(repo.encoding_for_file("tiny-Q4_K_M.gguf").unwrap(), Q4K);
    assert_eq!(server.lines(), [""; 0]);
    // Unless a download is forced.
    repo.download("tiny-Q4_K_M.gguf", true).unwrap();
    assert!(!server.lines().is_empty());
    server.fail(1, "GET /ada/tiny/resolve", What::Garbled);
    let error = repo.download("config.json", false).unwrap_err();
    assert!(matches!(error, perihelion::sources::Error::WrongDigest { .. }), "{error}");
    let names = ["config.json", "tiny-Q4_K_M.gguf"].map(str::to_string);
    let paths = repo.download_all(&names, false, &|_| ()).unwrap();
    assert!(paths.len() == 2 && paths.iter().all(|path| path.exists()));
    assert!(repo.download("../config.json", false).is_err());
}

#[test]
fn offline_repositories_use_the_cache_and_never_the_network() {
    let (server, cache) = (server(), folder("repo_offline"));
    open(&server, &cache, |_| ()).unwrap().download("config.json", false).unwrap();
    server.asked();
    let offline = |options: &mut RepoOptions| options.hub.as_mut().unwrap().offline = true;
    let repo = open(&server, &cache, offline).unwrap();
    assert_eq!((repo.repo_type(), repo.commit()), (RepoType::Online, Some(COMMIT)));
    assert!(repo.download("config.json", false).is_ok());
    for error in [
        repo.download("config.json", true).unwrap_err(),
        repo.download("tiny-Q4_K_M.gguf", false).unwrap_err(),
        repo.size_of("tiny-Q4_K_M.gguf").unwrap_err(),
        repo.info().unwrap_err(),
    ] {
        assert!(error.to_string().contains("HF_HUB_OFFLINE"), "{error}");
    }
    assert_eq!(server.lines(), [""; 0]);
}
