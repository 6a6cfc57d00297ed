//! Mixtures of experts: quantized ones compute as their dequantized weights do, with the same bits in every batch.

use std::collections::HashMap;

use perihelion::driver::{DType, Shape, Tensor};
use perihelion::engine::{Model, PackError, WeightsRegistry};
use perihelion::graph::Op;
use perihelion::models::{Checkpoint, Output, WeightTypes};
use perihelion::pipelines::{Batch, Runner, SequenceId, Slice};
use tensor::{AlignedBytes, Bytes, blocks};

use crate::architectures::{Golden, PAGE_SIZE};

/// A checkpoint whose experts are stored in another dtype.
struct Experts<'a> {
    checkpoint: &'a Checkpoint,
    dtype: DType,
}

fn is_expert(name: &str) -> bool {
    name.ends_with("_exps.weight")
}

impl WeightTypes for Experts<'_> {
    fn dtype(&self, name: &str) -> Option<DType> {
        if is_expert(name) { Some(self.dtype) } else { self.checkpoint.dtype(name) }
    }
}

impl Experts<'_> {
    /// The model, with experts as `convert` has them.
    fn load(&self, convert: impl Fn(&Tensor) -> Tensor) -> Model {
        let graph = self.checkpoint.model.graph(Output::Logits, self, PAGE_SIZE, DType::F32).unwrap();
        let names = graph.nodes().filter_map(|(_, node)| match &node.op {
            Op::Weight(weight) => Some(weight.name.clone()),
            _ => None,
        });
        let convert = |name: String| {
            let tensor = self.checkpoint.tensor(&name).unwrap().unwrap();
            let tensor = if is_expert(&name) { convert(&tensor) } else { tensor };
            (name, tensor)
        };
        let weights: HashMap<String, Tensor> = names.map(convert).collect();
        crate::support::session(2).load(&graph, &weights).unwrap()
    }
}

fn quantized(tensor: &Tensor, dtype: DType) -> Tensor {
    let bytes = blocks::quantize(dtype, &tensor.to_f32_vec());
    Tensor::from_bytes(dtype, *tensor.shape(), Bytes::new(AlignedBytes::copy_of(&bytes))).unwrap()
}

fn slice(id: u64, tokens: &[u32], pages: &[u32]) -> Slice {
    Slice {
        id: SequenceId(id),
        tokens: tokens.to_vec(),
        pages: pages.to_vec(),
        predicts: true,
        outputs: tokens.len(),
        ..Slice::default()
    }
}

/// The logits of all tokens of some sequences that run together.
fn logits(checkpoint: &Checkpoint, model: &Model, slices: Vec<Slice>) -> Vec<Vec<f32>> {
    let decoder = checkpoint.decoder().unwrap();
    let rows: usize = slices.iter().map(|slice| slice.tokens.len()).sum();
    let mut runner = Runner::new(model.clone(), 9, decoder.vocab).unwrap();
    let logits = runner.run(&Batch { slices, ..Batch::default() }).unwrap();
    (0..rows).map(|row| logits.row(row).to_vec()).collect()
}

#[test]
fn quantized_experts_match_their_dequantized_weights() {
    for name in ["mixtral_stacked", "qwen3_moe", "granite_moe", "olmoe"] {
        let golden = Golden::named(name);
        let checkpoint = golden.checkpoint();
        let slices = || vec![slice(0, &golden.tokens, &[2, 0, 5])];
        for dtype in [DType::Q8_0, DType::Q4_0, DType::Iq4Nl] {
            let experts = Experts { checkpoint: &checkpoint, dtype };
            let got = logits(&checkpoint, &experts.load(|tensor| quantized(tensor, dtype)), slices());
            let plain = Experts { checkpoint: &checkpoint, dtype: DType::F32 };
            let dequantized =
                |tensor: &Tensor| Tensor::from_slice(*tensor.shape(), &quantized(tensor, dtype).to_f32_vec());
            let expected = logits(&checkpoint, &plain.load(dequantized), slices());
            let largest = expected.iter().flatten().fold(0.0f32, |largest, x| largest.max(x.abs()));
            // Where activations in 8 bits turn the scores of two experts, a token gets others: most do not.
            let close = |(a, b): (&Vec<f32>, &Vec<f32>)| {
                a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 0.04 * largest)
            };
            let agreeing = got.iter().zip(&expected).filter(|pair| close(*pair)).count();
            assert!(agreeing * 10 >= got.len() * 9, "{name} {dtype}: {agreeing} of {}", got.len());
        }
    }
}

