//! A model in GGUF, safetensors and PyTorch files: whatever they call its weights, they are the same.

use std::path::Path;

use perihelion_models::{Checkpoint, Error, Mix, Output, QuantizeOptions, Quantizer};
use serde_json::{Map, Value, json};
use tensor::DType;
use weights::{GgufWriter, Metadata, Weights};

const NAMES: usize = 47;

fn open(model: &Path, weights: &Path) -> Checkpoint {
    Checkpoint::open(model, Some(weights)).unwrap_or_else(|error| panic!("{}: {error}", weights.display()))
}

/// The weights that the graph of a model takes, by canonical name.
fn taken(checkpoint: &Checkpoint) -> Vec<String> {
    let graph = checkpoint.graph(Output::Logits, 16, DType::F32).unwrap();
    let mut names: Vec<String> = graph
        .nodes()
        .filter_map(|(_, node)| match &node.op {
            graph::Op::Weight(weight) => Some(weight.name.clone()),
            _ => None,
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Rows of interleaved pairs (`2i`, `2i + 1`) → rows of half-split pairs (`i`, `i + head_dim / 2`).
fn half_split(rows: &[f32], head_dim: usize, width: usize) -> Vec<f32> {
    let head = |head: &[f32]| {
        let rows: Vec<&[f32]> = head.chunks(width).collect();
        let (even, odd) = (rows.iter().step_by(2), rows.iter().skip(1).step_by(2));
        even.chain(odd).flat_map(|row| row.to_vec()).collect::<Vec<f32>>()
    };
    rows.chunks(head_dim * width).flat_map(head).collect()
}

#[test]
fn formats_agree_on_every_value() {
    let Some(data) = testdata::shared("stories260k") else { return };
    let file = data.join("gguf/stories260K-F32.gguf");
    let gguf = open(&file, &file);
    let names = taken(&gguf);
    assert_eq!(names.len(), NAMES);
    for other in ["hf", "hf/model.safetensors", "pytorch/pytorch_model.bin", "pytorch/ckpt_nested.pt"] {
        let theirs = open(&data.join("hf"), &data.join(other));
        assert_eq!(taken(&theirs), names, "{other}");
        for name in &names {
            let (ours, theirs) = (gguf.tensor(name).unwrap().unwrap(), theirs.tensor(name).unwrap().unwrap());
            assert_eq!(theirs.shape(), ours.shape(), "{name}");
            let rotary = name.contains("attn_q.") || name.contains("attn_k.");
            let ours = if rotary { half_split(&ours.to_f32_vec(), 8, 64) } else { ours.to_f32_vec() };
            assert_eq!(theirs.to_f32_vec(), ours, "{name} of {other}");
        }
    }
}

#[test]
fn narrow_formats_are_close() {
    let Some(data) = testdata::shared("stories260k") else { return };
    let hf = data.join("hf");
    let exact = open(&hf, &hf);
    for (file, tolerance) in [("legacy_tar_f16.bin", 1.0 / 2048.0), ("pytorch_model.bf16.pth", 1.0 / 256.0)] {
        let narrow = open(&hf, &data.join("pytorch").join(file));
        for name in taken(&exact) {
            let values = |checkpoint: &Checkpoint| checkpoint.tensor(&name).unwrap().unwrap().to_f32_vec();
            for (a, b) in values(&narrow).into_iter().zip(values(&exact)) {
                assert!((a - b).abs() <= b.abs() * tolerance + 1e-7, "{file}: {name}: {a} is not {b}");
            }
        }
    }
}

/// Without these keys, llama.cpp refuses the files.
#[test]
fn gguf_files_have_the_keys_that_llama_cpp_needs() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../perihelion/tests/models/goldens");
    for (name, key) in [
        ("youtu", "deepseek2.expert_shared_count"),
        ("youtu", "deepseek2.expert_feed_forward_length"),
        ("mellum", "mellum.attention.sliding_window_pattern"),
        ("laguna", "laguna.attention.sliding_window_pattern"),
        ("mistral4", "mistral4.attention.temperature_length"),
        ("falcon_mamba", "mamba.ssm.dt_b_c_rms"),
    ] {
        let folder = goldens.join(name);
        let checkpoint = Checkpoint::open(&folder.join("model.safetensors"), None).unwrap();
        let options = QuantizeOptions::new(Mix::find("q8_0").unwrap());
        let file = Quantizer::new(&checkpoint, &folder.join("config.json"), &options).unwrap();
        assert!(file.metadata(&Metadata::new()).get(key).is_some(), "{name}: {key}");
    }
}

/// Writes a checkpoint with one more layer, which predicts tokens further ahead, into a new folder. The layer has the
/// weights of the last one.
fn add_prediction_layer(source: &Path, target: &Path, [layers, hidden]: [usize; 2], last_norm: &str) {
    std::fs::create_dir_all(target).unwrap();
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(source.join("config.json")).unwrap()).unwrap();
    config["num_nextn_predict_layers"] = json!(1);
    std::fs::write(target.join("config.json"), config.to_string()).unwrap();
    let file = std::fs::read(source.join("model.safetensors")).unwrap();
    let (length, rest) = file.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Map<String, Value> = serde_json::from_slice(header).unwrap();
    let mut data = data.to_vec();
    let mut add = |name: String, shape: Value, bytes: &[u8], data: &mut Vec<u8>| {
        let offsets = [data.len(), data.len() + bytes.len()];
        data.extend_from_slice(bytes);
        header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": offsets }));
    };
    let last = format!("model.layers.{}.", layers - 1);
    let prefix = format!("model.layers.{layers}.");
    let weights = Weights::open(&source.join("model.safetensors")).unwrap();
    for (name, tensor) in weights.tensors() {
        if let Some(stem) = name.strip_prefix(&last) {
            let shape = json!(tensor.shape().iter().collect::<Vec<_>>());
            add(format!("{prefix}{stem}"), shape, tensor.bytes(), &mut data);
        }
    }
    let ones: Vec<u8> = std::iter::repeat_n(1f32.to_le_bytes(), 2 * hidden * hidden).flatten().collect();
    add(format!("{prefix}eh_proj.weight"), json!([hidden, 2 * hidden]), &ones, &mut data);
    for norm in ["enorm", "hnorm", last_norm] {
        add(format!("{prefix}{norm}.weight"), json!([hidden]), &ones[..4 * hidden], &mut data);
    }
    let header = Value::from(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    std::fs::write(target.join("model.safetensors"), file).unwrap();
}

#[test]
fn layers_that_predict_further_are_kept_in_gguf_files() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../perihelion/tests/models/goldens");
    for (name, gguf, hidden, last_norm) in [
        ("glm4_moe", "glm4moe", 24, ["shared_head.norm", "nextn.shared_head_norm.weight"]),
        ("ling", "bailingmoe2", 40, ["final_layernorm", "layer_output_norm.weight"]),
    ] {
        let layers = 3;
        let source = goldens.join(name);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("predicting_{name}"));
        add_prediction_layer(&source, &folder, [layers, hidden], last_norm[0]);
        let config = folder.join("config.json");
        let checkpoint = Checkpoint::open(&folder.join("model.safetensors"), None).unwrap();
        assert_eq!(checkpoint.unused(), [""; 0], "{name}");
        let quantizer =
            Quantizer::new(&checkpoint, &config, &QuantizeOptions::new(Mix::find("f32").unwrap())).unwrap();
        let mut file =
            GgufWriter::new(Vec::new(), &quantizer.metadata(&Metadata::new()), &quantizer.records()).unwrap();
        for index in 0..quantizer.records().len() {
            quantizer
                .write::<Error>(index, &mut |bytes| {
                    file.write_all(bytes).unwrap();
                    Ok(())
                })
                .unwrap();
        }
        let path = folder.join("model.gguf");
        std::fs::write(&path, file.finish().unwrap()).unwrap();
        let written = Checkpoint::open(&path, None).unwrap();
        let metadata = written.weights().metadata();
        let number = |key: &str| metadata.optional::<u32>(&format!("{gguf}.{key}")).unwrap();
        assert_eq!(
            (number("block_count"), number("nextn_predict_layers")),
            (Some(layers as u32 + 1), Some(1))
        );
        assert_eq!((written.unused(), taken(&written)), (checkpoint.unused(), taken(&checkpoint)));
        let of_layer = |layer: usize| {
            let prefix = format!("blk.{layer}.");
            let names = written.weights().names().filter_map(|name| name.strip_prefix(&prefix));
            names.map(str::to_owned).collect::<std::collections::BTreeSet<String>>()
        };
        let more = ["nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight", last_norm[1]];
        let expected = of_layer(layers - 1).into_iter().chain(more.map(str::to_owned)).collect();
        assert_eq!(of_layer(layers), expected, "{name}");
        // A checkpoint that says that it has such layers, and has none.
        let source = Checkpoint::open(&source.join("model.safetensors"), None).unwrap();
        let options = QuantizeOptions::new(Mix::find("f32").unwrap());
        let without = Quantizer::new(&source, &config, &options).unwrap().metadata(&Metadata::new());
        assert_eq!(without.optional::<u32>(&format!("{gguf}.block_count")).unwrap(), Some(layers as u32));
    }
}
