//! Qwen3-Next: Qwen3 with gated attention in one layer of four, gated delta nets in the others, and many experts.

use serde_json::json;

use super::llama::{NAMES, rms_norm};
use super::qwen2_moe::EXPERT_NAMES;
use super::qwen3::{QK_NORM_NAMES, QWEN3, qwen3};
use super::{Architecture, joined};
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{
    AttentionGate, CenteredNorms, Config, Decoder, DeltaConfig, Error, GatedDelta, Mixer, Norm, Rope,
    WeightTypes,
};

/// Qwen3-Next.
pub(crate) const QWEN3_NEXT: Architecture = Architecture {
    hugging_face: "Qwen3NextForCausalLM",
    examples: &["Qwen/Qwen3-Next-80B-A3B-Instruct"],
    gguf: Some("qwen3next"),
    model_type: "qwen3_next",
    keys: &joined::<{ DELTA_KEYS.len() + EXPERT_KEYS.len() + LAYER_KEYS.len() }>(
        DELTA_EXPERT_KEYS,
        LAYER_KEYS,
    ),
    complete,
    gguf_quirks,
    names: &[DELTA_NAMES, EXPERT_NAMES, QK_NORM_NAMES, NAMES],
    gguf_names: |_| GGUF_NAMES,
    layout: |layout, config| {
        store_exponents(layout, config);
        arrange(layout, config)
    },
    gguf_layout: arrange,
    centered_norms: CenteredNorms::All,
    decoder: qwen3_next,
    ..QWEN3
};

/// The keys of models of gated delta nets and gated attention.
pub(super) const DELTA_KEYS: &[&str] = &[
    "attention_bias",
    "full_attention_interval",
    "head_dim",
    "hidden_act",
    "layer_types",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "num_key_value_heads",
    "partial_rotary_factor",
    "rms_norm_eps",
];

/// The same with experts in all layers.
pub(super) const DELTA_EXPERT_KEYS: &[&str] =
    &joined::<{ DELTA_KEYS.len() + EXPERT_KEYS.len() }>(DELTA_KEYS, EXPERT_KEYS);

const EXPERT_KEYS: &[&str] =
    &["moe_intermediate_size", "num_experts", "num_experts_per_tok", "shared_expert_intermediate_size"];

const LAYER_KEYS: &[&str] = &["decoder_sparse_step", "mlp_only_layers", "norm_topk_prob"];

/// Of gated delta nets. Those of Qwen3-Next come in two matrices, those of later models each in its own.
pub(super) const DELTA_NAMES: NameTable = &[
    ("layers.#.linear_attn.in_proj_qkvz", "blk.#.ssm_in"),
    ("layers.#.linear_attn.in_proj_ba", "blk.#.ssm_ba"),
    ("layers.#.linear_attn.in_proj_qkv", "blk.#.attn_qkv"),
    ("layers.#.linear_attn.in_proj_z", "blk.#.attn_gate"),
    ("layers.#.linear_attn.in_proj_b", "blk.#.ssm_beta"),
    ("layers.#.linear_attn.in_proj_a", "blk.#.ssm_alpha"),
    ("layers.#.linear_attn.conv1d", "blk.#.ssm_conv1d"),
    ("layers.#.linear_attn.dt_bias", "blk.#.ssm_dt.bias"),
    ("layers.#.linear_attn.A_log", "blk.#.ssm_a"),
    ("layers.#.linear_attn.norm", "blk.#.ssm_norm"),
    ("layers.#.linear_attn.out_proj", "blk.#.ssm_out"),
];

/// The rates of decays lie in tensors without a leaf.
const GGUF_NAMES: NameTable =
    &[("blk.#.ssm_a", "blk.#.ssm_a"), ("blk.#.post_attention_norm", "blk.#.ffn_norm")];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
        "num_key_value_heads": 2, "decoder_sparse_step": 1, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10, "num_experts": 512,
        "norm_topk_prob": true,
    }));
    complete_hybrid(keys)
}

