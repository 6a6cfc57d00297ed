//! Qwen3-MoE: Qwen3 with experts.

use serde_json::json;

use super::Architecture;
use super::llama::{NAMES, rms_norm};
use super::qwen2_moe::EXPERT_NAMES;
use super::qwen3::{QK_NORM_NAMES, QWEN3};
use crate::config::ConfigKeys;

/// Qwen3 with experts.
pub(crate) const QWEN3_MOE: Architecture = Architecture {
    hugging_face: "Qwen3MoeForCausalLM",
    examples: &["Qwen/Qwen3-30B-A3B"],
    gguf: Some("qwen3moe"),
    model_type: "qwen3_moe",
    keys: &[
        "attention_bias",
        "decoder_sparse_step",
        "head_dim",
        "hidden_act",
        "mlp_only_layers",
        "moe_intermediate_size",
        "norm_topk_prob",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
        "sliding_window",
        "use_sliding_window",
    ],
    complete,
    names: &[EXPERT_NAMES, QK_NORM_NAMES, NAMES],
    ..QWEN3
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("num_local_experts", "num_experts");
    keys.add(json!({
        "num_key_value_heads": 4, "max_position_embeddings": 32768, "use_sliding_window": false,
        "sliding_window": 4096, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": false, "decoder_sparse_step": 1,
    }));
    rms_norm(keys)
}
