//! Hy3: Qwen3 with experts that are chosen by the sigmoids of their scores.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::glm4_moe::{self, SHARED_EXPERT_NAMES};
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, rms_norm};
use super::qwen2_moe::EXPERT_NAMES;
use super::qwen3::{QK_NORM_NAMES, qwen3};
use crate::config::ConfigKeys;
use crate::names::NameTable;

/// Hy3.
pub(crate) const HY_V3: Architecture = Architecture {
    hugging_face: "HYV3ForCausalLM",
    examples: &["tencent/Hy3-preview"],
    gguf: Some("hy_v3"),
    model_type: "hy_v3",
    keys: &[
        "attention_bias",
        "first_k_dense_replace",
        "head_dim",
        "hidden_act",
        "mlp_bias",
        "mlp_layer_types",
        "moe_intermediate_size",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "num_nextn_predict_layers",
        "num_shared_experts",
        "rms_norm_eps",
        "router_scaling_factor",
    ],
    complete,
    gguf_quirks: glm4_moe::gguf_quirks,
    // llama.cpp has the correction without a suffix.
    gguf_names: |_| &[("blk.#.exp_probs_b", "blk.#.exp_probs_b.bias")],
    names: &[NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, QK_NORM_NAMES, LLAMA_NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: qwen3,
    ..LLAMA
};

/// As files are published, and the correction of scores as `transformers` calls it.
const NAMES: NameTable = &[
    ("layers.#.mlp.e_score_correction_bias", "blk.#.exp_probs_b"),
    ("layers.#.mlp.expert_bias", "blk.#.exp_probs_b.bias"),
    ("layers.#.mlp.router.gate", "blk.#.ffn_gate_inp"),
    ("layers.#.mlp.shared_mlp.gate_proj", "blk.#.ffn_gate_shexp"),
    ("layers.#.mlp.shared_mlp.up_proj", "blk.#.ffn_up_shexp"),
    ("layers.#.mlp.shared_mlp.down_proj", "blk.#.ffn_down_shexp"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("num_local_experts", "num_experts");
    keys.rename("num_shared_experts", "n_shared_experts");
    keys.rename("router_scaling_factor", "routed_scaling_factor");
    keys.add(json!({
        "vocab_size": 120_832, "hidden_size": 4096, "intermediate_size": 13312, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5, "rope_theta": 11_158_840.0,
    }));
    glm4_moe::routed_experts(
        keys,
        json!({
            "num_experts": 192, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1536,
            "first_k_dense_replace": 1, "routed_scaling_factor": 2.826, "scoring_func": "sigmoid",
        }),
    );
    rms_norm(keys)
}
