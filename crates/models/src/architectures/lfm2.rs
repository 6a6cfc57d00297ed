//! LFM2: Llama with a norm on each query and key, and in most layers a short convolution in place of attention; with experts
//! too.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, NAMES, llama};
use crate::config::ConfigKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Config, Decoder, Error, Mixer, Norm, QkNorm, Rope, ShortConvolution, WeightTypes};

/// LFM2 and LFM2.5, dense.
pub(crate) const LFM2: Architecture = Architecture {
    hugging_face: "Lfm2ForCausalLM",
    examples: &["LiquidAI/LFM2-1.2B", "LiquidAI/LFM2.5-1.2B-Instruct"],
    gguf: Some("lfm2"),
    model_type: "lfm2",
    keys: &[
        "block_auto_adjust_ff_dim",
        "block_ff_dim",
        "block_ffn_dim_multiplier",
        "block_multiple_of",
        "conv_L_cache",
        "full_attn_idxs",
        "layer_types",
        "norm_eps",
        "num_key_value_heads",
        "tie_embedding",
    ],
    complete,
    names: &[LFM2_NAMES, NAMES],
    gguf_names: |_| GGUF_NAMES,
    layout: convolutions,
    gguf_layout: convolutions,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: lfm2,
    ..LLAMA
};

/// LFM2 that sees, of which we run the text half.
pub(crate) const LFM2_VISION: Architecture = Architecture {
    hugging_face: "Lfm2VlForConditionalGeneration",
    examples: &["LiquidAI/LFM2-VL-1.6B", "LiquidAI/LFM2.5-VL-1.6B"],
    model_type: "lfm2_vl",
    ..LFM2
};

/// LFM2 and LFM2.5 with experts, which the first layers do not have.
pub(crate) const LFM2_MOE: Architecture = Architecture {
    hugging_face: "Lfm2MoeForCausalLM",
    examples: &["LiquidAI/LFM2-8B-A1B"],
    gguf: Some("lfm2moe"),
    model_type: "lfm2_moe",
    keys: &[
        "conv_L_cache",
        "full_attn_idxs",
        "layer_types",
        "moe_intermediate_size",
        "norm_eps",
        "norm_topk_prob",
        "num_dense_layers",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "routed_scaling_factor",
        "tie_embedding",
    ],
    complete: complete_moe,
    names: &[EXPERT_NAMES, LFM2_NAMES, NAMES],
    ..LFM2
};

/// The last norm has the name of another norm, on embeddings.
const GGUF_NAMES: NameTable = &[("token_embd_norm", "output_norm")];

pub(super) const LFM2_NAMES: NameTable = &[
    ("embedding_norm", "output_norm"),
    ("layers.#.operator_norm", "blk.#.attn_norm"),
    ("layers.#.self_attn.out_proj", "blk.#.attn_output"),
    ("layers.#.self_attn.q_layernorm", "blk.#.attn_q_norm"),
    ("layers.#.self_attn.k_layernorm", "blk.#.attn_k_norm"),
    ("layers.#.conv.in_proj", "blk.#.shortconv.in_proj"),
    ("layers.#.conv.conv", "blk.#.shortconv.conv"),
    ("layers.#.conv.out_proj", "blk.#.shortconv.out_proj"),
];

/// Experts one by one or all together, their router, and the correction of its scores.
const EXPERT_NAMES: NameTable = &[
    ("layers.#.feed_forward.gate", "blk.#.ffn_gate_inp"),
    ("layers.#.feed_forward.expert_bias", "blk.#.exp_probs_b.bias"),
    ("layers.#.feed_forward.experts.#.w1", "blk.#.ffn_gate.#"),
    ("layers.#.feed_forward.experts.#.w2", "blk.#.ffn_down.#"),
    ("layers.#.feed_forward.experts.#.w3", "blk.#.ffn_up.#"),
    ("layers.#.feed_forward.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"),
    ("layers.#.feed_forward.experts.down_proj", "blk.#.ffn_down_exps"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("block_ff_dim", "intermediate_size");
    keys.add(json!({
        "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
        "intermediate_size": 12288,
    }));
    if keys.is(true, "block_auto_adjust_ff_dim") {
        let width =
            adjusted_width(keys).ok_or("the width of the feed-forward block is not a whole number")?;
        keys.set("intermediate_size", width);
    }
    kinds_of_layers(keys)
}

fn complete_moe(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 1792,
        "intermediate_size": 7168,
    }));
    keys.set("scoring_func", "sigmoid");
    keys.rename("num_dense_layers", "first_k_dense_replace");
    kinds_of_layers(keys)
}

/// The width of the block that has as many weights as a plain one four times as wide as the model.
fn adjusted_width(keys: &ConfigKeys) -> Option<usize> {
    let width = keys.count("intermediate_size")? as f64 * 2.0 / 3.0;
    let Some(factor) = keys.number("block_ffn_dim_multiplier") else { return Some(width as usize) };
    let step = keys.count("block_multiple_of").filter(|&step| step > 0)?;
    ((factor * width.floor()) as usize).checked_next_multiple_of(step)
}

/// Completes the keys that dense and sparse models share.
fn kinds_of_layers(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "norm_eps": 1e-5, "num_key_value_heads": 8, "conv_L_cache": 3, "max_position_embeddings": 128_000,
        "rope_theta": 1e6, "tie_word_embeddings": true,
    }));
    keys.rename("tie_embedding", "tie_word_embeddings");
    keys.rename("conv_L_cache", "short_convolution");
    if keys.has("layer_types") {
        return keys.split_layer_kinds("layer_types", &["conv"]);
    }
    keys.list_layers("recurrent_layers", |keys, layer| {
        keys.list("full_attn_idxs").is_some_and(|list| !list.contains(&layer.into()))
    });
    Ok(())
}

/// Filters are matrices, or have an axis of size 1 between their own.
fn convolutions(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    (0..config.layers).for_each(|layer| layout.flatten(&format!("blk.{layer}.shortconv.conv.weight")));
    Ok(())
}

pub(super) fn lfm2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    let norm = Norm::Rms { eps: config.norm_eps };
    decoder.attentions_mut().for_each(|attention| attention.qk_norm = Some(QkNorm::PerHead(norm)));
    if let Some(width) = config.short_convolution {
        for (index, layer) in
            decoder.layers.iter_mut().enumerate().filter(|&(index, _)| config.lists.is_recurrent(index))
        {
            let bias = weights.dtype(&format!("blk.{index}.shortconv.conv.bias")).is_some();
            layer.mixer = Mixer::ShortConvolution(ShortConvolution { width, bias });
        }
    }
    decoder
}
