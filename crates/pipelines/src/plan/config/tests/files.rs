//! Files of folders, and files that are named.

use std::fs;

use tempfile::TempDir;
use weights::Weights;

use super::*;

fn refused(config: &PipelineConfig) -> String {
    plan_of(config).map(|resolved| resolved.config().weight_path.clone()).unwrap_err().to_string()
}

/// A folder with copies of files, under names.
fn folder(files: &[(&str, PathBuf)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, original) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, fs::read(original).unwrap()).unwrap();
    }
    folder
}

fn of(folder: &TempDir) -> PipelineConfig {
    PipelineConfig::new(folder.path().display().to_string())
}

/// The files of the model in a folder, its weights in two shards with an index.
pub(super) fn in_shards(model: &Path) -> Vec<(String, Vec<u8>)> {
    let weights = Weights::open(&model.join("model.safetensors")).unwrap();
    let tensors: Vec<_> = weights.tensors().collect();
    let mut files = Vec::new();
    let mut map = serde_json::Map::new();
    for (number, tensors) in tensors.chunks(tensors.len().div_ceil(2)).enumerate() {
        let name = format!("model-{:05}-of-00002.safetensors", number + 1);
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (key, tensor) in tensors {
            let begin = data.len();
            data.extend_from_slice(tensor.bytes());
            let offsets = [begin, data.len()];
            let shape = tensor.shape().to_vec();
            let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": offsets});
            header.insert(key.to_string(), entry);
            map.insert(key.to_string(), name.clone().into());
        }
        let header = serde_json::to_vec(&header).unwrap();
        files.push((name, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()));
    }
    let index = serde_json::json!({ "weight_map": map }).to_string();
    files.push(("model.safetensors.index.json".to_string(), index.into_bytes()));
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        files.push((name.to_string(), fs::read(model.join(name)).unwrap()));
    }
    files
}

#[test]
fn the_best_of_a_folder_is_taken() {
    let Some(gguf) = testdata::shared("shakespeare-llama/gguf") else { return };
    let mut config = PipelineConfig::new(gguf.display().to_string());
    let best = gguf.join("shakespeare-llama-Q4_K_M.gguf");
    assert_eq!(plan_of(&config).unwrap().config().weight_path, std::slice::from_ref(&best));
    // The same is said of it by itself, and without planning.
    let bytes = best.metadata().unwrap().len();
    assert_eq!(config.weights_size().unwrap(), Some(bytes));
    config.download_weights().unwrap();
    assert_eq!(config.weight_path, [best]);
    assert_eq!(config.weights_format().unwrap(), WeightsFormat::Gguf);
    assert_eq!(config.weights_size().unwrap(), Some(bytes));
    let original = |name: &str| gguf.join(format!("shakespeare-llama-{name}.gguf"));
    // Without a K-quant the next best; of mixtures the usual one.
    let others = folder(&[("a.gguf", original("Q8_0")), ("b.gguf", original("Q6_K"))]);
    assert_eq!(plan_of(&of(&others)).unwrap().config().weight_path, [others.path().join("b.gguf")]);
    let mixtures = ["x-Q4_K_S.gguf", "x-Q4_K_M.gguf", "x-Q4_K_L.gguf"];
    let mixtures = folder(&mixtures.map(|name| (name, original("Q4_K_M"))));
    for config in [of(&mixtures), of(&mixtures).quantization_encoding(SupportedEncoding::Q4K)] {
        let resolved = plan_of(&config).unwrap();
        assert_eq!(resolved.config().weight_path, [mixtures.path().join("x-Q4_K_M.gguf")]);
    }
    let same = folder(&[("a.gguf", original("Q8_0")), ("b.gguf", original("Q8_0"))]);
    assert!(refused(&of(&same)).ends_with("several models: name one of the files a.gguf, b.gguf"));
}

