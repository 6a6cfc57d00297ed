//! `peri plan`.

use serde_json::Value;

use crate::pull::{File, hub};
use crate::support::{Folder, Outcome, command, peri};

/// A model of 2 layers on a hub, whose weights nobody fetches.
const FILES: &[File] = &[
    (
        "config.json",
        "one",
        r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": true,
            "max_position_embeddings": 128}"#,
    ),
    ("model.safetensors", "two", "weights that are not here"),
];
const GGUF: &[File] = &[("tiny-Q8_0.gguf", "three", "GGUF eight")];

/// Plans `ada/tiny` of a hub.
fn plan_of(files: &'static [File], arguments: &[&str]) -> (Outcome, usize) {
    let cache = Folder::new(&format!("plan-hub-{}", files.len()));
    let mut command = command(&[&["plan", "ada/tiny"], arguments].concat());
    command.env("HF_ENDPOINT", hub(files)).env("HF_HUB_CACHE", cache.path()).env("HF_HOME", cache.path());
    let output = command.env_remove("HF_TOKEN").env("HF_HUB_OFFLINE", "0").output().unwrap();
    let outcome = Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    let blobs = std::fs::read_dir(cache.path().join("models--ada--tiny/blobs"));
    (outcome, blobs.map_or(0, Iterator::count))
}

fn json(outcome: Outcome) -> Value {
    serde_json::from_str(&outcome.text()).unwrap()
}

#[test]
fn numbers_are_those_of_the_model() {
    let plan = json(peri(&["plan", "--json", "--kv-cache-page-size", "64", "--cache-strategy", "paged"]));
    assert_eq!((&plan["model"], &plan["architecture"]), (&"storyteller".into(), &"LlamaForCausalLM".into()));
    assert_eq!((&plan["parameters"], &plan["active_parameters"]), (&7_344_384.into(), &7_344_384.into()));
    assert_eq!((&plan["encoding"], &plan["cache_strategy"]), (&"q4_k".into(), &"paged".into()));
    // 2 sides of 8 layers of 4 heads of 32 f32.
    assert_eq!(plan["cache_bytes_per_token"], 2 * 8 * 4 * 32 * 4);
    assert_eq!((&plan["cache_bytes"], &plan["cache_tokens"]), (&(512 * 8192).into(), &512.into()));
    let (weights, packed, mapped) = (
        &plan["weights_bytes"],
        plan["weights_packed_bytes"].as_u64().unwrap(),
        &plan["weights_mapped_bytes"],
    );
    // The embedding is used as stored, and packed as the output.
    assert!(packed > 0 && packed + mapped.as_u64().unwrap() > weights.as_u64().unwrap(), "{plan:#}");
    assert_eq!(plan["total_bytes"].as_u64().unwrap(), weights.as_u64().unwrap() + 512 * 8192);
    assert_eq!(
        (&plan["fits"], &plan["problem"], &plan["bytes_to_fetch"]),
        (&true.into(), &Value::Null, &0.into())
    );
    assert_eq!((&plan["max_length_inferred"], &plan["max_cache_batch_size"]), (&false.into(), &1.into()));
}

#[test]
fn what_does_not_fit_ends_with_its_code_and_says_what_would() {
    let outcome = peri(&["plan", "--json", "--max-cache-batch-size", "1000000000"]);
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    assert!(outcome.stderr.contains("lower max_cache_batch_size to "), "{}", outcome.stderr);
    let plan: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&plan["fits"], &plan["cache_bytes"]), (&false.into(), &Value::Null));
    assert!(outcome.stderr.contains(plan["problem"].as_str().unwrap()), "{plan:#}");
}

#[test]
fn lines_end_with_the_answer() {
    let text = peri(&["plan", "--max-length", "auto"]).text();
    for part in ["architecture          LlamaForCausalLM", "512 (auto-inferred)", "1 (current)", " packed, "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.lines().last(), Some("fits                  yes"));
}

#[test]
fn encoders_have_no_cache() {
    let Some(model) = testdata::shared("minilm-l6-v2") else { return };
    let plan = json(peri(&["plan", "--json", &model.display().to_string()]));
    assert_eq!((&plan["task"], &plan["cache_bytes_per_token"]), (&"embeddings_generation".into(), &0.into()));
}

#[test]
fn weights_on_a_hub_are_not_fetched() {
    let (outcome, blobs) = plan_of(FILES, &["--json", "--max-length", "auto"]);
    let plan = json(outcome);
    assert_eq!(blobs, 1, "config.json alone");
    assert_eq!((&plan["architecture"], &plan["encoding"]), (&"LlamaForCausalLM".into(), &"bfloat16".into()));
    // Two layers of attention, feed forward and norms; the embedding once.
    let layer = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32;
    assert_eq!(plan["parameters"], 2 * layer + 64 * 32 + 32);
    let bytes = FILES[1].2.len();
    assert_eq!((&plan["weights_bytes"], &plan["bytes_to_fetch"]), (&bytes.into(), &bytes.into()));
    assert_eq!((&plan["max_length"], &plan["fits"]), (&128.into(), &true.into()));
    assert_eq!((&plan["files"][0]["cached"], &plan["weights_packed_bytes"]), (&false.into(), &Value::Null));
}

#[test]
fn of_a_gguf_file_on_a_hub_the_bytes_are_known() {
    let (outcome, blobs) = plan_of(GGUF, &[]);
    assert!(outcome.stderr.contains("only its bytes are known"), "{outcome:?}");
    let text = outcome.text();
    assert_eq!((text.lines().last(), blobs), (Some("fits                  unknown"), 0));
    assert!(text.contains("weights on disk       0.01 KiB") && text.contains("q8_0"), "{text}");
}
