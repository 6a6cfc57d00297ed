//! The table, the struct, the page and files agree; and every field has its effect.

mod files;
#[cfg(feature = "hub")]
mod hub;
mod planning;
mod saving;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::devices::Platform;
use serde_json::json;
use tensor::DeviceSpec;

use super::*;
use crate::Error;
use crate::plan::{Machine, Plan};

/// The fields of the page that users set, which begin with no underscore.
fn names_of_the_page() -> Vec<String> {
    let path = testdata::repository().join("docs/reference/pipelines-names.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("PipelineConfig."));
    let fields = names.take_while(|name| *name != "device").map(str::to_string);
    fields.filter(|name| !name.starts_with('_')).collect()
}

/// Every field with a value of its own, as a file may have it.
fn everything() -> serde_json::Value {
    json!({
        "huggingface_repo_id": "org/name",
        "engine": "max",
        "architecture": "LlamaForCausalLM",
        "weight_path": ["a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"],
        "device_specs": ["cpu"],
        "quantization_encoding": "q4_k",
        "serialized_model_path": "in.mef",
        "save_to_serialized_model_path": "out.mef",
        "max_length": 1024,
        "max_new_tokens": 7,
        "max_cache_batch_size": 3,
        "max_ce_batch_size": 2,
        "cache_strategy": "paged",
        "max_num_steps": 4,
        "pad_to_multiple_of": 8,
        "kv_cache_page_size": 64,
        "enable_prefix_caching": true,
        "gpu_memory_utilization": 0.5,
        "top_k": 40,
        "trust_remote_code": true,
        "force_download": true,
        "enable_echo": true,
        "rope_type": "neox",
        "revision": "v1",
        "max_batch_tokens": 64,
        "max_step_ms": 50,
        "weights_dtype": "bf16",
        "cache_dtype": "f16",
        "quantize": "q4_k_m",
        "reproducible": "machine",
        "exact_activations": true,
        "python": "venv/bin/python",
    })
}

#[test]
fn the_table_is_that_of_the_page() {
    let names: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
    let page = names_of_the_page();
    assert_eq!(names[..page.len()], page);
    assert_eq!(
        names[page.len()..],
        [
            "revision",
            "max_batch_tokens",
            "max_step_ms",
            "weights_dtype",
            "cache_dtype",
            "quantize",
            "reproducible",
            "exact_activations",
            "python"
        ],
        "our own"
    );
    assert_eq!(PipelineConfig::help().len(), FIELDS.len());
    for field in FIELDS {
        assert!(field.help().len() > 20 && !field.help().contains('\n'), "{}: {}", field.name, field.help());
        for name in field.aliases.iter().chain([&field.name]) {
            assert_eq!(Field::find(name).unwrap().name, field.name, "an alias leads to one field");
            assert_eq!(Field::find(&name.replace('_', "-")).unwrap().name, field.name);
        }
    }
}

#[test]
fn defaults_are_those_of_the_page() {
    let expected = json!({
        "huggingface_repo_id": "",
        "weight_path": [],
        "device_specs": [],
        "max_length": 512,
        "max_new_tokens": -1,
        "max_cache_batch_size": 1,
        "max_ce_batch_size": 32,
        "cache_strategy": "continuous",
        "max_num_steps": 1,
        "pad_to_multiple_of": 2,
        "kv_cache_page_size": 512,
        "enable_prefix_caching": false,
        "gpu_memory_utilization": 0.9,
        "trust_remote_code": false,
        "force_download": false,
        "enable_echo": false,
        "max_batch_tokens": 512,
        "max_step_ms": 0,
        "exact_activations": false,
    });
    assert_eq!(serde_json::to_value(PipelineConfig::default()).unwrap(), expected);
}

#[test]
fn every_field_survives_files_and_flags() {
    let config: PipelineConfig = serde_json::from_value(everything()).unwrap();
    assert_eq!(serde_json::to_value(&config).unwrap(), everything());
    let toml = toml::to_string(&config).unwrap();
    assert_eq!(toml::from_str::<PipelineConfig>(&toml).unwrap(), config, "{toml}");
    let mut from_flags = PipelineConfig::default();
    for field in FIELDS {
        assert_ne!(field.value(&config), field.value(&PipelineConfig::default()), "{} is set", field.name);
        let value = field.parse(&field.text(&config)).unwrap();
        field.set(&mut from_flags, &value).unwrap();
        let default = field.text(&PipelineConfig::default());
        if !default.is_empty() {
            let value = field.parse(&default).unwrap();
            let mut again = config.clone();
            field.set(&mut again, &value).unwrap();
            assert_eq!(field.value(&again), field.value(&PipelineConfig::default()), "{}", field.name);
        }
    }
    assert_eq!(from_flags, config);
}

#[test]
fn a_comma_separates_unless_it_is_in_the_name_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a,b.gguf");
    let field = Field::find("weights").unwrap();
    let paths = || {
        let mut config = PipelineConfig::default();
        field.set(&mut config, &field.parse(path.to_str().unwrap()).unwrap()).unwrap();
        config.weight_path
    };
    assert_eq!(paths(), [folder.path().join("a"), PathBuf::from("b.gguf")]);
    std::fs::write(&path, "").unwrap();
    assert_eq!(paths(), std::slice::from_ref(&path));
}

