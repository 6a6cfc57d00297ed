//! `peri encode`.

use crate::support::{Folder, Outcome, command, peri, peri_reading, storyteller};

/// Embeds with all-MiniLM-L6-v2, if it is there.
fn encode(arguments: &[&str], input: &str) -> Option<Outcome> {
    let model = testdata::shared("minilm-l6-v2")?.display().to_string();
    Some(peri_reading(&[&["encode", "--model", &model], arguments].concat(), input.as_bytes()))
}

fn numbers(line: &str) -> Vec<f64> {
    line.split(' ').map(|number| number.parse().unwrap()).collect()
}

#[test]
fn no_text_at_all_is_an_error() {
    let Some(outcome) = encode(&["--quiet"], "") else { return };
    assert_eq!((outcome.code, &outcome.stdout[..]), (Some(2), ""));
    assert!(outcome.stderr.contains("standard input has no text"), "{}", outcome.stderr);
}

#[test]
fn arguments_and_lines_give_the_same_vectors() {
    let Some(outcome) = encode(&["The cat sits on the mat.", "naïve café"], "") else { return };
    assert!(outcome.stderr.contains("2 texts") && outcome.stderr.contains("384 dims, pooling mean"));
    let text = outcome.text();
    assert_eq!(text.lines().count(), 2);
    let vector = numbers(text.lines().next().unwrap());
    let length: f64 = vector.iter().map(|x| x * x).sum();
    assert!(vector.len() == 384 && (length - 1.0).abs() < 1e-6, "{length}");
    let lines = encode(&["--threads", "3"], "The cat sits on the mat.\nnaïve café\r\n").unwrap();
    assert_eq!(lines.text(), text);
}

#[test]
fn the_model_may_come_before_the_texts() {
    let Some(outcome) = encode(&["--quiet", "The cat", "The dog"], "") else { return };
    let model = testdata::shared("minilm-l6-v2").unwrap().display().to_string();
    let expected = outcome.text();
    assert_eq!(peri(&["encode", "--quiet", &model, "The cat", "The dog"]).text(), expected);
    assert_eq!(peri_reading(&["encode", "-q", &model], b"The cat\nThe dog\n").text(), expected);
}

#[test]
fn json_has_text_vector_and_tokens() {
    let Some(outcome) = encode(&["--json", "--dimensions", "8", "The cat sits on the mat.", ""], "") else {
        return;
    };
    let objects = outcome.json_lines();
    assert_eq!(objects.len(), 2);
    assert_eq!((&objects[0]["index"], &objects[0]["tokens"]), (&0.into(), &9.into()));
    assert_eq!(
        (&objects[1]["index"], &objects[1]["text"], &objects[1]["tokens"]),
        (&1.into(), &"".into(), &2.into())
    );
    assert_eq!(objects[0]["embedding"].as_array().unwrap().len(), 8);
    assert!(objects[0].get("similarity").is_none());
}

#[test]
fn similar_texts_have_larger_cosines() {
    let texts = ["--similarity", "--quiet", "a cat", "a kitten", "stock markets fell"];
    let Some(outcome) = encode(&texts, "") else { return };
    assert_eq!(outcome.stderr, "");
    let rows: Vec<Vec<f64>> = outcome.text().lines().map(numbers).collect();
    assert!(rows.len() == 3 && rows.iter().enumerate().all(|(i, row)| row.len() == 3 && row[i] == 1.0));
    assert!(rows[0][1] > 0.7 && rows[0][2] < 0.3 && rows[0][1] == rows[1][0], "{rows:?}");
    let objects = encode(&["--similarity", "--json", "a cat", "a kitten"], "").unwrap().json_lines();
    assert_eq!(objects[1]["similarity"].as_array().unwrap().len(), 2);
    assert!(objects[1].get("embedding").is_none());
}

#[test]
fn long_texts_are_refused_unless_truncated() {
    let long = "word ".repeat(400);
    let Some(outcome) = encode(&[&long], "") else { return };
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("has 402 tokens, but the model takes at most 256"), "{}", outcome.stderr);
    let objects = encode(&["--truncate", "--json", &long], "").unwrap().json_lines();
    assert_eq!((&objects[0]["tokens"], &objects[0]["truncated"]), (&256.into(), &146.into()));
    let objects = encode(&["--truncate", "--json", "--max-length", "10", &long], "").unwrap().json_lines();
    assert_eq!(objects[0]["tokens"], 10);
    // The files say 256, and the model has positions for more.
    let outcome = encode(&["--max-length", "402", "--json", &long], "").unwrap();
    assert_eq!(outcome.json_lines()[0]["tokens"], 402);
    let outcome = encode(&["--max-length", "513", "text"], "").unwrap();
    assert!(outcome.code == Some(2) && outcome.stderr.contains("give at most 512"), "{}", outcome.stderr);
}

