//! What is decided, and what is refused, where models come from memory, have odd names, or lack something.

use tensor::{Bytes, DType};
use weights::Weights;

use super::*;

fn in_memory(name: &str) -> Weights {
    Weights::from_bytes(name, Bytes::new(std::fs::read(storyteller()).unwrap())).unwrap()
}

fn plan_in_memory(config: &PipelineConfig) -> Result<Plan, Error> {
    config.plan_weights(in_memory("storyteller"), Path::new(""), MACHINE)
}

#[test]
fn the_name_of_weights_in_memory_is_no_path() {
    let folder = tempfile::tempdir().unwrap();
    // A folder of that name is there, and has nothing to do with it.
    let name = folder.path().display().to_string();
    let resolved = PipelineConfig::default().plan_weights(in_memory(&name), Path::new(""), MACHINE).unwrap();
    assert_eq!(resolved.config().quantization_encoding, Some(SupportedEncoding::Q4K));
    assert_eq!(resolved.config().weight_path, [""; 0].map(PathBuf::from));
}

#[test]
fn weights_in_memory_are_read_as_configured() {
    let style = |config: &PipelineConfig| {
        plan_in_memory(config).unwrap().checkpoint().unwrap().decoder().unwrap().ropes[0].style
    };
    use graph::ops::RopeStyle::{HalfSplit, Interleaved};
    assert_eq!(style(&PipelineConfig::default()), Interleaved);
    assert_eq!(style(&PipelineConfig::default().rope_type(RopeType::Neox)), HalfSplit);
    let gemma = PipelineConfig::default().architecture("Gemma2ForCausalLM".to_string());
    assert!(plan_in_memory(&gemma).is_err(), "these weights are none of a Gemma");
}

#[test]
fn a_configuration_without_a_model_is_of_the_built_in_one() {
    let built_in = PipelineConfig::default();
    assert!(built_in.is_built_in() && built_in.plan(MACHINE).is_err());
    let plan = built_in.plan_or_built_in(MACHINE).unwrap();
    assert_eq!(plan.weight_bytes(), plan_in_memory(&built_in).unwrap().weight_bytes());
    assert!(plan.chat_template().unwrap().is_some(), "`plain`");
    let named = PipelineConfig::new("nowhere.gguf");
    assert!(!named.is_built_in() && named.plan_or_built_in(MACHINE).is_err());
}

/// A copy of a model of 512 tokens that says it has fewer.
fn shorter(folder: &Path, context: usize) -> Option<PipelineConfig> {
    let original = testdata::shared("stories260k/hf")?;
    copy_folder(&original, folder);
    change_config(folder, |json| json["max_position_embeddings"] = context.into());
    Some(PipelineConfig::new(folder.display().to_string()))
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::write(to.join(entry.file_name()), std::fs::read(entry.path()).unwrap()).unwrap();
    }
}

fn change_config(folder: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let path = folder.join("config.json");
    let mut json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
}

#[test]
fn default_max_length_is_lowered_but_explicit_512_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let Some(short) = shorter(folder.path(), 128) else { return };
    let resolved = plan_of(&short).unwrap();
    assert_eq!(resolved.config().max_length, Auto::At(128));
    assert!(resolved.warnings()[0].starts_with("max_length is lowered from the default 512 to 128"));
    for length in [511, 512] {
        check_wrong(&short.clone().max_length(length), "max_length", &["give at most 128"]);
    }
    let read: PipelineConfig = toml::from_str("max_length = 512").unwrap();
    assert_eq!(read.max_length.asked(), Some(512));
    assert_eq!(PipelineConfig::default().max_length.asked(), None);
    assert_eq!(read, PipelineConfig::default(), "a number is a number");
}

#[test]
fn what_is_wrong_with_the_machine_is_told_beside_what_is_wrong_with_the_model() {
    let gpu = DeviceSpec::accelerator(7).unwrap();
    let config = PipelineConfig::new("nowhere.gguf").device_specs(vec![gpu]);
    let wrong: Vec<_> = wrong(&config).into_iter().map(|(field, _)| field).collect();
    assert_eq!(wrong, ["device_specs", "huggingface_repo_id"]);
}

#[test]
fn encoders_have_names_and_no_cache() {
    let Some(folder) = testdata::shared("minilm-l6-v2") else { return };
    let encoder = PipelineConfig::new(folder.display().to_string());
    let resolved = plan_of(&encoder).unwrap();
    assert_eq!(resolved.config().architecture.as_deref(), Some("BertModel"));
    assert_eq!((resolved.memory().unwrap().cache, resolved.memory().unwrap().cache_tokens), (0, 0));
    assert!(plan_of(&encoder.clone().architecture("BertModel".to_string())).is_ok());

    let copy = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::write(copy.path().join(name), std::fs::read(folder.join(name)).unwrap()).unwrap();
    }
    change_config(copy.path(), |json| json["architectures"] = json!(["BertModel", "BertForMaskedLM"]));
    let resolved = plan_of(&PipelineConfig::new(copy.path().display().to_string())).unwrap();
    assert!(resolved.warnings()[0].ends_with("the first is taken"), "{:?}", resolved.warnings());
}

