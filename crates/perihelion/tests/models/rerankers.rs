//! Decoders that score pairs of texts, against sentence-transformers and `transformers`: tiny checkpoints shaped as the
//! repositories of Qwen3-Reranker are, written by `tools/tiny_checkpoints.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perihelion::models::{ARCHITECTURES, Mix, QuantizeOptions};
use perihelion::pipelines::config::{PipelineConfig, machine};
use perihelion::pipelines::{
    ClassificationModel, ClassificationParameters, ClassificationRequest, Classifier, Embedder,
    EmbeddingPrompt, Error, RerankRequest, ScoreActivation, TextModel, Truncate, quantize,
};
use serde::Deserialize;

use crate::classifiers::check;
use crate::support::session;

/// The instruction of llama.cpp's converter, and of the built-in template.
const INSTRUCTION: &str = "Given a web search query, retrieve relevant passages that answer the query";

/// What the references make of texts and pairs.
#[derive(Deserialize)]
struct Golden {
    texts: Vec<String>,
    pairs: Vec<(String, String)>,
    ids: Vec<Vec<u32>>,
    scores: Vec<Vec<f32>>,
    /// With another instruction.
    instructed: Option<Vec<Vec<f32>>>,
    /// As probabilities.
    odds: Option<Vec<Vec<f32>>>,
    /// Of single texts.
    logits: Option<Vec<Vec<f32>>>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/rerankers").join(name)
}

fn golden(name: &str) -> Golden {
    serde_json::from_slice(&fs::read(folder(name).join("texts.json")).unwrap()).unwrap()
}

fn model(path: &Path, threads: usize) -> Result<Arc<ClassificationModel>, Error> {
    let plan = PipelineConfig::new(path.display().to_string()).plan(machine())?;
    Ok(Arc::new(ClassificationModel::from_plan(&session(threads), plan, &mut |_| ())?))
}

fn parameters(activation: ScoreActivation, prompt: Option<&str>) -> ClassificationParameters {
    ClassificationParameters {
        activation: Some(activation),
        truncate: Some(Truncate::Right),
        max_tokens: None,
        prompt: prompt.map(|prompt| EmbeddingPrompt::Text(prompt.into())),
    }
}

fn raw() -> ClassificationParameters {
    parameters(ScoreActivation::Identity, None)
}

fn classifier(path: &Path) -> Classifier {
    Classifier::new(model(path, 2).unwrap(), &raw()).unwrap()
}

fn instructed(golden: &Golden, prompt: &str) -> ClassificationRequest {
    let parameters = parameters(ScoreActivation::Identity, Some(prompt));
    ClassificationRequest::new(golden.pairs.clone()).with(parameters)
}

/// With their tokens, also of pairs that are cut, and with the instruction of the files or another one.
#[test]
fn scores_match_the_references() {
    for name in ["qwen3_reranker", "qwen3_reranker_named", "qwen3_classifier", "qwen3_classifier_labels"] {
        let (classifier, golden) = (classifier(&folder(name)), golden(name));
        let pairs = classifier.classify(&golden.pairs[..]).unwrap();
        check(name, &pairs, &golden.scores);
        let lengths: Vec<usize> = pairs.iter().map(|pair| pair.tokens).collect();
        assert_eq!(lengths, golden.ids.iter().map(Vec::len).collect::<Vec<_>>(), "{name}");
        assert!(pairs[3].truncated == 0 && pairs[4].truncated > 0 && pairs[5].truncated > 0, "{name}");
        if let Some(expected) = &golden.instructed {
            check(name, &classifier.classify(instructed(&golden, "Judge well")).unwrap(), expected);
        }
        if let Some(expected) = &golden.odds {
            let odds = ClassificationRequest::new(golden.pairs.clone());
            let odds = odds.with(parameters(ScoreActivation::Sigmoid, None));
            check(name, &classifier.classify(odds).unwrap(), expected);
        }
        if let Some(expected) = &golden.logits {
            check(name, &classifier.classify(&golden.texts[..]).unwrap(), expected);
        }
    }
    let files = |name: &str| model(&folder(name), 1).unwrap().activation();
    assert_eq!(files("qwen3_reranker"), ScoreActivation::Identity);
    assert_eq!(files("qwen3_classifier"), ScoreActivation::Sigmoid);
    assert_eq!(files("qwen3_classifier_labels"), ScoreActivation::Softmax);
}

