//! Nemotron-H: layers of one block each: a state space, attention without positions, or a plain feed-forward block or plain
//! experts.

use serde_json::json;

use super::Architecture;
use super::glm4_moe::{self, routed_experts};
use super::llama::{LLAMA, llama};
use super::mamba::{self, MAMBA_NAMES, without_positions};
use super::mamba2::{self, HEAD_NAMES};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::names::NameTable;
use crate::{
    Activation, Channel, Config, Decoder, Error, Experts, LoneBlock, Mixer, Plain, Rope, WeightTypes,
};

/// Nemotron-H and Nemotron Nano 2, dense; Nemotron 3, with experts.
pub(crate) const NEMOTRON_H: Architecture = Architecture {
    hugging_face: "NemotronHForCausalLM",
    examples: &["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"],
    gguf: Some("nemotron_h"),
    gguf_of_experts: Some("nemotron_h_moe"),
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
        "moe_intermediate_size",
        "moe_latent_size",
        "moe_shared_expert_intermediate_size",
        "n_group",
        "n_groups",
        "n_routed_experts",
        "norm_topk_prob",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "routed_scaling_factor",
        "ssm_state_size",
        "time_step_limit",
        "topk_group",
    ],
    complete,
    gguf_quirks,
    names: &[NEMOTRON_H_NAMES, HEAD_NAMES, MAMBA_NAMES],
    gguf_names: |_| mamba::GGUF_NAMES,
    // llama.cpp has it for heads that predict tokens further ahead.
    gguf_keys: |config| vec![("attention.layer_norm_epsilon", config.norm_eps.into())],
    layout: mamba::layout,
    gguf_layout: mamba::vectors,
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
    ("layers.#.mixer.gate", "blk.#.ffn_gate_inp"),
    ("layers.#.mixer.gate.e_score_correction_bias", "blk.#.exp_probs_b"),
    ("layers.#.mixer.experts.#.up_proj", "blk.#.ffn_up.#"),
    ("layers.#.mixer.experts.#.down_proj", "blk.#.ffn_down.#"),
    ("layers.#.mixer.experts.up_proj", "blk.#.ffn_up_exps"),
    ("layers.#.mixer.experts.down_proj", "blk.#.ffn_down_exps"),
    ("layers.#.mixer.shared_experts.up_proj", "blk.#.ffn_up_shexp"),
    ("layers.#.mixer.shared_experts.down_proj", "blk.#.ffn_down_shexp"),
    ("layers.#.mixer.fc1_latent_proj", "blk.#.ffn_latent_down"),
    ("layers.#.mixer.fc2_latent_proj", "blk.#.ffn_latent_up"),
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
    let sparse: Vec<bool> = pattern.chars().map(|letter| letter == 'E').collect();
    keys.set("num_hidden_layers", sparse.len());
    if sparse.contains(&true) {
        complete_experts(keys);
        keys.set("sparse_layers", sparse);
    }
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

fn complete_experts(keys: &mut ConfigKeys) {
    routed_experts(
        keys,
        json!({
            "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 7688,
            "moe_shared_expert_intermediate_size": 7688, "n_group": 1, "topk_group": 1,
        }),
    );
    keys.rename("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size");
    keys.set("scoring_func", "sigmoid");
    keys.set("topk_method", "noaux_tc");
}

/// Files list the key and value heads of each layer and the width of its feed-forward block, of which one or none is 0.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    let blocks = config.layers + config.prediction_layers;
    let heads = keys.optional_list::<usize>("attention.head_count_kv", blocks)?;
    if let (Some(heads), Some(widths)) = (heads, config.lists.widths.take()) {
        let blocks = heads.iter().zip(&widths).map(|(&heads, &width)| match (heads, width) {
            (0, 0) => LoneBlock::StateSpace,
            (0, _) => LoneBlock::FeedForward,
            _ => LoneBlock::Attention,
        });
        config.lists.lone_blocks = Some(blocks.collect());
    }
    config.lists.recurrent = None;
    config.activation = Some(Activation::ReluSquared);
    glm4_moe::gguf_quirks(keys, config)?;
    mamba::no_positions(keys, config)
}

fn nemotron_h(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    let blocks = config.lists.lone_blocks.iter().flatten();
    for ((index, layer), block) in decoder.layers.iter_mut().enumerate().zip(blocks) {
        let plain = Plain {
            width: config.feed_forward,
            activation: config.activation.unwrap_or(Activation::ReluSquared),
            bias: weights.dtype(&format!("blk.{index}.ffn_up.bias")).is_some(),
        };
        let channel = match layer.channel {
            Channel::Experts(experts) => Channel::Experts(Experts { plain: true, ..experts }),
            _ => Channel::Plain(plain),
        };
        (layer.mixer, layer.channel) = match block {
            LoneBlock::Attention => (layer.mixer, Channel::None),
            LoneBlock::FeedForward => (Mixer::None, channel),
            LoneBlock::StateSpace => match mamba2::state_space(config, index, weights) {
                Some(space) => (Mixer::StateSpace(space), Channel::None),
                None => continue,
            },
        };
    }
    decoder
}
