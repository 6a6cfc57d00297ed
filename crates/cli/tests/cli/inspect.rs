//! `peri inspect`.

use crate::support::{Folder, peri, storyteller};

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
fn the_cache_size_follows_max_length() {
    assert!(peri(&["inspect"]).text().contains("cache            2.00 MiB for 512 tokens"));
    let text = peri(&["inspect", "--max-length", "128"]).text();
    assert!(text.contains("cache            512.00 KiB for 128 tokens"), "{text}");
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
    assert_eq!(value["cache_bytes_per_token"], 8 * 2 * 4 * 32 * 2);
    assert_eq!(value["facts"]["architecture"], "llama");
    let tensors = value["tensors"].as_array().unwrap();
    let norm = tensors.iter().find(|tensor| tensor["name"] == "blk.7.ffn_norm.weight").unwrap();
    assert_eq!((&norm["type"], &norm["bytes"]), (&"f32".into(), &1024.into()));
    assert_eq!(norm["shape"], serde_json::json!([256]));
    let bytes: u64 = tensors.iter().map(|tensor| tensor["bytes"].as_u64().unwrap()).sum();
    assert_eq!(value["weights_bytes"], bytes);
}

#[test]
fn artifacts_show_their_models_and_weights() {
    let folder = Folder::new("artifact");
    let path = folder.path().join("twice.mef");
    let shown = path.display().to_string();
    let device: std::sync::Arc<dyn engine::Device> = std::sync::Arc::new(cpu::Cpu::new(1));
    let target = device.target();
    let session = engine::InferenceSession::new([device]).unwrap();
    let text = "graph twice(%x: f32[n, 2]) { %w = weight \"w\" : f32[3, 2] %y = linear(%x, %w) return %y }";
    let compiled = session.compile(&graph::Graph::parse(text).unwrap()).unwrap();
    let weight = tensor::Tensor::from_slice([3, 2], &[1f32; 6]);
    let weights = move |_: &str| Some(weight.clone());
    let options = engine::ExportOptions { weights: Some(&weights), ..engine::ExportOptions::default() };
    compiled.export_mef_with(&path, options).unwrap();

    let text = peri(&["inspect", &shown, "--tensors", "--plan"]).text();
    let facts = [
        format!("made for         cpu ({target})\n"),
        "runs here        yes\n".to_string(),
        "models           twice (".to_string(),
        "weights          1 panel16.f32 of 0.12 KiB\n".to_string(),
        "in 2 sections, intact\n".to_string(),
        "linear[f32]".to_string(),
    ];
    facts.iter().for_each(|fact| assert!(text.contains(fact), "no {fact:?} in\n{text}"));
    let value: serde_json::Value =
        serde_json::from_str(&peri(&["inspect", &shown, "--json"]).text()).unwrap();
    assert_eq!(
        (&value["models"][0]["name"], &value["obstacle"]),
        (&"twice".into(), &serde_json::Value::Null)
    );
    assert_eq!(value["weights"][0]["layout"], "panel16.f32");

    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let failed = peri(&["inspect", &shown]);
    assert_eq!(failed.code, Some(3));
    assert!(failed.stderr.contains(": altered: "), "{}", failed.stderr);
}

#[test]
fn encoders_have_no_cache() {
    let Some(folder) = testdata::shared("minilm-l6-v2") else { return };
    let text = peri(&["inspect", &folder.display().to_string()]).text();
    for line in ["architecture     BertModel", "parameters       22 565 376", "context          512 tokens"] {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.contains("hidden states, no text") && !text.contains("cache"), "{text}");
}

#[test]
fn inspect_and_plan_agree_on_the_cache() {
    for arguments in [&[][..], &["--max-length", "100"]] {
        let json = |command: &str| {
            let outcome = peri(&[&[command, "--json"], arguments].concat());
            serde_json::from_str::<serde_json::Value>(&outcome.stdout).unwrap()
        };
        let (plan, facts) = (json("plan"), json("inspect"));
        let cache = facts["facts"]["cache"].as_str().unwrap();
        let tokens = format!(" for {} tokens, ", plan["max_length"]);
        assert!(cache.contains(&tokens), "{cache}{tokens}");
    }
}