/// What all models of gated attention and gated delta nets assume.
pub(super) fn complete_hybrid(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_attention_heads": 16, "head_dim": 256, "max_position_embeddings": 32768, "partial_rotary_factor": 0.25,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    }));
    let interval = keys.count("full_attention_interval").unwrap_or(4);
    complete_layer_types(keys, interval)?;
    rms_norm(keys)
}

/// Every so many layers, one has attention, unless the file says the kind of each.
pub(super) fn complete_layer_types(keys: &mut ConfigKeys, interval: usize) -> Result<(), String> {
    if !keys.has("layer_types") {
        let layers = keys.count("num_hidden_layers").unwrap_or(0);
        let kind = |recurrent| if recurrent { "linear_attention" } else { "full_attention" };
        let kinds = recurrent_layers(layers, interval)?.into_iter().map(kind);
        keys.set("layer_types", kinds.collect::<Vec<_>>());
    }
    Ok(())
}

/// Which layers have no attention, if every so many has some.
fn recurrent_layers(layers: usize, interval: usize) -> Result<Vec<bool>, String> {
    if interval == 0 {
        return Err("attention comes every 0 layers, expected at least 1".into());
    }
    Ok((1..=layers.min(MAX_LAYERS)).map(|layer| !layer.is_multiple_of(interval)).collect())
}

pub(super) fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    let (value_heads, width) = (keys.size("ssm.time_step_rank")?, keys.size("ssm.inner_size")?);
    let error = |message: String| Error::config("GGUF metadata", message);
    let Some(value_dim) = width.checked_div(value_heads).filter(|dim| dim * value_heads == width) else {
        return Err(error(format!(
            "{value_heads} value heads of delta nets cannot share {width} dims evenly"
        )));
    };
    config.delta = Some(DeltaConfig {
        key_heads: keys.size("ssm.group_count")?,
        key_dim: keys.size("ssm.state_size")?,
        value_heads,
        value_dim,
        conv_width: keys.size("ssm.conv_kernel")?,
        tiled: false,
        flips_signs: false,
    });
    if config.lists.recurrent.is_none() {
        let interval = keys.optional("full_attention_interval")?.unwrap_or(4);
        config.lists.recurrent = Some(recurrent_layers(config.layers, interval).map_err(error)?);
    }
    Ok(())
}

/// Says that the rates of decays are stored as logarithms.
fn store_exponents(layout: &mut Layout<'_>, config: &Config) {
    (0..config.layers).for_each(|layer| layout.exponentiate(&format!("blk.{layer}.ssm_a.weight")));
}

fn arrange(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    (0..config.layers).for_each(|layer| layout.flatten(&format!("blk.{layer}.ssm_conv1d.weight")));
    layout.split_delta_nets(config)
}

fn qwen3_next(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = qwen3(config, ropes, weights);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        if let (true, Some(delta)) = (config.lists.is_recurrent(index), config.delta) {
            layer.mixer = Mixer::GatedDelta(delta_net(&delta, config.norm_eps));
        } else if let Mixer::Attention(attention) = &mut layer.mixer {
            let has = |name: &str| weights.dtype(&format!("blk.{index}.{name}.bias")).is_some();
            attention.gate = Some(AttentionGate::WithQueries);
            (attention.qkv_bias, attention.output_bias) = (has("attn_q"), has("attn_output"));
        }
    }
    decoder
}

/// The delta net of a configuration, whose results have norms of an `eps`.
pub(super) fn delta_net(delta: &DeltaConfig, eps: f32) -> GatedDelta {
    let &DeltaConfig { key_heads, key_dim, value_heads, value_dim, conv_width, tiled, flips_signs } = delta;
    let (norm, beta_scale) = (Norm::Rms { eps }, if flips_signs { 2.0 } else { 1.0 });
    GatedDelta { key_heads, key_dim, value_heads, value_dim, tiled, conv_width, beta_scale, norm }
}
