//! SmolLM3: Llama without positions in every fourth layer.

use serde_json::json;

use super::Architecture;
use super::llama::windowed;
use super::llama::{LLAMA, llama, rms_norm};
use crate::config::ConfigKeys;
use crate::{Config, Decoder, Rope, WeightTypes};

/// SmolLM3.
pub(crate) const SMOLLM3: Architecture = Architecture {
    hugging_face: "SmolLM3ForCausalLM",
    examples: &["HuggingFaceTB/SmolLM3-3B"],
    gguf: Some("smollm3"),
    model_type: "smollm3",
    keys: &[
        "attention_bias",
        "head_dim",
        "hidden_act",
        "layer_types",
        "mlp_bias",
        "no_rope_layer_interval",
        "no_rope_layers",
        "num_key_value_heads",
        "rms_norm_eps",
        "sliding_window",
        "use_sliding_window",
    ],
    complete,
    decoder: smollm3,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "rope_theta": 2e6, "num_key_value_heads": 4, "max_position_embeddings": 32768,
        "no_rope_layer_interval": 4, "use_sliding_window": false, "tie_word_embeddings": true,
    }));
    rms_norm(keys)
}

fn smollm3(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let rotated = |index: usize| config.lists.rotated.as_ref().map_or(index % 4 != 3, |layers| layers[index]);
    let mut decoder = llama(config, ropes, weights);
    for (index, attention) in decoder.attentions_mut().enumerate() {
        attention.rope = rotated(index).then_some(0);
    }
    windowed(decoder, config, |index| !rotated(index))
}