/// Every decoder may have one: the name says it, and the weights have that of all families.
#[test]
fn heads_of_families_without_a_row_score_as_pytorch_does() {
    let (classifier, golden) = (classifier(&folder("llama_classifier")), golden("llama_classifier"));
    check("llama_classifier", &classifier.classify(&golden.texts[..]).unwrap(), &golden.logits.unwrap());
}

/// The file of llama.cpp's converter, and ours: from the odds of two tokens, from one token, and from a head.
#[test]
fn gguf_files_score_as_the_folders_that_they_were_made_of() {
    let check_alike = |path: &Path, source: &Path, label: &str, prompt: Option<&str>| {
        let (name, golden) =
            (path.display().to_string(), golden(source.file_name().unwrap().to_str().unwrap()));
        let model = model(path, 2).unwrap();
        assert_eq!(
            (model.labels(), model.activation()),
            (&[label.to_string()][..], ScoreActivation::Sigmoid)
        );
        let found = Classifier::new(model, &raw()).unwrap().classify(&golden.pairs[..4]).unwrap();
        let source = classifier(source);
        let expected = match prompt {
            Some(prompt) => source.classify(instructed(&golden, prompt)),
            None => source.classify(&golden.pairs[..]),
        };
        let expected: Vec<Vec<f32>> = expected.unwrap().into_iter().map(|pair| pair.scores).collect();
        check(&name, &found, &expected[..4]);
    };
    let reranker = folder("qwen3_reranker");
    check_alike(&reranker.join("model.gguf"), &reranker, "yes", Some(INSTRUCTION));
    let target = tempfile::tempdir().unwrap();
    let options = QuantizeOptions::new(Mix::find("f32").unwrap());
    for (name, label) in
        [("qwen3_reranker", "yes"), ("qwen3_reranker_named", "LABEL_0"), ("qwen3_classifier", "LABEL_0")]
    {
        let (source, path) = (model(&folder(name), 1).unwrap(), target.path().join(format!("{name}.gguf")));
        quantize(source.checkpoint(), &folder(name), &options, &path, &mut |_, _| ()).unwrap();
        let written = model(&path, 1).unwrap();
        // Each says the activation of its folder.
        assert_eq!(written.activation(), source.activation(), "{name}");
        if source.activation() == ScoreActivation::Sigmoid {
            check_alike(&path, &folder(name), label, None);
        } else {
            let golden = golden(name);
            assert_eq!(written.labels(), [label]);
            let written = Classifier::new(written, &raw()).unwrap();
            check(name, &written.classify(&golden.pairs[..4]).unwrap(), &golden.scores[..4]);
        }
        let plan = PipelineConfig::new(folder(name).display().to_string()).plan(machine()).unwrap();
        let plan = plan.quantized(&options).unwrap();
        let loaded = Arc::new(ClassificationModel::from_plan(&session(1), plan, &mut |_| ()).unwrap());
        let loaded = Classifier::new(loaded, &raw()).unwrap().classify(&golden(name).pairs[..4]).unwrap();
        check(name, &loaded, &golden(name).scores[..4]);
    }
}

/// Batches, threads and the other pairs change no bit.
#[test]
fn scores_are_deterministic() {
    let golden = golden("qwen3_reranker");
    let alone: Vec<_> = golden
        .pairs
        .iter()
        .map(|pair| classifier(&folder("qwen3_reranker")).classify([pair.clone()]).unwrap().remove(0))
        .collect();
    let all: Vec<(String, String)> = golden.pairs.iter().cycle().take(40).cloned().collect();
    for (threads, texts, tokens) in [(1, 256, 4096), (2, 256, 300), (4, 3, 1000), (4, 1, 1)] {
        let model = model(&folder("qwen3_reranker"), threads).unwrap();
        let plan = model.plan().with(|config| config.max_cache_batch_size(texts).max_batch_tokens(tokens));
        let classifier = Classifier::with_plan(model, &plan.unwrap(), &raw()).unwrap();
        let found = classifier.classify(&all[..]).unwrap();
        assert!(found.iter().zip(alone.iter().cycle()).all(|(found, expected)| found == expected));
    }
}

