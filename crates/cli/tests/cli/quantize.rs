//! `peri quantize`.

use serde_json::Value;

use crate::support::{Folder, peri, storyteller};

#[test]
fn a_model_is_written_and_runs() {
    let folder = Folder::new("quantize");
    let target = folder.path().join("small.gguf").display().to_string();
    let text =
        folder.file("text.txt", "Once upon a time there was a king who had three daughters. ".repeat(20));
    let arguments =
        ["quantize", &storyteller(), "--to", "Q3_K_M", "--out", &target, "--importance", &text, "--json"];
    let run = peri(&arguments);
    assert!(run.stderr.contains("tensors were quantized before"), "{}", run.stderr);
    let written: Value = serde_json::from_str(&run.text()).unwrap();
    assert_eq!((&written["to"], &written["file"]), (&"q3_k_m".into(), &target.clone().into()));
    assert_eq!(written["weights"], 7_344_384);
    assert_eq!(written["dtypes"]["f32"], 17);
    assert!(written["importance_tokens"].as_u64().unwrap() > 200);
    let bits = written["bits_per_weight"].as_f64().unwrap();
    assert!((3.9..4.6).contains(&bits), "{bits}");
    let inspected = peri(&["inspect", &target]).text();
    assert!(inspected.contains("q3_k"), "{inspected}");
    let prompt = ["generate", "Once upon a time", "--model", &target, "--max-new-tokens", "4", "--quiet"];
    assert!(peri(&prompt).text().starts_with("Once upon a time"));
}

#[test]
fn an_artifact_generates_without_the_model_that_it_was_made_from() {
    let folder = Folder::new("quantize-artifact");
    let [gguf, mef] = ["small.gguf", "small.mef"].map(|name| folder.path().join(name).display().to_string());
    for target in [&gguf, &mef] {
        peri(&["quantize", &storyteller(), "--to", "q4_k_m", "--out", target]).text();
    }
    let generate = |model: &str| {
        let arguments =
            ["-n", "20", "--seed", "3", "--logprobs", "2", "--json", "--quiet", "Once upon a time"];
        peri(&[&["generate", "-m", model], &arguments[..]].concat()).text()
    };
    let text = generate(&gguf);
    std::fs::remove_file(&gguf).unwrap();
    assert_eq!(generate(&mef), text);
    assert!(peri(&["plan", &mef]).text().contains("7344384"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
    let page = peri(&["generate", "-m", &mef, "--kv-cache-page-size", "32", "-n", "1", "Once"]);
    assert_eq!(page.code, Some(2), "{page:?}");
    assert!(page.stderr.contains("kv_cache_page_size 64 instead of 32"), "{}", page.stderr);
}

#[test]
fn what_cannot_be_written_is_refused() {
    let folder = Folder::new("quantize-refused");
    let target = folder.path().join("out.gguf").display().to_string();
    let refused = |arguments: &[&str], code: i32, message: &str| {
        let run = peri(&[&["quantize"], arguments].concat());
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        assert!(run.stderr.contains(message), "{}", run.stderr);
    };
    refused(&["--to", "q9_k", "--out", &target], 2, "expected one of q2_k_s, q2_k, q3_k_s");
    refused(&["--to", "q4_k", "--out", "model.bin"], 2, "--out model.bin ends in neither .gguf nor .mef");
    let copy = folder.file("model.gguf", std::fs::read(storyteller()).unwrap());
    refused(&[&copy, "--to", "q8_0", "--out", &copy], 1, "is read from and cannot be written to");
    refused(
        &[&copy, "--to", "q8_0", "--out", &target, "--importance", "nowhere.txt"],
        2,
        "cannot read nowhere.txt",
    );
    refused(&[&copy, "--to", "q2_k_s", "--out", &target], 1, "q2_k_s needs the importance of columns");
    assert!(!folder.path().join("out.gguf").exists());
}

/// A bf16 model of rows of 256, in a folder.
#[test]
fn generate_quantizes_while_loading() {
    let Some(model) = testdata::shared("shakespeare-llama/hf") else { return };
    let (model, folder) = (model.display().to_string(), Folder::new("quantize-loading"));
    let target = folder.path().join("model.gguf").display().to_string();
    peri(&["quantize", &model, "--to", "q4_k_m", "--out", &target]).text();
    let generate = |arguments: &[&str]| {
        let prompt = ["--seed", "3", "--logprobs", "2", "--json", "--quiet", "-n", "8", "ROMEO:"];
        peri(&[&["generate", "-m"], arguments, &prompt].concat()).text()
    };
    assert_eq!(generate(&[&model, "--quantize", "Q4_K_M"]), generate(&[&target]));
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&peri(&[arguments, &["--json"]].concat()).text()).unwrap()
    };
    let [stored, quantized, file] = [&[&model[..]][..], &[&model, "--quantize", "q4_k"], &[&target]]
        .map(|arguments| json(&[&["plan"], arguments].concat()));
    assert_eq!(quantized["quantize"], "q4_k_m");
    assert_eq!((&quantized["encoding"], &quantized["cache_dtype"]), (&"bfloat16".into(), &"f16".into()));
    assert_eq!(quantized["weights_packed_bytes"], file["weights_packed_bytes"]);
    let packed = |plan: &Value| plan["weights_packed_bytes"].as_u64().unwrap();
    assert!(packed(&quantized) < packed(&stored) / 2, "{quantized:#}");
    let inspected = peri(&["inspect", &model, "--quantize", "q4_k"]).text();
    assert!(inspected.contains("quantized to     q4_k_m\n") && inspected.contains(" q4_k, "), "{inspected}");
    assert_eq!(
        json(&["inspect", &model, "--quantize", "q4_k"])["weights_bytes"],
        json(&["inspect", &target])["weights_bytes"]
    );
    let refused = |arguments: &[&str], message: &str| {
        let run = peri(&[&["generate", "-m"], arguments, &["-n", "1", "ROMEO:"]].concat());
        assert!(run.code == Some(2) && run.stderr.contains(message), "{}", run.stderr);
    };
    refused(&[&target, "--quantize", "q4_0"], "model.gguf is quantized already, as q4_k");
    refused(&[&model, "--quantize", "q4_0", "--dtype", "f32"], "weights_dtype is f32");
    refused(&[&model, "--quantize", "q4_j"], "q8_0, bf16, f16, f32; did you mean q4_0?");
}
