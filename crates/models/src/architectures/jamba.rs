//! Jamba: state spaces whose channels decay each on its own in place of most attention, which has no positions, and experts
//! in every other layer.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::bamba::FEED_FORWARD_NAMES;
use super::llama::{LLAMA, NAMES, llama, rms_norm};
use super::mamba::{self, MAMBA_NAMES, without_positions};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::names::NameTable;
use crate::{Config, Decoder, Error, Mixer, Rope, WeightTypes};

/// Jamba.
pub(crate) const JAMBA: Architecture = Architecture {
    hugging_face: "JambaForCausalLM",
    examples: &["ai21labs/AI21-Jamba-Reasoning-3B", "ai21labs/Jamba-v0.1"],
    gguf: Some("jamba"),
    model_type: "jamba",
    keys: &[
        "attn_layer_offset",
        "attn_layer_period",
        "expert_layer_offset",
        "expert_layer_period",
        "hidden_act",
        "mamba_d_conv",
        "mamba_d_state",
        "mamba_dt_rank",
        "mamba_expand",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "rms_norm_eps",
    ],
    complete,
    gguf_quirks,
    names: &[JAMBA_NAMES, FEED_FORWARD_NAMES, MAMBA_NAMES, NAMES],
    gguf_names: |_| mamba::GGUF_NAMES,
    layout: mamba::layout,
    gguf_layout: mamba::vectors,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: jamba,
    ..LLAMA
};

const JAMBA_NAMES: NameTable = &[
    ("layers.#.mamba.dt_layernorm", "blk.#.ssm_dt_norm"),
    ("layers.#.mamba.b_layernorm", "blk.#.ssm_b_norm"),
    ("layers.#.mamba.c_layernorm", "blk.#.ssm_c_norm"),
    ("layers.#.feed_forward.router", "blk.#.ffn_gate_inp"),
    ("layers.#.feed_forward.experts.#.gate_proj", "blk.#.ffn_gate.#"),
    ("layers.#.feed_forward.experts.#.up_proj", "blk.#.ffn_up.#"),
    ("layers.#.feed_forward.experts.#.down_proj", "blk.#.ffn_down.#"),
    ("layers.#.feed_forward.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"),
    ("layers.#.feed_forward.experts.down_proj", "blk.#.ffn_down_exps"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2, "expert_layer_period": 2,
        "expert_layer_offset": 1, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16,
        "max_position_embeddings": 262_144,
    }));
    let [attention, experts] = ["attn_layer", "expert_layer"].map(|kind| {
        let [period, offset] = ["period", "offset"].map(|part| keys.count(&format!("{kind}_{part}")));
        period.filter(|&period| period > 0).zip(offset).ok_or_else(|| {
            format!("`{kind}_period` and `{kind}_offset` do not say which layers are of this kind")
        })
    });
    let (attention, experts) = (attention?, experts?);
    let is = |(period, offset): (usize, usize), layer: usize| layer % period == offset;
    keys.list_layers("recurrent_layers", |_, layer| !is(attention, layer));
    let has_experts = keys.count("num_experts") != Some(1);
    keys.list_layers("sparse_layers", |_, layer| has_experts && is(experts, layer));
    // The softmax of all scores, of which those chosen do not sum to 1.
    keys.set("norm_topk_prob", false);
    keys.gather_state_space(&[
        ("mamba_expand", "expand"),
        ("mamba_d_state", "state_dim"),
        ("mamba_d_conv", "conv_width"),
        ("mamba_dt_rank", "step_rank"),
    ]);
    mamba::expect_silu(keys)?;
    without_positions(keys);
    rms_norm(keys)
}

/// No positions, and shares that do not sum to 1.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    if let Some(experts) = &mut config.experts {
        experts.routing.normalized = false;
    }
    mamba::no_positions(keys, config)
}

fn jamba(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    for (index, layer) in
        decoder.layers.iter_mut().enumerate().filter(|&(index, _)| config.lists.is_recurrent(index))
    {
        if let Some(space) = mamba::state_space(config, index, weights) {
            layer.mixer = Mixer::ChannelStateSpace(space);
        }
    }
    decoder
}
