//! Nemotron: plain blocks with squared ReLUs, layer norms that multiply by 1 plus their weight, and positions that turn a
//! part of each head.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama, with_norm, with_plain_channels};
use crate::config::ConfigKeys;
use crate::{Activation, CenteredNorms, Config, Decoder, Norm, Rope, WeightTypes};

/// Nemotron 4, Minitron, and what came of them.
pub(crate) const NEMOTRON: Architecture = Architecture {
    hugging_face: "NemotronForCausalLM",
    examples: &["nvidia/Minitron-4B-Base"],
    gguf: Some("nemotron"),
    model_type: "nemotron",
    keys: &[
        "attention_bias",
        "head_dim",
        "hidden_act",
        "mlp_bias",
        "norm_eps",
        "num_key_value_heads",
        "partial_rotary_factor",
    ],
    complete,
    gguf_rope: RopeStyle::HalfSplit,
    centered_norms: CenteredNorms::All,
    decoder: nemotron,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "norm_eps": 1e-5, "max_position_embeddings": 4096, "partial_rotary_factor": 0.5, "hidden_act": "relu2",
    }));
    Ok(())
}

fn nemotron(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let decoder = with_norm(llama(config, ropes, weights), Norm::layer(config.norm_eps));
    with_plain_channels(decoder, config, Activation::ReluSquared, weights)
}
