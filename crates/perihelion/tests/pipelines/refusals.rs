//! Invalid configurations are refused with the field, its value, and a valid one.

use std::fs;
use std::path::PathBuf;

use perihelion::driver::DeviceSpec;
use perihelion::pipelines::config::{
    Auto, KVCacheStrategy, Machine, PipelineConfig, PipelineEngine, SupportedEncoding, machine,
};
use serde_json::json;

use crate::support::{config, folder, refused, storyteller};

/// Expects exactly one field to be refused, with a part of the message.
fn check(config: &PipelineConfig, field: &str, part: &str) {
    let (fields, message) = refused(config);
    assert_eq!(fields, [field], "{message}");
    assert!(message.contains(part), "no {part:?} in {message}");
}

#[test]
fn invalid_fields_are_refused() {
    let cpu = || vec![DeviceSpec::cpu(), DeviceSpec::cpu()];
    let gpu = || vec![DeviceSpec::accelerator(99).unwrap()];
    let model = storyteller;
    for (config, field, part) in [
        (PipelineConfig::default(), "huggingface_repo_id", "empty: name a model"),
        (
            model().engine(PipelineEngine::HuggingFace),
            "huggingface_repo_id",
            "engine reads folders and repos",
        ),
        (model().python(PathBuf::from("python3")), "python", "an interpreter for the engine huggingface"),
        (model().architecture("LlamaForCausalML".to_string()), "architecture", "such as LlamaForCausalLM, "),
        (model().device_specs(gpu()), "device_specs", "gpu:99 is not available: found "),
        (model().device_specs(cpu()), "device_specs", "cpu, cpu: a model runs on one device"),
        (
            model().quantization_encoding(SupportedEncoding::Q4_0),
            "quantization_encoding",
            "model.gguf has q4_k: give that, or other weights",
        ),
        (model().max_length(513), "max_length", "513: give at most 512"),
        (model().max_length(0), "max_length", "0: give a whole number, at least 1"),
        (model().max_new_tokens(0), "max_new_tokens", "0: give a whole number, at least 1, or -1"),
        (model().max_new_tokens(-2), "max_new_tokens", "-2: "),
        (model().max_cache_batch_size(0), "max_cache_batch_size", "0: "),
        (model().max_ce_batch_size(0_usize), "max_ce_batch_size", "0: "),
        (model().max_num_steps(0), "max_num_steps", "0: "),
        (model().pad_to_multiple_of(0_usize), "pad_to_multiple_of", "0: "),
        (model().kv_cache_page_size(8_usize), "kv_cache_page_size", "8: give a power of two from 16"),
        (model().kv_cache_page_size(48_usize), "kv_cache_page_size", "48: "),
        (model().gpu_memory_utilization(0.0), "gpu_memory_utilization", "0: give a number above 0"),
        (model().gpu_memory_utilization(f64::NAN), "gpu_memory_utilization", "NaN: "),
        (model().top_k(-2), "top_k", "-2: "),
    ] {
        check(&config, field, part);
    }
}

#[test]
fn all_mistakes_are_reported_together() {
    let config = storyteller().max_length(513).max_num_steps(0).enable_prefix_caching(true).top_k(-7);
    let (fields, _) = refused(&config);
    assert_eq!(fields, ["max_num_steps", "top_k", "enable_prefix_caching", "max_length"]);
}

#[test]
fn prefix_caching_needs_pages() {
    for &strategy in KVCacheStrategy::ALL {
        let config = storyteller().cache_strategy(strategy).enable_prefix_caching(true);
        match strategy {
            KVCacheStrategy::Paged | KVCacheStrategy::ModelDefault => {
                assert!(config.validate(machine()).is_ok(), "{strategy}");
            }
            _ => {
                let part = format!("set cache_strategy, which is {strategy}, to paged");
                check(&config, "enable_prefix_caching", &part);
            }
        }
    }
}

