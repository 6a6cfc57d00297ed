//! Weights that are cast to another dtype while they load.

use std::path::Path;

use perihelion::driver::{DType, Tensor};
use perihelion::engine::{PackError, WeightsRegistry};
use perihelion::models::{Checkpoint, CheckpointOptions, Output};
use perihelion::weights::Weights;
use tensor::{Bytes, Shape, bf16};

use crate::architectures::{Golden, PAGE_SIZE, run};
use crate::support::session;

/// A checkpoint as the engine asks for weights: types first, then one by one.
struct Registry<'a>(&'a Checkpoint);

impl WeightsRegistry for Registry<'_> {
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
        self.0.tensor(name).map_err(|error| PackError::Unfit(error.to_string()))
    }

    fn describe(&self, name: &str) -> Result<Option<(DType, Shape)>, String> {
        Ok(self.0.describe(name))
    }
}

/// The same weights in a file in memory, rounded to bf16.
fn rounded(weights: &Weights) -> Weights {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, tensor) in weights.tensors() {
        let start = data.len();
        data.extend(tensor.to_f32_vec().iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()));
        let entry = serde_json::json!({
            "dtype": "BF16", "shape": tensor.shape().to_vec(), "data_offsets": [start, data.len()],
        });
        header.insert(name.to_string(), entry);
    }
    let header = serde_json::Value::from(header).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    Weights::from_bytes("model.safetensors", Bytes::new(bytes)).unwrap()
}

fn open(weights: Weights, folder: &Path, dtype: Option<DType>) -> Checkpoint {
    let options = CheckpointOptions { dtype, ..CheckpointOptions::default() };
    Checkpoint::from_weights(weights, &folder.join("config.json"), options).unwrap()
}

fn logits(checkpoint: &Checkpoint, tokens: &[u32]) -> Vec<f32> {
    let graph = checkpoint.graph(Output::Logits, PAGE_SIZE, DType::F32).unwrap();
    let model = session(2).load(&graph, &Registry(checkpoint)).unwrap();
    run(checkpoint, &model, tokens, &[tokens.len()])
}

#[test]
fn weights_can_be_cast_while_they_load() {
    // Matrices of their own, stacked ones, transposed ones, and experts.
    for name in ["qwen3", "phi3", "gpt2", "qwen3_moe"] {
        let golden = Golden::named(name);
        let stored = || Weights::open(&golden.folder.join("model.safetensors")).unwrap();
        let exact = open(stored(), &golden.folder, None);
        let narrow = open(rounded(&stored()), &golden.folder, None);
        let narrowed = open(stored(), &golden.folder, Some(DType::BF16));
        let widened = open(rounded(&stored()), &golden.folder, Some(DType::F32));
        let matrix = "blk.0.attn_q.weight";
        let dtype = |checkpoint: &Checkpoint| checkpoint.describe(matrix).unwrap().0;
        assert_eq!(
            [&exact, &narrow, &narrowed, &widened].map(dtype),
            [DType::F32, DType::BF16, DType::BF16, DType::F32],
            "{name}"
        );
        let bits = |checkpoint: &Checkpoint| checkpoint.tensor(matrix).unwrap().unwrap().bytes().to_vec();
        assert_eq!(bits(&narrowed), bits(&narrow), "{name}");
        let values = |checkpoint: &Checkpoint| checkpoint.tensor(matrix).unwrap().unwrap().to_f32_vec();
        assert_eq!(values(&widened), values(&narrow), "{name}");
        // Matrices are nearly all of a model.
        assert!(widened.bytes() > narrow.bytes() * 17 / 10, "{name}");
        assert!(narrowed.bytes() < exact.bytes() * 6 / 10, "{name}");
        let expected = logits(&exact, &golden.tokens);
        let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let mut rows: Vec<f32> = logits(&widened, &golden.tokens)
            .chunks(exact.config.vocab)
            .zip(expected.chunks(exact.config.vocab))
            .map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a - b).abs() / largest).fold(0.0, f32::max))
            .collect();
        rows.sort_by(f32::total_cmp);
        // Rounding gives some tokens to other experts.
        let typical = rows[rows.len() / 2];
        assert!(typical > 0.0 && typical < 4e-2, "{name}: off by {typical}");
    }
}

#[test]
fn casts_are_to_plain_numbers() {
    let golden = Golden::named("qwen3");
    let weights = Weights::open(&golden.folder.join("model.safetensors")).unwrap();
    let options = CheckpointOptions { dtype: Some(DType::Q4_0), ..CheckpointOptions::default() };
    let error = Checkpoint::from_weights(weights, &golden.folder.join("config.json"), options).unwrap_err();
    assert!(
        error.to_string().ends_with("weights cannot be cast to q4_0, expected f32, bf16 or f16"),
        "{error}"
    );
}
