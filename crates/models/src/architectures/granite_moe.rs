//! Granite MoE: Granite with experts.

use serde_json::json;

use super::Architecture;
use super::granite::{self, GRANITE};
use super::llama::NAMES;
use crate::config::ConfigKeys;
use crate::names::NameTable;

/// Granite 3 with experts.
pub(crate) const GRANITE_MOE: Architecture = Architecture {
    hugging_face: "GraniteMoeForCausalLM",
    examples: &["ibm-granite/granite-3.1-1b-a400m-instruct"],
    gguf: "granitemoe",
    model_type: "granitemoe",
    keys: &[
        "attention_bias",
        "attention_multiplier",
        "embedding_multiplier",
        "head_dim",
        "hidden_act",
        "logits_scaling",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "residual_multiplier",
        "rms_norm_eps",
    ],
    complete,
    names: &[EXPERT_NAMES, NAMES],
    ..GRANITE
};

/// All experts together, gate and up one on the other within each.
pub(super) const EXPERT_NAMES: NameTable = &[
    ("layers.#.block_sparse_moe.router", "blk.#.ffn_gate_inp"),
    ("layers.#.block_sparse_moe.router.layer", "blk.#.ffn_gate_inp"),
    ("layers.#.block_sparse_moe.input_linear", "blk.#.ffn_gate_up_exps"),
    ("layers.#.block_sparse_moe.output_linear", "blk.#.ffn_down_exps"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "num_local_experts": 8, "num_experts_per_tok": 2 }));
    keys.rename("num_local_experts", "num_experts");
    granite::complete(keys)
}
