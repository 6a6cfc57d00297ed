//! Classifiers from text to score, against sentence-transformers: `tools/tiny_checkpoints.py` gives two tiny checkpoints
//! a tokenizer and writes what it makes of texts and pairs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_lite::future::block_on;
use perihelion::models::{Mix, QuantizeOptions};
use perihelion::pipelines::config::{PipelineConfig, machine};
use perihelion::pipelines::{
    Classification, ClassificationModel, ClassificationParameters, ClassificationRequest, ClassificationText,
    Classifier, Embedder, Error, RerankRequest, ScoreActivation, Truncate,
};
use serde::Deserialize;

use crate::support::session;

/// How far a score may be from PyTorch's, as a fraction of the largest.
const BOUND: f32 = 1e-4;

/// The scores of sentence-transformers.
#[derive(Deserialize)]
struct Golden {
    texts: Vec<String>,
    logits: Vec<Vec<f32>>,
    pairs: Vec<(String, String)>,
    ids: Vec<Vec<u32>>,
    scores: Vec<Vec<f32>>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/encoders").join(name)
}

fn golden(name: &str) -> Golden {
    serde_json::from_slice(&fs::read(folder(name).join("texts.json")).unwrap()).unwrap()
}

fn model(path: &Path, threads: usize) -> Result<Arc<ClassificationModel>, Error> {
    let plan = PipelineConfig::new(path.display().to_string()).plan(machine())?;
    Ok(Arc::new(ClassificationModel::from_plan(&session(threads), plan, &mut |_| ())?))
}

fn classifier(name: &str) -> Classifier {
    Classifier::new(model(&folder(name), 2).unwrap(), &TRUNCATED).unwrap()
}

const TRUNCATED: ClassificationParameters = ClassificationParameters {
    activation: None,
    truncate: Some(Truncate::Right),
    max_tokens: None,
    prompt: None,
};
const RAW: ClassificationParameters = ClassificationParameters {
    activation: Some(ScoreActivation::Identity),
    truncate: None,
    max_tokens: None,
    prompt: None,
};

pub(crate) fn check(name: &str, found: &[Classification], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().flatten().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.scores.len(), expected.len());
        let differences = found.scores.iter().zip(expected).map(|(a, b)| (a - b).abs() / largest);
        let worst = differences.fold(0.0, f32::max);
        assert!(worst <= BOUND, "{name}: {:?}, expected {expected:?}", found.scores);
    }
}

/// With the tokens of sentence-transformers too, also of pairs that are cut.
#[test]
fn scores_match_sentence_transformers() {
    for name in ["bert_classifier", "roberta_classifier"] {
        let (classifier, golden) = (classifier(name), golden(name));
        let pairs = classifier.classify(&golden.pairs[..]).unwrap();
        check(name, &pairs, &golden.scores);
        let lengths: Vec<usize> = pairs.iter().map(|pair| pair.tokens).collect();
        assert_eq!(lengths, golden.ids.iter().map(Vec::len).collect::<Vec<_>>());
        assert!(pairs[3].truncated == 0 && pairs[4].truncated > 0 && pairs[5].truncated > 0);
        let texts = ClassificationRequest::new(&golden.texts).with(RAW);
        check(name, &classifier.classify(texts).unwrap(), &golden.logits);
    }
}

/// Batches, threads and the other texts change no bit, blocking or async.
#[test]
fn scores_are_deterministic() {
    let golden = golden("bert_classifier");
    let alone: Vec<Classification> = golden
        .pairs
        .iter()
        .map(|pair| classifier("bert_classifier").classify([pair.clone()]).unwrap().remove(0))
        .collect();
    let all: Vec<(String, String)> = golden.pairs.iter().cycle().take(64).cloned().collect();
    for (threads, texts, tokens) in [(1, 256, 4096), (2, 256, 40), (4, 3, 300), (4, 1, 1)] {
        let model = model(&folder("bert_classifier"), threads).unwrap();
        let plan = model.plan().with(|config| config.max_cache_batch_size(texts).max_batch_tokens(tokens));
        let classifier = Classifier::with_plan(model, &plan.unwrap(), &TRUNCATED).unwrap();
        for found in [classifier.classify(&all[..]), block_on(classifier.classify_async(&all[..]))] {
            for (found, expected) in found.unwrap().iter().zip(alone.iter().cycle()) {
                assert_eq!(found, expected, "{threads} threads, batches of {texts} texts, {tokens} tokens");
            }
        }
    }
}

