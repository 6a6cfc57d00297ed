//! Solar Open: GLM-4.5 with experts in every layer, and heads that turn whole.

use serde_json::json;

use super::Architecture;
use super::glm4_moe::{GLM4_MOE, routed_experts};
use super::llama::rms_norm;
use crate::config::ConfigKeys;

/// Solar Open. Its GGUF files call themselves GLM-4.5.
pub(crate) const SOLAR_OPEN: Architecture = Architecture {
    hugging_face: "SolarOpenForCausalLM",
    examples: &["upstage/Solar-Open-100B"],
    model_type: "solar_open",
    keys: &[
        "attention_bias",
        "head_dim",
        "hidden_act",
        "moe_intermediate_size",
        "n_group",
        "n_routed_experts",
        "n_shared_experts",
        "norm_topk_prob",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "partial_rotary_factor",
        "rms_norm_eps",
        "routed_scaling_factor",
        "topk_group",
    ],
    complete,
    ..GLM4_MOE
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 196_608, "hidden_size": 4096, "intermediate_size": 10240, "num_hidden_layers": 48, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072,
        "rope_theta": 1e6,
    }));
    routed_experts(
        keys,
        json!({
            "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
            "moe_intermediate_size": 1280, "first_k_dense_replace": 0, "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
        }),
    );
    rms_norm(keys)
}
