//! `peri list`.

use crate::support::peri;

#[test]
fn architectures_encodings_and_files_are_listed() {
    let text = peri(&["list"]).text();
    for part in ["LlamaForCausalLM", "BertModel", "q4_k", "bfloat16", "GGUF", "safetensors", "PyTorch"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn json_lists_architectures_and_files() {
    let value: serde_json::Value = serde_json::from_str(&peri(&["list", "--json"]).text()).unwrap();
    let llama = &value["architectures"]["LlamaForCausalLM"];
    assert_eq!((&llama["gguf"], &llama["task"]), (&"llama".into(), &"text_generation".into()));
    assert_eq!(value["architectures"]["MPNetModel"]["task"], "embeddings_generation");
    assert_eq!(value["architectures"]["BertForSequenceClassification"]["task"], "text_classification");
    assert!(!llama["example_repo_ids"].as_array().unwrap().is_empty());
    assert!(llama["supported_encodings"].as_array().unwrap().contains(&"q4_k".into()));
    assert_eq!(value["files"].as_array().unwrap().len(), 3);
}
