//! Repositories that are folders and files, and the cache of a hub without a network.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::SupportedEncoding;
use crate::content::Content;
use SupportedEncoding::{Bfloat16, Float16, Float32, Gptq, Q4_0, Q4K, Q8_0};
use WeightsFormat::{Gguf, Pytorch, Safetensors};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A safetensors file with tensors of dtypes and shapes.
fn safetensors(tensors: &[(&str, &str, &[usize])]) -> Vec<u8> {
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, dtype, shape) in tensors {
        let bytes = shape.iter().product::<usize>() * if *dtype == "F32" || *dtype == "I32" { 4 } else { 2 };
        let entry = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [end, end + bytes]});
        header.insert(name.to_string(), entry);
        end += bytes;
    }
    let header = serde_json::to_vec(&header).unwrap();
    [&(header.len() as u64).to_le_bytes()[..], &header, &vec![0; end]].concat()
}

/// A GGUF file with matrices of ggml's types, one block wide, and a `general.file_type`.
fn gguf(file_type: Option<u32>, tensors: &[(u32, u64, usize)]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    let string = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((file_type.is_some() as u64).to_le_bytes());
    if let Some(file_type) = file_type {
        bytes.extend(string("general.file_type"));
        bytes.extend([4u32, file_type].iter().flat_map(|number| number.to_le_bytes()));
    }
    let mut offset = 0u64;
    for (index, &(kind, columns, block)) in tensors.iter().enumerate() {
        bytes.extend(string(&format!("blk.{index}.attn_q.weight")));
        bytes.extend(2u32.to_le_bytes());
        bytes.extend([columns, 2].iter().flat_map(|size| size.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        offset += (2 * block as u64).next_multiple_of(32);
    }
    bytes.resize(bytes.len().next_multiple_of(32) + offset as usize, 0);
    bytes
}

fn q4_0_file() -> Vec<u8> {
    gguf(Some(2), &[(2, 32, 18)])
}

fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

fn open(folder: &TempDir) -> HuggingFaceRepo {
    HuggingFaceRepo::new(folder.path().to_str().unwrap()).unwrap()
}

fn weights(names: &[&str]) -> Vec<(WeightsFormat, Vec<String>)> {
    let files = names.iter().map(|name| RepoFile { name: name.to_string(), size: None, content: None });
    let repo = open(&folder(&[]));
    repo.weight_files_among(&files.collect::<Vec<_>>()).into_iter().collect()
}

#[test]
fn weights_are_listed_by_format() {
    let names = [
        "config.json",
        "tiny.gguf",
        "b.safetensors",
        "pytorch_model.bin",
        "a.safetensors",
        "training_args.bin",
        "consolidated.safetensors",
        "original/consolidated.00.pth",
        "BF16/tiny-BF16-00001-of-00002.gguf",
        "checkpoint-500/model.safetensors",
        "checkpoint-500/tiny.gguf",
        "mmproj-tiny-f16.gguf",
        "model.safetensors.index.json",
    ];
    let of = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let expected = [
        (Safetensors, of(&["a.safetensors", "b.safetensors"])),
        (Gguf, of(&["BF16/tiny-BF16-00001-of-00002.gguf", "tiny.gguf"])),
        (Pytorch, of(&["pytorch_model.bin"])),
    ];
    assert_eq!(weights(&names), expected);
    assert_eq!(weights(&["consolidated.safetensors"]), [(Safetensors, of(&["consolidated.safetensors"]))]);
    let parts = ["consolidated.00.pth", "consolidated.01.pth"];
    assert_eq!(weights(&parts), [(Pytorch, of(&parts))]);
    assert_eq!(weights(&["config.json", "optimizer.pt"]), []);
    // Folders count where there is nothing else.
    let inner = ["fp16/model.safetensors", "checkpoint-7/model.safetensors", "fp16/optimizer.pt"];
    assert_eq!(weights(&inner), [(Safetensors, of(&inner[..1]))]);
}

#[test]
fn a_folder_says_what_it_has() {
    let bf16 = |name| safetensors(&[(name, "BF16", &[4, 4]), ("norm", "F32", &[40])]);
    let folder = folder(&[
        ("config.json", b"{}".to_vec()),
        ("model-00001-of-00002.safetensors", bf16("a")),
        ("model-00002-of-00002.safetensors", bf16("b")),
        ("tiny-Q4_0.gguf", q4_0_file()),
        ("tiny.q8_0.gguf", gguf(None, &[(8, 32, 34), (0, 8, 32)])),
        (".git/config", b"x".to_vec()),
    ]);
    let repo = open(&folder);
    assert_eq!((repo.repo_type(), repo.trust_remote_code(), repo.commit()), (RepoType::Local, false, None));
    let trusted = RepoOptions { trust_remote_code: true, ..RepoOptions::default() };
    assert!(HuggingFaceRepo::open(repo.repo_id(), trusted).unwrap().trust_remote_code());
    assert_eq!(format!("{repo} {repo:?}"), format!("{0} {0}", folder.path().display()));
    assert_eq!(repo.formats_available().unwrap(), [Safetensors, Gguf]);
    assert_eq!(repo.supported_encodings().unwrap(), [Bfloat16, Q4_0, Q8_0]);
    assert!(repo.file_exists("config.json").unwrap() && !repo.file_exists("model.bin").unwrap());
    assert!(repo.file_exists("../x").is_err());
    assert_eq!(repo.size_of("config.json").unwrap(), Some(2));
    assert_eq!(repo.download("config.json", true).unwrap(), folder.path().join("config.json"));
    let error = repo.download("tiny-Q4_1.gguf", false).unwrap_err().to_string();
    assert!(error.ends_with("has no file `tiny-Q4_1.gguf`: did you mean `tiny-Q4_0.gguf`?"), "{error}");
    let error = repo.info().unwrap_err().to_string();
    assert!(error.contains("exists only for repositories on a hub"), "{error}");
}

#[test]
fn files_are_found_by_encoding() {
    let folder = folder(&[
        ("model-1.safetensors", safetensors(&[("a", "F32", &[4, 4])])),
        ("model-2.safetensors", safetensors(&[("b", "F32", &[4, 4])])),
        ("tiny.gguf", q4_0_file()),
        ("full.gguf", gguf(Some(0), &[(0, 32, 128)])),
    ]);
    let repo = open(&folder);
    let found = |encoding, format, alternate| -> Vec<(WeightsFormat, Vec<String>)> {
        let files = repo.files_for_encoding(encoding, format, alternate).unwrap();
        let names = |paths: Vec<PathBuf>| paths.iter().map(|path| path.display().to_string()).collect();
        files.into_iter().map(|(format, paths)| (format, names(paths))).collect()
    };
    let of = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let safetensors = (Safetensors, of(&["model-1.safetensors", "model-2.safetensors"]));
    let full = (Gguf, of(&["full.gguf"]));
    assert_eq!(found(Float32, None, None), [full.clone(), safetensors.clone()]);
    assert_eq!(found(Float32, Some(Safetensors), None), std::slice::from_ref(&safetensors));
    assert_eq!(found(Float32, Some(Pytorch), Some(Q4_0)), []);
    assert_eq!(found(Bfloat16, None, Some(Float32)), [full, safetensors]);
    assert_eq!(found(Q4_0, None, Some(Float32)), [(Gguf, of(&["tiny.gguf"]))]);
    assert_eq!(found(Q4K, None, None), []);
}

#[test]
fn the_content_of_a_file_decides() {
    let mixed = gguf(Some(15), &[(12, 256, 144), (8, 256, 272), (8, 256, 272)]);
    let folder = folder(&[
        ("model.f32.safetensors", safetensors(&[("a", "F32", &[2, 2]), ("b", "BF16", &[1, 2])])),
        ("model-bf16.safetensors", safetensors(&[("a", "F32", &[2, 2])])),
        // However large the embedding next to it is.
        (
            "gptq.safetensors",
            safetensors(&[
                ("a.qweight", "I32", &[4, 2]),
                ("a.scales", "F16", &[1, 2]),
                ("embed", "F16", &[99, 9]),
            ]),
        ),
        ("hqq.safetensors", safetensors(&[("a.W_q", "I32", &[32, 2]), ("a.scales", "F16", &[1, 16])])),
        ("half.safetensors", safetensors(&[("bias", "F16", &[2])])),
        ("tiny-Q6_K.gguf", q4_0_file()),
        // Q4_K_M as its name says, though most of it fell back to Q8_0.
        ("mixed-Q4_K_M.gguf", mixed),
        // Rows that are too short for K-quants: nothing of it is Q4_K.
        ("short-Q4_K_M.gguf", gguf(Some(15), &[(8, 32, 34)])),
        ("notes.txt", b"x".to_vec()),
        ("damaged.gguf", b"GGUF".to_vec()),
    ]);
    let repo = open(&folder);
    let encoding = |file: &str| repo.encoding_for_file(file).map_err(|error| error.to_string());
    assert_eq!(encoding("model.f32.safetensors"), Ok(Float32));
    assert_eq!(encoding("half.safetensors"), Ok(Float16));
    assert_eq!(encoding("gptq.safetensors"), Ok(Gptq));
    assert_eq!(encoding("mixed-Q4_K_M.gguf"), Ok(Q4K));
    assert_eq!(encoding("short-Q4_K_M.gguf"), Ok(Q8_0));
    for (file, parts) in [
        ("tiny-Q6_K.gguf", &["the name says q6_k, the content is q4_0"][..]),
        ("model-bf16.safetensors", &["the name says bfloat16, the content is float32"]),
        ("hqq.safetensors", &["most of its matrices are i32"]),
        ("notes.txt", &["notes.txt", ".gguf, .safetensors"]),
        ("damaged.gguf", &["malformed GGUF"]),
        ("gone.gguf", &["has no file `gone.gguf`"]),
        ("../x.gguf", &["without `..`"]),
    ] {
        let error = encoding(file).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let path = folder.path().join("tiny-Q6_K.gguf");
    assert!(matches!(SupportedEncoding::from_file(path), Err(Error::Contradiction { .. })));
    // What cannot be read does not hide the rest.
    assert_eq!(repo.supported_encodings().unwrap(), [Gptq, Float16, Float32, Q4K, Q8_0, Q4_0]);
}

#[test]
fn what_quantized_a_model_is_named() {
    let hqq = r#"{"quantization_config": {"quant_method": "hqq", "bits": 4, "group_size": 128}}"#;
    let layer = safetensors(&[("a.W_q", "I32", &[32, 2]), ("a.scales", "F16", &[1, 16])]);
    let folder = folder(&[("config.json", hqq.into()), ("model.safetensors", layer)]);
    let repo = open(&folder);
    assert_eq!(repo.supported_encodings().unwrap(), []);
    let reason = "quantization_config: quant_method is hqq, supported are gptq";
    let error = repo.encoding_for_file("model.safetensors").unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
}

#[test]
fn gptq_is_found_by_its_encoding() {
    let layer = || safetensors(&[("a.qweight", "I32", &[4, 2]), ("a.scales", "F16", &[1, 2])]);
    let folder = folder(&[
        ("model-00001-of-00002.safetensors", layer()),
        ("model-00002-of-00002.safetensors", safetensors(&[("embed", "F16", &[99, 9])])),
        ("llama-gptq.gguf", q4_0_file()),
    ]);
    let repo = open(&folder);
    let files = repo.files_for_encoding(Gptq, None, None).unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), [&Safetensors]);
    assert_eq!(files[&Safetensors].len(), 2);
    // The name of a GGUF file may say what it was made from.
    assert_eq!(repo.encoding_for_file("llama-gptq.gguf").unwrap(), Q4_0);
}

#[test]
fn one_file_is_a_repository() {
    let folder = folder(&[
        ("tiny-Q4_0.gguf", q4_0_file()),
        ("other.gguf", q4_0_file()),
        ("tokenizer.json", b"{}".to_vec()),
    ]);
    let path = folder.path().join("tiny-Q4_0.gguf").display().to_string();
    let repo = HuggingFaceRepo::new(&path).unwrap();
    assert_eq!(repo.weight_files().unwrap()[&Gguf], ["tiny-Q4_0.gguf"]);
    assert!(repo.file_exists("tokenizer.json").unwrap() && !repo.file_exists("other.gguf").unwrap());
    assert_eq!(repo.supported_encodings().unwrap(), [Q4_0]);
    let tokenizer = folder.path().join("tokenizer.json").display().to_string();
    assert!(
        HuggingFaceRepo::new(tokenizer).unwrap_err().to_string().contains("not a folder or weights file")
    );
}

#[test]
fn every_shard_counts() {
    let folder = folder(&[
        ("model-00001-of-00002.safetensors", safetensors(&[("a", "F32", &[2, 2])])),
        ("model-00002-of-00002.safetensors", safetensors(&[("b", "F16", &[8, 2])])),
    ]);
    assert_eq!(open(&folder).supported_encodings().unwrap(), [Float16]);
}

#[test]
fn real_files_are_read() {
    let Some(folder) = testdata::shared("stories260k/gguf") else { return };
    let repo = HuggingFaceRepo::new(folder.to_str().unwrap()).unwrap();
    for file in &repo.weight_files().unwrap()[&Gguf] {
        // None of these names lies.
        let guess = SupportedEncoding::guess_from_file_name(file);
        assert_eq!(Some(repo.encoding_for_file(file).unwrap()), guess, "{file}");
    }
    let folder = testdata::shared("stories260k/hf").unwrap();
    let repo = HuggingFaceRepo::new(folder.to_str().unwrap()).unwrap();
    assert_eq!(repo.supported_encodings().unwrap().len(), 1);
}

/// A cache with a snapshot of `ada/tiny`.
fn cache(files: &[(&str, Vec<u8>)]) -> (TempDir, RepoOptions) {
    let root = format!("models--ada--tiny/snapshots/{COMMIT}");
    let mut all = vec![("models--ada--tiny/refs/main".to_string(), COMMIT.into())];
    all.extend(files.iter().map(|(name, content)| (format!("{root}/{name}"), content.clone())));
    let all: Vec<(&str, Vec<u8>)> =
        all.iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
    let folder = folder(&all);
    let options = RepoOptions { hub: Some(Hub::offline(folder.path())), ..RepoOptions::default() };
    (folder, options)
}

#[test]
fn a_cache_is_enough() {
    let (folder, options) = cache(&[("config.json", b"{}".to_vec()), ("tiny-Q4_0.gguf", q4_0_file())]);
    let repo = HuggingFaceRepo::open("ada/tiny", options.clone()).unwrap();
    assert_eq!(
        (repo.repo_type(), repo.commit(), repo.to_string()),
        (RepoType::Online, Some(COMMIT), "ada/tiny".into())
    );
    assert_eq!(repo.supported_encodings().unwrap(), [Q4_0]);
    assert_eq!(repo.encoding_for_file("tiny-Q4_0.gguf").unwrap(), Q4_0);
    assert!(repo.download("config.json", false).unwrap().starts_with(folder.path()));
    assert_eq!(repo.files_for_encoding(Q4K, None, None).unwrap().len(), 0);
    assert!(!repo.file_exists("model.safetensors").unwrap());
    let error = repo.download("model.safetensors", false).unwrap_err().to_string();
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    let error = HuggingFaceRepo::open("ada/other", options.clone()).unwrap_err().to_string();
    assert!(error.contains("ada/other is not in the cache"), "{error}");
    for path in ["../ada/tiny", "nowhere.gguf"] {
        let error = HuggingFaceRepo::open(path, options.clone()).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
    assert!(
        HuggingFaceRepo::open("/no/such/path", options).unwrap_err().to_string().contains("/no/such/path: ")
    );
}

#[test]
fn the_type_of_a_repository_says_where_to_look() {
    let (_cache, options) = cache(&[("tiny-Q4_0.gguf", q4_0_file())]);
    let of = |repo_type| RepoOptions { repo_type, ..options.clone() };
    // There is no such folder, and nothing but the hub knows the name.
    let online = HuggingFaceRepo::open("ada/tiny", of(Some(RepoType::Online))).unwrap();
    assert_eq!(online.repo_type(), RepoType::Online);
    let error = HuggingFaceRepo::open("ada/tiny", of(Some(RepoType::Local))).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    // `src` is a folder here, and no repository of the cache.
    let local = HuggingFaceRepo::open("src", of(None)).unwrap();
    assert_eq!(local.repo_type(), RepoType::Local);
    assert_eq!(HuggingFaceRepo::open("src", of(Some(RepoType::Local))).unwrap().repo_type(), RepoType::Local);
    let error = HuggingFaceRepo::open("src", of(Some(RepoType::Online))).unwrap_err().to_string();
    assert!(error.contains("src is not in the cache"), "{error}");
}

/// Notes what is told in the log.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.0.lock().unwrap().push(format!("{value:?}"));
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn an_alternate_encoding_is_told_in_the_log() {
    let folder = folder(&[("tiny.gguf", q4_0_file())]);
    let (repo, log) = (open(&folder), Log::default());
    tracing::subscriber::with_default(log.clone(), || {
        assert_eq!(repo.files_for_encoding(Q4_0, None, Some(Q4K)).unwrap().len(), 1);
        assert_eq!(*log.0.lock().unwrap(), [""; 0], "nothing is exchanged");
        assert_eq!(repo.files_for_encoding(Q4K, None, Some(Q4_0)).unwrap().len(), 1);
    });
    let told = log.0.lock().unwrap();
    assert!(told.len() == 1 && told[0].ends_with("has no weights in q4_k: taking those in q4_0"), "{told:?}");
}

#[test]
fn names_of_mixtures_are_no_contradiction() {
    let mixtures = ["x-UD-Q4_K_XL.gguf", "x-Q4_K_L.gguf"];
    let folder = folder(&[mixtures[0], mixtures[1], "x-Q6_K.gguf"].map(|name| (name, q4_0_file())));
    let named = |name: &str| Content::open(&[folder.path().join(name)]).unwrap().encoding_of_file(name);
    for name in mixtures {
        let (encoding, warning) = named(name).unwrap();
        assert_eq!(encoding, Q4_0);
        let expected = format!("{name}: most of its matrices are q4_0, though its name says q4_k");
        assert_eq!(warning, Some(expected));
    }
    assert!(matches!(named("x-Q6_K.gguf"), Err(Error::Contradiction { .. })));
}
