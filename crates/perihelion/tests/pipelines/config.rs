//! Properties of a configuration: names, formats, help, defaults, and the files that it finds.

use std::fmt::{Debug, Display};
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use perihelion::driver::DType;
use perihelion::graph::ops::RopeStyle;
use perihelion::pipelines::config::{
    Devices, KVCacheStrategy, PipelineConfig, PipelineEngine, RepoType, RopeType, SupportedEncoding,
    UnknownName, WeightsFormat, machine,
};
use serde_json::{Value, json};

use crate::support::{answer, config, copy, folder, request, storyteller, text_generator};

/// The fields that the page lists, which users set.
fn names_of_the_page() -> Vec<String> {
    let path = testdata::repository().join("docs/reference/pipelines-names.txt");
    let text = fs::read_to_string(path).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("PipelineConfig."));
    let fields = names.take_while(|name| *name != "device").map(str::to_string);
    fields.filter(|name| !name.starts_with('_')).collect()
}

#[test]
fn every_field_of_the_page_is_a_key_and_has_help() {
    let help = PipelineConfig::help();
    let usual = serde_json::to_value(PipelineConfig::default()).unwrap();
    for name in names_of_the_page() {
        let help = help.get(&name[..]).unwrap_or_else(|| panic!("no help for {name}"));
        assert!(help.len() > 20, "{name}: {help}");
        let value = usual.get(&name).cloned().unwrap_or(Value::Null);
        let read = serde_json::from_value::<PipelineConfig>(json!({ &name[..]: value.clone() }));
        // A field without a default is left out of files.
        assert!(value.is_null() || read.unwrap() == PipelineConfig::default(), "{name}");
    }
    let unknown = serde_json::from_value::<PipelineConfig>(json!({"max_lenght": 1})).unwrap_err().to_string();
    assert!(unknown.contains("did you mean `max_length`?"), "{unknown}");
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let usual = serde_json::to_value(PipelineConfig::new("m")).unwrap();
    for (name, expected) in [
        ("huggingface_repo_id", json!("m")),
        ("max_length", json!(512)),
        ("max_new_tokens", json!(-1)),
        ("max_cache_batch_size", json!(1)),
        ("max_ce_batch_size", json!(32)),
        ("cache_strategy", json!("continuous")),
        ("max_num_steps", json!(1)),
        ("pad_to_multiple_of", json!(2)),
        ("kv_cache_page_size", json!(512)),
        ("enable_prefix_caching", json!(false)),
        ("gpu_memory_utilization", json!(0.9)),
        ("trust_remote_code", json!(false)),
        ("force_download", json!(false)),
        ("enable_echo", json!(false)),
    ] {
        assert_eq!(usual[name], expected, "{name}");
    }
    for name in
        ["engine", "architecture", "quantization_encoding", "top_k", "rope_type", "serialized_model_path"]
    {
        assert!(usual.get(name).is_none(), "{name} is unset");
    }
}

/// Names print, parse in any case, and pass through JSON; another one is refused with all of them, and the nearest.
fn check_names<T>(all: &[T], names: &[&str])
where
    T: Copy + PartialEq + Debug + Display + FromStr<Err = UnknownName>,
    T: serde::Serialize + for<'de> serde::Deserialize<'de>,
{
    assert_eq!(all.iter().map(T::to_string).collect::<Vec<_>>(), names);
    for (value, name) in all.iter().zip(names) {
        assert_eq!(name.to_uppercase().parse::<T>().as_ref(), Ok(value));
        assert_eq!(serde_json::from_value::<T>(json!(name)).unwrap(), *value);
        assert_eq!(serde_json::to_value(value).unwrap(), json!(name));
    }
    let error = format!("{}x", names[0]).parse::<T>().unwrap_err();
    assert!(error.to_string().contains(&names.join(", ")), "{error}");
    assert_eq!(error.nearest(), Some(names[0]));
}