#[test]
fn what_is_beside_the_model_is_not_taken_for_it() {
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let names = ["config.json", "tokenizer.json", "model.safetensors"];
    let mut files: Vec<_> = names.iter().map(|name| (*name, hf.join(name))).collect();
    files.push(("adapter_model.safetensors", hf.join("model.safetensors")));
    let folder = folder(&files);
    for config in [of(&folder), of(&folder).quantization_encoding(SupportedEncoding::Float32)] {
        let resolved = plan_of(&config).unwrap();
        assert_eq!(resolved.config().weight_path, [folder.path().join("model.safetensors")]);
    }
}

#[test]
fn files_are_found_in_any_case_and_in_folders() {
    let Some(gguf) = testdata::shared("stories260k/gguf/stories260K-Q8_0.gguf") else { return };
    for name in ["MODEL.GGUF", "Q8_0/model.gguf"] {
        let folder = folder(&[(name, gguf.clone())]);
        for config in [of(&folder), of(&folder).quantization_encoding(SupportedEncoding::Q8_0)] {
            assert_eq!(plan_of(&config).unwrap().config().weight_path, [folder.path().join(name)]);
        }
    }
}

#[test]
fn every_part_of_a_model_must_be_there() {
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let encodings = [None, Some(SupportedEncoding::Float32)];
    let write = |change: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in in_shards(&hf) {
            fs::write(folder.path().join(name), content).unwrap();
        }
        change(folder.path());
        folder
    };
    let index = |text: &str| {
        let text = text.to_string();
        move |folder: &Path| fs::write(folder.join("model.safetensors.index.json"), &text).unwrap()
    };
    let whole = write(&|_| ());
    let shard = |number: u32| format!("model-{number:05}-of-00002.safetensors");
    for quantization_encoding in encodings {
        let config = |folder: &TempDir| PipelineConfig { quantization_encoding, ..of(folder) };
        let paths = [whole.path().join(shard(1)), whole.path().join(shard(2))];
        assert_eq!(plan_of(&config(&whole)).unwrap().config().weight_path, paths);
        // One stands for all.
        let one = config(&whole).weight_path(vec![PathBuf::from(shard(2))]);
        assert_eq!(plan_of(&one).unwrap().config().weight_path, paths);
        let lost = write(&|folder| fs::remove_file(folder.join(shard(2))).unwrap());
        assert!(refused(&config(&lost)).contains(&format!("lacks {}", shard(2))));
        let unlisted = write(&|folder| {
            fs::remove_file(folder.join("model.safetensors.index.json")).unwrap();
            fs::remove_file(folder.join(shard(1))).unwrap();
        });
        assert!(refused(&config(&unlisted)).contains(&format!("lacks {}", shard(1))));
        let wrong = format!(r#"{{"weight_map": {{"model.norm.weight": "{}"}}}}"#, shard(1));
        let cases = [
            ("not JSON", "index: expected"),
            (r#"{"weight_map": {"a": "../../etc/passwd"}}"#, "not the name of a file next to it"),
            (&wrong, "where the index lists it"),
        ];
        for (text, message) in cases {
            let error = refused(&config(&write(&index(text))));
            assert!(error.contains(message), "{error}");
        }
    }
}

/// A tensor that an index lists may be missing unless the model uses it. Optional tensors that it uses may not.
#[test]
fn parts_that_a_model_does_not_use_may_be_missing() {
    let Some(hf) = testdata::shared("stories260k/hf") else { return };
    let with = |name: &str, shard: &str| {
        let folder = tempfile::tempdir().unwrap();
        for (file, content) in in_shards(&hf) {
            let content = match file.ends_with(".index.json") {
                true => {
                    let mut index: serde_json::Value = serde_json::from_slice(&content).unwrap();
                    index["weight_map"][name] = shard.into();
                    index.to_string().into_bytes()
                }
                false => content,
            };
            fs::write(folder.path().join(file), content).unwrap();
        }
        folder
    };
    let first = "model-00001-of-00002.safetensors";
    for (name, shard) in [
        ("mtp.fc.weight", first),
        ("mtp.fc.weight", "model-mtp.safetensors"),
        ("vision_tower.x.weight", "vision.safetensors"),
        ("something.of.others", "others.safetensors"),
        ("lm_head.weight", first),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", first),
    ] {
        let folder = with(name, shard);
        plan_of(&of(&folder)).unwrap_or_else(|error| panic!("{name} in {shard}: {error}"));
    }
    for (name, shard, message) in [
        (
            "model.layers.0.self_attn.q_proj.bias",
            "gone.safetensors",
            "the model lacks gone.safetensors, where the index lists it",
        ),
        ("model.layers.0.self_attn.q_proj.bias", first, "where the index lists it, does not hold it"),
        (
            "model.norm.weight",
            "gone.safetensors",
            "the model lacks gone.safetensors, where the index lists it",
        ),
        ("model.layers.4.mlp.up_proj.weight", "gone.safetensors", "the model lacks gone.safetensors"),
    ] {
        let error = refused(&of(&with(name, shard)));
        assert!(error.contains(message) && error.contains(name), "{error}");
    }
}

#[test]
fn what_is_damaged_is_told() {
    let Some(data) = testdata::shared("stories260k/gguf") else { return };
    let original = |name: &str| data.join(format!("stories260K-{name}.gguf"));
    let folder = folder(&[("a-Q8_0.gguf", original("Q8_0")), ("b-Q5_1.gguf", original("Q5_1"))]);
    fs::write(folder.path().join("a-Q8_0.gguf"), "GGUF").unwrap();
    let damaged = "a-Q8_0.gguf: malformed GGUF";
    // Another one is taken in its place, and not in silence.
    let resolved = plan_of(&of(&folder)).unwrap();
    assert_eq!(resolved.config().weight_path, [folder.path().join("b-Q5_1.gguf")]);
    assert!(resolved.warnings()[0].contains(damaged), "{:?}", resolved.warnings());
    assert!(refused(&of(&folder).quantization_encoding(SupportedEncoding::Q8_0)).contains(damaged));
    let lacking = refused(&of(&folder).quantization_encoding(SupportedEncoding::Q4_0));
    assert!(lacking.contains("has q5_1: give one of these"), "{lacking}");
    fs::remove_file(folder.path().join("b-Q5_1.gguf")).unwrap();
    for config in [of(&folder), of(&folder).quantization_encoding(SupportedEncoding::Q8_0)] {
        let error = refused(&config);
        assert!(error.contains("malformed GGUF"), "{error}");
    }
}

#[test]
fn files_that_are_named_are_files() {
    let Some(data) = testdata::shared("stories260k") else { return };
    let file = data.join("gguf/stories260K-Q8_0.gguf");
    let twice = PipelineConfig::default()
        .weight_path(vec![file.clone(), data.join("hf/../gguf/stories260K-Q8_0.gguf")]);
    assert_eq!(plan_of(&twice).unwrap().config().weight_path, [file]);
    let hf = PipelineConfig::new(data.join("hf").display().to_string());
    let typo = refused(&hf.clone().weight_path(vec![PathBuf::from("model.safetensor")]));
    assert!(typo.contains("did you mean `model.safetensors`?"), "{typo}");
    // A folder by itself.
    let pytorch = PipelineConfig { weight_path: vec![data.join("hf")], ..hf };
    assert!(plan_of(&pytorch).unwrap().config().weight_path[0].ends_with("model.safetensors"));
    let address = "https://example.com/org/name/resolve/main/sub/x.gguf";
    let error = refused(&PipelineConfig::new(address));
    assert!(error.contains("set HF_ENDPOINT if this is another hub"), "{error}");
    let nowhere = refused(&PipelineConfig::default().weight_path(vec!["/nowhere/x.gguf".into()]));
    assert!(nowhere.contains("/nowhere/x.gguf"), "{nowhere}");
}
