//! `peri plan`.

use serde_json::Value;

use crate::hub::{Files, Hub};
use crate::support::{Folder, Outcome, peri, storyteller};

pub(crate) const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128}"#;

/// The parameters of [`CONFIG`]: two layers of attention, feed forward and norms; the embedding once.
const PARAMETERS: usize = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32) + 64 * 32 + 32;

/// A safetensors file of the bf16 weights of [`CONFIG`] and, if there is one, an output of its own.
pub(crate) fn safetensors(output: bool) -> Vec<u8> {
    let mut shapes =
        vec![("model.embed_tokens".to_string(), vec![64, 32]), ("model.norm".to_string(), vec![32])];
    for layer in 0..2 {
        let named = [
            ("self_attn.q_proj", vec![32, 32]),
            ("self_attn.k_proj", vec![16, 32]),
            ("self_attn.v_proj", vec![16, 32]),
            ("self_attn.o_proj", vec![32, 32]),
            ("mlp.gate_proj", vec![48, 32]),
            ("mlp.up_proj", vec![48, 32]),
            ("mlp.down_proj", vec![32, 48]),
            ("input_layernorm", vec![32]),
            ("post_attention_layernorm", vec![32]),
        ];
        shapes.extend(named.map(|(name, shape)| (format!("model.layers.{layer}.{name}"), shape)));
    }
    shapes.extend(output.then(|| ("lm_head".to_string(), vec![64, 32])));
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, shape) in shapes {
        let start = end;
        end += 2 * shape.iter().product::<usize>();
        let info = serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]});
        header.insert(format!("{name}.weight"), info);
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; end]].concat()
}

/// Plans `ada/tiny` of a hub.
fn plan_of(hub: &Hub, arguments: &[&str], offline: bool) -> Outcome {
    let cache = Folder::new(&format!("plan-hub-{:p}", hub));
    // What is in the current folder has nothing to do with it.
    cache.file("model.safetensors", "of another model");
    let outcome = hub.peri(&cache, &[&["plan", "ada/tiny"], arguments].concat(), offline);
    let blobs = std::fs::read_dir(cache.path().join("models--ada--tiny/blobs"));
    assert!(blobs.map_or(0, Iterator::count) <= 1, "config.json alone");
    outcome
}

fn json(outcome: Outcome) -> Value {
    serde_json::from_str(&outcome.text()).unwrap()
}

#[test]
fn plan_numbers_match_the_model() {
    let plan = json(peri(&["plan", "--json", "--kv-cache-page-size", "64", "--cache-strategy", "paged"]));
    assert_eq!((&plan["model"], &plan["architecture"]), (&"storyteller".into(), &"LlamaForCausalLM".into()));
    assert_eq!((&plan["parameters"], &plan["active_parameters"]), (&7_344_384.into(), &7_344_384.into()));
    assert_eq!((&plan["encoding"], &plan["cache_strategy"]), (&"q4_k".into(), &"paged".into()));
    // 2 sides of 8 layers of 4 heads of 32 f16.
    assert_eq!(plan["cache_bytes_per_token"], 2 * 8 * 4 * 32 * 2);
    assert_eq!((&plan["cache_bytes"], &plan["cache_tokens"]), (&(512 * 4096).into(), &512.into()));
    let (weights, packed, mapped) = (
        &plan["weights_bytes"],
        plan["weights_packed_bytes"].as_u64().unwrap(),
        &plan["weights_mapped_bytes"],
    );
    // The embedding is used as stored, and packed as the output.
    assert!(packed > 0 && packed + mapped.as_u64().unwrap() > weights.as_u64().unwrap(), "{plan:#}");
    assert_eq!(plan["total_bytes"].as_u64().unwrap(), packed + mapped.as_u64().unwrap() + 512 * 4096);
    assert_eq!(
        (&plan["fits"], &plan["problem"], &plan["bytes_to_fetch"]),
        (&true.into(), &Value::Null, &0.into())
    );
    assert_eq!((&plan["max_length_inferred"], &plan["max_cache_batch_size"]), (&true.into(), &1.into()));
}

#[test]
fn plans_that_do_not_fit_exit_with_4_and_suggest_limits() {
    let sequences = ["--cache-strategy", "continuous", "--max-cache-batch-size", "1000000000"];
    let outcome = peri(&[&["plan", "--json"], &sequences[..]].concat());
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    assert!(outcome.stderr.contains("lower max_cache_batch_size to "), "{}", outcome.stderr);
    let plan: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&plan["fits"], &plan["cache_bytes"]), (&false.into(), &Value::Null));
    assert!(outcome.stderr.contains(plan["problem"].as_str().unwrap()), "{plan:#}");
}

#[test]
fn weights_on_disk_are_the_sizes_of_the_files() {
    let bytes = std::fs::metadata(storyteller()).unwrap().len() as f64;
    let text = peri(&["plan", &storyteller()]).text();
    assert!(text.contains(&format!("weights on disk       {:.2} MiB", bytes / 1024.0 / 1024.0)), "{text}");
}

