//! Bamba: Llama with state spaces in place of most attention.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::granite_hybrid::STATE_SPACE_KEYS;
use super::llama::{LLAMA, NAMES, llama, rms_norm};
use super::mamba::{self, MAMBA_NAMES, expect_silu};
use super::mamba2::{HEAD_NAMES, with_state_spaces};
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{Config, Decoder, Rope, WeightTypes};

/// Bamba. Its GGUF files call themselves hybrid Granites.
pub(crate) const BAMBA: Architecture = Architecture {
    hugging_face: "BambaForCausalLM",
    examples: &["ibm-ai-platform/Bamba-9B-v2"],
    gguf: Some("granitehybrid"),
    model_type: "bamba",
    keys: &[
        "attention_bias",
        "attn_layer_indices",
        "hidden_act",
        "mamba_d_conv",
        "mamba_d_head",
        "mamba_d_state",
        "mamba_expand",
        "mamba_n_groups",
        "mamba_n_heads",
        "mlp_bias",
        "num_key_value_heads",
        "rms_norm_eps",
        "time_step_limit",
    ],
    complete,
    names: &[FEED_FORWARD_NAMES, HEAD_NAMES, MAMBA_NAMES, NAMES],
    gguf_names: |_| mamba::GGUF_NAMES,
    layout: mamba::layout,
    gguf_layout: mamba::vectors,
    gguf_rope: RopeStyle::Interleaved,
    decoder: bamba,
    ..LLAMA
};

/// The names of the second block, and of the last norm.
pub(super) const FEED_FORWARD_NAMES: NameTable = &[
    ("final_layernorm", "output_norm"),
    ("layers.#.pre_ff_layernorm", "blk.#.ffn_norm"),
    ("layers.#.feed_forward.gate_proj", "blk.#.ffn_gate"),
    ("layers.#.feed_forward.up_proj", "blk.#.ffn_up"),
    ("layers.#.feed_forward.down_proj", "blk.#.ffn_down"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_key_value_heads": 8, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 262_144,
    }));
    keys.list_layers("recurrent_layers", |keys, layer| {
        !keys.list("attn_layer_indices").is_some_and(|list| list.contains(&layer.into()))
    });
    expect_silu(keys)?;
    keys.gather_state_space(STATE_SPACE_KEYS);
    // As `transformers` has it for all of them.
    keys.set("partial_rotary_factor", 0.5);
    rms_norm(keys)
}

fn bamba(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    with_state_spaces(llama(config, ropes, weights), config, weights)
}