#[test]
fn enumerations_have_the_names_of_the_documentation() {
    check_names(PipelineEngine::ALL, &["max", "huggingface"]);
    check_names(RepoType::ALL, &["local", "online"]);
    check_names(RopeType::ALL, &["none", "normal", "neox"]);
    check_names(WeightsFormat::ALL, &["gguf", "safetensors", "pytorch"]);
    check_names(KVCacheStrategy::ALL, &["model_default", "naive", "continuous", "paged"]);
    let encodings = ["float32", "bfloat16", "q4_0", "q4_k", "q6_k"];
    assert_eq!(SupportedEncoding::ALL[..5].iter().map(ToString::to_string).collect::<Vec<_>>(), encodings);
    let names: Vec<String> = SupportedEncoding::ALL.iter().map(ToString::to_string).collect();
    check_names(SupportedEncoding::ALL, &names.iter().map(|name| &name[..]).collect::<Vec<_>>());
}

#[test]
fn encodings_have_dtypes_and_kinds_of_blocks() {
    let facts = |encoding: SupportedEncoding| (encoding.dtype(), encoding.quantization_encoding());
    assert_eq!(facts(SupportedEncoding::Float32), (DType::F32, None));
    assert_eq!(facts(SupportedEncoding::Bfloat16), (DType::BF16, None));
    assert_eq!(facts(SupportedEncoding::Q4_0), (DType::U8, Some(DType::Q4_0)));
    assert_eq!(facts(SupportedEncoding::Q4K), (DType::U8, Some(DType::Q4K)));
    assert_eq!(facts(SupportedEncoding::Q6K), (DType::U8, Some(DType::Q6K)));
    assert_eq!(facts(SupportedEncoding::Gptq), (DType::U8, Some(DType::Gptq)));
    assert!(SupportedEncoding::Q6K.is_gguf() && !SupportedEncoding::Gptq.is_gguf());
}

#[test]
fn file_names_suggest_encodings() {
    use SupportedEncoding::{Bfloat16, Float32, Iq4Xs, Q4_0, Q4K, Q6K, Q8_0};
    for (name, expected) in [
        ("tiny-Q4_K_M.gguf", Some(Q4K)),
        ("tiny-q4_k.gguf", Some(Q4K)),
        ("tiny-q4_0.gguf", Some(Q4_0)),
        ("TINY-Q6_K.GGUF", Some(Q6K)),
        ("tiny-F32.gguf", Some(Float32)),
        ("tiny.bf16.safetensors", Some(Bfloat16)),
        ("tiny-Q8_0.gguf", Some(Q8_0)),
        ("tiny.iq4_xs.gguf", Some(Iq4Xs)),
        ("q4_0/tiny-q6_k.gguf", Some(Q6K)),
        ("q4_0/model.safetensors", None),
        ("model.safetensors", None),
        ("", None),
    ] {
        assert_eq!(SupportedEncoding::parse_from_file_name(name), expected, "{name}");
    }
}

#[test]
fn names_formats_and_dtypes_follow_from_the_fields() {
    assert_eq!(storyteller().short_name(), "model.gguf");
    assert_eq!(PipelineConfig::new("org/name").short_name(), "name");
    let format = |paths: &[&str]| {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        PipelineConfig::new("m").weight_path(paths).weights_format().map_err(|error| error.to_string())
    };
    assert_eq!(format(&["a.GGUF"]), Ok(WeightsFormat::Gguf));
    assert_eq!(format(&["a.safetensors", "b.safetensors"]), Ok(WeightsFormat::Safetensors));
    assert_eq!(format(&["a.bin", "b.pth", "c.pt"]), Ok(WeightsFormat::Pytorch));
    assert!(format(&[]).unwrap_err().contains("weight_path is empty"));
    assert!(format(&["a.gguf", "b.bin"]).unwrap_err().contains("give files of one format"));
    let dtype = |encoding| storyteller().quantization_encoding(encoding).dtype().unwrap();
    assert_eq!(dtype(SupportedEncoding::Q4K), DType::U8);
    assert_eq!(dtype(SupportedEncoding::Bfloat16), DType::BF16);
    assert!(storyteller().dtype().is_err(), "not without an encoding");
}