#[test]
fn wrong_types_are_refused_while_reading() {
    for (value, part) in [
        (json!({"max_length": -1}), "max_length is -1: give a whole number, at least 1, or auto"),
        (json!({"model_path": "a", "huggingface_repo_id": "b"}), "huggingface_repo_id was given already"),
        (json!({"max_batch_size": 2, "max_cache_batch_size": 2}), "max_cache_batch_size was given already"),
        (json!({"weight_path": [1]}), "weight_path is [1]: give a path"),
        (json!({"cache_strategy": "pagd"}), "did you mean paged?"),
        (json!({"rope_type": "neo"}), "did you mean neox?"),
        (json!({"device_specs": ["gpu:x"]}), "give cpu, or gpu:0 and so on"),
        (json!({"max_lenght": 1}), "did you mean `max_length`?"),
    ] {
        let error = serde_json::from_value::<PipelineConfig>(value.clone()).unwrap_err().to_string();
        assert!(error.contains(part), "{value}: {error}");
    }
}

#[test]
fn missing_weights_are_named() {
    let (folder, model) = (folder("weights"), storyteller());
    let (_, message) = refused(&model.clone().weight_path(vec![folder.join("lost.gguf")]));
    assert!(message.contains("lost.gguf"), "{message}");
    let (_, message) = refused(&config(&folder));
    assert!(message.contains(&folder.display().to_string()), "an empty folder: {message}");
    // A name that promises what is not in the file.
    let bytes = fs::read(&model.huggingface_repo_id).unwrap();
    fs::write(folder.join("tiny-q4_0.gguf"), &bytes).unwrap();
    check(&config(&folder.join("tiny-q4_0.gguf")), "weight_path", "rename the file, or");
    fs::write(folder.join("tiny-q4_k.gguf"), &bytes[..100]).unwrap();
    let (_, message) = refused(&config(&folder.join("tiny-q4_k.gguf")));
    assert!(message.contains("tiny-q4_k.gguf"), "a file that was cut off: {message}");
    let two = vec![folder.join("tiny-q4_0.gguf"), folder.join("weights.safetensors")];
    fs::write(&two[1], b"").unwrap();
    let (_, message) = refused(&model.weight_path(two));
    assert!(message.contains("weight_path") && message.contains("give files of one format"), "{message}");
}

#[test]
fn models_that_do_not_fit_say_which_limit_to_lower() {
    const FREE: u64 = 7 << 20;
    let small = Machine { free_memory: Some(FREE), ..machine() };
    let pages = storyteller().kv_cache_page_size(16_usize);
    let weights = pages.clone().max_length(16).plan(small).unwrap().memory().unwrap().weights;
    // Tokens for which there is room, in whole pages.
    let room = ((FREE as f64 * 0.9) as usize - weights as usize) / (4096 * 16) * 16;
    let refusal = |length: Auto, batch: Auto| {
        let config = pages.clone().max_length(length).max_cache_batch_size(batch);
        config.validate(small).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let both = refusal(Auto::At(128), Auto::At(4));
    let (length, batch) = (room / 4 / 16 * 16, room / 128);
    let told = format!("lower max_length to {length}, or lower max_cache_batch_size to {batch}");
    assert!(both.ends_with(&told), "{both}");
    let length = refusal(Auto::At(512), Auto::Auto);
    assert!(length.ends_with(&format!("lower max_length to {room}")), "{length}");
    let batch = refusal(Auto::Auto, Auto::At(100));
    assert!(batch.ends_with(&format!("lower max_cache_batch_size to {}", room / 16)), "{batch}");
    assert_eq!(refusal(Auto::Auto, Auto::Auto), "", "what is left open is made to fit");

    let tiny = Machine { free_memory: Some(1 << 20), ..machine() };
    let message = pages.validate(tiny).unwrap_err().to_string();
    assert!(message.contains("use a smaller model or a smaller quantization"), "{message}");
    let unknown = Machine { free_memory: None, ..machine() };
    let warnings = pages.validate(unknown).unwrap();
    assert!(warnings[0].contains("nothing is checked"), "{warnings:?}");
}