#[test]
fn other_sequences_in_a_batch_change_no_bit() {
    for name in ["mixtral", "qwen2_moe", "qwen3_moe_sparse"] {
        let golden = Golden::named(name);
        let checkpoint = golden.checkpoint();
        let experts = Experts { checkpoint: &checkpoint, dtype: DType::F32 };
        let model = experts.load(Tensor::clone);
        let parts = [&golden.tokens[..17], &golden.tokens[5..6], &golden.tokens[20..40]];
        let pages = [[0u32, 1], [2, 3], [4, 5]];
        let all = (0..3).map(|i| slice(i as u64, parts[i], &pages[i])).collect();
        let together = logits(&checkpoint, &model, all);
        let alone = (0..3).flat_map(|i| logits(&checkpoint, &model, vec![slice(9, parts[i], &pages[i])]));
        let bits = |rows: Vec<Vec<f32>>| -> Vec<u32> { rows.concat().iter().map(|x| x.to_bits()).collect() };
        assert!(bits(alone.collect()) == bits(together), "{name}");
    }
}

#[test]
fn contradicting_expert_counts_are_refused() {
    let cases = [
        (
            "mixtral",
            "num_local_experts",
            "5",
            "`model.layers.0.block_sparse_moe.experts.5.w1.weight`: the configuration says that there are 5",
        ),
        (
            "mixtral",
            "num_local_experts",
            "7",
            "`model.layers.0.block_sparse_moe.experts.6.w1.weight`: missing: the configuration says that there are 7",
        ),
        ("mixtral", "num_experts_per_tok", "7", "number of experts per token is 7, expected 1 to 6"),
        (
            "mixtral",
            "num_local_experts",
            "null",
            "`model.layers.0.mlp.gate_proj.weight`: missing from the checkpoint",
        ),
        ("mixtral_stacked", "num_local_experts", "4", "is [3, 32], but the configuration makes it [4, 32]"),
        ("mixtral_stacked", "intermediate_size", "33", "has 64 rows for 2 weights, expected 66"),
        ("qwen3_moe_sparse", "decoder_sparse_step", "0", "`decoder_sparse_step` is 0"),
        ("olmoe", "clip_qkv", "-4.0", "the limit of queries, keys and values is -4"),
    ];
    for (index, (name, key, value, expected)) in cases.into_iter().enumerate() {
        let golden = Golden::named(name);
        let text = std::fs::read_to_string(golden.folder.join("config.json")).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        config[key] = serde_json::from_str(value).unwrap();
        let folder = std::env::temp_dir().join(format!("perihelion-experts-{}-{index}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let weights = golden.folder.join("model.safetensors");
        let error = Checkpoint::open(&folder, Some(&weights)).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains(expected), "{name}, {key} {value}: {error}");
    }
}

/// Descriptions match the weights. Experts stored apart are copied on demand.
#[test]
fn descriptions_match_the_weights() {
    struct Described<'a>(&'a Checkpoint);
    impl WeightsRegistry for Described<'_> {
        fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
            self.0.tensor(name).map_err(|error| PackError::Unfit(error.to_string()))
        }

        fn describe(&self, name: &str) -> Result<Option<(DType, Shape)>, String> {
            Ok(self.0.describe(name))
        }
    }
    for name in ["mixtral", "mixtral_stacked", "qwen2_moe"] {
        let golden = Golden::named(name);
        let checkpoint = golden.checkpoint();
        let graph = checkpoint.graph(Output::Logits, PAGE_SIZE, DType::F32).unwrap();
        let model = crate::support::session(1).load(&graph, &Described(&checkpoint)).unwrap();
        let slices = || vec![slice(0, &golden.tokens, &[2, 0, 5])];
        let plain = Experts { checkpoint: &checkpoint, dtype: DType::F32 }.load(Tensor::clone);
        assert_eq!(logits(&checkpoint, &model, slices()), logits(&checkpoint, &plain, slices()), "{name}");
    }
}
