//! Falcon: plain blocks that both read what the layer reads, one key and value head for all or for a few query heads.

use graph::ops::{RopeStyle, Unary};
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama, with_norm, with_plain_channels};
use crate::config::ConfigKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Activation, Alibi, Config, Decoder, Error, Norm, Norms, Rope, WeightTypes};

/// Falcon RW, 7B, 40B, 180B and Falcon 2.
pub(crate) const FALCON: Architecture = Architecture {
    hugging_face: "FalconForCausalLM",
    examples: &["tiiuae/falcon-7b-instruct"],
    gguf: Some("falcon"),
    model_type: "falcon",
    keys: &[
        "activation",
        "alibi",
        "ffn_hidden_size",
        "layer_norm_epsilon",
        "multi_query",
        "n_embed",
        "new_decoder_architecture",
        "num_kv_heads",
        "parallel_attn",
    ],
    complete,
    names: &[NAMES],
    layout,
    gguf_names,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: falcon,
    ..LLAMA
};

const NAMES: NameTable = &[
    ("word_embeddings", "token_embd"),
    ("ln_f", "output_norm"),
    ("lm_head", "output"),
    ("h.#.input_layernorm", "blk.#.attn_norm"),
    ("h.#.ln_attn", "blk.#.attn_norm"),
    ("h.#.self_attention.query_key_value", "blk.#.attn_qkv"),
    ("h.#.self_attention.dense", "blk.#.attn_output"),
    ("h.#.post_attention_layernorm", "blk.#.ffn_norm"),
    ("h.#.ln_mlp", "blk.#.ffn_norm"),
    ("h.#.mlp.dense_h_to_4h", "blk.#.ffn_up"),
    ("h.#.mlp.dense_4h_to_h", "blk.#.ffn_down"),
];

/// Of two norms, that of the feed-forward block has the name that the only one has otherwise.
fn gguf_names(has: &dyn Fn(&str) -> bool) -> NameTable {
    if has("blk.0.attn_norm_2.weight") || has("blk.0.ffn_norm.weight") {
        &[("blk.#.attn_norm_2", "blk.#.attn_norm"), ("blk.#.attn_norm", "blk.#.ffn_norm")]
    } else {
        &[]
    }
}

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    if keys.is(true, "alibi") {
        keys.remove("rope_parameters");
        keys.set("partial_rotary_factor", 0.0);
    }
    let newer = keys.is(true, "new_decoder_architecture");
    if !newer && !keys.is(false, "multi_query") {
        keys.set("num_kv_heads", 1);
    }
    if newer {
        keys.set("parallel_attn", true);
    }
    // A key by this name means nothing.
    keys.remove("intermediate_size");
    for (own, shared) in [
        ("n_embed", "hidden_size"),
        ("num_kv_heads", "num_key_value_heads"),
        ("parallel_attn", "use_parallel_residual"),
        ("ffn_hidden_size", "intermediate_size"),
        ("activation", "hidden_act"),
        ("layer_norm_epsilon", "norm_eps"),
    ] {
        keys.rename(own, shared);
    }
    keys.add(json!({
        "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "norm_eps": 1e-5, "use_parallel_residual": true, "tie_word_embeddings": true,
    }));
    let inner = keys.count("hidden_size").unwrap_or(0).saturating_mul(4);
    if !keys.has("intermediate_size") {
        keys.set("intermediate_size", inner);
    }
    Ok(())
}

fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    layout.split_grouped_attention(config)
}

fn falcon(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let norm = Norm::layer(config.norm_eps);
    let decoder = with_norm(llama(config, ropes, weights), norm);
    let mut decoder = with_plain_channels(decoder, config, Activation::Unary(Unary::Gelu), weights);
    decoder.alibi = config.attention.alibi.then(|| Alibi {
        heads: config.attention.heads,
        positions: config.context_length,
        // Falcon scales biases together with scores: it divides both by sqrt(head_dim).
        scale: 1.0 / (config.attention.head_dim as f32).sqrt(),
    });
    let shared = weights.dtype("blk.0.ffn_norm.weight").is_none();
    for layer in &mut decoder.layers {
        layer.residual.parallel = config.parallel_residual.unwrap_or(true);
        if shared {
            layer.norms = Norms::Shared(norm);
        }
    }
    decoder
}
