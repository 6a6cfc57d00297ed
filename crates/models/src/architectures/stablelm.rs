//! StableLM: Llama with layer norms and positions that turn a part of each head; in some models with norms of each head's
//! own, and blocks that read one norm.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::gpt_neox;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama, with_norm};
use crate::config::ConfigKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Config, Decoder, Error, Norm, Norms, QkNorm, Rope, WeightTypes};

/// StableLM 2 and 3B.
pub(crate) const STABLELM: Architecture = Architecture {
    hugging_face: "StableLmForCausalLM",
    examples: &["stabilityai/stablelm-2-1_6b"],
    gguf: Some("stablelm"),
    model_type: "stablelm",
    keys: &[
        "hidden_act",
        "layer_norm_eps",
        "num_key_value_heads",
        "partial_rotary_factor",
        "use_parallel_residual",
        "use_qkv_bias",
    ],
    complete,
    gguf_quirks: gpt_neox::gguf_quirks,
    names: &[NAMES, LLAMA_NAMES],
    layout,
    gguf_layout: super::cohere::flatten_norms,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: stablelm,
    ..LLAMA
};

const NAMES: NameTable = &[
    ("layers.#.self_attn.q_layernorm.norms.#", "blk.#.attn_q_norm.#"),
    ("layers.#.self_attn.k_layernorm.norms.#", "blk.#.attn_k_norm.#"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("layer_norm_eps", "norm_eps");
    keys.add(json!({ "norm_eps": 1e-5, "max_position_embeddings": 4096, "partial_rotary_factor": 0.25 }));
    Ok(())
}

/// The norm of each head is a tensor by itself.
fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        for (stem, heads) in
            [("attn_q_norm", config.attention.heads), ("attn_k_norm", config.attention.kv_heads)]
        {
            layout.stack(&format!("blk.{layer}.{stem}"), heads, &format!("blk.{layer}.{stem}.weight"))?;
            layout.flatten(&format!("blk.{layer}.{stem}.weight"));
        }
    }
    Ok(())
}

fn stablelm(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let norm = Norm::layer(config.norm_eps);
    let mut decoder = with_norm(llama(config, ropes, weights), norm);
    // GGUF files say only by this that blocks are parallel.
    let shared = weights.dtype("blk.0.ffn_norm.weight").is_none();
    for layer in decoder.layers.iter_mut().filter(|_| shared) {
        layer.norms = Norms::Shared(norm);
        layer.residual.parallel = true;
    }
    if weights.dtype("blk.0.attn_q_norm.weight").is_some() {
        let qk_norm = Some(QkNorm::EachHead { eps: config.norm_eps });
        decoder.attentions_mut().for_each(|attention| attention.qk_norm = qk_norm);
    }
    decoder
}
