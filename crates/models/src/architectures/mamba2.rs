//! Mamba 2: layers of a state space alone.

use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama};
use super::mamba::{GGUF_NAMES, MAMBA_NAMES, layout, no_positions, vectors, without_attention};
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{Channel, Config, Decoder, GatedNorm, Mixer, Rope, StateSpace, StateSpaceHeads, WeightTypes};

/// Mamba 2, and Codestral Mamba.
pub(crate) const MAMBA2: Architecture = Architecture {
    hugging_face: "Mamba2ForCausalLM",
    examples: &["mistralai/Mamba-Codestral-7B-v0.1"],
    gguf: Some("mamba2"),
    model_type: "mamba2",
    keys: &[
        "conv_kernel",
        "expand",
        "head_dim",
        "hidden_act",
        "layer_norm_epsilon",
        "n_groups",
        "num_heads",
        "state_size",
        "time_step_limit",
    ],
    complete,
    gguf_quirks: no_positions,
    names: &[HEAD_NAMES, MAMBA_NAMES],
    gguf_names: |_| GGUF_NAMES,
    layout,
    gguf_layout: vectors,
    decoder: mamba2,
    ..LLAMA
};

/// The names of what heads have.
pub(super) const HEAD_NAMES: NameTable = &[
    ("layers.#.mixer.dt_bias", "blk.#.ssm_dt.bias"),
    ("layers.#.mixer.norm", "blk.#.ssm_norm"),
    ("layers.#.mamba.dt_bias", "blk.#.ssm_dt.bias"),
    ("layers.#.mamba.norm", "blk.#.ssm_norm"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_heads": 128, "head_dim": 64, "hidden_size": 4096, "state_size": 128, "num_hidden_layers": 64,
        "n_groups": 8, "tie_word_embeddings": false,
    }));
    keys.gather_state_space(&[
        ("num_heads", "heads"),
        ("head_dim", "head_dim"),
        ("n_groups", "groups"),
        ("state_size", "state_dim"),
        ("conv_kernel", "conv_width"),
        ("expand", "expand"),
        ("time_step_limit", "step_limit"),
    ]);
    without_attention(keys)
}

/// The state space of a layer.
pub(super) fn state_space(config: &Config, layer: usize, weights: &dyn WeightTypes) -> Option<StateSpace> {
    let own = config.state_space?;
    let StateSpaceHeads { count, groups } = own.heads?;
    let has = |name: &str| weights.dtype(&format!("blk.{layer}.{name}")).is_some();
    let norm = GatedNorm { eps: config.norm_eps, gate_last: own.gate_last };
    let factors = config.layer_multipliers;
    Some(StateSpace {
        heads: count,
        head_dim: own.channels / count,
        groups,
        state_dim: own.state_dim,
        conv_width: own.conv_width,
        conv_bias: has("ssm_conv1d.bias"),
        input_bias: has("ssm_in.bias"),
        output_bias: has("ssm_out.bias"),
        step_limit: own.step_limit,
        norm: has("ssm_norm.weight").then_some(norm),
        input_scales: factors.state_space_parts.map(|factor| factors.state_space_input * factor),
        output_scale: factors.state_space_output,
    })
}

/// Puts state spaces into the layers that the configuration lists.
pub(super) fn with_state_spaces(mut decoder: Decoder, config: &Config, weights: &dyn WeightTypes) -> Decoder {
    for (index, layer) in
        decoder.layers.iter_mut().enumerate().filter(|&(index, _)| config.lists.is_recurrent(index))
    {
        if let Some(space) = state_space(config, index, weights) {
            layer.mixer = Mixer::StateSpace(space);
        }
    }
    decoder
}

fn mamba2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        if let Some(space) = state_space(config, index, weights) {
            (layer.mixer, layer.channel) = (Mixer::StateSpace(space), Channel::None);
        }
    }
    decoder
}