#[test]
fn documents_are_ranked_by_score() {
    let (classifier, golden) = (classifier("roberta_classifier"), golden("roberta_classifier"));
    assert_eq!(
        (classifier.labels(), classifier.activation()),
        (&["LABEL_0".into()][..], ScoreActivation::Sigmoid)
    );
    let documents = || golden.pairs[..5].iter().map(|(_, document)| document);
    let request = || RerankRequest::new(&golden.pairs[0].0, documents());
    let ranking = classifier.rerank(request()).unwrap();
    let order: Vec<usize> = ranking.documents.iter().map(|document| document.index).collect();
    assert_eq!(order, [4, 2, 0, 3, 1]);
    let tokens: usize = golden.ids[..5].iter().map(Vec::len).sum();
    assert_eq!((ranking.tokens, ranking.documents[0].tokens), (tokens, 48));
    assert!((ranking.documents[1].score - golden.scores[2][0]).abs() < BOUND);
    let best = block_on(classifier.rerank_async(request().top(2))).unwrap();
    assert_eq!((&best.documents[..], best.tokens), (&ranking.documents[..2], tokens));
    let raw = RerankRequest { parameters: RAW, ..RerankRequest::new("cat", ["dog"]) };
    let raw = classifier.rerank(raw).unwrap().documents[0].score;
    let score = classifier.rerank(RerankRequest::new("cat", ["dog"])).unwrap().documents[0].score;
    assert!((1.0 / (1.0 + (-raw).exp()) - score).abs() < 1e-6);
    assert!(classifier.rerank(RerankRequest::new("cat", [""; 0])).unwrap().documents.is_empty());
}

#[test]
fn texts_that_do_not_fit_are_refused_alone() {
    let model = model(&folder("bert_classifier"), 1).unwrap();
    let classifier = Classifier::new(model, &ClassificationParameters::default()).unwrap();
    assert_eq!((classifier.max_length(), classifier.activation()), (48, ScoreActivation::Identity));
    let refusal = |texts: Vec<ClassificationText>| classifier.classify(texts).unwrap_err().to_string();
    let long = "cat ".repeat(50);
    assert_eq!(
        refusal(vec!["cat".into(), ("a dog", &long[..]).into()]),
        "pair 1 (counted from 0) has 2 + 50 tokens and 3 around them, but the model takes at most 48: shorten or \
         truncate it"
    );
    assert_eq!(
        refusal(vec![long[..].into()]),
        "text 0 (counted from 0) has 52 tokens, but the model takes at most 48: shorten or truncate it"
    );
    let error = classifier.rerank(RerankRequest::new("cat", ["dog"])).unwrap_err().to_string();
    assert_eq!(
        error,
        "BertForSequenceClassification scores 3 labels: ranking needs a model with one label; classify instead"
    );
    // There is no room for a token of either text.
    let tight = classifier.model().plan().with(|config| config.max_length(3)).unwrap();
    let tight = Classifier::with_plan(Arc::clone(classifier.model()), &tight, &TRUNCATED).unwrap();
    assert!(matches!(tight.classify([("a", "b")]), Err(Error::PairTooLong { around: 3, limit: 3, .. })));
    let other = classifier.clone();
    classifier.shutdown();
    let ended = other.classify(["cat"]).unwrap_err().to_string();
    assert_eq!(ended, "the classifier has ended: it was shut down");
}

#[test]
fn models_are_opened_for_what_they_do() {
    let error = model(&folder("bert"), 1).err().unwrap().to_string();
    assert_eq!(error, "BertModel has no classification head: it makes no scores");
    let plan = PipelineConfig::new(folder("bert_classifier").display().to_string()).plan(machine()).unwrap();
    let error = Embedder::from_plan(&session(1), plan).unwrap_err().to_string();
    assert_eq!(
        error,
        "BertForSequenceClassification is a classifier: it scores texts, and makes no embeddings; use a classifier"
    );
}

/// Written as GGUF, a classifier scores the same texts nearly the same, with its labels and its activation.
#[test]
fn classifiers_written_as_gguf_score_the_same() {
    let (source, golden) = (classifier("bert_classifier"), golden("bert_classifier"));
    let target = tempfile::tempdir().unwrap();
    let path = target.path().join("classifier.gguf");
    let options = QuantizeOptions::new(Mix::find("f32").unwrap());
    let checkpoint = source.model().checkpoint();
    perihelion::pipelines::quantize(checkpoint, &folder("bert_classifier"), &options, &path, &mut |_, _| ())
        .unwrap();
    let plan = PipelineConfig::new(path.display().to_string()).max_length(48_usize).plan(machine()).unwrap();
    let model = Arc::new(ClassificationModel::from_plan(&session(2), plan, &mut |_| ()).unwrap());
    let written = Classifier::new(model, &TRUNCATED).unwrap();
    assert_eq!((written.labels(), written.activation()), (source.labels(), source.activation()));
    assert_eq!(written.labels(), ["no", "perhaps", "yes"]);
    check("gguf", &written.classify(&golden.pairs[..]).unwrap(), &golden.scores);
    let error = Embedder::from_plan(&session(1), written.model().plan().clone()).unwrap_err().to_string();
    assert!(
        error.contains("`bert.pooling_type` is 4: the model scores texts, and makes no embeddings"),
        "{error}"
    );
    // RoBERTa's way to join two texts, with the words of BERT.
    let roberta = classifier("roberta_classifier");
    let refusal = perihelion::pipelines::quantize(
        roberta.model().checkpoint(),
        &folder("roberta_classifier"),
        &options,
        &path,
        &mut |_, _| (),
    );
    let refusal = refusal.err().unwrap().to_string();
    assert!(refusal.contains("GGUF files cannot say how this tokenizer joins two texts"), "{refusal}");
}
