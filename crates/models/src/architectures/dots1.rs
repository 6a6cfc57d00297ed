//! dots.llm1: Qwen3 with the experts of DeepSeek V3.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::glm4_moe::{self, SHARED_EXPERT_NAMES, routed_experts};
use super::llama::{LLAMA, NAMES, rms_norm};
use super::qwen2_moe::EXPERT_NAMES;
use super::qwen3::{QK_NORM_NAMES, qwen3};
use crate::config::ConfigKeys;

/// dots.llm1.
pub(crate) const DOTS1: Architecture = Architecture {
    hugging_face: "Dots1ForCausalLM",
    examples: &["rednote-hilab/dots.llm1.inst"],
    gguf: Some("dots1"),
    model_type: "dots1",
    keys: &[
        "attention_bias",
        "first_k_dense_replace",
        "head_dim",
        "hidden_act",
        "layer_types",
        "max_window_layers",
        "moe_intermediate_size",
        "n_group",
        "n_routed_experts",
        "n_shared_experts",
        "norm_topk_prob",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
        "routed_scaling_factor",
        "sliding_window",
        "topk_group",
    ],
    complete,
    gguf_quirks: glm4_moe::gguf_quirks,
    names: &[SHARED_EXPERT_NAMES, EXPERT_NAMES, QK_NORM_NAMES, NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: qwen3,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 62 }));
    routed_experts(
        keys,
        json!({
            "moe_intermediate_size": 1408, "first_k_dense_replace": 0, "norm_topk_prob": false,
            "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        }),
    );
    rms_norm(keys)
}
