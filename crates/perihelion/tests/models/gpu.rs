//! Models on a GPU: logits near those of the CPU, and the same bits in every batch and in chunks.

use perihelion::driver::{DType, DeviceSpec, PLATFORM, load_devices};
use perihelion::engine::{CompileOptions, InferenceSession, Placement};
use perihelion::models::Output;
use perihelion::pipelines::TextModel;
use perihelion::pipelines::config::{PipelineConfig, machine};

use crate::architectures::{Golden, PAGE_SIZE, run, weights};
use crate::determinism::{Extent, check_loaded};
use crate::support::{logits, session};

/// The first GPU, if there is one.
fn gpu() -> Option<DeviceSpec> {
    testdata::has_gpu(PLATFORM.absence()).then(|| DeviceSpec::accelerator(0).unwrap())
}

/// A session on the GPU and the CPU.
fn gpu_session(gpu: DeviceSpec) -> InferenceSession {
    InferenceSession::new(load_devices(&[gpu, DeviceSpec::cpu()]).unwrap()).unwrap()
}

fn storyteller() -> PipelineConfig {
    PipelineConfig::new(testdata::asset("storyteller/model.gguf").display().to_string())
}

/// A story that the built-in model goes on with, as tokens.
fn tokens(model: &TextModel) -> Vec<u32> {
    let story = "Once upon a time there was a king who had three daughters. The youngest was so fair that the sun, which \
                 has seen so much, wondered whenever it shone in her face.";
    crate::support::encode(model, story)
}

/// The divergence of Kullback and Leibler of one distribution from another, both given by logits.
fn divergence(expected: &[f32], got: &[f32]) -> f64 {
    let log_probabilities = |logits: &[f32]| -> Vec<f64> {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
        logits.iter().map(|logit| f64::from(logit - largest) - sum.ln()).collect()
    };
    let (expected, got) = (log_probabilities(expected), log_probabilities(got));
    expected.iter().zip(got).map(|(expected, got)| expected.exp() * (expected - got)).sum()
}

/// Compares the probabilities of the next token on the GPU with those on the CPU: the mean and the largest divergence.
fn divergences(gpu: DeviceSpec, config: &PipelineConfig) -> (f64, f64) {
    let there = config.clone().device_specs(vec![gpu]).plan(machine()).unwrap();
    let there = TextModel::from_plan(&gpu_session(gpu), there).unwrap();
    let here = TextModel::from_plan(&session(1), config.plan(machine()).unwrap()).unwrap();
    let tokens = tokens(&here);
    let (expected, got) = (logits(&here, &tokens), logits(&there, &tokens));
    if testdata::is_gpu_software() {
        (0..tokens.len()).for_each(|row| {
            testdata::check_gpu_results("a row of logits", got.row(row), expected.row(row), 0.0);
        });
    }
    let rows: Vec<f64> = (0..tokens.len()).map(|row| divergence(expected.row(row), got.row(row))).collect();
    let found = (
        rows.iter().sum::<f64>() / rows.len() as f64,
        rows.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    );
    eprintln!("{}: mean divergence {:.1e}, largest {:.1e}", config.huggingface_repo_id, found.0, found.1);
    found
}

#[test]
fn logits_are_near_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    // A last bit of a sum may round an input of the next layer to another code of 8 bits.
    let (mean, largest) = divergences(gpu, &storyteller());
    assert!(mean <= 5e-4 && largest <= 5e-3, "mean divergence {mean:e}, largest {largest:e}");
    let Some(folder) = testdata::shared("stories260k/gguf") else { return };
    for encoding in ["F32", "BF16"] {
        let model = folder.join(format!("stories260K-{encoding}.gguf"));
        let (_, largest) = divergences(gpu, &PipelineConfig::new(model.display().to_string()));
        assert!(largest <= 1e-4, "{encoding}: largest divergence {largest:e}");
    }
}

#[test]
fn batches_and_chunks_have_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    let load = |_, page_size| {
        let config = storyteller().device_specs(vec![gpu]).kv_cache_page_size(page_size);
        TextModel::from_plan(&gpu_session(gpu), config.plan(machine()).unwrap()).unwrap()
    };
    check_loaded("on a GPU", &load, Extent { threads: 1, batches: &[2, 3, 5, 8, 16] });
}

/// Models with what a device may not have: experts, states, latent caches, windows, sinks, biases by position.
const KINDS: &[&str] = &[
    "deepseek_v3",
    "falcon_alibi",
    "gemma2",
    "gemma3",
    "gpt_oss",
    "granite_hybrid",
    "llama_llama3",
    "mamba2",
    "minicpm3",
    "olmo2",
    "phi3",
    "qwen3_moe",
    "qwen3_next",
    "stablelm",
];

/// Those whose steps of time are logarithms, which the CPU computes in f64.
const WITH_LOGARITHMS: &[&str] = &["granite_hybrid", "mamba2", "qwen3_next"];

fn check_near(name: &str, got: &[f32], expected: &[f32]) {
    let largest = expected.iter().fold(0.0, |largest: f32, logit| largest.max(logit.abs()));
    let differences = got.iter().zip(expected).map(|(got, expected)| (got - expected).abs());
    let worst = differences.fold(0.0, f32::max) / largest;
    assert!(worst <= 1e-2, "{name}: a logit is off by {worst} of the largest");
}

#[test]
fn models_of_every_kind_have_logits_near_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let options = CompileOptions { placement: Placement::On(gpu), ..CompileOptions::default() };
    for &name in KINDS {
        let golden = Golden::named(name);
        let checkpoint = golden.checkpoint();
        let graph = checkpoint.graph(Output::Logits, PAGE_SIZE, DType::F16).unwrap();
        let weights = weights(&checkpoint, &graph);
        let whole = golden.tokens.len();
        let there = gpu_session(gpu).load_with(&graph, &weights, &options).unwrap();
        let here = session(1).load(&graph, &weights).unwrap();
        let got = run(&checkpoint, &there, &golden.tokens, &[whole]);
        let chunked = run(&checkpoint, &there, &golden.tokens, &[whole - 3, 1, 2]);
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
        assert!(bits(&got) == bits(&chunked), "{name}: other bits in chunks");
        let expected = run(&checkpoint, &here, &golden.tokens, &[whole]);
        match WITH_LOGARITHMS.contains(&name) {
            false => testdata::check_gpu_results(name, &got, &expected, 1e-2),
            true => check_near(name, &got, &expected),
        }
    }
}