#[test]
fn keys_of_other_families_are_ignored_and_named() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&original, folder.path());
    change_config(folder.path(), |json| {
        json["partial_rotary_factor"] = json!(0.5);
        json["attn_logit_softcapping"] = json!(50.0);
    });
    let resolved = plan_of(&PipelineConfig::new(folder.path().display().to_string())).unwrap();
    let warning = "config.json: ignoring `attn_logit_softcapping`, `partial_rotary_factor`, which LlamaForCausalLM \
         does not read";
    assert!(resolved.warnings().iter().any(|own| own.ends_with(warning)), "{:?}", resolved.warnings());
    let plain = plan_of(&PipelineConfig::new(original.display().to_string())).unwrap();
    assert_eq!(
        resolved.checkpoint().unwrap().decoder().unwrap(),
        plain.checkpoint().unwrap().decoder().unwrap()
    );
    assert_eq!(plain.warnings(), [""; 0]);
}

#[test]
fn of_several_architectures_the_first_that_is_known_is_taken() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&original, folder.path());
    let config = PipelineConfig::new(folder.path().display().to_string());
    change_config(folder.path(), |json| json["architectures"] = json!(["Foo", "LlamaForCausalLM"]));
    let resolved = plan_of(&config).unwrap();
    assert_eq!(resolved.config().architecture.as_deref(), Some("LlamaForCausalLM"));
    let expected = "config.json names the architectures Foo, LlamaForCausalLM: LlamaForCausalLM is taken, the first that \
         is known here";
    assert_eq!(resolved.warnings(), [expected]);
    for none in [json!([]), json!(null)] {
        change_config(folder.path(), |json| {
            (json["architectures"], json["model_type"]) = (none, json!("llama"))
        });
        assert_eq!(plan_of(&config).unwrap().config().architecture.as_deref(), Some("LlamaForCausalLM"));
        change_config(folder.path(), |json| json["model_type"] = json!("foo"));
        check_wrong(&config, "architecture", &["names no architecture", "`peri list`"]);
        assert!(plan_of(&config.clone().architecture("LlamaForCausalLM".to_string())).is_ok());
    }
}