#[test]
fn open_fields_are_decided_by_planning() {
    let plan = storyteller().plan(machine()).unwrap();
    let decided = plan.config();
    assert_eq!(decided.engine, Some(PipelineEngine::Max));
    assert_eq!(decided.architecture.as_deref(), Some("LlamaForCausalLM"));
    assert_eq!(decided.quantization_encoding, Some(SupportedEncoding::Q4K));
    assert_eq!(decided.device_specs.len(), 1);
    assert_eq!(decided.weight_path, [testdata::asset("storyteller/model.gguf")]);
    assert_eq!(decided.max_ce_batch_size, 1, "the lesser of this and `max_cache_batch_size`");
    let explicit = storyteller().engine(PipelineEngine::Max);
    assert_eq!(answer(&explicit), answer(&storyteller()));
    let refused = storyteller().engine(PipelineEngine::HuggingFace).plan(machine()).unwrap_err().to_string();
    assert!(refused.contains("the huggingface engine reads folders and repos"), "{refused}");
}

#[test]
fn devices_open_once() {
    let config = storyteller();
    let (first, again) = (config.device().unwrap(), config.devices().unwrap());
    assert!(first.is_host() && again.len() == 1 && Arc::ptr_eq(&first, &again[0]));
    assert_eq!(config, storyteller(), "devices are ignored when configurations are compared");
}

#[test]
fn weights_load_from_every_format() {
    let Some(data) = testdata::shared("stories260k") else { return };
    let files = ["gguf/stories260K-F32.gguf", "hf/model.safetensors", "pytorch/pytorch_model.bin"];
    for file in files {
        let mut config = PipelineConfig::default().weight_path(vec![data.join(file)]);
        let bytes = data.join(file).metadata().unwrap().len();
        assert_eq!(config.weights_size().unwrap(), Some(bytes), "{file}");
        let weights = config.load_weights().unwrap();
        let shapes: Vec<Vec<usize>> = weights.tensors().map(|(_, tensor)| tensor.shape().to_vec()).collect();
        assert!(shapes.contains(&vec![512, 64]), "{file}: {shapes:?}");
    }
    let names = ["stories260K-Q8_0.gguf", "stories260K-F32.gguf"];
    let two = names.iter().map(|name| data.join("gguf").join(name)).collect::<Vec<_>>();
    assert!(PipelineConfig::default().weight_path(two).load_weights().is_err(), "two models");
    let lost = PipelineConfig::default().weight_path(vec![data.join("lost.gguf")]).load_weights();
    assert!(lost.unwrap_err().to_string().contains("lost.gguf"));
}

#[test]
fn download_weights_names_the_files_that_a_folder_has() {
    let Some(data) = testdata::shared("shakespeare-llama/gguf") else { return };
    let mut config = config(&data);
    let best = data.join("shakespeare-llama-Q4_K_M.gguf");
    assert_eq!(config.weights_size().unwrap(), Some(best.metadata().unwrap().len()));
    config.download_weights().unwrap();
    assert_eq!(config.weight_path, [best]);
    assert_eq!(config.weights_format().unwrap(), WeightsFormat::Gguf);
}

/// A copy of a model, whose `config.json` names other architectures.
fn renamed(test: &str, architectures: Value) -> Option<PipelineConfig> {
    let original = testdata::shared("stories260k/hf")?;
    let folder = folder(test);
    copy(&original, &folder);
    let mut json: Value = serde_json::from_slice(&fs::read(original.join("config.json")).unwrap()).unwrap();
    json["architectures"] = architectures;
    fs::write(folder.join("config.json"), json.to_string()).unwrap();
    Some(config(&folder))
}

#[test]
fn config_json_names_the_architecture() {
    let Some(mut config) = renamed("config_json", json!(["LlamaForCausalLM"])) else { return };
    assert_eq!(config.huggingface_config().unwrap()["hidden_size"], 64);
    assert_eq!(config.update_architecture().unwrap(), [""; 0]);
    assert_eq!(config.architecture.as_deref(), Some("LlamaForCausalLM"));
    assert_eq!(config.huggingface_weights_repo().unwrap().repo_id(), config.huggingface_repo_id);
    let mut several = renamed("config_json_two", json!(["MyLlama", "LlamaForCausalLM"])).unwrap();
    let warnings = several.update_architecture().unwrap();
    assert_eq!((warnings.len(), several.architecture.as_deref()), (1, Some("LlamaForCausalLM")));
    // A file that names none says its type.
    let mut typed = renamed("config_json_none", json!([])).unwrap();
    assert_eq!(typed.update_architecture().unwrap(), [""; 0]);
    assert_eq!(typed.architecture.as_deref(), Some("LlamaForCausalLM"));
    assert!(typed.plan(machine()).is_ok());
    let unknown = renamed("config_json_unknown", json!(["MyLlama"])).unwrap();
    assert!(unknown.plan(machine()).unwrap_err().to_string().contains("unsupported architecture `MyLlama`"));
    let error = storyteller().huggingface_config().unwrap_err().to_string();
    assert!(error.contains("config.json"), "a GGUF file has none: {error}");
}