#[test]
fn documents_are_ranked_by_their_odds() {
    let (model, golden) = (model(&folder("qwen3_reranker"), 2).unwrap(), golden("qwen3_reranker"));
    assert_eq!(model.prompts()["query"], "Find what answers");
    let classifier = Classifier::new(model, &ClassificationParameters::default()).unwrap();
    let documents = || golden.pairs[..4].iter().map(|(_, document)| document);
    let ranking = classifier.rerank(RerankRequest::new(&golden.pairs[0].0, documents())).unwrap();
    let order: Vec<usize> = ranking.documents.iter().map(|document| document.index).collect();
    assert_eq!(order, [0, 1, 2, 3]);
    let long = RerankRequest::new("cat", ["dog ".repeat(200)]);
    let error = classifier.rerank(long).unwrap_err().to_string();
    assert!(error.contains("but the model takes at most 240: shorten or truncate it"), "{error}");
}

#[test]
fn models_that_score_make_nothing_else() {
    let plan = |name: &str| PipelineConfig::new(folder(name).display().to_string()).plan(machine()).unwrap();
    let error = TextModel::from_plan(&session(1), plan("qwen3_reranker")).err().unwrap().to_string();
    assert_eq!(error, "Qwen3ForCausalLM is a classifier: it scores texts and writes none; use a classifier");
    let error = Embedder::from_plan(&session(1), plan("qwen3_classifier")).unwrap_err().to_string();
    assert!(error.contains("is a classifier: it scores texts, and makes no embeddings"), "{error}");
    let file = folder("qwen3_reranker").join("model.gguf");
    let error = Classifier::new(model(&file, 1).unwrap(), &parameters(ScoreActivation::Identity, Some("x")));
    assert_eq!(error.unwrap_err().to_string(), "prompt is x: the model's template for pairs takes none");
    let named = ClassificationParameters {
        prompt: Some(EmbeddingPrompt::Named("document".into())),
        ..ClassificationParameters::default()
    };
    let error =
        Classifier::new(model(&folder("qwen3_reranker"), 1).unwrap(), &named).unwrap_err().to_string();
    assert_eq!(error, "prompt is document: the model's files name query");
}

/// A folder with one file changed is refused, and the message names what is wrong.
#[test]
fn hostile_files_are_refused() {
    let refusal = |file: &str, content: Option<&str>| {
        let target = tempfile::tempdir().unwrap();
        for entry in ["", "1_LogitScore"] {
            fs::create_dir_all(target.path().join(entry)).unwrap();
            for from in fs::read_dir(folder("qwen3_reranker").join(entry)).unwrap() {
                let from = from.unwrap().path();
                let name = from.file_name().unwrap();
                if from.is_file() && name != "model.gguf" {
                    fs::copy(&from, target.path().join(entry).join(name)).unwrap();
                }
            }
        }
        match content {
            Some(content) => fs::write(target.path().join(file), content).unwrap(),
            None => fs::remove_file(target.path().join(file)).unwrap(),
        }
        model(target.path(), 1).err().unwrap_or_else(|| panic!("{file} is taken")).to_string()
    };
    let module = "1_LogitScore/config.json";
    for (file, content, expected) in [
        (module, Some(r#"{"true_token_id": 303}"#), "has 303 rows, but texts are scored by token 303"),
        (module, Some(r#"{"true_token_id": 1, "false_token_id": 4000000000}"#), "token 4000000000"),
        (module, Some(r#"{"true_token_id": -1}"#), "invalid value"),
        (module, Some("{}"), "missing field `true_token_id`"),
        (module, None, "1_LogitScore/config.json: there is no such file"),
        ("modules.json", Some(r#"[{"path": "../x", "type": "a.LogitScore"}]"#), "leads out of the folder"),
        ("chat_template.jinja", Some("{{ messages[0].content }}"), "roles query and document"),
        ("chat_template.jinja", None, "the chat template `default` is missing"),
    ] {
        let error = refusal(file, content);
        assert!(error.contains(expected), "{file}: {error}");
    }
}

#[test]
fn every_decoder_with_a_head_has_a_golden() {
    let names: Vec<String> = fs::read_dir(folder(""))
        .unwrap()
        .map(|entry| model(&entry.unwrap().path(), 1).unwrap().checkpoint().config.architecture.clone())
        .collect();
    for architecture in ARCHITECTURES.iter().filter(|architecture| architecture.classifies) {
        assert!(names.iter().any(|name| name == architecture.hugging_face), "{}", architecture.hugging_face);
    }
}
