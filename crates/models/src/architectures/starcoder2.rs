//! StarCoder2: Mistral with layer norms, plain blocks, and biases everywhere.

use graph::ops::{RopeStyle, Unary};
use serde_json::json;

use super::Architecture;
use super::llama::llama_with_window;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, with_norm, with_plain_channels};
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{Activation, Config, Decoder, Norm, Rope, WeightTypes};

/// StarCoder2.
pub(crate) const STARCODER2: Architecture = Architecture {
    hugging_face: "Starcoder2ForCausalLM",
    examples: &["bigcode/starcoder2-3b"],
    gguf: Some("starcoder2"),
    model_type: "starcoder2",
    keys: &["head_dim", "hidden_act", "norm_epsilon", "num_key_value_heads", "sliding_window", "use_bias"],
    complete,
    names: &[NAMES, LLAMA_NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: starcoder2,
    ..LLAMA
};

const NAMES: NameTable = &[("layers.#.mlp.c_fc", "blk.#.ffn_up"), ("layers.#.mlp.c_proj", "blk.#.ffn_down")];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("norm_epsilon", "norm_eps");
    keys.add(json!({
        "norm_eps": 1e-5, "num_key_value_heads": 2, "max_position_embeddings": 4096, "tie_word_embeddings": true,
        "hidden_act": "gelu_pytorch_tanh",
    }));
    Ok(())
}

fn starcoder2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let decoder = with_norm(llama_with_window(config, ropes, weights), Norm::layer(config.norm_eps));
    with_plain_channels(decoder, config, Activation::Unary(Unary::GeluTanh), weights)
}
