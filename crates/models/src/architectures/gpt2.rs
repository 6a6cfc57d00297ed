//! GPT-2: learned positions, layer norms, plain blocks with biases, and matrices that lie transposed.

use graph::ops::Unary;
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama, with_norm, with_plain_channels};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Activation, Config, Decoder, Error, Norm, Rope, WeightTypes};

/// GPT-2, and the models of its shape that other makers trained.
pub(crate) const GPT2: Architecture = Architecture {
    hugging_face: "GPT2LMHeadModel",
    examples: &["openai-community/gpt2"],
    gguf: Some("gpt2"),
    model_type: "gpt2",
    keys: &[
        "activation_function",
        "layer_norm_epsilon",
        "n_embd",
        "n_head",
        "n_inner",
        "n_layer",
        "n_positions",
        "scale_attn_by_inverse_layer_idx",
        "scale_attn_weights",
    ],
    complete,
    gguf_quirks,
    names: &[NAMES],
    layout,
    decoder: gpt2,
    ..LLAMA
};

const NAMES: NameTable = &[
    ("wte", "token_embd"),
    ("wpe", "position_embd"),
    ("ln_f", "output_norm"),
    ("lm_head", "output"),
    ("h.#.ln_1", "blk.#.attn_norm"),
    ("h.#.attn.c_attn", "blk.#.attn_qkv"),
    ("h.#.attn.c_proj", "blk.#.attn_output"),
    ("h.#.ln_2", "blk.#.ffn_norm"),
    ("h.#.mlp.c_fc", "blk.#.ffn_up"),
    ("h.#.mlp.c_proj", "blk.#.ffn_down"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    // A key by this name means nothing.
    keys.remove("intermediate_size");
    for (own, shared) in [
        ("n_embd", "hidden_size"),
        ("n_head", "num_attention_heads"),
        ("n_layer", "num_hidden_layers"),
        ("n_positions", "max_position_embeddings"),
        ("n_inner", "intermediate_size"),
        ("activation_function", "hidden_act"),
        ("layer_norm_epsilon", "norm_eps"),
    ] {
        keys.rename(own, shared);
    }
    keys.add(json!({
        "vocab_size": 50257, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "max_position_embeddings": 1024, "norm_eps": 1e-5, "tie_word_embeddings": true,
        // No position is rotated.
        "partial_rotary_factor": 0.0,
    }));
    let inner = keys.count("hidden_size").unwrap_or(0).saturating_mul(4);
    if !keys.has("intermediate_size") {
        keys.set("intermediate_size", inner);
    }
    if keys.is(false, "scale_attn_weights") {
        keys.set("attention_multiplier", 1.0);
    }
    Ok(())
}

fn gguf_quirks(_: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.rope.dims = 0;
    // llama.cpp scales the scores of a GPT-2 as usual, whatever the file says.
    config.multipliers.attention = None;
    Ok(())
}

/// Matrices are stored as `[columns, rows]`.
fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        for stem in ["attn_qkv", "attn_output", "ffn_up", "ffn_down"] {
            layout.transpose(&format!("blk.{layer}.{stem}.weight"));
        }
    }
    Ok(())
}

fn gpt2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let decoder = with_norm(llama(config, ropes, weights), Norm::layer(config.norm_eps));
    let mut decoder = with_plain_channels(decoder, config, Activation::Unary(Unary::GeluTanh), weights);
    if config.attention.scores_fall {
        for (index, attention) in decoder.attentions_mut().enumerate() {
            attention.scale /= (index + 1) as f32;
        }
    }
    Decoder { learned_positions: Some(config.context_length), ..decoder }
}
