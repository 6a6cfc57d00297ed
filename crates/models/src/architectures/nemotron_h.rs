//! Nemotron-H: layers of one block each: a state space, attention without positions, or a plain feed-forward block.

use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama};
use super::mamba::{self, MAMBA_NAMES, without_positions};
use super::mamba2::{self, HEAD_NAMES};
use crate::config::{ConfigKeys, GgufKeys};
use crate::names::NameTable;
use crate::{Activation, Channel, Config, Decoder, Error, LoneBlock, Mixer, Plain, Rope, WeightTypes};

/// Nemotron-H and Nemotron Nano 2, dense.
pub(crate) const NEMOTRON_H: Architecture = Architecture {
    hugging_face: "NemotronHForCausalLM",
    examples: &["nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nvidia/Nemotron-H-8B-Base-8K"],
    gguf: "nemotron_h",
    model_type: "nemotron_h",
    keys: &[
        "attention_head_dim",
        "conv_kernel",
        "expand",
        "head_dim",
        "hybrid_override_pattern",
        "layer_norm_epsilon",
        "layers_block_type",
        "mamba_head_dim",
        "mamba_num_heads",
        "mlp_hidden_act",
        "n_groups",
        "num_key_value_heads",
        "ssm_state_size",
        "time_step_limit",
    ],
    complete,
    gguf_quirks,
    names: &[NEMOTRON_H_NAMES, HEAD_NAMES, MAMBA_NAMES],
    gguf_names: |_| mamba2::GGUF_NAMES,
    layout: mamba2::layout,
    gguf_layout: mamba2::vectors,
    decoder: nemotron_h,
    ..LLAMA
};

const NEMOTRON_H_NAMES: NameTable = &[
    ("layers.#.mixer.q_proj", "blk.#.attn_q"),
    ("layers.#.mixer.k_proj", "blk.#.attn_k"),
    ("layers.#.mixer.v_proj", "blk.#.attn_v"),
    ("layers.#.mixer.o_proj", "blk.#.attn_output"),
    ("layers.#.mixer.up_proj", "blk.#.ffn_up"),
    ("layers.#.mixer.down_proj", "blk.#.ffn_down"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("attention_head_dim", "head_dim");
    keys.add(json!({
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 21504,
        "mlp_hidden_act": "relu2", "ssm_state_size": 128, "mamba_num_heads": 128, "mamba_head_dim": 64,
        "n_groups": 8, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 4096,
    }));
    if let Some(kinds) = keys.list("layers_block_type") {
        let letter = |kind: &serde_json::Value| match kind.as_str() {
            Some("linear_attention" | "mamba") => 'M',
            Some("full_attention" | "attention") => '*',
            Some("mlp") => '-',
            Some("moe") => 'E',
            _ => '?',
        };
        let letters: String = kinds.iter().map(letter).collect();
        keys.set("hybrid_override_pattern", letters);
    }
    keys.rename("hybrid_override_pattern", "lone_blocks");
    let pattern = keys.text("lone_blocks").ok_or("no key says which block each layer has")?;
    if pattern.contains('E') {
        return Err("layers of experts are not supported".into());
    }
    let layers = pattern.len();
    keys.set("num_hidden_layers", layers);
    let width = keys.count("mamba_num_heads").zip(keys.count("mamba_head_dim"));
    if let Some(channels) = width.and_then(|(heads, dim)| heads.checked_mul(dim)) {
        keys.set("mamba_channels", channels);
    }
    keys.gather_state_space(&[
        ("mamba_channels", "channels"),
        ("mamba_num_heads", "heads"),
        ("n_groups", "groups"),
        ("ssm_state_size", "state_dim"),
        ("conv_kernel", "conv_width"),
        ("time_step_limit", "step_limit"),
    ]);
    keys.rename("mlp_hidden_act", "hidden_act");
    keys.rename("layer_norm_epsilon", "norm_eps");
    without_positions(keys);
    Ok(())
}

/// Files list the key and value heads of each layer and the width of its feed-forward block, of which one or none is 0.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    let heads = keys.optional_list::<usize>("attention.head_count_kv", config.layers)?;
    if let (Some(heads), Some(widths)) = (heads, config.layer_widths.take()) {
        let blocks = heads.iter().zip(&widths).map(|(&heads, &width)| match (heads, width) {
            (0, 0) => LoneBlock::StateSpace,
            (0, _) => LoneBlock::FeedForward,
            _ => LoneBlock::Attention,
        });
        config.lone_blocks = Some(blocks.collect());
    }
    config.recurrent_layers = None;
    config.activation = Some(Activation::ReluSquared);
    mamba::no_positions(keys, config)
}

fn nemotron_h(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    let blocks = config.lone_blocks.iter().flatten();
    for ((index, layer), block) in decoder.layers.iter_mut().enumerate().zip(blocks) {
        let plain = Plain {
            width: config.feed_forward,
            activation: config.activation.unwrap_or(Activation::ReluSquared),
            bias: weights.dtype(&format!("blk.{index}.ffn_up.bias")).is_some(),
        };
        (layer.mixer, layer.channel) = match block {
            LoneBlock::Attention => (layer.mixer, Channel::None),
            LoneBlock::FeedForward => (Mixer::None, Channel::Plain(plain)),
            LoneBlock::StateSpace => match mamba2::state_space(config, index, weights) {
                Some(space) => (Mixer::StateSpace(space), Channel::None),
                None => continue,
            },
        };
    }
    decoder
}
