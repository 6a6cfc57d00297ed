//! Checkpoints that GPTQ and others quantized, against the logits that PyTorch computes with the weights that this leaves; both
//! written by `tools/tiny_checkpoints.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use perihelion::driver::{DType, Device};
use perihelion::engine::{InferenceSession, Model, ReferenceDevice};
use perihelion::models::{Checkpoint, Output};

use crate::architectures::{Golden, PAGE_SIZE, run, weights};
use crate::support::session;

/// How far a logit may be from PyTorch's, as a fraction of the largest, where ops are evaluated as they are meant: both
/// round to f32.
const EXACT: f32 = 1e-4;
/// Where kernels round activations to 8 bits per 32 values, which here are half of a row or a third, and may give a token to
/// another expert.
const ROUNDED: f32 = 0.08;
const FOLDERS: [&str; 6] = ["llama", "mistral", "phi3", "qwen2", "qwen3_moe", "qwen3_next"];
/// What else quantizes, and the blocks that its matrices become. Those of floats are multiplied with what is not rounded.
const OTHERS: [(&str, DType, f32); 13] = [
    ("awq", DType::Gptq, ROUNDED),
    ("fp8_blocks", DType::Fp8, EXACT),
    ("fp8_delta_nets", DType::Fp8, EXACT),
    ("fp8_latents", DType::Fp8, EXACT),
    ("fp8_rows", DType::Fp8, EXACT),
    ("gptq_8_bits", DType::Gptq8, ROUNDED),
    ("int4", DType::Gptq, ROUNDED),
    ("int4_permuted", DType::Gptq, ROUNDED),
    ("int8", DType::Gptq8, ROUNDED),
    ("mxfp4", DType::Mxfp4, ROUNDED),
    ("mxfp4_packed", DType::Mxfp4, ROUNDED),
    ("nf4", DType::Nf4, EXACT),
    ("nvfp4", DType::Nvfp4, ROUNDED),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/gptq").join(name)
}

fn load(session: &InferenceSession, checkpoint: &Checkpoint) -> Model {
    let graph = checkpoint.graph(Output::Logits, PAGE_SIZE, DType::F32).unwrap();
    session.load(&graph, &weights(checkpoint, &graph)).unwrap()
}

/// The largest difference of logits, as a fraction of the largest.
fn difference(golden: &Golden, logits: &[f32]) -> f32 {
    let largest = golden.logits.iter().fold(0.0, |largest: f32, logit| largest.max(logit.abs()));
    assert_eq!(golden.logits.len(), logits.len());
    let pairs = golden.logits.iter().zip(logits);
    pairs.map(|(expected, found)| (expected - found).abs() / largest).fold(0.0, f32::max)
}

/// Logits are PyTorch's, and the same bits with other threads and in chunks.
fn check(name: &str, golden: &Golden, tolerance: f32) {
    check_checkpoint(name, golden, &golden.checkpoint(), tolerance);
}

fn check_checkpoint(name: &str, golden: &Golden, checkpoint: &Checkpoint, tolerance: f32) {
    let all = [golden.tokens.len()];
    let reference = InferenceSession::new([Arc::new(ReferenceDevice) as Arc<dyn Device>]).unwrap();
    let logits = run(checkpoint, &load(&reference, checkpoint), &golden.tokens, &all);
    let exact = difference(golden, &logits);
    let models = [1, 3].map(|threads| load(&session(threads), checkpoint));
    let [whole, other] = models.each_ref().map(|model| run(checkpoint, model, &golden.tokens, &all));
    let rounded = difference(golden, &whole);
    eprintln!("{name}: off by {exact:.1e}, with kernels by {rounded:.1e}");
    assert!(exact <= EXACT, "{name}: a logit is off by {exact} of the largest");
    assert!(rounded <= tolerance, "{name}: with kernels, a logit is off by {rounded} of the largest");
    assert_eq!(whole, other, "{name}: threads change no bit");
    for chunks in [&[1, 39][..], &[7, 3, 20, 1, 1, 8]] {
        let chunked = run(checkpoint, &models[0], &golden.tokens, chunks);
        assert_eq!(chunked, whole, "{name}: other bits in chunks of {chunks:?}");
    }
}

#[test]
fn gptq_logits_match_pytorch_with_dequantized_weights() {
    for name in FOLDERS {
        check(name, &Golden::open(folder(name)), ROUNDED);
    }
}

#[test]
fn logits_of_other_quantizations_match_pytorch_with_dequantized_weights() {
    for (name, dtype, tolerance) in OTHERS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/quantized").join(name);
        let golden = Golden::open(folder);
        let checkpoint = golden.checkpoint();
        assert_eq!(checkpoint.repacked().into_keys().collect::<Vec<_>>(), [dtype], "{name}");
        assert_eq!(checkpoint.stored_quantization(), Some(dtype), "{name}");
        assert!(checkpoint.unused().is_empty(), "{name}: {:?}", checkpoint.unused());
        check(name, &golden, tolerance);
    }
}

/// llama.cpp's converter wrote the file: blocks of its own, and a scale of each matrix.
#[test]
fn nvfp4_in_gguf_computes_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/quantized/nvfp4");
    let golden = Golden::open(folder);
    let [expected, found] = ["model.safetensors", "model.gguf"].map(|file| golden.open_file(file));
    assert_eq!(found.stored_quantization(), Some(DType::Nvfp4));
    assert_eq!(found.repacked(), expected.repacked());
    assert!(found.unused().is_empty(), "{:?}", found.unused());
    // Rows of queries and keys have another order.
    for name in ["blk.0.attn_v.weight", "blk.1.ffn_down.weight"] {
        let [expected, found] =
            [&expected, &found].map(|own| own.tensor(name).unwrap().unwrap().to_f32_vec());
        let near = |(found, expected): (&f32, &f32)| (found - expected).abs() <= 1e-6 * expected.abs();
        assert!(found.iter().zip(&expected).all(near), "{name}");
    }
    check_checkpoint("nvfp4 in GGUF", &golden, &found, ROUNDED);
}

#[test]
fn gptq_weights_load_from_pytorch_files() {
    let golden = Golden::open(folder("llama"));
    let safetensors = golden.checkpoint();
    let pytorch = golden.open_file("pytorch_model.bin");
    let graph = safetensors.graph(Output::Logits, PAGE_SIZE, DType::F32).unwrap();
    assert_eq!(graph.to_string(), pytorch.graph(Output::Logits, PAGE_SIZE, DType::F32).unwrap().to_string());
    let (expected, found) = (weights(&safetensors, &graph), weights(&pytorch, &graph));
    for (name, tensor) in &expected {
        assert_eq!(tensor.bytes(), found[name].bytes(), "{name}");
    }
}

/// Queries, keys and values are one product, and the input is ordered once for them.
#[test]
fn gptq_inputs_are_reordered_once_for_shared_layers() {
    let checkpoint = Golden::open(folder("llama")).checkpoint();
    let plan = load(&session(1), &checkpoint).program().to_string();
    let layers = checkpoint.decoder().unwrap().layers.len();
    let count = |what: &str| plan.lines().filter(|line| line.contains(what)).count();
    // Those of queries, output, gate and down; and the last one, of the rows that are asked for.
    assert_eq!(count("gather"), 4 * layers + 1, "{plan}");
    assert_eq!(count("panel16.gptq"), 7 * layers, "{plan}");
    assert!(!plan.contains("reference"), "{plan}");
}
