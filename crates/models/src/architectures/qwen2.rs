//! Qwen2: Mistral with biases on queries, keys and values, which the weights show.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, rms_norm};
use crate::config::ConfigKeys;

/// Qwen 1.5 to 2.5.
pub(crate) const QWEN2: Architecture = Architecture {
    hugging_face: "Qwen2ForCausalLM",
    examples: &["Qwen/Qwen2.5-0.5B-Instruct"],
    gguf: Some("qwen2"),
    model_type: "qwen2",
    keys: &[
        "head_dim",
        "hidden_act",
        "layer_types",
        "max_window_layers",
        "num_key_value_heads",
        "rms_norm_eps",
        "sliding_window",
        "use_sliding_window",
    ],
    complete,
    gguf_rope: RopeStyle::HalfSplit,
    ..LLAMA
};

pub(super) fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "max_position_embeddings": 32768, "use_sliding_window": false, "sliding_window": 4096,
        "max_window_layers": 28,
    }));
    rms_norm(keys)
}
