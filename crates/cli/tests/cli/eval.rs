//! `peri eval`: against itself, against references of another implementation, and what it refuses.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;

use crate::support::{Folder, peri, peri_reading, storyteller};

const TEXT: &str = "Once upon a time there was a king who had three daughters, and the youngest was so beautiful \
    that the sun himself wondered whenever he shone in her face. Near the castle there was a great dark forest.";

fn eval(arguments: &[&str]) -> Value {
    serde_json::from_str(&peri(&[&["eval", "--json"], arguments].concat()).text()).unwrap()
}

/// Writes saved logits as another program would: no facts about the tensors.
fn save(folder: &Folder, tokens: &[u32], logits: &[u8], vocab: usize) -> String {
    let ids: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let rows = logits.len() / 4 / vocab;
    let tensors = HashMap::from([
        ("tokens", TensorView::new(Dtype::U32, vec![tokens.len()], &ids).unwrap()),
        ("logits", TensorView::new(Dtype::F32, vec![rows, vocab], logits).unwrap()),
    ]);
    folder.file("reference.safetensors", safetensors::serialize(&tensors, None).unwrap())
}

/// Prompt `case` of a reference, and the file of logits.
fn reference(folder: &Path, cases: impl Fn(&Value) -> Value, case: usize) -> (Vec<u32>, Vec<u8>) {
    let greedy: Value = serde_json::from_slice(&std::fs::read(folder.join("greedy.json")).unwrap()).unwrap();
    let tokens = serde_json::from_value(cases(&greedy)[case]["prompt_ids"].clone()).unwrap();
    (tokens, std::fs::read(folder.join("logits.safetensors")).unwrap())
}

#[test]
fn a_model_agrees_with_itself() {
    let folder = Folder::new("eval-self");
    let (text, out) = (folder.file("t.txt", TEXT), folder.path().join("l.safetensors").display().to_string());
    let first = eval(&["--text", &text, "--window", "16", "--stride", "5", "--logits-out", &out]);
    let tokens = first["tokens"].as_u64().unwrap();
    assert_eq!((&first["scored"], &first["divergence"]), (&(tokens - 1).into(), &Value::Null));
    let nats = first["nats"].as_f64().unwrap();
    assert!(
        (first["perplexity"].as_f64().unwrap() - nats.exp()).abs() < 1e-9 && (1.0..6.0).contains(&nats),
        "{first}"
    );
    // Tokens, window and stride are those of the file; threads change nothing.
    let again = eval(&["--logits", &out, "--threads", "1"]);
    assert_eq!((&again["window"], &again["stride"], &again["nats"]), (&16.into(), &5.into(), &first["nats"]));
    let divergence = &again["divergence"];
    assert_eq!((&divergence["rows"], &divergence["top1_agreement"]), (&tokens.into(), &1.0.into()));
    assert_eq!((&divergence["mean"], &divergence["max"]), (&0.0.into(), &0.0.into()), "{divergence}");
    assert_eq!(divergence["perplexity_ratio"], 1.0);
    let file = std::fs::read(&out).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(file.tensor("logits").unwrap().shape(), [tokens as usize, 4096]);
    // Only the file itself is left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    let written = std::fs::read(&out).unwrap();
    eval(&["--text", &text, "--window", "16", "--stride", "5", "--logits-out", &out]);
    assert!(std::fs::read(&out).unwrap() == written, "the same to the byte");
    let longer = eval(&["--text", &text]);
    assert!(longer["nats"].as_f64().unwrap() < nats, "more context predicts better: {longer}");
}

#[test]
fn standard_input_and_arguments_are_texts_too() {
    let piped = peri_reading(&["eval", "--text", "-", "--json"], TEXT.as_bytes());
    let piped: Value = serde_json::from_str(&piped.text()).unwrap();
    assert_eq!(piped["nats"], eval(&["--prompt", TEXT])["nats"]);
    let short = eval(&["--prompt", TEXT, "--max-length", "8"]);
    assert_eq!((&short["window"], &short["stride"]), (&8.into(), &4.into()));
    let lines = peri(&["eval", "--prompt", TEXT]).text();
    assert!(lines.contains("perplexity       "), "{lines}");
}

