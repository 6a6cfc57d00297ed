//! Ling 2.0 and Ring 2.0 (BailingMoeV2): GLM-4.5 with projections of queries, keys and values in one matrix, and names of
//! its own.

use serde_json::json;
use weights::MetaValue;

use super::Architecture;
use super::glm4_moe::{GLM4_MOE, PREDICTION_NAMES, SHARED_EXPERT_NAMES, routed_experts};
use super::llama::{NAMES as LLAMA_NAMES, rms_norm};
use super::qwen2_moe::EXPERT_NAMES;
use crate::Config;
use crate::config::ConfigKeys;
use crate::names::NameTable;

/// Ling-mini-2.0, Ling-flash-2.0, Ling-1T, and the Rings that are made of them.
pub(crate) const BAILING_MOE2: Architecture = Architecture {
    hugging_face: "BailingMoeV2ForCausalLM",
    examples: &["inclusionAI/Ling-mini-2.0", "inclusionAI/Ring-flash-2.0", "inclusionAI/Ling-1T"],
    gguf: Some("bailingmoe2"),
    model_type: "bailing_moe",
    keys: &[
        "first_k_dense_replace",
        "head_dim",
        "hidden_act",
        "moe_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "n_group",
        "norm_topk_prob",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_nextn_predict_layers",
        "num_shared_experts",
        "partial_rotary_factor",
        "rms_norm_eps",
        "rotary_dim",
        "routed_scaling_factor",
        "score_function",
        "topk_group",
        "use_bias",
        "use_qkv_bias",
    ],
    complete,
    gguf_keys,
    gguf_names: |_| &[],
    names: &[NAMES, PREDICTION_NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, LLAMA_NAMES],
    ..GLM4_MOE
};

const NAMES: NameTable = &[
    ("word_embeddings", "token_embd"),
    ("layers.#.attention.query_key_value", "blk.#.attn_qkv"),
    ("layers.#.attention.query_layernorm", "blk.#.attn_q_norm"),
    ("layers.#.attention.key_layernorm", "blk.#.attn_k_norm"),
    ("layers.#.attention.dense", "blk.#.attn_output"),
    ("layers.#.mlp.gate.expert_bias", "blk.#.exp_probs_b.bias"),
    ("layers.#.final_layernorm", "blk.#.layer_output_norm"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    for (own, shared) in [
        ("num_shared_experts", "n_shared_experts"),
        ("score_function", "scoring_func"),
        ("use_bias", "attention_out_bias"),
        ("use_qkv_bias", "attention_bias"),
    ] {
        keys.rename(own, shared);
    }
    keys.add(json!({
        "vocab_size": 157_184, "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 20,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 32768,
        "rope_theta": 600_000.0,
    }));
    routed_experts(
        keys,
        json!({
            "num_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
            "n_group": 8, "topk_group": 4, "first_k_dense_replace": 1, "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
        }),
    );
    let shared = keys.count("moe_shared_expert_intermediate_size").zip(keys.count("n_shared_experts"));
    if let Some((width, count)) = shared {
        keys.set("shared_expert_intermediate_size", width.saturating_mul(count));
    }
    // Files state which share of dims turns, or how many.
    let in_rope = keys.get("rope_parameters").and_then(|rope| rope.get("partial_rotary_factor"));
    if in_rope.is_none() && !keys.has("partial_rotary_factor") {
        keys.rename("rotary_dim", "qk_rope_head_dim");
    }
    rms_norm(keys)
}

/// llama.cpp multiplies the width of shared experts by their number; the width is that of all.
fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let shared = config.experts.and_then(|experts| experts.shared_width);
    shared.map(|_| ("expert_shared_count", 1u32.into())).into_iter().collect()
}
