//! CWM: Llama with a window in all layers but every fourth, beginning with the first.

use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama, rms_norm, windowed};
use crate::config::ConfigKeys;
use crate::{Config, Decoder, Rope, WeightTypes};

/// Code World Model.
pub(crate) const CWM: Architecture = Architecture {
    hugging_face: "CwmForCausalLM",
    examples: &["facebook/cwm"],
    gguf: None,
    model_type: "cwm",
    keys: &[
        "head_dim",
        "hidden_act",
        "layer_types",
        "mlp_bias",
        "num_key_value_heads",
        "rms_norm_eps",
        "sliding_window",
    ],
    complete,
    decoder: cwm,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 128_256, "hidden_size": 6144, "intermediate_size": 21504, "num_hidden_layers": 64,
        "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5, "sliding_window": 8192, "rope_theta": 1e6, "rope_parameters": {
            "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    }));
    rms_norm(keys)
}

fn cwm(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    windowed(llama(config, ropes, weights), config, |index| index % 4 != 0)
}
