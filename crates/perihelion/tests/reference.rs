//! Real trained models against reference logits and texts that another implementation computed in float64.

mod support;

use std::path::{Path, PathBuf};

use perihelion::pipelines::{LoadOptions, TextModel};
use serde_json::Value;
use support::{Reference, greedy, last_logits, load, load_with};

/// How far a logit may be from the float64 reference.
///
/// Float32 weights and activations: rounding alone, over a few hundred products.
const F32: f32 = 5e-4;
/// f16 and bf16 weights are used as they are, with f32 activations for f16 and bf16 activations for bf16; the
/// latter have a relative error of 2^-9 each, which llama.cpp shows as 0.053 on the same files.
const F16: f32 = 5e-4;
const BF16: f32 = 0.06;
/// Block-quantized weights are used exactly; activations are rounded to 8 bits per 32 values (relative error up
/// to 2^-8 of the largest of them). llama.cpp rounds likewise and is off by up to 0.2 (stories260k), 0.11
/// (shakespeare-llama) and 0.22 (storyteller).
const BLOCKS: f32 = 1.0;

/// A file of a model, the names of its reference logits, and the bound.
struct Variant {
    file: &'static str,
    key: &'static str,
    bound: f32,
}

const fn variant(file: &'static str, key: &'static str, bound: f32) -> Variant {
    Variant { file, key, bound }
}

#[test]
fn the_storyteller_writes_what_it_should() {
    let folder = testdata::asset("storyteller");
    let model = load(&folder.join("model.gguf"));
    let reference = Reference::open(&folder.join("greedy.json"), &folder.join("logits.safetensors"));
    for (index, case) in reference.cases(&[]).iter().enumerate() {
        let logits = last_logits(&model, &case.prompt_ids);
        reference.check(&format!("last.{index}"), &logits, BLOCKS);
        // Rounding activations may turn a near tie; up to there the text is the same.
        case.check_greedy_until_near_tie(&model, BLOCKS);
    }
}

#[test]
fn stories260k_float_files_give_the_same_text() {
    let Some(folder) = testdata::shared("stories260k") else { return };
    let reference = reference(&folder);
    let hf = folder.join("hf");
    let f32_files = [
        "gguf/stories260K-F32.gguf",
        "hf/model.safetensors",
        "pytorch/pytorch_model.bin",
        "pytorch/ckpt_nested.pt",
    ];
    for file in f32_files {
        let model = load_from(&folder, &hf, file);
        for case in reference.cases(&[]) {
            assert_eq!(
                greedy(&model, &case.prompt_ids, case.greedy_ids.len()),
                case.greedy_ids,
                "{file}: {:?}",
                case.prompt
            );
            let key = case.logits_key.as_ref().expect("each case has logits");
            reference.check_last(key, &last_logits(&model, &case.prompt_ids), F32);
        }
    }
    let halves = [
        ("gguf/stories260K-F16.gguf", "F16", F16),
        ("pytorch/legacy_tar_f16.bin", "F16", 0.01),
        ("gguf/stories260K-BF16.gguf", "BF16", BF16),
        ("pytorch/pytorch_model.bf16.pth", "BF16", BF16),
    ];
    for (file, key, bound) in halves {
        let model = load_from(&folder, &hf, file);
        for (index, case) in reference.cases(&["gguf_variants", key]).iter().enumerate() {
            let prompt = reference.prompt_ids(&case.prompt);
            assert_eq!(
                greedy(&model, &prompt, case.greedy_ids.len()),
                case.greedy_ids,
                "{file}: {:?}",
                case.prompt
            );
            reference.check(&format!("{key}_last_{index}"), &last_logits(&model, &prompt), bound);
        }
    }
}

#[test]
fn stories260k_quantized_files_stay_close() {
    let Some(folder) = testdata::shared("stories260k") else { return };
    let reference = reference(&folder);
    for key in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"] {
        let model = load(&folder.join(format!("gguf/stories260K-{key}.gguf")));
        for (index, case) in reference.cases(&["gguf_variants", key]).iter().enumerate() {
            let prompt = reference.prompt_ids(&case.prompt);
            reference.check(&format!("{key}_last_{index}"), &last_logits(&model, &prompt), BLOCKS);
        }
    }
}

#[test]
fn shakespeare_stays_close() {
    let variants = [
        variant("shakespeare-llama-BF16.gguf", "BF16", 0.02),
        variant("shakespeare-llama-Q8_0.gguf", "Q8_0", 0.1),
        variant("shakespeare-llama-Q4_0.gguf", "Q4_0", 0.1),
        variant("shakespeare-llama-Q4_K_M.gguf", "Q4_K_M", 0.11),
        variant("shakespeare-llama-Q5_K_M.gguf", "Q5_K_M", 0.11),
        variant("shakespeare-llama-Q6_K.gguf", "Q6_K", 0.11),
    ];
    check_variants("shakespeare-llama", &variants);
}

#[test]
fn storyteller_files_stay_close() {
    let variants = [
        variant("storyteller-BF16.gguf", "BF16", 0.03),
        variant("storyteller-Q8_0.gguf", "Q8_0", BLOCKS),
        variant("storyteller-Q4_0.gguf", "Q4_0", BLOCKS),
        variant("storyteller-Q4_K_M.gguf", "Q4_K_M", BLOCKS),
        variant("storyteller-Q6_K.gguf", "Q6_K", BLOCKS),
    ];
    check_variants("storyteller", &variants);
}

/// Compares the last logits of every prompt; safetensors beside a BF16 GGUF hold the same weights.
fn check_variants(name: &str, variants: &[Variant]) {
    let Some(folder) = testdata::shared(name) else { return };
    let reference = reference(&folder);
    for variant in variants {
        let mut models = vec![load(&folder.join("gguf").join(variant.file))];
        if variant.key == "BF16" {
            models.push(load(&folder.join("hf")));
        }
        for model in models {
            for (index, case) in reference.cases(&["variants", variant.key]).iter().enumerate() {
                let logits = last_logits(&model, &case.prompt_ids);
                reference.check_last(&format!("{}.{index}", variant.key), &logits, variant.bound);
                case.check_greedy_until_near_tie(&model, variant.bound);
            }
        }
    }
}

fn reference(folder: &Path) -> Reference {
    Reference::open(&folder.join("reference/greedy.json"), &folder.join("reference/logits.safetensors"))
}

/// PyTorch files have no configuration of their own.
fn load_from(folder: &Path, hf: &Path, file: &str) -> std::sync::Arc<TextModel> {
    let path: PathBuf = folder.join(file);
    if file.starts_with("pytorch/") {
        load_with(LoadOptions { weights: Some(path), ..LoadOptions::new(hf) })
    } else {
        load(&path)
    }
}

#[test]
fn prompts_become_the_reference_ids() {
    let Some(folder) = testdata::shared("storyteller") else { return };
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("reference/greedy.json")).unwrap())
            .unwrap();
    let model = load(&folder.join("gguf/storyteller-Q4_0.gguf"));
    for case in json["variants"]["Q4_0"]["cases"].as_array().unwrap() {
        let ids: Vec<u32> = serde_json::from_value(case["prompt_ids"].clone()).unwrap();
        assert_eq!(support::encode(&model, case["prompt"].as_str().unwrap()), ids);
    }
}