#[test]
fn names_of_later_versions_are_understood() {
    let later = "model_path = 'm'\nmax_batch_size = 4\ndevice_memory_utilization = 0.5\ndevices = 'gpu:1'\n\
                 max_length = 'auto'\nquantization_encoding = 'none'";
    let config: PipelineConfig = toml::from_str(later).unwrap();
    let expected = PipelineConfig::new("m")
        .max_cache_batch_size(4)
        .gpu_memory_utilization(0.5)
        .device_specs(vec![DeviceSpec::accelerator(1).unwrap()])
        .max_length(Auto::Auto);
    assert_eq!(config, expected);
}

/// What a file of settings is refused for.
fn refused(text: &str) -> String {
    match file::parse(Path::new("peri.toml"), text, &["server", "model"]) {
        Err(error) => error.to_string(),
        Ok(file) => Error::check_all(file.wrong).unwrap_err().to_string(),
    }
}

#[test]
fn bad_files_are_refused_with_the_place() {
    let cases = [
        ("max_lenght = 8", "peri.toml:1:1: there is no field `max_lenght`: did you mean `max_length`?"),
        (
            "top_k = 3\n  cache_strategy = 'pagd'",
            "peri.toml:2:20: cache_strategy is 'pagd': give one of model_default, naive, continuous, paged; did you mean paged?",
        ),
        ("max_length = -1", "peri.toml:1:14: max_length is -1: give a whole number, at least 1, or auto"),
        ("max_length = 1\nmax_length = 2", "peri.toml:2:1: duplicate key"),
        (
            "model = 'a'\nmodel_path = 'b'",
            "peri.toml:2:1: `model_path`: huggingface_repo_id is set in line 1 already",
        ),
        ("enable_echo = 1", "peri.toml:1:15: enable_echo is 1: give true or false"),
        ("device_specs = ['tpu']", "peri.toml:1:16: device_specs is ['tpu']: give cpu, or gpu:0 and so on"),
        ("[max_length]\na = 1", "peri.toml:1:"),
        ("top_k = ", "peri.toml:1:9: "),
        ("top_k = 99999999999999999999", "peri.toml:1:9: "),
        ("_devices = []", "peri.toml:1:1: there is no field `_devices`"),
        ("[serve]\nport = 1", "peri.toml:1:2: there is no table `serve`: did you mean `server`?"),
        ("server = 1", "peri.toml:1:1: `server` is a table: write [server] before its settings"),
        ("[server]\nport = 1979-05-27", "peri.toml:2:1: `port`: give a single value or a list"),
    ];
    for (text, expected) in cases {
        assert!(refused(text).starts_with(expected), "{text}: {}", refused(text));
    }
    let deep = format!("top_k = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(refused(&deep).starts_with("peri.toml:1:"));
    let file::File { settings, wrong, .. } = file::parse(Path::new("peri.toml"), "# nothing\n", &[]).unwrap();
    assert!(settings.is_empty() && wrong.is_empty());
    let all = refused("max_length = 'x'\nmax_new_tokens = 3\ntop_k = 'y'");
    assert!(
        all.contains("peri.toml:1:14: max_length is 'x'") && all.contains("; peri.toml:3:9: top_k is 'y'"),
        "{all}"
    );
}

#[test]
fn later_layers_win_and_are_remembered() {
    let path = std::env::temp_dir().join(format!("perihelion-layers-{}.toml", std::process::id()));
    std::fs::write(&path, "# mine\nmax_length = 100\nmax_new_tokens = 10\ntop_k = 1\n").unwrap();
    let variables = [
        ("PERI_MAX_NEW_TOKENS", "20"),
        ("PERI_TOP_K", "2"),
        ("PERI_CACHE_STRATEGY", ""),
        ("PERI_MODLE", "x"),
        ("HOME", "/"),
    ];
    let mut layers = Layers::default();
    layers.set("max_length", &json!("auto"), Origin::Command).unwrap();
    layers.file(&path).unwrap();
    let unknown =
        layers.environment(variables.map(|(name, value)| (name.to_string(), value.to_string()))).unwrap();
    layers.set("top-k", &json!(3), Origin::Argument).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(layers.config(), &PipelineConfig::default().max_length(100).max_new_tokens(20).top_k(3));
    let origin = |name: &str| layers.fields().find(|(field, _)| field.name == name).unwrap().1.to_string();
    assert_eq!(origin("max_length"), format!("{}:2", path.display()));
    assert_eq!(
        (origin("max_new_tokens"), origin("top_k")),
        ("PERI_MAX_NEW_TOKENS".into(), "command line".into())
    );
    assert_eq!(origin("cache_strategy"), "default");
    assert!(layers.is_set("top_k") && !layers.is_set("engine"));
    assert_eq!(unknown.len(), 1);
    assert_eq!(unknown[0].to_string(), "PERI_MODLE sets nothing: did you mean PERI_MODEL?");
    let wrong = [("PERI_MAX_LENGTH".to_string(), "long".to_string())];
    let error = Layers::default().environment(wrong).unwrap_err().to_string();
    assert_eq!(error, "PERI_MAX_LENGTH is `long`: give a whole number, at least 1, or auto");
}

const HOST: Platform = Platform::new(|| Arc::new(cpu::Cpu::new(1)));

fn storyteller() -> PathBuf {
    testdata::asset("storyteller/model.gguf")
}

fn config() -> PipelineConfig {
    PipelineConfig::new(storyteller().display().to_string())
}

const MACHINE: Machine<'static> = Machine { devices: &HOST, free_memory: Some(1 << 30) };

/// The plan on a machine with 1 GiB free, with all files fetched. The model must fit.
fn plan_of(config: &PipelineConfig) -> Result<Plan, Error> {
    config.plan(MACHINE)?.checked()?.fetch(&|_| ())
}

/// The fields that are wrong.
fn wrong(config: &PipelineConfig) -> Vec<(&'static str, String)> {
    match plan_of(config) {
        Err(Error::Config(fields)) => {
            fields.into_iter().map(|field| (field.field, field.to_string())).collect()
        }
        Err(error) => panic!("{error}"),
        Ok(_) => Vec::new(),
    }
}

#[test]
fn what_is_open_is_decided() {
    let resolved = plan_of(&config()).unwrap();
    let decided = resolved.config();
    assert_eq!(decided.engine, Some(PipelineEngine::Max));
    assert_eq!(decided.architecture.as_deref(), Some("LlamaForCausalLM"));
    assert_eq!(decided.quantization_encoding, Some(SupportedEncoding::Q4K));
    assert_eq!(decided.device_specs, [DeviceSpec::cpu()]);
    assert_eq!((decided.max_length, decided.max_ce_batch_size), (Auto::At(512), 1));
    assert_eq!(decided.cache_strategy, KVCacheStrategy::Continuous);
    assert_eq!(decided.weight_path, [storyteller()]);
    assert_eq!(resolved.memory().unwrap().cache, 512 * 4096);
    assert_eq!(resolved.warnings(), [""; 0]);
    let open =
        config().cache_strategy(KVCacheStrategy::ModelDefault).max_num_steps(-1).max_length(Auto::Auto);
    let resolved = plan_of(&open).unwrap();
    assert_eq!(resolved.config().cache_strategy, KVCacheStrategy::Paged);
    assert_eq!((resolved.config().max_num_steps, resolved.config().max_length), (1, Auto::At(512)));
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let everything = PipelineConfig::default()
        .max_length(0)
        .max_new_tokens(-2)
        .max_cache_batch_size(0)
        .max_ce_batch_size(0_usize)
        .max_num_steps(0)
        .pad_to_multiple_of(0_usize)
        .kv_cache_page_size(100_usize)
        .enable_prefix_caching(true)
        .gpu_memory_utilization(1.5)
        .top_k(-2);
    let wrong = wrong(&everything);
    let expected = [
        "max_length is 0: give a whole number, at least 1, or auto",
        "max_cache_batch_size is 0: give a whole number, at least 1, or auto",
        "max_ce_batch_size is 0: give a whole number, at least 1",
        "pad_to_multiple_of is 0: give a whole number, at least 1",
        "max_new_tokens is -2: give a whole number, at least 1, or -1 for no limit of its own",
        "max_num_steps is 0: give a whole number, at least 1, or -1 for the device's choice",
        "kv_cache_page_size is 100: give a power of two from 16 to 16777216",
        "gpu_memory_utilization is 1.5: give a number above 0 and up to 1",
        "top_k is -2: give a whole number, at least 1, or 0 for all tokens; none is greedy",
        "enable_prefix_caching is true: pages are shared by the cache strategy paged only: set cache_strategy, which is continuous, to paged",
        "huggingface_repo_id is empty: name a model: a repo such as org/name, a folder, or a GGUF file",
    ];
    assert_eq!(wrong.iter().map(|(_, text)| &text[..]).collect::<Vec<_>>(), expected);
}

/// Expects one field to be wrong, and its text to have all of some parts.
fn check_wrong(config: &PipelineConfig, field: &str, parts: &[&str]) {
    let wrong = wrong(config);
    assert_eq!(wrong.iter().map(|(field, _)| *field).collect::<Vec<_>>(), [field], "{wrong:?}");
    for part in parts {
        assert!(wrong[0].1.contains(part), "no {part:?} in {}", wrong[0].1);
    }
}

#[test]
fn what_contradicts_the_model_is_refused() {
    check_wrong(&config().max_length(600), "max_length", &["600", "at most 512"]);
    check_wrong(
        &config().architecture("LlamaForCausalML".to_string()),
        "architecture",
        &["give one that runs here, such as LlamaForCausalLM, ", "`peri list` shows all"],
    );
    check_wrong(
        &config().quantization_encoding(SupportedEncoding::Q6K),
        "quantization_encoding",
        &["q6_k", "model.gguf has q4_k"],
    );
    let gpu = DeviceSpec::accelerator(3).unwrap();
    check_wrong(&config().device_specs(vec![gpu]), "device_specs", &["gpu:3 is not available: found "]);
    let two = vec![DeviceSpec::cpu(), DeviceSpec::cpu()];
    check_wrong(&config().device_specs(two.clone()), "device_specs", &["cpu, cpu", "on one device"]);
    assert!(config().device_specs(two).device_of(&HOST).is_err());
}

#[test]
fn memory_is_planned_before_anything_is_loaded() {
    let large = config().max_cache_batch_size(1000);
    let error = plan_of(&large).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    assert!(error.to_string().ends_with("lower max_cache_batch_size to 458"), "{error}");
    let paged = plan_of(&large.cache_strategy(KVCacheStrategy::Paged)).unwrap();
    let warnings = &paged.memory().unwrap().warnings;
    assert!(warnings[0].starts_with("the cache holds "), "{warnings:?}");
    let half = plan_of(&config().gpu_memory_utilization(0.001).max_length(Auto::Auto)).unwrap_err();
    assert!(half.to_string().contains("raise gpu_memory_utilization"), "{half}");
}

#[test]
fn what_has_no_effect_is_told() {
    let resolved = plan_of(&config().trust_remote_code(true).force_download(true)).unwrap();
    let warnings = resolved.warnings();
    assert!(warnings.len() == 2, "{warnings:?}");
    assert!(warnings[0].starts_with("trust_remote_code") && warnings[1].starts_with("force_download"));
}

#[test]
fn names_formats_and_dtypes() {
    assert_eq!(config().short_name(), "model.gguf");
    assert_eq!(PipelineConfig::new("org/name").short_name(), "name");
    assert_eq!(PipelineConfig::default().short_name(), "model");
    let format = |paths: &[&str]| {
        PipelineConfig::default()
            .weight_path(paths.iter().map(PathBuf::from).collect::<Vec<_>>())
            .weights_format()
    };
    assert_eq!(format(&["a.GGUF"]).unwrap(), WeightsFormat::Gguf);
    assert_eq!(format(&["a.bin", "b.pth"]).unwrap(), WeightsFormat::Pytorch);
    for (paths, part) in [
        (&[][..], "weight_path is empty"),
        (&["a.gguf", "b.safetensors"][..], "give files of one format"),
        (&["a.onnx"][..], "weight_path is a.onnx: give files that end in"),
    ] {
        let error = format(paths).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(config().dtype().is_err());
    assert_eq!(config().quantization_encoding(SupportedEncoding::Q4K).dtype().unwrap(), tensor::DType::U8);
    let devices = config().devices_of(&HOST).unwrap();
    assert!(devices.len() == 1 && devices[0].is_host());
}

#[test]
fn weights_of_another_place_or_with_other_names() {
    let Some(folder) = testdata::shared("stories260k") else { return };
    let hf = folder.join("hf").display().to_string();
    let binary = folder.join("pytorch/pytorch_model.bin");
    let resolved = plan_of(&PipelineConfig::new(&hf).weight_path(vec![binary.clone()])).unwrap();
    assert_eq!(resolved.config().weights_format().unwrap(), WeightsFormat::Pytorch);
    assert_eq!(resolved.config().architecture.as_deref(), Some("LlamaForCausalLM"));
    assert_eq!(resolved.config().weights_size().unwrap(), Some(binary.metadata().unwrap().len()));
    // Relative to the model's folder.
    let own = PipelineConfig::new(&hf).weight_path(vec![PathBuf::from("model.safetensors")]);
    assert_eq!(plan_of(&own).unwrap().config().weight_path, [folder.join("hf/model.safetensors")]);
    // A file alone, and the wrong one of two.
    let gguf = |name: &str| folder.join("gguf").join(name);
    let alone = PipelineConfig::default().weight_path(vec![gguf("stories260K-Q8_0.gguf")]);
    assert_eq!(plan_of(&alone).unwrap().config().quantization_encoding, Some(SupportedEncoding::Q8_0));
    let two = vec![gguf("stories260K-Q8_0.gguf"), gguf("stories260K-F32.gguf")];
    check_wrong(
        &PipelineConfig::default().weight_path(two),
        "weight_path",
        &["several models: give the files of one"],
    );
    let lost = PipelineConfig::new(&hf).weight_path(vec![PathBuf::from("lost.bin")]);
    assert!(plan_of(&lost).unwrap_err().to_string().contains("lost.bin"));
    // Of a folder with many, the one in the encoding that is asked for.
    let many = PipelineConfig::new(folder.join("gguf").display().to_string());
    let resolved = plan_of(&many.clone().quantization_encoding(SupportedEncoding::Q5_1)).unwrap();
    assert_eq!(resolved.config().weight_path, [gguf("stories260K-Q5_1.gguf")]);
    check_wrong(
        &many.quantization_encoding(SupportedEncoding::Q4K),
        "quantization_encoding",
        &["q4_k", "q8_0", "give one of these"],
    );
    // A converter gives tensors the names that are known.
    let spoiled = WeightsConverter::new(|name| (name == "model.norm.weight").then(|| "final.weight".into()));
    let config = PipelineConfig { _weights_converter: Some(spoiled), ..PipelineConfig::new(&hf) };
    let error = plan_of(&config).unwrap_err().to_string();
    assert!(error.contains("model.norm.weight"), "{error}");
}

#[test]
fn config_json_tells_the_architecture() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let mut config = PipelineConfig::new(original.display().to_string());
    assert_eq!(config.huggingface_config().unwrap()["hidden_size"], 64);
    assert_eq!(config.update_architecture().unwrap(), [""; 0]);
    assert_eq!(config.architecture.as_deref(), Some("LlamaForCausalLM"));
    assert_eq!(config.huggingface_weights_repo().unwrap().repo_id(), original.display().to_string());

    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&original).unwrap() {
        let entry = entry.unwrap();
        std::fs::write(folder.path().join(entry.file_name()), std::fs::read(entry.path()).unwrap()).unwrap();
    }
    let architectures = |names: &str| {
        let json = std::fs::read_to_string(original.join("config.json")).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["architectures"] = serde_json::from_str(names).unwrap();
        std::fs::write(folder.path().join("config.json"), json.to_string()).unwrap();
        PipelineConfig::new(folder.path().display().to_string())
    };
    let several = architectures(r#"["LlamaForCausalLM", "MambaForCausalLM"]"#);
    assert!(plan_of(&several).unwrap().warnings()[0].ends_with("the first is taken"));
    let unknown = architectures(r#"["MyLlama"]"#);
    assert!(plan_of(&unknown).unwrap_err().to_string().contains("unsupported architecture `MyLlama`"));
    assert!(plan_of(&unknown.architecture("LlamaForCausalLM".to_string())).is_ok());
    let mut typed = architectures("[]");
    typed.update_architecture().unwrap();
    assert_eq!(typed.architecture.as_deref(), Some("LlamaForCausalLM"), "that of its `model_type`");
}

#[test]
fn the_rope_type_is_that_of_gguf_files_alone() {
    let ropes = |config: &PipelineConfig| {
        let resolved = plan_of(config).unwrap();
        (resolved.checkpoint().unwrap().decoder().unwrap().ropes[0].style, resolved.warnings().len())
    };
    use graph::ops::RopeStyle::{HalfSplit, Interleaved};
    assert_eq!(ropes(&config()), (Interleaved, 0));
    assert_eq!(ropes(&config().rope_type(RopeType::Neox)), (HalfSplit, 0));
    assert_eq!(ropes(&config().rope_type(RopeType::None)), (Interleaved, 0));
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let hf = PipelineConfig::new(hf.display().to_string());
    assert_eq!(ropes(&hf.rope_type(RopeType::Normal)), (HalfSplit, 1));
}

#[test]
fn names_of_files_must_not_contradict_them() {
    let Some(gguf) = testdata::shared("stories260k/gguf/stories260K-Q8_0.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let renamed = folder.path().join("stories-q4_0.gguf");
    std::fs::copy(gguf, &renamed).unwrap();
    let config = PipelineConfig::new(renamed.display().to_string());
    check_wrong(&config, "weight_path", &["q4_0", "q8_0", "rename the file, or give other weights"]);
}

#[test]
fn no_encoding_stands_in_for_another() {
    let Some(data) = testdata::shared("stories260k") else { return };
    let hf = PipelineConfig::new(data.join("hf").display().to_string());
    let bfloat16 = hf.clone().quantization_encoding(SupportedEncoding::Bfloat16);
    check_wrong(&bfloat16, "quantization_encoding", &["bfloat16", "hf has float32: give one of these"]);
    // Nor of weights that were named.
    check_wrong(
        &bfloat16.weight_path(vec![PathBuf::from("model.safetensors")]),
        "quantization_encoding",
        &["bfloat16", "model.safetensors has float32"],
    );
    let file = data.join("gguf/stories260K-Q8_0.gguf").display().to_string();
    let float32 = PipelineConfig::new(file).quantization_encoding(SupportedEncoding::Float32);
    check_wrong(&float32, "quantization_encoding", &["float32", "stories260K-Q8_0.gguf has q8_0"]);
}

#[test]
fn the_engine_huggingface_plans_any_architecture_and_refuses_what_it_cannot_follow() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(original.join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join("config.json");
    let json = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, json.replace("LlamaForCausalLM", "MyLlamaForCausalLM")).unwrap();
    let config =
        || PipelineConfig::new(folder.path().display().to_string()).engine(PipelineEngine::HuggingFace);
    let plan = plan_of(&config()).unwrap();
    let decided = plan.config();
    assert_eq!(decided.engine, Some(PipelineEngine::HuggingFace));
    assert_eq!(decided.architecture.as_deref(), Some("MyLlamaForCausalLM"));
    assert_eq!(decided.quantization_encoding, Some(SupportedEncoding::Float32));
    assert!(plan.runs_elsewhere() && plan.makes_text() && plan.model().is_none());
    let native = plan_of(&PipelineConfig::new(original.display().to_string())).unwrap();
    let facts = |plan: &crate::Plan| (plan.context_length(), plan.cache_bytes_per_token());
    assert_eq!(facts(&plan), facts(&native), "as our own reader of config.json has it");
    let half = plan_of(&config().weights_dtype(FloatType::Bf16)).unwrap();
    assert_eq!(half.weight_bytes().unwrap() * 2, plan.weight_bytes().unwrap());
    let warnings = |config: &PipelineConfig| plan_of(config).unwrap().warnings().to_vec();
    assert_eq!(warnings(&config()), [""; 0]);
    let shared = config().cache_strategy(KVCacheStrategy::Paged).enable_prefix_caching(true);
    assert!(warnings(&shared)[0].starts_with("enable_prefix_caching has no effect"));
    assert!(!plan_of(&shared).unwrap().config().enable_prefix_caching);
    let trusted = warnings(&config().trust_remote_code(true));
    assert!(trusted.len() == 1 && trusted[0].contains("run with your rights"), "{trusted:?}");
    check_wrong(&config().cache_dtype(FloatType::F16), "cache_dtype", &["the model's own dtype"]);
    let encoded = wrong(&config().quantization_encoding(SupportedEncoding::Q8_0));
    assert!(encoded[0].1.contains("q8_0: the huggingface engine reads float32"), "{encoded:?}");
    check_wrong(&config().reproducible(Reproducible::Any), "reproducible", &["any", "give machine"]);
    check_wrong(&config().max_length(100_000), "max_length", &["which the model was made for"]);
}

#[test]
fn limits_reach_the_generator() {
    let config = config()
        .max_length(128)
        .max_new_tokens(7)
        .max_cache_batch_size(4)
        .max_ce_batch_size(8_usize)
        .cache_strategy(KVCacheStrategy::Naive)
        .max_num_steps(3)
        .pad_to_multiple_of(5_usize)
        .kv_cache_page_size(16_usize)
        .enable_echo(true)
        .top_k(9);
    let resolved = plan_of(&config).unwrap();
    let decided = resolved.config();
    assert_eq!((resolved.max_length().unwrap(), decided.max_new_tokens), (128, 7));
    let sizes = (decided.max_cache_batch_size, decided.max_ce_batch_size);
    assert_eq!(sizes, (4.into(), 4), "the lesser of the two");
    assert_eq!((decided.cache_strategy, decided.max_num_steps), (KVCacheStrategy::Naive, 3));
    assert_eq!((decided.pad_to_multiple_of, decided.enable_echo), (5, true));
    // Four sequences of 130 tokens, padded, in pages of 16.
    assert_eq!(resolved.memory().unwrap().cache_tokens, 4 * 144);
    assert_eq!((decided.sampling_defaults().top_k, resolved.sampling_defaults().top_k), (Some(9), Some(9)));
    let prefixes = self::config().cache_strategy(KVCacheStrategy::Paged).enable_prefix_caching(true);
    assert!(plan_of(&prefixes).unwrap().config().enable_prefix_caching);
}

#[test]
fn other_settings_are_checked_against_the_same_model() {
    let plan = plan_of(&config()).unwrap();
    let lengths = |plan: &Plan| (plan.max_length().unwrap(), plan.memory().unwrap().cache_tokens);
    assert_eq!(lengths(&plan), (512, 512));
    let small =
        plan.with(|config| config.max_length(100).max_cache_batch_size(3).kv_cache_page_size(16_usize));
    assert_eq!(lengths(&small.unwrap()), (100, 3 * 112));
    let error = plan.with(|config| config.max_length(600).max_num_steps(0).enable_prefix_caching(true));
    assert_eq!(
        error.unwrap_err().to_string(),
        "configuration: max_num_steps is 0: give a whole number, at least 1, or -1 for the device's choice; \
         enable_prefix_caching is true: pages are shared by the cache strategy paged only: set cache_strategy, which is \
         continuous, to paged; max_length is 600: give at most 512, which the model was made for"
    );
    let large = plan.with(|config| config.max_cache_batch_size(1000)).unwrap();
    assert!(large.memory().is_err() && large.max_length().is_err());
}

#[test]
fn files_that_are_not_there_are_no_repos() {
    let nowhere = std::env::temp_dir().join("perihelion-nowhere.gguf").display().to_string();
    for model in ["nowhere.gguf", &nowhere] {
        let error = plan_of(&PipelineConfig::new(model)).unwrap_err();
        assert!(matches!(error, Error::Source(sources::Error::Weights(_))), "{error:?}");
        assert!(error.to_string().contains("nowhere.gguf"), "{error}");
    }
}
