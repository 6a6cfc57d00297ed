//! Phi-3: Mistral whose checkpoints stack matrices, which are taken apart when they are opened.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, NAMES, rms_norm};
use crate::config::ConfigKeys;
use crate::names::NameTable;

/// Phi-3 and Phi-4.
pub(crate) const PHI3: Architecture = Architecture {
    hugging_face: "Phi3ForCausalLM",
    examples: &["microsoft/Phi-3.5-mini-instruct", "microsoft/Phi-4-mini-instruct"],
    gguf: Some("phi3"),
    model_type: "phi3",
    keys: &[
        "head_dim",
        "hidden_act",
        "num_key_value_heads",
        "partial_rotary_factor",
        "rms_norm_eps",
        "sliding_window",
    ],
    complete,
    names: &[STACKED_NAMES, NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    ..LLAMA
};

/// Of matrices that hold several, one on the other.
pub(super) const STACKED_NAMES: NameTable =
    &[("layers.#.self_attn.qkv_proj", "blk.#.attn_qkv"), ("layers.#.mlp.gate_up_proj", "blk.#.ffn_up")];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "rms_norm_eps": 1e-5, "max_position_embeddings": 4096 }));
    rms_norm(keys)
}
