//! Which model runs, from which files, and as what.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use perihelion::driver::DType;
use perihelion::models::Mix;
use perihelion::pipelines::config::{
    Devices, PipelineConfig, RopeType, SupportedEncoding, WeightsConverter, machine,
};

use perihelion::pipelines::TextRequest;

use crate::support::{answer, config, copy, folder, refused, storyteller, text_generator};

#[test]
fn weights_come_from_the_named_files_or_encoding() {
    let Some(data) = testdata::shared("stories260k") else { return };
    let hf = config(&data.join("hf"));
    let expected = answer(&hf);
    assert_ne!(answer(&storyteller()), expected, "another model");
    let pytorch = hf.clone().weight_path(vec![data.join("pytorch/pytorch_model.bin")]);
    assert_eq!(answer(&pytorch), expected, "the same weights in another format");
    let file = |name: &str| data.join("gguf").join(name);
    let q8_0 = answer(&config(&file("stories260K-Q8_0.gguf")));
    assert_ne!(q8_0, expected, "weights that are rounded");
    assert_eq!(answer(&hf.weight_path(vec![file("stories260K-Q8_0.gguf")])), q8_0, "the weights of a file");
    let encoded = |encoding| answer(&config(&data.join("gguf")).quantization_encoding(encoding));
    assert_eq!(encoded(SupportedEncoding::Q8_0), q8_0, "the weights in that encoding");
    assert_ne!(encoded(SupportedEncoding::Q5_1), q8_0);
}

#[test]
fn a_named_architecture_is_built() {
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let folder = folder("architecture");
    copy(&hf, &folder);
    let json = fs::read_to_string(hf.join("config.json")).unwrap();
    fs::write(folder.join("config.json"), json.replace("LlamaForCausalLM", "MyLlama")).unwrap();
    let (_, message) = refused(&config(&folder));
    assert!(message.contains("unsupported architecture `MyLlama`"), "{message}");
    let named = config(&folder).architecture("LlamaForCausalLM".to_string());
    assert_eq!(answer(&named), answer(&config(&hf)));
}

#[test]
fn rope_type_changes_gguf_models() {
    let expected = answer(&storyteller());
    assert_eq!(answer(&storyteller().rope_type(RopeType::Normal)), expected, "as Llama files are stored");
    assert_eq!(answer(&storyteller().rope_type(RopeType::None)), expected, "as the architecture has it");
    assert_ne!(answer(&storyteller().rope_type(RopeType::Neox)), expected);
}

#[test]
fn converters_rename_tensors() {
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let folder = folder("converter");
    copy(&hf, &folder);
    let mut bytes = fs::read(hf.join("model.safetensors")).unwrap();
    let (known, stored) = (b"model.norm.weight", b"final.norm.weight");
    let at = bytes.windows(known.len()).position(|window| window == known).unwrap();
    bytes[at..at + known.len()].copy_from_slice(stored);
    fs::write(folder.join("model.safetensors"), bytes).unwrap();
    assert!(text_generator(&config(&folder)).is_err(), "a weight is missing");
    let converter =
        WeightsConverter::new(|name| (name == "final.norm.weight").then(|| "model.norm.weight".to_string()));
    let converted = PipelineConfig { _weights_converter: Some(converter), ..config(&folder) };
    assert_eq!(answer(&converted), answer(&config(&hf)));
}

#[test]
fn config_json_and_devices_are_kept() {
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let folder = folder("kept");
    copy(&hf, &folder);
    let config = config(&folder);
    let first = config.huggingface_config().unwrap();
    fs::remove_file(folder.join("config.json")).unwrap();
    assert!(Arc::ptr_eq(&first, &config.huggingface_config().unwrap()));
    assert!(PipelineConfig::new(folder.display().to_string()).huggingface_config().is_err());
    let devices = config.devices().unwrap();
    assert!(Arc::ptr_eq(&devices[0], &config.device().unwrap()));
    assert_eq!(config, PipelineConfig::new(folder.display().to_string()), "it is no part of what is said");
}

