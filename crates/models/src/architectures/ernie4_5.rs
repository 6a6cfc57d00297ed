//! ERNIE 4.5: Llama that turns pairs of neighbouring dims.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, rms_norm};
use crate::config::ConfigKeys;

/// ERNIE 4.5, dense.
pub(crate) const ERNIE4_5: Architecture = Architecture {
    hugging_face: "Ernie4_5ForCausalLM",
    examples: &["baidu/ERNIE-4.5-0.3B-PT"],
    gguf: "ernie4_5",
    model_type: "ernie4_5",
    complete,
    rope: RopeStyle::Interleaved,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 103_424, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "max_position_embeddings": 131_072, "tie_word_embeddings": true,
    }));
    rms_norm(keys)
}