#[test]
fn encoders_start_from_a_saved_model() {
    let Some(model) = testdata::shared("minilm-l6-v2") else { return };
    let folder = Folder::new("encode-saved");
    let (file, other) = (folder.path().join("encoder.mef"), folder.path().join("decoder.mef"));
    let (file, other) = (file.display().to_string(), other.display().to_string());
    let text = "The cat sits on the mat.";
    let expected = encode(&["--quiet", text], "").unwrap().text();
    assert_eq!(peri(&["warm-cache", &model.display().to_string(), "--target", &file]).code, Some(0));
    let saved = encode(&["--serialized-model-path", &file, "--quiet", text], "").unwrap();
    assert_eq!(saved.text(), expected);
    // A decoder that embeds is another model than the one that writes.
    let decoder =
        ["encode", "--model", &storyteller(), "--pooling", "last", "--quiet", text].map(String::from);
    let decoder = |more: [&str; 2]| {
        let arguments: Vec<&str> = decoder.iter().map(String::as_str).chain(more).collect();
        peri(&arguments)
    };
    let vector = decoder(["--save-to-serialized-model-path", &other]).text();
    assert_eq!(decoder(["--serialized-model-path", &other]).text(), vector);
    let refused = peri(&["generate", "--model", &storyteller(), "--serialized-model-path", &other, text]);
    assert!(refused.stderr.contains("a model that embeds instead of one that writes"), "{}", refused.stderr);
}

#[test]
fn settings_are_those_of_every_command() {
    let text = ["--quiet", "The cat sits on the mat."];
    let Some(outcome) = encode(&text, "") else { return };
    let expected = outcome.text();
    let small = encode(&[&["--max-cache-batch-size", "1", "--device-specs", "cpu"], &text[..]].concat(), "");
    assert_eq!(small.unwrap().text(), expected);
    let wrong = encode(&[&["--quantization-encoding", "q4_0"], &text[..]].concat(), "").unwrap();
    assert!(
        wrong.code == Some(2) && wrong.stderr.contains("quantization_encoding is q4_0"),
        "{}",
        wrong.stderr
    );
    let idle = encode(&["--top-k", "3", "text"], "").unwrap().stderr;
    assert!(idle.contains("unexpected argument '--top-k'"), "what has no effect is no flag: {idle}");
}

#[test]
fn texts_are_counted_from_the_first_line() {
    let long = "word ".repeat(400);
    let lines = format!("{}{long}\n", "a\n".repeat(1030));
    let Some(outcome) = encode(&["--max-length", "32"], &lines) else { return };
    assert!(outcome.stderr.contains("text 1030 (counted from 0) has 402 tokens"), "{}", outcome.stderr);
    let outcome = encode(&["--truncate", "--max-length", "1", "hello there"], "").unwrap();
    assert_eq!(outcome.code, Some(2));
    assert!(!outcome.stderr.contains("use --truncate"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("max_length is 1; raise it"), "{}", outcome.stderr);
}

#[test]
fn unfit_models_and_flags_are_errors() {
    let check = |outcome: Outcome, code: i32, expected: &str| {
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains(expected) && outcome.stderr.lines().count() == 1,
            "{}",
            outcome.stderr
        );
    };
    check(peri(&["encode", "text"]), 2, "no model: name an embedding model first or with --model");
    check(peri(&["encode", "--pooling", "best", "text"]), 2, "choose one of mean, cls, last");
    let decoder = peri(&["encode", "--model", &storyteller(), "text"]);
    check(decoder, 3, "llama generates text, and its files name no pooling for embeddings");
    let vector = peri(&["encode", "--model", &storyteller(), "--pooling", "last", "Once upon a time"]).text();
    assert_eq!(numbers(vector.trim()).len(), 256);
    let Some(folder) = testdata::shared("minilm-l6-v2") else { return };
    let folder = folder.display().to_string();
    let generate = peri(&["generate", "--model", &folder, "text"]);
    check(
        generate,
        3,
        "BertModel is an encoder: it makes embeddings, not text; use an embedder; use `peri encode`",
    );
    check(encode(&["--dimensions", "1000", "text"], "").unwrap(), 2, "give 1 to 384");
    check(encode(&["--prompt-name", "query", "text"], "").unwrap(), 2, "the model's files name no prompts");
}

#[test]
fn a_repo_in_the_cache_is_a_model() {
    let cache = Folder::new("encode-hub");
    let encode = |repo: &str| {
        let arguments = ["encode", "--model", repo, "--quiet", "The cat sits on the mat."];
        let output = command(&arguments)
            .env("HF_HUB_CACHE", cache.path())
            .env("HF_HUB_OFFLINE", "1")
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, _, said) = encode("ada/nothing");
    assert!(code == Some(3) && said.contains("ada/nothing is not in the cache"), "{said}");

    let Some(model) = testdata::shared("minilm-l6-v2") else { return };
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let repo = cache.path().join("models--ada--minilm");
    let snapshot = repo.join("snapshots").join(commit);
    std::fs::create_dir_all(snapshot.join("1_Pooling")).unwrap();
    std::fs::create_dir_all(repo.join("refs")).unwrap();
    std::fs::write(repo.join("refs/main"), commit).unwrap();
    let files =
        ["config.json", "tokenizer.json", "tokenizer_config.json", "modules.json", "model.safetensors"];
    for file in files.iter().chain(&["sentence_bert_config.json", "1_Pooling/config.json"]) {
        std::fs::copy(model.join(file), snapshot.join(file)).unwrap();
    }
    let path = model.display().to_string();
    assert_eq!(encode("ada/minilm"), encode(&path));
    assert_eq!(encode("ada/minilm").0, Some(0));
}
