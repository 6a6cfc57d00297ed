//! A model in GGUF, safetensors and PyTorch files: whatever they call its weights, they are the same.

use std::path::Path;

use perihelion_models::{Checkpoint, Mix, Output, QuantizeOptions, Quantizer};
use tensor::DType;
use weights::Metadata;

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
