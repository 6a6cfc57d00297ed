//! `peri inspect`.

use crate::support::{peri, storyteller};

#[test]
fn facts_of_the_built_in_model() {
    let text = peri(&["inspect"]).text();
    let fact = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name:?} in\n{text}")).trim().to_string()
    };
    assert_eq!(fact("architecture "), "llama");
    assert_eq!(fact("parameters "), "7 344 384");
    assert_eq!(fact("layers "), "8");
    assert_eq!(fact("vocabulary "), "4096");
    assert_eq!(fact("context "), "512 tokens");
    assert!(fact("tokenizer ").contains("4096 tokens"));
    assert!(fact("tensors ").contains("q4_k"));
    assert!(fact("memory needed ").contains(" free"));
    assert_eq!(peri(&["inspect", &storyteller()]).text().lines().count(), text.lines().count());
}

#[test]
fn tensors_and_plan_when_asked() {
    let plain = peri(&["inspect"]).text();
    assert!(!plain.contains("blk.7.ffn_norm.weight") && !plain.contains("paged_attention"));
    let tensors = peri(&["inspect", "--tensors"]).text();
    assert!(tensors.contains("blk.7.ffn_norm.weight") && tensors.contains("[256]"), "{tensors}");
    let plan = peri(&["inspect", "--plan"]).text();
    assert!(plan.contains("plan decoder on cpu") && plan.contains("paged_attention"), "{plan}");
}

#[test]
fn json_has_everything() {
    let value: serde_json::Value = serde_json::from_str(&peri(&["inspect", "--json"]).text()).unwrap();
    assert_eq!(value["parameters"], 7_344_384);
    assert_eq!(value["context_length"], 512);
    assert_eq!(value["cache_bytes_per_token"], 8 * 2 * 4 * 32 * 4);
    assert_eq!(value["facts"]["architecture"], "llama");
    let tensors = value["tensors"].as_array().unwrap();
    let norm = tensors.iter().find(|tensor| tensor["name"] == "blk.7.ffn_norm.weight").unwrap();
    assert_eq!((&norm["type"], &norm["bytes"]), (&"f32".into(), &1024.into()));
    assert_eq!(norm["shape"], serde_json::json!([256]));
    let bytes: u64 = tensors.iter().map(|tensor| tensor["bytes"].as_u64().unwrap()).sum();
    assert_eq!(value["weights_bytes"], bytes);
}
