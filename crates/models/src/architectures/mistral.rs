//! Mistral: Llama whose tokens see no further back than a window.

use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, rms_norm};
use crate::config::ConfigKeys;

/// Mistral 7B and what came of it. In GGUF files it calls itself a Llama, and says no window.
pub(crate) const MISTRAL: Architecture = Architecture {
    hugging_face: "MistralForCausalLM",
    examples: &["mistralai/Mistral-7B-Instruct-v0.3"],
    model_type: "mistral",
    keys: &["head_dim", "hidden_act", "num_key_value_heads", "rms_norm_eps", "sliding_window"],
    complete,
    ..LLAMA
};

/// Ministral, whose configuration lists the layers that have the window.
pub(crate) const MINISTRAL: Architecture = Architecture {
    hugging_face: "MinistralForCausalLM",
    examples: &["mistralai/Ministral-8B-Instruct-2410"],
    model_type: "ministral",
    keys: &["head_dim", "hidden_act", "layer_types", "num_key_value_heads", "rms_norm_eps", "sliding_window"],
    ..MISTRAL
};

/// Ministral 3, whose queries grow with their positions.
pub(crate) const MINISTRAL3: Architecture = Architecture {
    hugging_face: "Ministral3ForCausalLM",
    examples: &["mistralai/Ministral-3-3B-Instruct-2512"],
    gguf: Some("mistral3"),
    model_type: "ministral3",
    keys: &[
        "head_dim",
        "hidden_act",
        "num_key_value_heads",
        "rms_norm_eps",
        "sliding_window",
        "rope_parameters.llama_4_scaling_beta",
    ],
    complete: complete_ministral3,
    ..MISTRAL
};

/// Mistral Small 3.1 and later, and Ministral 3 that sees, of which we run the text half.
pub(crate) const MISTRAL3: Architecture = Architecture {
    hugging_face: "Mistral3ForConditionalGeneration",
    examples: &["mistralai/Ministral-3-3B-Instruct-2512"],
    model_type: "mistral3",
    ..MINISTRAL3
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    }));
    rms_norm(keys)
}

fn complete_ministral3(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 131_072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 262_144, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    }));
    rms_norm(keys)
}
