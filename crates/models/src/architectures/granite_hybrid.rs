//! Granite 4: Granite with state spaces in place of most attention, which has no positions then, and with experts in addition to a block
//! that every token gets, or that block alone.

use serde_json::json;

use super::Architecture;
use super::granite;
use super::granite_moe::{EXPERT_NAMES, SHARED_NAMES, split_shared};
use super::llama::NAMES;
use super::mamba::{self, MAMBA_NAMES, expect_silu, without_positions};
use super::mamba2::{HEAD_NAMES, with_state_spaces};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::layout::Layout;
use crate::{Config, Decoder, Error, Rope, WeightTypes};

/// Granite 4.
pub(crate) const GRANITE_HYBRID: Architecture = Architecture {
    hugging_face: "GraniteMoeHybridForCausalLM",
    examples: &["ibm-granite/granite-4.0-h-tiny", "ibm-granite/granite-4.0-micro"],
    gguf: Some("granitehybrid"),
    model_type: "granitemoehybrid",
    keys: &[
        "attention_bias",
        "attention_multiplier",
        "embedding_multiplier",
        "hidden_act",
        "layer_types",
        "layers_block_type",
        "logits_scaling",
        "mamba_d_conv",
        "mamba_d_head",
        "mamba_d_state",
        "mamba_expand",
        "mamba_n_groups",
        "mamba_n_heads",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "position_embedding_type",
        "residual_multiplier",
        "rms_norm_eps",
        "shared_intermediate_size",
        "time_step_limit",
    ],
    complete,
    gguf_quirks,
    names: &[SHARED_NAMES, EXPERT_NAMES, HEAD_NAMES, MAMBA_NAMES, NAMES],
    gguf_names: |_| mamba::GGUF_NAMES,
    layout,
    gguf_layout: mamba::vectors,
    decoder: granite_hybrid,
    ..granite::GRANITE
};

/// The keys of the state spaces of hybrid models.
pub(super) const STATE_SPACE_KEYS: &[(&str, &str)] = &[
    ("mamba_n_heads", "heads"),
    ("mamba_d_head", "head_dim"),
    ("mamba_n_groups", "groups"),
    ("mamba_d_state", "state_dim"),
    ("mamba_d_conv", "conv_width"),
    ("mamba_d_ssm", "channels"),
    ("mamba_expand", "expand"),
    ("mamba_norm_before_gate", "gate_last"),
    ("time_step_limit", "step_limit"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024, "mamba_n_heads": 128,
        "mamba_n_groups": 1, "mamba_d_state": 256, "attention_multiplier": 1.0,
    }));
    keys.rename("layers_block_type", "layer_types");
    if keys.has("layer_types") {
        keys.split_layer_kinds("layer_types", &["mamba", "linear_attention"])?;
    } else {
        keys.list_layers("recurrent_layers", |_, _| true);
    }
    if keys.text("position_embedding_type") != Some("rope") {
        without_positions(keys);
    }
    expect_silu(keys)?;
    keys.gather_state_space(STATE_SPACE_KEYS);
    // All layers have experts, if there are some.
    keys.set("decoder_sparse_step", 1);
    if keys.count("num_local_experts") == Some(0) {
        // The block that every token gets is all that there is.
        keys.rename("shared_intermediate_size", "intermediate_size");
    } else {
        keys.rename("shared_intermediate_size", "shared_expert_intermediate_size");
    }
    keys.rename("num_local_experts", "num_experts");
    granite::complete(keys)
}

/// Only some models rotate, as their files say in the words of a stretch.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    if keys.optional::<bool>("rope.scaling.finetuned")? == Some(false) {
        config.rope.dims = 0;
    }
    granite::gguf_quirks(keys, config)
}

fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    split_shared(layout, config)?;
    mamba::layout(layout, config)
}

fn granite_hybrid(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    with_state_spaces(granite::granite(config, ropes, weights), config, weights)
}
