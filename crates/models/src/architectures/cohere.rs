//! Command R: Llama whose blocks read one layer norm without bias, with scaled logits, and pairs of neighbouring dims that
//! turn. Command R7B: the same with a window in three layers of four; the fourth has no positions.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::llama::windowed;
use super::llama::{LLAMA, NAMES, llama};
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::layout::Layout;
use crate::{Config, Decoder, Error, Norm, Norms, QkNorm, Residual, Rope, WeightTypes};

/// Command R, Command R+ and Aya.
pub(crate) const COHERE: Architecture = Architecture {
    hugging_face: "CohereForCausalLM",
    examples: &["CohereLabs/c4ai-command-r-v01", "CohereLabs/aya-23-8B"],
    gguf: Some("command-r"),
    model_type: "cohere",
    keys: &[
        "attention_bias",
        "head_dim",
        "hidden_act",
        "layer_norm_eps",
        "logit_scale",
        "num_key_value_heads",
    ],
    complete,
    names: &[QK_NORM_NAMES, NAMES],
    layout: flatten_norms,
    gguf_layout: flatten_norms,
    rope: RopeStyle::Interleaved,
    decoder: cohere,
    ..LLAMA
};

/// Command R7B and Command A.
pub(crate) const COHERE2: Architecture = Architecture {
    hugging_face: "Cohere2ForCausalLM",
    examples: &["CohereLabs/c4ai-command-r7b-12-2024"],
    gguf: Some("cohere2"),
    model_type: "cohere2",
    keys: &[
        "attention_bias",
        "hidden_act",
        "layer_norm_eps",
        "layer_types",
        "logit_scale",
        "num_key_value_heads",
        "sliding_window",
        "sliding_window_pattern",
    ],
    complete: complete_cohere2,
    decoder: cohere2,
    ..COHERE
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "rope_theta": 5e5 }));
    complete_both(keys)
}

fn complete_cohere2(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "sliding_window": 4096, "sliding_window_pattern": 4 }));
    complete_both(keys)
}

fn complete_both(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("layer_norm_eps", "norm_eps");
    keys.add(json!({
        "vocab_size": 256_000, "norm_eps": 1e-5, "logit_scale": 0.0625, "max_position_embeddings": 8192,
        "tie_word_embeddings": true,
    }));
    Ok(())
}

/// The weights of norms of queries and keys are stored as `[heads, head_dim]`.
pub(super) fn flatten_norms(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        layout.flatten(&format!("blk.{layer}.attn_q_norm.weight"));
        layout.flatten(&format!("blk.{layer}.attn_k_norm.weight"));
    }
    Ok(())
}

pub(super) fn cohere(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let (eps, mut decoder) = (config.norm_eps, llama(config, ropes, weights));
    let norm = Norm::Layer { eps, weight: true, bias: false };
    for layer in &mut decoder.layers {
        layer.norms = Norms::Shared(norm);
        layer.residual = Residual { parallel: true, scale: 1.0 };
    }
    if weights.dtype("blk.0.attn_q_norm.weight").is_some() {
        decoder.attentions_mut().for_each(|attention| attention.qk_norm = Some(QkNorm::EachHead { eps }));
    }
    Decoder { norm, logit_scale: config.multipliers.logits, ..decoder }
}

fn cohere2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = windowed(cohere(config, ropes, weights), config, |index| index % 4 != 3);
    for attention in decoder.attentions_mut().filter(|attention| attention.window.is_none()) {
        attention.rope = None;
    }
    decoder
}
