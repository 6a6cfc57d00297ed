//! Mixtral: Mistral with experts.

use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, NAMES, rms_norm};
use crate::config::ConfigKeys;
use crate::names::NameTable;

/// Mixtral. In GGUF files it calls itself a Llama.
pub(crate) const MIXTRAL: Architecture = Architecture {
    hugging_face: "MixtralForCausalLM",
    examples: &["mistralai/Mixtral-8x7B-Instruct-v0.1"],
    model_type: "mixtral",
    keys: &[
        "head_dim",
        "hidden_act",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
        "sliding_window",
    ],
    complete,
    names: &[EXPERT_NAMES, NAMES],
    ..LLAMA
};

/// Experts one by one, or all together with gate and up one on the other within each.
pub(super) const EXPERT_NAMES: NameTable = &[
    ("layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"),
    ("layers.#.block_sparse_moe.experts.#.w1", "blk.#.ffn_gate.#"),
    ("layers.#.block_sparse_moe.experts.#.w2", "blk.#.ffn_down.#"),
    ("layers.#.block_sparse_moe.experts.#.w3", "blk.#.ffn_up.#"),
    ("layers.#.block_sparse_moe.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"),
    ("layers.#.block_sparse_moe.experts.down_proj", "blk.#.ffn_down_exps"),
    ("layers.#.mlp.gate", "blk.#.ffn_gate_inp"),
    ("layers.#.mlp.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"),
    ("layers.#.mlp.experts.down_proj", "blk.#.ffn_down_exps"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "max_position_embeddings": 131_072, "rope_theta": 1e6,
        "num_local_experts": 8, "num_experts_per_tok": 2,
    }));
    keys.rename("num_local_experts", "num_experts");
    rms_norm(keys)
}