#[test]
fn parts_of_words_in_file_names_promise_nothing() {
    let Some(gguf) = testdata::shared("stories260k/gguf/stories260K-Q8_0.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, runs) in
        [("leaf32-q8_0.gguf", true), ("elf32.gguf", true), ("f32-to-q8_0.gguf", true), ("it-f32.gguf", false)]
    {
        let path = folder.path().join(name);
        std::fs::copy(&gguf, &path).unwrap();
        assert_eq!(plan_of(&PipelineConfig::new(path.display().to_string())).is_ok(), runs, "{name}");
    }
}

#[test]
fn a_gguf_file_without_a_tokenizer_has_that_beside_it() {
    let Some(data) = testdata::shared("stories260k") else { return };
    let bytes = std::fs::read(data.join("gguf/stories260K-Q8_0.gguf")).unwrap();
    let (key, other) = (&b"tokenizer.ggml."[..], &b"tokenizer.none."[..]);
    let mut without = bytes.clone();
    for start in 0..bytes.len() - key.len() {
        if bytes[start..].starts_with(key) {
            without[start..start + key.len()].copy_from_slice(other);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bare.gguf");
    std::fs::write(&path, without).unwrap();
    let hf = PipelineConfig::new(data.join("hf").display().to_string()).weight_path(vec![path.clone()]);
    let text = |tokenizer: crate::Tokenizer| {
        tokenizer.encode("Once", crate::AddSpecial::No, crate::ParseSpecial::No).unwrap()
    };
    let own = text(crate::Tokenizer::from_directory(data.join("hf")).unwrap());
    assert_eq!(text(plan_of(&hf).unwrap().tokenizer().unwrap()), own);
    let alone = plan_of(&PipelineConfig::new(path.display().to_string())).unwrap();
    let error = alone.tokenizer().unwrap_err().to_string();
    assert!(error.contains("bare.gguf") && error.contains("none inside"), "{error}");
}

#[test]
fn gguf_files_have_no_config_json() {
    let error = config().huggingface_config().unwrap_err().to_string();
    assert!(error.contains("config.json"), "{error}");
}

#[test]
fn the_cache_of_a_bfloat16_model_keeps_bfloat16() {
    let Some(folder) = testdata::shared("shakespeare-llama/hf") else { return };
    let config = PipelineConfig::new(folder.display().to_string());
    let asked = config.clone().quantization_encoding(SupportedEncoding::Bfloat16);
    for config in [config, asked] {
        let resolved = plan_of(&config).unwrap();
        assert_eq!(resolved.config().quantization_encoding, Some(SupportedEncoding::Bfloat16));
        assert_eq!(resolved.cache_dtype(), DType::BF16);
        let decoder = resolved.checkpoint().unwrap().decoder().unwrap();
        let per_token = decoder.state().bytes_per_token(DType::BF16) as u64;
        assert_eq!(2 * per_token, decoder.state().bytes_per_token(DType::F32) as u64);
        assert_eq!(resolved.memory().unwrap().cache, 512 * per_token);
    }
}

#[test]
fn weights_and_caches_are_of_the_dtype_that_was_asked_for() {
    let Some(folder) = testdata::shared("shakespeare-llama/hf") else { return };
    let plain = PipelineConfig::new(folder.display().to_string());
    let stored = plan_of(&plain).unwrap();
    for (dtype, cache, expected) in [
        (Some(FloatType::F32), None, (DType::F32, DType::F32)),
        (Some(FloatType::F16), None, (DType::F16, DType::F16)),
        (Some(FloatType::Bf16), None, (DType::BF16, DType::BF16)),
        (None, Some(FloatType::F16), (DType::BF16, DType::F16)),
        (Some(FloatType::F32), Some(FloatType::Bf16), (DType::F32, DType::BF16)),
    ] {
        let resolved =
            plan_of(&PipelineConfig { weights_dtype: dtype, cache_dtype: cache, ..plain.clone() }).unwrap();
        let weight = resolved.checkpoint().unwrap().describe("blk.0.attn_q.weight").unwrap().0;
        assert_eq!((weight, resolved.cache_dtype()), expected);
        let doubled = expected.0 == DType::F32;
        assert_eq!(resolved.weight_bytes() > stored.weight_bytes(), doubled);
    }
    // Blocks stay blocks.
    let quantized = plan_of(&PipelineConfig { weights_dtype: Some(FloatType::Bf16), ..config() }).unwrap();
    assert_eq!(quantized.cache_dtype(), DType::F16);
    assert!(quantized.checkpoint().unwrap().describe("blk.0.attn_q.weight").unwrap().0.is_block());
}

#[test]
fn variables_that_mean_one_field_must_agree() {
    let environment = |variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let mut layers = Layers::default();
        layers.environment(variables.collect::<Vec<_>>()).map(|_| layers.config().huggingface_repo_id.clone())
    };
    let error = environment(&[("PERI_MODEL_PATH", "y"), ("PERI_MODEL", "x")]).unwrap_err().to_string();
    assert_eq!(
        error,
        "PERI_MODEL_PATH is `y`: huggingface_repo_id is set by PERI_MODEL already: unset one of them"
    );
    assert_eq!(environment(&[("PERI_MODEL", "x"), ("PERI_HUGGINGFACE_REPO_ID", "x")]).unwrap(), "x");
    assert_eq!(environment(&[("PERI_MODEL", "x"), ("PERI_MODEL_PATH", "")]).unwrap(), "x");
}

/// A pipe without a writer, on systems that have pipes.
fn pipe(path: &Path) -> bool {
    std::process::Command::new("mkfifo").arg(path).status().is_ok_and(|status| status.success())
}

#[test]
fn pipes_are_no_files() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&original, folder.path());
    let settings = folder.path().join("peri.toml");
    if !pipe(&settings) {
        return;
    }
    let error = Layers::default().file(&settings).unwrap_err().to_string();
    assert!(error.ends_with("peri.toml: it is no regular file"), "{error}");
    for name in ["config.json", "generation_config.json", "tokenizer.json"] {
        let path = folder.path().join(name);
        let kept = std::fs::read(&path).ok();
        std::fs::remove_file(&path).ok();
        assert!(pipe(&path));
        // What a model can do without may be told or passed by; nothing waits for it.
        let resolved = plan_of(&PipelineConfig::new(folder.path().display().to_string()));
        let told = resolved.and_then(|resolved| resolved.tokenizer()).err().map(|error| error.to_string());
        assert_eq!(told.is_some_and(|error| error.contains("config.json")), name == "config.json");
        std::fs::remove_file(&path).unwrap();
        if let Some(bytes) = kept {
            std::fs::write(&path, bytes).unwrap();
        }
    }
}
