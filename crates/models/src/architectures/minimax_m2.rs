//! MiniMax M2: OLMoE's norms of queries and keys, positions that turn part of each head, and experts that are chosen by the
//! sigmoids of their scores.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::glm4_moe::gguf_quirks;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, rms_norm};
use super::mixtral::EXPERT_NAMES;
use super::olmoe::olmoe;
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::names::NameTable;

/// MiniMax M2, M2.1 and M2.5.
pub(crate) const MINIMAX_M2: Architecture = Architecture {
    hugging_face: "MiniMaxM2ForCausalLM",
    examples: &["MiniMaxAI/MiniMax-M2"],
    gguf: Some("minimax-m2"),
    model_type: "minimax_m2",
    keys: &[
        "head_dim",
        "hidden_act",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "partial_rotary_factor",
        "rms_norm_eps",
        "rotary_dim",
    ],
    complete,
    gguf_quirks,
    names: &[NAMES, EXPERT_NAMES, QK_NORM_NAMES, LLAMA_NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: olmoe,
    ..LLAMA
};

const NAMES: NameTable = &[("layers.#.block_sparse_moe.e_score_correction_bias", "blk.#.exp_probs_b")];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("num_local_experts", "num_experts");
    keys.add(json!({
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 196_608, "rope_theta": 5e6,
        "num_experts": 256, "num_experts_per_tok": 8, "scoring_func": "sigmoid", "decoder_sparse_step": 1,
    }));
    if let (Some(dims), Some(head)) = (keys.count("rotary_dim"), keys.count("head_dim"))
        && head > 0
    {
        keys.add(json!({ "partial_rotary_factor": dims as f64 / head as f64 }));
    }
    rms_norm(keys)
}
