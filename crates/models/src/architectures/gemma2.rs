//! Gemma 2: Gemma with norms around its blocks, capped scores and logits, and a window in every other layer.

use serde_json::json;

use super::Architecture;
use super::gemma::{GEMMA, gemma};
use super::llama::windowed;
use super::llama::{NAMES, rms_norm};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::names::NameTable;
use crate::{Config, Decoder, Error, Norm, Norms, Rope, WeightTypes};

/// Gemma 2.
pub(crate) const GEMMA2: Architecture = Architecture {
    hugging_face: "Gemma2ForCausalLM",
    examples: &["google/gemma-2-2b-it"],
    gguf: Some("gemma2"),
    model_type: "gemma2",
    keys: &[
        "attention_bias",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "head_dim",
        "hidden_activation",
        "layer_types",
        "num_key_value_heads",
        "query_pre_attn_scalar",
        "rms_norm_eps",
        "sliding_window",
    ],
    complete,
    gguf_quirks,
    names: &[SANDWICH_NAMES, NAMES],
    decoder: gemma2,
    ..GEMMA
};

/// Of norms, where there is one behind each block.
pub(super) const SANDWICH_NAMES: NameTable = &[
    ("layers.#.post_attention_layernorm", "blk.#.post_attention_norm"),
    ("layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"),
    ("layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("hidden_activation", "hidden_act");
    keys.add(json!({
        "head_dim": 256, "max_position_embeddings": 8192, "sliding_window": 4096, "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "tie_word_embeddings": true,
    }));
    rms_norm(keys)
}

/// The first files leave out what other families had no need of.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    if keys.optional::<usize>("attention.sliding_window")?.is_none() {
        config.attention.window = Some(4096);
    }
    config.attention.softcap.get_or_insert(50.0);
    config.logit_softcap.get_or_insert(30.0);
    Ok(())
}

fn gemma2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    windowed(sandwiched(config, ropes, weights), config, |index| index % 2 == 0)
}

/// Gemma with norms around its blocks.
pub(super) fn sandwiched(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = gemma(config, ropes, weights);
    let norm = Norm::Rms { eps: config.norm_eps };
    decoder.layers.iter_mut().for_each(|layer| layer.norms = Norms::sandwich(norm));
    decoder.attentions_mut().for_each(|attention| attention.scale = score_scale(config));
    decoder
}

/// The factor on scores. GGUF files leave it out, so that the largest models, whose factor is not that of their head
/// size, are known by their number of layers.
fn score_scale(config: &Config) -> f32 {
    let largest = matches!((config.architecture.as_str(), config.layers), ("gemma2", 46) | ("gemma3", 62));
    let size = if largest { config.hidden / config.attention.heads } else { config.attention.head_dim };
    config.multipliers.attention.unwrap_or(1.0 / (size as f32).sqrt())
}
