//! Phi: plain blocks that read one layer norm, positions that turn a part of each head, and biases everywhere, the head
//! included.

use graph::ops::{RopeStyle, Unary};
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama, with_plain_channels};
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{Activation, Config, Decoder, Norm, Norms, QkNorm, Residual, Rope, WeightTypes};

/// Phi-1, Phi-1.5 and Phi-2.
pub(crate) const PHI: Architecture = Architecture {
    hugging_face: "PhiForCausalLM",
    examples: &["microsoft/phi-2", "microsoft/phi-1_5"],
    gguf: Some("phi2"),
    model_type: "phi",
    keys: &["head_dim", "hidden_act", "layer_norm_eps", "num_key_value_heads", "partial_rotary_factor"],
    complete,
    names: &[NAMES, LLAMA_NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: phi,
    ..LLAMA
};

const NAMES: NameTable = &[
    ("final_layernorm", "output_norm"),
    ("layers.#.self_attn.dense", "blk.#.attn_output"),
    ("layers.#.self_attn.q_layernorm", "blk.#.attn_q_norm"),
    ("layers.#.self_attn.k_layernorm", "blk.#.attn_k_norm"),
    ("layers.#.mlp.fc1", "blk.#.ffn_up"),
    ("layers.#.mlp.fc2", "blk.#.ffn_down"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("layer_norm_eps", "norm_eps");
    keys.add(json!({ "norm_eps": 1e-5, "partial_rotary_factor": 0.5, "hidden_act": "gelu_new" }));
    Ok(())
}

fn phi(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let norm = Norm::layer(config.norm_eps);
    let decoder = llama(config, ropes, weights);
    let mut decoder = with_plain_channels(decoder, config, Activation::Unary(Unary::GeluTanh), weights);
    for layer in &mut decoder.layers {
        layer.norms = Norms::Shared(norm);
        layer.residual = Residual { parallel: true, scale: 1.0 };
    }
    if weights.dtype("blk.0.attn_q_norm.weight").is_some() {
        decoder.attentions_mut().for_each(|attention| attention.qk_norm = Some(QkNorm::PerHead(norm)));
    }
    Decoder { norm, ..decoder }
}
