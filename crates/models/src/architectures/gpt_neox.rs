//! GPT-NeoX: layer norms, plain blocks that both read what the layer reads, and positions that turn a part of each head.

use graph::ops::{RopeStyle, Unary};
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama, with_norm, with_plain_channels};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Activation, Config, Decoder, Error, Norm, Rope, WeightTypes};

/// GPT-NeoX, Pythia, and others of the shape.
pub(crate) const GPT_NEOX: Architecture = Architecture {
    hugging_face: "GPTNeoXForCausalLM",
    examples: &["EleutherAI/pythia-160m"],
    gguf: Some("gptneox"),
    model_type: "gpt_neox",
    keys: &[
        "attention_bias",
        "hidden_act",
        "layer_norm_eps",
        "rope_parameters.partial_rotary_factor",
        "rotary_emb_base",
        "rotary_pct",
        "use_parallel_residual",
    ],
    complete,
    gguf_quirks,
    names: &[NAMES],
    layout,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: gpt_neox,
    ..LLAMA
};

const NAMES: NameTable = &[
    ("embed_in", "token_embd"),
    ("final_layer_norm", "output_norm"),
    ("embed_out", "output"),
    ("lm_head", "output"),
    ("layers.#.input_layernorm", "blk.#.attn_norm"),
    ("layers.#.attention.query_key_value", "blk.#.attn_qkv"),
    ("layers.#.attention.dense", "blk.#.attn_output"),
    ("layers.#.post_attention_layernorm", "blk.#.ffn_norm"),
    ("layers.#.mlp.dense_h_to_4h", "blk.#.ffn_up"),
    ("layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("layer_norm_eps", "norm_eps");
    keys.rename("rotary_emb_base", "rope_theta");
    keys.rename("rotary_pct", "partial_rotary_factor");
    keys.add(json!({
        "norm_eps": 1e-5, "hidden_act": "gelu", "partial_rotary_factor": 0.25, "use_parallel_residual": true,
    }));
    Ok(())
}

/// Whether both blocks of a layer read the same.
pub(super) fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.parallel_residual = keys.optional("use_parallel_residual")?;
    Ok(())
}

fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    layout.split_grouped_attention(config)
}

fn gpt_neox(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let decoder = with_norm(llama(config, ropes, weights), Norm::layer(config.norm_eps));
    with_plain_channels(decoder, config, Activation::Unary(Unary::Gelu), weights)
}
