//! Qwen3.5 and 3.6: Qwen3-Next with the projections of gated delta nets in matrices of their own, dense or with experts.

use serde_json::json;

use super::llama::NAMES;
use super::qwen2_moe::EXPERT_NAMES;
use super::qwen3::QK_NORM_NAMES;
use super::qwen3_next::{self, DELTA_EXPERT_KEYS, DELTA_KEYS, DELTA_NAMES, QWEN3_NEXT, complete_hybrid};
use super::{Architecture, rope_sections};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::{Config, Error};

/// Qwen3.5 of text alone.
pub(crate) const QWEN3_5: Architecture = Architecture {
    hugging_face: "Qwen3_5ForCausalLM",
    examples: &["Qwen/Qwen3.5-0.8B-Base"],
    gguf: Some("qwen35"),
    model_type: "qwen3_5_text",
    keys: DELTA_KEYS,
    complete,
    gguf_quirks,
    gguf_keys: |config| rope_sections(config, [11, 11, 10]),
    names: &[DELTA_NAMES, QK_NORM_NAMES, NAMES],
    ..QWEN3_NEXT
};

/// Qwen3.5 that sees, of which we run the text half.
pub(crate) const QWEN3_5_VISION: Architecture = Architecture {
    hugging_face: "Qwen3_5ForConditionalGeneration",
    examples: &["Qwen/Qwen3.5-4B", "Qwen/Qwen3.6-27B"],
    model_type: "qwen3_5",
    ..QWEN3_5
};

/// Qwen3.5 with experts, of text alone.
pub(crate) const QWEN3_5_MOE: Architecture = Architecture {
    hugging_face: "Qwen3_5MoeForCausalLM",
    examples: &["Qwen/Qwen3.5-35B-A3B-Base"],
    gguf: Some("qwen35moe"),
    model_type: "qwen3_5_moe_text",
    keys: DELTA_EXPERT_KEYS,
    complete: complete_experts,
    names: &[DELTA_NAMES, EXPERT_NAMES, QK_NORM_NAMES, NAMES],
    ..QWEN3_5
};

/// Qwen3.5 with experts that sees, of which we run the text half.
pub(crate) const QWEN3_5_MOE_VISION: Architecture = Architecture {
    hugging_face: "Qwen3_5MoeForConditionalGeneration",
    examples: &["Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.6-35B-A3B"],
    model_type: "qwen3_5_moe",
    ..QWEN3_5_MOE
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 248_320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
        "num_key_value_heads": 4,
    }));
    complete_hybrid(keys)
}

fn complete_experts(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 248_320, "hidden_size": 2048, "num_hidden_layers": 40, "num_key_value_heads": 2,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8,
        "num_experts": 256,
    }));
    // All layers have experts.
    keys.set("decoder_sparse_step", 1);
    if let Some(width) = keys.count("moe_intermediate_size") {
        keys.set("intermediate_size", width);
    }
    complete_hybrid(keys)
}

/// llama.cpp stores value heads in an order in which one of each key head follows the other.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    qwen3_next::gguf_quirks(keys, config)?;
    if let Some(delta) = &mut config.delta {
        delta.tiled = true;
    }
    Ok(())
}