#[test]
fn the_last_line_says_whether_it_fits() {
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
fn plan_does_not_download_weights() {
    let files = |output| {
        vec![("config.json", CONFIG.as_bytes().to_vec()), ("model.safetensors", safetensors(output))]
    };
    let plan = json(plan_of(&Hub::start(files(false)), &["--json", "--max-length", "auto"], false));
    assert_eq!((&plan["architecture"], &plan["encoding"]), (&"LlamaForCausalLM".into(), &"bfloat16".into()));
    assert_eq!((&plan["parameters"], &plan["weights_bytes"]), (&PARAMETERS.into(), &(2 * PARAMETERS).into()));
    assert_eq!(plan["bytes_to_fetch"], safetensors(false).len());
    assert_eq!((&plan["max_length"], &plan["fits"]), (&128.into(), &true.into()));
    assert_eq!(plan["files"][0]["cached"], false);
    assert!(plan["weights_packed_bytes"].as_u64().unwrap() > 0, "{plan:#}");
    let quantized = plan_of(&Hub::start(files(false)), &["--json", "--quantize", "q8_0"], false);
    let quantized = json(quantized);
    assert_eq!((&quantized["quantize"], &quantized["cache_dtype"]), (&"q8_0".into(), &"f16".into()));
    let packed = |plan: &Value| plan["weights_packed_bytes"].as_u64().unwrap();
    assert!(packed(&quantized) < packed(&plan), "{quantized:#}");
    // That the output has weights of its own is in the header alone.
    let plan = json(plan_of(&Hub::start(files(true)), &["--json"], false));
    assert_eq!(plan["parameters"], PARAMETERS + 64 * 32);
    // A configuration without weights is an error that says so.
    let outcome = plan_of(&Hub::start(files(true)), &["--max-length", "129"], false);
    assert!(
        outcome.code == Some(2) && outcome.stderr.contains("max_length is 129: give at most 128"),
        "{outcome:?}"
    );
}

#[test]
fn pytorch_files_are_planned_from_their_configuration() {
    let config = CONFIG.replace(
        "\"vocab_size\"",
        "\"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\", \"vocab_size\"",
    );
    let files: Files = vec![("config.json", config.into_bytes()), ("pytorch_model.bin", vec![0; 1000])];
    let hub = Hub::start(files);
    let plan = json(plan_of(&hub, &["--json"], false));
    assert_eq!((&plan["parameters"], &plan["encoding"]), (&PARAMETERS.into(), &"bfloat16".into()));
    assert_eq!((&plan["weights_bytes"], &plan["weights_packed_bytes"]), (&1000.into(), &Value::Null));
    assert_eq!(plan["total_bytes"], plan["cache_bytes"].as_u64().unwrap() + 1000);
    let plan = json(plan_of(&hub, &["--json", "--quantize", "q8_0"], false));
    // Half as many weights, 34 bytes for 32 of them.
    assert_eq!(plan["total_bytes"], plan["cache_bytes"].as_u64().unwrap() + 531);
}

#[test]
fn remote_and_local_gguf_files_have_the_same_plan() {
    let content = std::fs::read(storyteller()).unwrap();
    let hub = Hub::start(vec![("storyteller-q4_k_m.gguf", content.clone())]);
    let mut there = json(plan_of(&hub, &["--json"], false));
    assert!(hub.sent() < content.len() / 2, "{} of {} bytes", hub.sent(), content.len());
    let mut here = json(peri(&["plan", "--json", &storyteller()]));
    assert_eq!(
        (&there["bytes_to_fetch"], &there["files"][0]["cached"]),
        (&content.len().into(), &false.into())
    );
    for plan in [&mut here, &mut there] {
        let plan = plan.as_object_mut().unwrap();
        // What is free changes while others run.
        for field in ["model", "files", "bytes_to_fetch", "free_bytes", "usable_bytes"] {
            plan.remove(field);
        }
    }
    assert_eq!(there, here);
}

#[test]
fn damaged_files_on_a_hub_are_errors() {
    let check = |files: Files, offline: bool, code: i32, expected: &str| {
        let outcome = plan_of(&Hub::start(files), &[], offline);
        assert!(outcome.code == Some(code) && outcome.stderr.contains(expected), "{outcome:?}");
    };
    let gguf = |content: &[u8]| vec![("tiny-Q6_K.gguf", content.to_vec())];
    check(gguf(b"GGUF eight"), false, 3, "ada/tiny/tiny-Q6_K.gguf: GGUF version 1734960416");
    let whole = std::fs::read(storyteller()).unwrap();
    check(gguf(&whole), false, 2, "the name says q6_k, the content is q4_k");
    check(gguf(&whole[..50_000]), false, 3, "malformed GGUF");
    check(gguf(&whole[..whole.len() - 1]), false, 3, "leave the file of");
    check(gguf(&whole), true, 3, "HF_HUB_OFFLINE is set");
    let weights = vec![("model.safetensors", safetensors(true))];
    check(weights, false, 2, "has no file `config.json`");
}
