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
fn what_cannot_be_written_is_refused() {
    let folder = Folder::new("quantize-refused");
    let target = folder.path().join("out.gguf").display().to_string();
    let refused = |arguments: &[&str], code: i32, message: &str| {
        let run = peri(&[&["quantize"], arguments].concat());
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        assert!(run.stderr.contains(message), "{}", run.stderr);
    };
    refused(&["--to", "q9_k", "--out", &target], 2, "expected one of q2_k_s, q2_k, q3_k_s");
    refused(&["--to", "q4_k", "--out", "model.bin"], 2, "--out model.bin is not the name of a GGUF file");
    refused(&["--to", "q4_k", "--out", "model.mef"], 2, "peri warm-cache FILE.gguf --target FILE.mef");
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
