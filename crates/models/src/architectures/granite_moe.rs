//! Granite MoE: Granite with experts, and perhaps one that every token gets.

use serde_json::json;

use super::granite::{self, GRANITE};
use super::llama::NAMES;
use super::{Architecture, joined};
use crate::config::ConfigKeys;
use crate::layout::{Layout, one_after_the_other};
use crate::names::NameTable;
use crate::{Config, Error};

/// Granite 3 with experts.
pub(crate) const GRANITE_MOE: Architecture = Architecture {
    hugging_face: "GraniteMoeForCausalLM",
    examples: &["ibm-granite/granite-3.1-1b-a400m-instruct"],
    gguf: Some("granitemoe"),
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

/// Granite with experts, and one that every token gets.
pub(crate) const GRANITE_MOE_SHARED: Architecture = Architecture {
    hugging_face: "GraniteMoeSharedForCausalLM",
    examples: &["ibm-research/moe-7b-1b-active-shared-experts"],
    model_type: "granitemoeshared",
    keys: &joined::<{ GRANITE_MOE.keys.len() + 1 }>(GRANITE_MOE.keys, &["shared_intermediate_size"]),
    complete: complete_shared,
    names: &[SHARED_NAMES, EXPERT_NAMES, NAMES],
    layout: split_shared,
    ..GRANITE_MOE
};

/// The block that every token gets, gate and up one on the other.
pub(super) const SHARED_NAMES: NameTable = &[
    ("layers.#.shared_mlp.input_linear", "blk.#.ffn_gate_up_shexp"),
    ("layers.#.shared_mlp.output_linear", "blk.#.ffn_down_shexp"),
];

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

pub(super) fn complete_shared(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("shared_intermediate_size", "shared_expert_intermediate_size");
    complete(keys)
}

/// Splits the first matrix of the shared expert into its gate and up projections. In a model without routed experts, they
/// are those of the feed-forward block.
pub(super) fn split_shared(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
        let (width, [gate, up, down]) = match config.experts.map(|experts| experts.shared_width) {
            Some(width) => (width.unwrap_or(0), ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]),
            None => (config.feed_forward, ["ffn_gate", "ffn_up", "ffn_down"]),
        };
        let parts = [(name(gate), width), (name(up), width)];
        layout.take_apart(&name("ffn_gate_up_shexp"), 0, one_after_the_other(parts))?;
        layout.rename(&name("ffn_down_shexp"), &name(down));
    }
    Ok(())
}