#[test]
fn saved_models_load_and_refuse_other_settings() {
    let folder = folder("saved");
    let file = folder.join("model.mef");
    let expected = answer(&storyteller());
    assert_eq!(answer(&storyteller().save_to_serialized_model_path(file.clone())), expected);
    let saved = |path: PathBuf| storyteller().serialized_model_path(path);
    assert_eq!(answer(&saved(file.clone())), expected);
    let refused = |config: &PipelineConfig| text_generator(config).unwrap_err().to_string();
    let message = refused(&saved(file.clone()).kv_cache_page_size(64_usize));
    assert!(message.contains("kv_cache_page_size 512 instead of 64"), "{message}");
    let message = refused(&saved(file.clone()).rope_type(RopeType::Neox));
    assert!(message.contains("another graph, as rope_type"), "{message}");
    let message = refused(&saved(folder.join("lost.mef")));
    assert!(message.contains("lost.mef"), "{message}");
    let both = saved(file).save_to_serialized_model_path(folder.join("again.mef"));
    let warnings = both.validate(machine()).unwrap();
    assert!(warnings[0].starts_with("save_to_serialized_model_path has no effect"), "{warnings:?}");
    assert_eq!(answer(&both), expected);
    assert!(!folder.join("again.mef").exists());
}

#[test]
fn recommended_sampling_is_the_default() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let folder = folder("recommends");
    copy(&original, &folder);
    let asked = |recommended: &str, top_k: Option<i64>, seed| {
        std::fs::write(folder.join("generation_config.json"), recommended).unwrap();
        let config = PipelineConfig { top_k, ..config(&folder) };
        let mut request = TextRequest::new((300..310).collect::<Vec<u32>>());
        (request.parameters.max_new_tokens, request.parameters.seed) = (Some(16), seed);
        text_generator(&config).unwrap().generate(request).unwrap().tokens
    };
    let greedy = asked("{}", None, 1);
    assert_eq!(asked(r#"{"do_sample": false, "temperature": 2}"#, None, 2), greedy);
    let warm = r#"{"do_sample": true, "temperature": 1.5}"#;
    assert_ne!(asked(warm, None, 1), asked(warm, None, 2));
    assert_eq!(asked(warm, Some(1), 2), greedy, "the configuration comes first");
    // Weights in a GGUF file are the folder's too; a file on its own is no folder.
    let gguf = folder.join("model.gguf");
    std::fs::copy(original.join("../gguf/stories260K-F32.gguf"), &gguf).unwrap();
    std::fs::write(folder.join("generation_config.json"), warm).unwrap();
    let recommended = |config: PipelineConfig| config.plan(machine()).unwrap().recommended_sampling();
    assert_eq!(recommended(config(&folder).weight_path(vec![gguf.clone()])).temperature, Some(1.5));
    assert_eq!(recommended(config(&gguf)).temperature, None);
    let error = std::fs::write(folder.join("generation_config.json"), r#"{"top_p": 7}"#)
        .map(|()| config(&folder).plan(machine()).unwrap_err().to_string());
    assert!(error.unwrap().contains("generation_config.json: sampling parameters: top_p is 7"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A model that GPTQ quantized, of those that are written for their logits, with a tokenizer of single letters.
fn quantized(test: &str) -> PathBuf {
    let folder = folder(test);
    copy(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/models/gptq/llama"), &folder);
    fs::remove_file(folder.join("logits.safetensors")).unwrap();
    let special = ["<unk>", "<s>", "</s>"].map(str::to_string);
    let letters = (b' '..).map(|letter| char::from(letter).to_string());
    let vocab: serde_json::Map<_, _> =
        special.into_iter().chain(letters).take(96).enumerate().map(|(id, text)| (text, id.into())).collect();
    let model = serde_json::json!({"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>"});
    let tokenizer = serde_json::json!({"version": "1.0", "added_tokens": [], "model": model});
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    folder
}

#[test]
fn gptq_models_run_and_are_saved() {
    let folder = quantized("gptq");
    let model = || config(&folder);
    let plan = model().plan(machine()).unwrap();
    assert_eq!(plan.config().quantization_encoding, Some(SupportedEncoding::Gptq));
    assert_eq!(plan.cache_dtype(), DType::F16);
    // All seven matrices of two layers, of 19 bytes for 32 weights.
    assert_eq!(plan.checkpoint().unwrap().repacked().into_iter().collect::<Vec<_>>(), [(DType::Gptq, 14)]);
    let matrices = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64);
    let (others, groups) = (2 * (96 * 64 + 5 * 64), 4 * 2 * (6 * 64 + 96));
    assert_eq!(plan.memory().unwrap().weights, matrices / 32 * 19 + others + groups);
    let expected = answer(&model());
    assert_eq!(answer(&model().quantization_encoding(SupportedEncoding::Gptq)), expected);
    let pytorch = model().weight_path(vec![folder.join("pytorch_model.bin")]);
    assert_eq!(answer(&pytorch), expected, "the same weights in another format");
    let saved = folder.join("model.mef");
    assert_eq!(answer(&model().save_to_serialized_model_path(saved.clone())), expected);
    assert_eq!(answer(&model().serialized_model_path(saved)), expected);
}

#[test]
fn other_quantizations_are_refused_by_name() {
    let folder = quantized("quantizations");
    let (path, original) =
        (folder.join("config.json"), fs::read_to_string(folder.join("config.json")).unwrap());
    for (from, to, expected) in [
        ("\"gptq\"", "\"hqq\"", "quant_method is hqq, supported are gptq, awq"),
        ("\"gptq\"", "\"awq\"", "qweight`: is i32["),
        ("\"bits\": 4", "\"bits\": 3", "bits is 3, supported are 4 and 8"),
        ("\"group_size\": 32", "\"group_size\": 64", "expected 1 groups, of 64 columns each of 64"),
        (
            "quantization_config",
            "quantized",
            "has no `quantization_config`, but `model.layers.0.self_attn.k_proj.qweight` is there",
        ),
    ] {
        assert!(original.contains(from), "{from}");
        fs::write(&path, original.replace(from, to)).unwrap();
        let (_, message) = refused(&config(&folder));
        assert!(message.contains(expected), "{to}: {message}");
    }
    fs::write(&path, original).unwrap();
    let (fields, message) = refused(&config(&folder).quantization_encoding(SupportedEncoding::Q4K));
    assert_eq!(fields, ["quantization_encoding"], "{message}");
    assert!(message.contains("has gptq: give one of these"), "{message}");
    let again = config(&folder).quantize(Mix::find("q4_k_m"));
    let (fields, message) = refused(&again);
    assert_eq!(fields, ["quantize"], "{message}");
    assert!(
        message.contains("quantize is q4_k_m: ") && message.contains("quantized already, as gptq"),
        "{message}"
    );
}

#[test]
fn unused_weights_give_a_warning() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let folder = folder("unused");
    copy(&original, &folder);
    let warned = |config: &PipelineConfig| config.validate(machine()).unwrap();
    assert_eq!(warned(&config(&folder)), [""; 0]);
    // Four more tensors of one number each.
    let path = folder.join("model.safetensors");
    let file = fs::read(&path).unwrap();
    let header_bytes = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&file[8..][..header_bytes]).unwrap();
    let values = &file[8 + header_bytes..];
    let more = ["q_norm.weight", "o_proj.scale", "k_norm.weight", "rotary_emb.inv_freq", "sinks"];
    for (index, name) in more.iter().enumerate() {
        let start = values.len() + 4 * index;
        header[format!("model.layers.0.self_attn.{name}")] =
            serde_json::json!({"dtype": "F32", "shape": [1], "data_offsets": [start, start + 4]});
    }
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    fs::write(&path, [&length, header.as_bytes(), values, &[0; 20]].concat()).unwrap();
    assert_eq!(
        warned(&config(&folder)),
        ["model.layers.0.self_attn.k_norm.weight, model.layers.0.self_attn.o_proj.scale, \
             model.layers.0.self_attn.q_norm.weight and 1 more of the weights have no place in LlamaForCausalLM, and \
             are left out: the model may be of another architecture"]
    );
}