#[test]
fn quantized_storytellers_are_close_to_the_reference() {
    let Some(data) = testdata::shared("storyteller") else { return };
    let folder = Folder::new("eval-storyteller");
    let cases = |greedy: &Value| greedy["variants"]["BF16"]["cases"].clone();
    let (tokens, file) = reference(&data.join("reference"), cases, 1);
    let logits = SafeTensors::deserialize(&file).unwrap();
    let logits = logits.tensor("BF16.1").unwrap().data();
    let saved = save(&folder, &tokens, logits, 4096);
    let divergence = |model: &str| {
        let divergence = &eval(&[model, "--logits", &saved])["divergence"];
        (divergence["mean"].as_f64().unwrap(), divergence["top1_agreement"].as_f64().unwrap())
    };
    let gguf = |name: &str| data.join("gguf").join(name).display().to_string();
    let (bf16, same) = divergence(&gguf("storyteller-BF16.gguf"));
    assert!(bf16 < 1e-3 && same > 0.89, "{bf16} {same}");
    for name in
        ["storyteller-Q8_0.gguf", "storyteller-Q4_0.gguf", "storyteller-Q4_K_M.gguf", "storyteller-Q6_K.gguf"]
    {
        let (quantized, same) = divergence(&gguf(name));
        assert!(quantized < 0.1 && same >= 0.7, "{name}: {quantized} {same}");
        assert!(quantized > bf16, "{name} is further from the weights it was made of: {quantized} {bf16}");
    }
}

#[test]
fn fewer_rows_belong_to_the_last_tokens() {
    let Some(data) = testdata::shared("stories260k") else { return };
    let folder = Folder::new("eval-stories");
    let (tokens, file) = reference(&data.join("reference"), |greedy| greedy["cases"].clone(), 1);
    let logits = SafeTensors::deserialize(&file).unwrap();
    let saved = save(&folder, &tokens, logits.tensor("F32_last_1").unwrap().data(), 512);
    let model = data.join("gguf/stories260K-F32.gguf").display().to_string();
    let outcome = eval(&[&model, "--logits", &saved]);
    let divergence = &outcome["divergence"];
    assert_eq!((&divergence["rows"], &divergence["top1_agreement"]), (&1.into(), &1.0.into()));
    assert!(divergence["max"].as_f64().unwrap() < 1e-6, "{outcome}");
    assert_eq!(divergence["saved_perplexity"], Value::Null, "nothing follows the last token");
}

#[test]
fn mismatched_logits_windows_and_texts_are_errors() {
    let folder = Folder::new("eval-bad");
    let text = folder.file("t.txt", TEXT);
    let saved = save(&folder, &[0, 2352, 607], &[0; 3 * 4 * 8], 8);
    let model = storyteller();
    let cases: [(&[&str], &str); 7] = [
        (&["--logits", &saved], "logits of 8 tokens, but the model's vocabulary has 4096"),
        (&["--logits", &text], "cannot open saved logits"),
        (&["--text", &text, "--window", "600"], "a window of 600 tokens, but the model takes 512"),
        (
            &["--text", &text, "--window", "64", "--max-length", "32"],
            "a window of 64 tokens, but max_length is 32; give a smaller --window",
        ),
        (&["--text", &text, "--window", "8", "--stride", "9"], "a stride of 9 tokens, but a window of 8"),
        (&["--text", "nowhere.txt"], "cannot read nowhere.txt"),
        (&["--prompt", ""], "scoring takes 2"),
    ];
    for (arguments, expected) in cases {
        let outcome = peri(&[&["eval", &model], arguments].concat());
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(expected), "{expected}: {}", outcome.stderr);
    }
    let full = save(&folder, &[0, 2352, 607], &[0; 3 * 4 * 4096], 4096);
    let outcome = peri(&["eval", "--logits", &full, "--prompt", "The fox"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("the tokens differ from those of the text at 1"), "{}", outcome.stderr);
}