#[test]
fn the_default_max_length_is_lowered_but_an_explicit_one_is_not() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let folder = folder("short_context");
    copy(&original, &folder);
    let mut json: Value = serde_json::from_slice(&fs::read(original.join("config.json")).unwrap()).unwrap();
    json["max_position_embeddings"] = json!(128);
    fs::write(folder.join("config.json"), json.to_string()).unwrap();
    let plan = config(&folder).plan(machine()).unwrap();
    assert_eq!(plan.max_length().unwrap(), 128);
    assert!(plan.warnings().iter().any(|warning| warning.contains("128")), "{:?}", plan.warnings());
    for explicit in [512, 129] {
        let error = config(&folder).max_length(explicit).plan(machine()).unwrap_err().to_string();
        assert!(error.contains(&format!("max_length is {explicit}: give at most 128")), "{error}");
    }
}

#[test]
fn fields_without_effect_give_warnings() {
    let warnings = |config: PipelineConfig| config.plan(machine()).unwrap().warnings().to_vec();
    assert_eq!(warnings(storyteller()), [""; 0]);
    let both = warnings(storyteller().trust_remote_code(true).force_download(true));
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both[0].starts_with("trust_remote_code") && both[1].starts_with("force_download"), "{both:?}");
    assert_eq!(warnings(storyteller().rope_type(RopeType::Normal)), [""; 0]);
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let rope = warnings(config(&hf).rope_type(RopeType::Normal));
    assert!(rope.len() == 1 && rope[0].starts_with("rope_type"), "{rope:?}");
}

#[test]
fn rope_types_pair_rows_of_gguf_files() {
    let style = |config: PipelineConfig| {
        let plan = config.plan(machine()).unwrap();
        plan.checkpoint().unwrap().decoder().unwrap().ropes[0].style
    };
    assert_eq!(style(storyteller()), RopeStyle::Interleaved, "as Llama files are stored");
    assert_eq!(style(storyteller().rope_type(RopeType::None)), RopeStyle::Interleaved);
    assert_eq!(style(storyteller().rope_type(RopeType::Normal)), RopeStyle::Interleaved);
    assert_eq!(style(storyteller().rope_type(RopeType::Neox)), RopeStyle::HalfSplit);
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    assert_eq!(
        style(config(&hf).rope_type(RopeType::Normal)),
        RopeStyle::HalfSplit,
        "safetensors files keep theirs"
    );
}

#[test]
fn caches_keep_the_dtype_of_weights_or_f16() {
    let Some(data) = testdata::shared("stories260k/gguf") else { return };
    for (file, dtype) in
        [("F32", DType::F32), ("BF16", DType::BF16), ("F16", DType::F16), ("Q8_0", DType::F16)]
    {
        let model = config(&data.join(format!("stories260K-{file}.gguf")));
        assert_eq!(model.plan(machine()).unwrap().cache_dtype(), dtype, "{file}");
        assert_eq!(answer(&model).len(), 8, "{file}");
    }
}

#[test]
fn every_encoding_of_the_test_models_runs() {
    let Some(data) = testdata::shared("shakespeare-llama/gguf") else { return };
    let mut encodings = Vec::new();
    for entry in fs::read_dir(data).unwrap() {
        let plan = config(&entry.unwrap().path()).plan(machine()).unwrap();
        let encoding = plan.config().quantization_encoding.unwrap();
        let generator = text_generator(plan.config()).unwrap();
        assert_eq!(generator.generate(request(Some(4))).unwrap().tokens.len(), 4, "{encoding}");
        encodings.push(encoding);
    }
    for encoding in [SupportedEncoding::Bfloat16, SupportedEncoding::Q4_0, SupportedEncoding::Q4K] {
        assert!(encodings.contains(&encoding), "{encoding}: {encodings:?}");
    }
    assert!(encodings.contains(&SupportedEncoding::Q6K), "{encodings:?}");
}
