//! `peri rerank` and `peri classify`.

use crate::support::{Folder, Outcome, peri, peri_reading, storyteller};

const QUERY: &str = "is a cat here";
const DOCUMENTS: [&str; 3] = ["the cat sat on a mat", "dogs run", "the fast dog ran on and on"];

/// A tiny model with a head: one label (`roberta_classifier`) or three (`bert_classifier`).
fn model(name: &str) -> String {
    testdata::asset("perihelion/tests/models/encoders").join(name).display().to_string()
}

fn rerank(arguments: &[&str], input: &str) -> Outcome {
    let model = model("roberta_classifier");
    peri_reading(&[&["rerank", "--model", &model, "--query", QUERY], arguments].concat(), input.as_bytes())
}

#[test]
fn documents_come_best_first() {
    let outcome = rerank(&DOCUMENTS, "");
    let expected =
        "0.6278  2  the fast dog ran on and on\n0.5611  0  the cat sat on a mat\n0.4534  1  dogs run\n";
    assert!(
        outcome.stderr.contains("3 texts") && outcome.stderr.contains("1 labels, sigmoid"),
        "{outcome:?}"
    );
    assert_eq!(outcome.text(), expected);
    let lines = rerank(&["--quiet", "--threads", "3"], &DOCUMENTS.join("\r\n"));
    assert_eq!(lines.stderr, "");
    assert_eq!(lines.text(), expected);
    let model = model("roberta_classifier");
    let first = [&["rerank", "-q", "--query", QUERY, &model], &DOCUMENTS[..]].concat();
    assert_eq!(peri(&first).text(), expected);
    let best = rerank(&[&["--json", "--top-n", "1"], &DOCUMENTS[..]].concat(), "").json_lines();
    assert_eq!(best.len(), 1);
    assert_eq!((&best[0]["index"], &best[0]["text"]), (&2.into(), &DOCUMENTS[2].into()));
    assert_eq!((&best[0]["tokens"], &best[0]["truncated"]), (&15.into(), &0.into()));
}

#[test]
fn texts_get_the_label_of_the_highest_score() {
    let model = model("bert_classifier");
    let classify = |arguments: &[&str]| peri(&[&["classify", &model, "--quiet"], arguments].concat());
    assert_eq!(
        classify(&["a cat sat", "the dog ran and ran and sat"]).text(),
        "perhaps  3.2334\nperhaps  3.1530\n"
    );
    let softmax = classify(&["--activation", "softmax", "--json", "a cat sat"]).json_lines();
    let scores = softmax[0]["scores"].as_object().unwrap();
    assert_eq!(scores.keys().collect::<Vec<_>>(), ["no", "perhaps", "yes"]);
    let sum: f64 = scores.values().map(|score| score.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6 && softmax[0]["label"] == "perhaps", "{softmax:?}");
    let lines = peri_reading(&["classify", &model, "-q"], b"a cat sat\n");
    assert_eq!(lines.text(), "perhaps  3.2334\n");
}

/// A decoder that scores by tokens, with the instruction of its files, one that they name, or one that is given.
#[test]
fn decoders_rank_as_they_are_instructed() {
    let model = testdata::asset("perihelion/tests/models/rerankers/qwen3_reranker").display().to_string();
    let rank = |arguments: &[&str]| {
        peri(&[&["rerank", &model, "--query", QUERY, "-q"], arguments, &DOCUMENTS[..2]].concat())
    };
    let usual = "-3.0365  0  the cat sat on a mat\n-5.7714  1  dogs run\n";
    assert_eq!(rank(&[]).text(), usual);
    assert_eq!(rank(&["--prompt-name", "query"]).text(), usual);
    let instructed = rank(&["--prompt", "Judge well"]).text();
    assert_eq!(instructed, "-7.3599  0  the cat sat on a mat\n-9.3745  1  dogs run\n");
    let odds = rank(&["--activation", "sigmoid"]).text();
    assert_eq!(odds, "0.0458  0  the cat sat on a mat\n0.0031  1  dogs run\n");
    let generated = peri(&["generate", &model, "x"]);
    assert!(generated.stderr.contains("is a classifier: it scores texts and writes none"), "{generated:?}");
}

#[test]
fn long_pairs_are_refused_unless_truncated() {
    let long = "cat ".repeat(60);
    let outcome = rerank(&["dogs", &long], "");
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.stderr.contains("pair 1 (counted from 0) has 4 + 60 tokens and 4 around them"),
        "{outcome:?}"
    );
    assert!(outcome.stderr.contains("use --truncate"), "{outcome:?}");
    let objects = rerank(&["--truncate", "--json", &long], "").json_lines();
    assert_eq!((&objects[0]["tokens"], &objects[0]["truncated"]), (&48.into(), &20.into()));
}

#[test]
fn models_without_a_head_and_missing_texts_are_errors() {
    let check = |outcome: Outcome, code: i32, expected: &str| {
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        assert!(outcome.stderr.contains(expected) && outcome.stderr.lines().count() == 1, "{outcome:?}");
    };
    check(peri(&["classify", "text"]), 2, "no model: name a classifier first or with --model");
    check(rerank(&["--quiet"], ""), 2, "standard input has no text");
    let bert = model("bert_classifier");
    let several = peri(&["rerank", &bert, "--quiet", "--query", "a", "b"]);
    check(several, 3, "scores 3 labels: ranking needs a model with one label; classify instead");
    check(peri(&["encode", &bert, "--quiet", "a"]), 3, "use `peri rerank` or `peri classify`");
    let plain = peri(&["classify", &model("bert"), "--quiet", "a"]);
    check(plain, 3, "BertModel has no classification head: it makes no scores");
    let decoder = peri(&["classify", &storyteller(), "--quiet", "a"]);
    check(decoder, 3, "llama has no classification head: it makes no scores");
    assert!(peri(&["inspect", &bert]).text().contains("scores of 3 labels: no, perhaps, yes"));
}

#[test]
fn classifiers_start_from_a_saved_or_a_quantized_model() {
    let (bert, folder) = (model("bert_classifier"), Folder::new("classify-saved"));
    let (saved, written) = (folder.path().join("classifier.mef"), folder.path().join("classifier.gguf"));
    let (saved, written) = (saved.display().to_string(), written.display().to_string());
    let expected = peri(&["classify", &bert, "--quiet", "a cat sat"]).text();
    assert_eq!(peri(&["warm-cache", &bert, "--target", &saved]).code, Some(0));
    let started = peri(&["classify", &bert, "--serialized-model-path", &saved, "--quiet", "a cat sat"]);
    assert_eq!(started.text(), expected);
    assert_eq!(peri(&["quantize", &bert, "--to", "f32", "--out", &written]).code, Some(0));
    assert_eq!(peri(&["classify", &written, "--quiet", "a cat sat"]).text(), expected);
}
