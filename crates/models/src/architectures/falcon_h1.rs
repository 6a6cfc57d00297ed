//! Falcon-H1: Llama whose layers run attention and a state space in parallel, with factors on embeddings, projections and
//! logits.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::bamba::FEED_FORWARD_NAMES;
use super::granite_hybrid::STATE_SPACE_KEYS;
use super::llama::{LLAMA, NAMES, llama, rms_norm};
use super::mamba::{MAMBA_NAMES, expect_silu};
use super::mamba2::{self, HEAD_NAMES};
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{Channel, Config, Decoder, Mixer, Rope, WeightTypes};

/// Falcon-H1. Its GGUF files hold weights that are multiplied by these factors already.
pub(crate) const FALCON_H1: Architecture = Architecture {
    hugging_face: "FalconH1ForCausalLM",
    examples: &["tiiuae/Falcon-H1-1.5B-Instruct", "tiiuae/Falcon-H1-0.5B-Instruct"],
    gguf: "falcon-h1",
    model_type: "falcon_h1",
    keys: &[
        "attention_in_multiplier",
        "attention_out_multiplier",
        "embedding_multiplier",
        "head_dim",
        "hidden_act",
        "key_multiplier",
        "lm_head_multiplier",
        "mamba_d_conv",
        "mamba_d_head",
        "mamba_d_ssm",
        "mamba_d_state",
        "mamba_expand",
        "mamba_n_groups",
        "mamba_n_heads",
        "mamba_norm_before_gate",
        "mlp_multipliers",
        "num_key_value_heads",
        "rms_norm_eps",
        "ssm_in_multiplier",
        "ssm_multipliers",
        "ssm_out_multiplier",
        "time_step_limit",
    ],
    complete,
    names: &[FEED_FORWARD_NAMES, HEAD_NAMES, MAMBA_NAMES, NAMES],
    gguf_names: |_| GGUF_NAMES,
    layout: mamba2::layout,
    gguf_layout: mamba2::vectors,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: falcon_h1,
    ..LLAMA
};

/// Parameters without a leaf.
const GGUF_NAMES: NameTable =
    &[("blk.#.ffn_norm", "blk.#.ffn_norm"), ("blk.#.ssm_a", "blk.#.ssm_a"), ("blk.#.ssm_d", "blk.#.ssm_d")];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_key_value_heads": 8, "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1,
        "mamba_d_state": 256, "mamba_norm_before_gate": true, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
    }));
    expect_silu(keys)?;
    keys.gather_state_space(STATE_SPACE_KEYS);
    keys.rename("lm_head_multiplier", "logit_scale");
    rms_norm(keys)
}

fn falcon_h1(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    let factors = config.layer_multipliers;
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        if let (Mixer::Attention(mut attention), Some(space)) =
            (layer.mixer, mamba2::state_space(config, index, weights))
        {
            // Queries and keys are linear in what attention reads.
            attention.scale *= factors.attention_input * factors.attention_input * factors.key;
            attention.output_scale = factors.attention_input * factors.attention_output;
            layer.mixer = Mixer::SideBySide(attention, space);
        }
        if let Channel::Gated(gated) = &mut layer.channel {
            (gated.gate_scale, gated.output_scale) = (factors.gate, factors.down);
        }
    }
    Decoder {
        embedding_scale: config.multipliers.embedding,
        logit_scale: config.multipliers.logits,
        ..decoder
    }
}
