//! Embedders from text to vector, against sentence-transformers: tiny checkpoints shaped as published repositories are,
//! written by `tools/tiny_checkpoints.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perihelion::driver::DType;
use perihelion::pipelines::config::{PipelineConfig, machine};
use perihelion::pipelines::{
    Embedder, EmbeddingModel, EmbeddingParameters, EmbeddingPrompt, EmbeddingRequest, Error, Pooling,
    Truncate,
};
use serde::Deserialize;

use crate::support::{load_as, session};

/// How far a number of a vector may be from PyTorch's, as a fraction of the largest.
const BOUND: f32 = 1e-4;

/// The vectors of sentence-transformers.
#[derive(Deserialize)]
struct Golden {
    texts: Vec<String>,
    embeddings: Vec<Vec<f32>>,
    /// By the name of the prompt.
    prompted: BTreeMap<String, Vec<Vec<f32>>>,
    /// Tokens of each text, those around it included.
    tokens: Vec<usize>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

fn golden(name: &str) -> Golden {
    serde_json::from_slice(&fs::read(folder(name).join("texts.json")).unwrap()).unwrap()
}

fn embedder(path: &Path, threads: usize) -> Result<Embedder, Error> {
    let plan = PipelineConfig::new(path.display().to_string()).plan(machine())?;
    let model = Arc::new(EmbeddingModel::from_plan(&session(threads), plan, &mut |_| ())?);
    let truncated = EmbeddingParameters { truncate: Some(Truncate::Right), ..EmbeddingParameters::default() };
    Embedder::new(model, &truncated)
}

/// As e5-mistral is published: the class of a decoder without its head.
#[test]
fn decoders_without_a_head_embed_and_make_no_text() {
    let (whole, target) = (folder("embedders/qwen3_embedding"), tempfile::tempdir().unwrap());
    copy_folder(&whole, target.path());
    let config = fs::read_to_string(whole.join("config.json")).unwrap();
    let config = config
        .replace("Qwen3ForCausalLM", "Qwen3Model")
        .replace(r#""tie_word_embeddings": true"#, r#""tie_word_embeddings": false"#);
    fs::write(target.path().join("config.json"), config).unwrap();
    let golden = golden("embedders/qwen3_embedding");
    let [expected, found] = [&whole, target.path()].map(|path| embedder(path, 1).unwrap());
    let vectors = |embedder: &Embedder| embedder.embed(EmbeddingRequest::new(&golden.texts)).unwrap();
    for (expected, found) in vectors(&expected).iter().zip(vectors(&found)) {
        assert_eq!(expected.vector, found.vector);
    }
    let error = load_as(target.path(), None, 1, 64, DType::F32).err().unwrap().to_string();
    assert!(error.contains("Qwen3Model"), "{error}");
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

fn prompted(golden: &Golden, prompt: EmbeddingPrompt) -> EmbeddingRequest {
    let parameters = EmbeddingParameters { prompt: Some(prompt), ..EmbeddingParameters::default() };
    EmbeddingRequest::new(&golden.texts).with(parameters)
}

fn check(name: &str, embedder: &Embedder, request: EmbeddingRequest, expected: &[Vec<f32>]) {
    let largest = expected.iter().flatten().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let found = embedder.embed(request).unwrap();
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.vector.len(), expected.len(), "{name}");
        let differences = found.vector.iter().zip(expected).map(|(a, b)| (a - b).abs() / largest);
        let worst = differences.fold(0.0, f32::max);
        assert!(worst <= BOUND, "{name}: a number is off by {worst} of the largest");
    }
}

/// With each prompt that the files name, and the tokens of sentence-transformers, also of a text that is cut.
#[test]
fn vectors_match_sentence_transformers() {
    for (name, pooling, dimensions) in [
        ("encoders/embedding_gemma", Pooling::Mean, 20),
        ("encoders/xlm_roberta", Pooling::Cls, 24),
        ("embedders/qwen3_embedding", Pooling::Last, 32),
    ] {
        let (embedder, golden) = (embedder(&folder(name), 2).unwrap(), golden(name));
        let shape = (embedder.pooling(), embedder.dimensions(), embedder.max_length());
        assert_eq!(shape, (pooling, dimensions, 48), "{name}");
        check(name, &embedder, EmbeddingRequest::new(&golden.texts), &golden.embeddings);
        let found = embedder.embed(&golden.texts).unwrap();
        assert!(found.iter().map(|text| text.tokens).eq(golden.tokens.iter().copied()), "{name}");
        assert!(found[2].truncated > 0, "{name}");
        assert!(embedder.model().prompts().keys().eq(golden.prompted.keys()), "{name}");
        for (prompt, expected) in &golden.prompted {
            let request = prompted(&golden, EmbeddingPrompt::Named(prompt.clone()));
            check(&format!("{name} {prompt}"), &embedder, request, expected);
        }
    }
}

/// Files of llama.cpp's converter: with the layers behind the pooling, and with the token that ends each text.
#[test]
fn gguf_files_embed_as_the_folders_that_they_were_made_of() {
    for name in ["encoders/embedding_gemma", "embedders/qwen3_embedding"] {
        let (embedder, golden) = (embedder(&folder(name).join("model.gguf"), 2).unwrap(), golden(name));
        // These files name no prompts and no length.
        let short = EmbeddingRequest::new(&golden.texts[..2]);
        check(name, &embedder, short, &golden.embeddings[..2]);
    }
}

/// Jina v3 runs as without a task.
#[test]
fn adapters_are_left_out_with_a_warning() {
    let path = folder("encoders/jina_v3_adapters").display().to_string();
    let plan = PipelineConfig::new(path).plan(machine()).unwrap();
    let adapters = "the adapters (LoRA) are left out: the model runs as it does without a task";
    assert_eq!(plan.warnings().iter().filter(|warning| *warning == adapters).count(), 1);
    assert!(!plan.warnings().iter().any(|warning| warning.contains("no place")), "{:?}", plan.warnings());
    assert_eq!((plan.architecture(), plan.context_length()), ("JinaEmbeddingsV3Model", 150));
}

/// Batches, threads and the other texts change no bit, of layers behind the pooling either.
#[test]
fn vectors_are_deterministic() {
    for name in ["encoders/embedding_gemma", "embedders/qwen3_embedding"] {
        let golden = golden(name);
        let alone = embedder(&folder(name), 1).unwrap();
        let alone: Vec<Vec<f32>> =
            golden.texts.iter().map(|text| alone.embed([text]).unwrap().remove(0).vector).collect();
        let all: Vec<&String> = golden.texts.iter().cycle().take(48).collect();
        for (threads, texts, tokens) in [(1, 256, 4096), (2, 256, 60), (4, 5, 300)] {
            let embedder = embedder(&folder(name), threads).unwrap();
            let plan = embedder
                .model()
                .plan()
                .with(|config| config.max_cache_batch_size(texts).max_batch_tokens(tokens));
            let truncated =
                EmbeddingParameters { truncate: Some(Truncate::Right), ..EmbeddingParameters::default() };
            let embedder =
                Embedder::with_plan(Arc::clone(embedder.model()), &plan.unwrap(), &truncated).unwrap();
            let found = embedder.embed(&all).unwrap();
            assert!(found.iter().zip(alone.iter().cycle()).all(|(a, b)| a.vector == *b), "{name}");
        }
    }
}

/// A folder with one file changed is refused, and the message names what is wrong.
#[test]
fn hostile_files_are_refused() {
    let refusal = |file: &str, content: Option<&str>| {
        let target = tempfile::tempdir().unwrap();
        for entry in ["", "1_Pooling", "2_Dense", "3_Dense"] {
            fs::create_dir_all(target.path().join(entry)).unwrap();
            for from in fs::read_dir(folder("encoders/embedding_gemma").join(entry)).unwrap() {
                let from = from.unwrap().path();
                let name = from.file_name().unwrap();
                if from.is_file() && name != "model.gguf" {
                    fs::copy(&from, target.path().join(entry).join(name)).unwrap();
                }
            }
        }
        let path = target.path().join(file);
        match content {
            Some(content) if content.contains("=>") => {
                let (from, to) = content.split_once("=>").unwrap();
                let text = fs::read_to_string(&path).unwrap();
                assert!(text.contains(from), "{from} in {text}");
                fs::write(path, text.replace(from, to)).unwrap();
            }
            Some(content) => fs::write(path, content).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        embedder(target.path(), 1).err().unwrap_or_else(|| panic!("{file} is taken")).to_string()
    };
    for (file, content, expected) in [
        ("2_Dense/config.json", Some("linear.Identity=>activation.Mish"), "activation.Mish is not supported"),
        (
            "2_Dense/config.json",
            Some(r#"{"module_input_name": "token_embeddings"}"#),
            "expected sentence_embedding",
        ),
        ("2_Dense/config.json", None, "2_Dense/config.json: there is no such file"),
        ("2_Dense/model.safetensors", None, "2_Dense/model.safetensors"),
        ("modules.json", Some("2_Dense=>3_Dense"), "layer 0 reads 56 dims, but gets 24"),
        ("modules.json", Some("models.Pooling=>models.Dense"), "Dense is not supported"),
        (
            "config.json",
            Some("\"use_bidirectional_attention\": true=>\"use_bidirectional_attention\": false"),
            "`use_bidirectional_attention` is not true",
        ),
        (
            "sentence_bert_config.json",
            Some(r#"{"modality_config": {"message": {}}}"#),
            "embeddings of conversations",
        ),
    ] {
        let error = refusal(file, content);
        assert!(error.contains(expected), "{file}: {error}");
    }
}
